"""Settings of small pretraining runs, and their data: a corpus, a tokenizer and shards."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from json_lines import write_json_lines

from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.run import run_pretraining
from albertkit.pretraining.settings import ExampleSettings, PretrainingSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.settings import TrainingSettings
from albertkit.training.state import RunState

SIZES = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
SETTINGS = PretrainingSettings(
    batch_size=8,
    evaluation_sequences=32,
    frequency_bias=True,
    model=SIZES | {"hidden_dropout_prob": 0.1},
    examples=ExampleSettings(max_seq_length=64),
    training=TrainingSettings(
        steps=9, warmup_steps=2, save_every=3, evaluate_every=9, log_every=1, seed=3, precision="fp32"
    ),
)
RECIPE_SIZES = "[model]\n" + "".join(f"{name} = {value}\n" for name, value in SIZES.items())
"""The sizes as a table of a recipe."""


def short_recipe(*, steps: int) -> str:
    """Return a recipe for some steps with batches of 256 tokens."""
    return f"""
batch_tokens = 256
{RECIPE_SIZES}
[examples]
max_seq_length = 32
[training]
steps = {steps}
optimizer = "adamw"
learning_rate = 1e-3
precision = "fp32"
log_every = 1
"""


def write_corpus(folder: Path, texts: Iterable[str]) -> Path:
    """Write `corpus.jsonl`, in which each text is a document."""
    return write_json_lines(folder / "corpus.jsonl", ({"text": text} for text in texts))


def write_pretraining_data(folder: Path, texts: Iterable[str], vocabulary: Path, **settings: Any) -> Path:
    """Write the corpus, its tokenizer in `tokenizer/` and its shards in `shards/`. Return the folder."""
    AlbertTokenizer(vocabulary).save_pretrained(folder / "tokenizer")
    prepare(
        [write_corpus(folder, texts)], folder / "tokenizer", folder / "shards", **{"workers": 1} | settings
    )
    return folder


def run(data: Path, output: Path, settings: PretrainingSettings = SETTINGS) -> RunState:
    """Pretrain on the shards and with the tokenizer of a folder from `write_pretraining_data`."""
    return run_pretraining(settings, data / "shards", data / "tokenizer", output)


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Return the content of each file in a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
