"""Compare pretraining with albertkit and with a `transformers` loop: speed, memory and data-parallel steps.

    python benchmarks/pretraining.py [--texts FILE] [--tokenizer FOLDER] [--precision fp32|bf16]
                                     [--only mini base large gpu] [--runs 3] [--quick] [--json]

Both sides train on the same text with the same shape, precision and batch size (rows x padded length). Each
side runs in separate processes, in turn; pretraining_loops.py has the two loops. There are four parts:

* mini: the shape of the recipe mini.
* base: ALBERT-base, sequences of 128 tokens.
* large: ALBERT-large against BERT-large, in one process and in two processes that exchange gradients (gloo).
* gpu: ALBERT-base and ALBERT-large in bf16, sequences of 512 tokens, on a GPU.

Without --texts, the text is Python's language reference, which is part of every Python installation. The time
of a step depends on the size of the vocabulary, so smaller vocabularies are extended to 30,000 pieces with
unused pieces. By default, only the part mini runs, which takes a few minutes; all parts take about an hour.
--quick runs the parts with tiny shapes to check that they work; its figures mean nothing.
"""

import json
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch
import transformers
from report import Figure, alternate, command_line, compare, show, state

from albertkit.config import AlbertConfig
from albertkit.hub import resolve
from albertkit.modeling.model import AlbertModel
from albertkit.pretraining.batches import ExampleStream, PretrainingBatch
from albertkit.pretraining.corpus import Corpus
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.recipe import read_recipe
from albertkit.tokenization.model_file import load_processor
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.throughput import computes_in_bf16

LOOPS = Path(__file__).with_name("pretraining_loops.py")
PIECES = 30_000
MAX_CHARACTERS = 8_000_000
PARTS = ("mini", "base", "large", "gpu")
QUICK_SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
FIGURES = ("tokens_per_second", "steps_per_second", "megabytes", "mfu")

Recipe = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """The settings of all measurements."""

    folder: Path
    """The folder with `tokenizer/` and `shards/`."""
    runs: int
    quick: bool
    as_json: bool

    def measure(
        self,
        recipe: Recipe,
        *,
        steps: int,
        warm_up: int,
        device: str = "cpu",
        processes: int = 1,
        bert: bool = False,
    ) -> list[dict[str, float]]:
        """Return the figures of both sides, ours first: medians of alternating runs."""
        if self.quick:
            steps, warm_up = 2, 1
            recipe = recipe | {"model": recipe["model"] | QUICK_SHAPE}
        total = warm_up + steps
        short = {"steps": total, "warmup_steps": 1, "decay_steps": 0, "log_every": 1, "save_every": total}
        recipe = recipe | {"training": recipe["training"] | short}
        case = {
            "recipe": recipe,
            "warm_up": warm_up,
            "device": device,
            "bert": bert,
            "shards": str(self.folder / "shards"),
            "tokenizer": str(self.folder / "tokenizer"),
            "vocabulary_size": PIECES,
            "batches": str(self.folder / "batches.npz"),
        }
        (self.folder / "case.json").write_text(json.dumps(case))
        self._write_their_batches(recipe, total)
        medians = alternate(
            self.runs,
            lambda: self._run("albertkit", processes),
            lambda: self._run("transformers", processes),
            warm_up=False,  # every run is a new process with its own warm-up
        )
        return [dict(zip(FIGURES, figures, strict=True)) for figures in medians]

    def _write_their_batches(self, recipe: Recipe, count: int) -> None:
        """Write the batches for transformers: examples drawn as ours, in batches of equally many rows."""
        settings = ExampleSettings(**recipe["examples"])
        rows = recipe.get("batch_size") or recipe["batch_tokens"] // settings.max_seq_length
        words = WordTable(self.folder / "tokenizer/spiece.model")
        stream = ExampleStream(ShardSet(self.folder / "shards/train"), words, settings, rows)
        arrays = {
            f"{index}.{name}": array
            for index, batch in zip(range(count), stream, strict=False)
            for name, array in _forward_arguments(batch).items()
        }
        np.savez(self.folder / "batches.npz", allow_pickle=False, **arrays)

    def _run(self, side: str, processes: int) -> list[float]:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        with tempfile.TemporaryDirectory() as output:
            command = [*(launcher if processes > 1 else []), LOOPS, side, self.folder / "case.json", output]
            result = subprocess.run(
                [sys.executable, *map(str, command)], capture_output=True, text=True, check=False
            )
        if result.returncode:
            raise SystemExit(f"{side} failed:\n{result.stderr}")
        figures = json.loads(result.stdout.splitlines()[-1])
        return [figures.get(name, 0.0) for name in FIGURES]

    def show(self, title: str, figures: list[Figure], *, against: str = "transformers") -> None:
        """Print the figures."""
        show(title, figures, against=against, as_json=self.as_json)


def _forward_arguments(batch: PretrainingBatch) -> dict[str, np.ndarray]:
    return {
        "input_ids": batch.input_ids.astype(np.int64),
        "attention_mask": batch.attention_mask.astype(np.int64),
        "token_type_ids": batch.token_type_ids.astype(np.int64),
        "labels": batch.masked_labels.astype(np.int64),
        "sentence_order_label": batch.order_labels.astype(np.int64),
    }


def write_tokenizer(name: str, folder: Path) -> None:
    """Write a tokenizer with 30,000 pieces; a smaller vocabulary is extended with unused pieces."""
    source = resolve(name, patterns=("spiece.model",)) / "spiece.model"
    model = source.read_bytes()
    size = load_processor(model, source=source).GetPieceSize()
    if size > PIECES:
        raise SystemExit(f"{name} has {size} pieces, more than {PIECES}")
    # Appended bytes extend the repeated field of a protocol buffer: entries of (piece, score, type "unused").
    for index in range(size, PIECES):
        piece = f"<unused-{index}>".encode()
        entry = b"\x0a" + bytes([len(piece)]) + piece + b"\x15" + struct.pack("<f", 0.0) + b"\x18\x05"
        model += b"\x0a" + bytes([len(entry)]) + entry
    (folder / "spiece.model").write_bytes(model)
    AlbertTokenizer(folder / "spiece.model").save_pretrained(folder)


def write_shards(texts: str | None, folder: Path) -> None:
    """Write shards of at most 8 MB of text."""
    documents: Iterator[str] = (
        (document.text for document in Corpus([texts])) if texts else iter(topics.values())
    )
    characters = 0
    with (folder / "texts.jsonl").open("w") as file:
        for document in documents:
            text = document[: MAX_CHARACTERS - characters]
            file.write(json.dumps({"text": text}) + "\n")
            characters += len(text)
            if characters == MAX_CHARACTERS:
                break
    prepare([folder / "texts.jsonl"], folder / "tokenizer", folder / "shards", workers=1)


def recipe_of(name: str, precision: str, *, examples: dict[str, Any], **batch: int) -> Recipe:
    """Read a recipe, and override its precision, its settings of examples and its batch size."""
    recipe = read_recipe(Path(name))
    for key in ("batch_size", "batch_tokens"):
        recipe.pop(key, None)
    training = recipe["training"] | {"precision": precision, "accumulation": 1}
    return recipe | {"training": training, "examples": recipe["examples"] | examples, **batch}


def of_length(length: int) -> dict[str, int]:
    """Return the settings for sequences of this length, with the paper's ratio of predictions to tokens."""
    return {"max_seq_length": length, "max_predictions": round(20 * length / 128)}


def mini(bench: Bench, precision: str) -> None:
    """Measure the mini shape."""
    # The recipe uses short sequences only in the first minutes of a run. Both sides use AdamW.
    examples = {"warmup_documents": 0, "masked_lm_probability": 0.2, "max_predictions": 26}
    recipe = recipe_of("mini", precision, examples=examples, batch_tokens=2048)
    recipe["training"] |= {"optimizer": "adamw", "learning_rate": 6e-4, "adamw_learning_rate": None}
    ours, theirs = bench.measure(recipe, steps=60, warm_up=10)
    bench.show(f"pretraining, mini shape, {PIECES} pieces", _single(f"mini, {precision}", ours, theirs, 2.5))


def base(bench: Bench, precision: str) -> None:
    """Measure ALBERT-base at length 128."""
    recipe = recipe_of("paper/albert-base-v2", precision, examples=of_length(128), batch_tokens=1024)
    ours, theirs = bench.measure(recipe, steps=8, warm_up=2)
    bench.show("pretraining, ALBERT-base, length 128", _single(f"base, {precision}", ours, theirs, 1.3))


def _single(name: str, ours: dict[str, float], theirs: dict[str, float], target: float) -> list[Figure]:
    tokens = "tokens_per_second"
    return [
        compare(f"{name}: real text (tokens/s)", ours[tokens], theirs[tokens], at_least=target),
        compare(f"{name}: peak memory (MB)", ours["megabytes"], theirs["megabytes"], at_most=0.6),
    ]


def large(bench: Bench, precision: str) -> None:
    """Measure ALBERT-large against BERT-large; the processes exchange the gradients of all parameters."""
    figures: list[Figure] = []
    for processes, length in ((2, 64), (2, 128), (1, 128)):
        recipe = recipe_of("paper/albert-large-v1", precision, examples=of_length(length), batch_size=4)
        ours, theirs = bench.measure(recipe, steps=3, warm_up=1, processes=processes, bert=True)
        name = (
            f"large, {precision}, 4 x {length} tokens, {processes} process{'es' * (processes > 1)} (steps/s)"
        )
        speeds = ours["steps_per_second"], theirs["steps_per_second"]
        figures.append(compare(name, *speeds, at_least=1.7) if processes > 1 else state(name, *speeds))
    bench.show("pretraining, ALBERT-large against BERT-large", figures, against="BERT-large")


def gpu(bench: Bench) -> None:
    """Measure ALBERT-base and ALBERT-large in bf16 at length 512 on a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not bench.quick:
        raise SystemExit("the part gpu needs a GPU, but torch finds none; --quick runs it on the CPU")
    tokens = "tokens_per_second"
    title = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    for shape, recipe_name, rows in (("base", "base-1gpu", 64), ("large", "paper/albert-large-v2", 32)):
        examples = of_length(512)
        recipe = recipe_of(
            recipe_name, "bf16", examples=examples, batch_tokens=(1 if bench.quick else rows) * 512
        )
        ours, theirs = bench.measure(recipe, steps=40, warm_up=10, device=device)
        figures = [
            compare(f"{shape}, bf16: real text (tokens/s)", ours[tokens], theirs[tokens], at_least=2.0),
            state(f"{shape}, bf16: peak memory (MB)", ours["megabytes"], theirs["megabytes"]),
        ]
        bench.show(f"pretraining, length 512, {title}", figures)
        name = f"{shape}, bf16: model FLOPs utilization"
        bench.show("share of the peak", [compare(name, ours["mfu"], 1.0, at_least=0.5)], against="peak")


def parameters() -> Figure:
    """Compare the number of parameters in the encoders of ALBERT-large and BERT-large."""
    bert = transformers.BertConfig(
        vocab_size=PIECES,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
    )
    with torch.device("meta"):
        ours = AlbertModel(AlbertConfig.preset("large", vocab_size=PIECES))
        theirs = transformers.BertModel(bert)
    millions = [sum(weight.numel() for weight in model.parameters()) / 1e6 for model in (ours, theirs)]
    return compare("large: parameters (millions)", *millions, at_most=round(1 / 18, 3))


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=3)
    parser.add_argument("--texts", help="corpus: a .txt, .jsonl or .parquet file")
    parser.add_argument("--tokenizer", default="bundled", help="folder or name of the tokenizer")
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="default: all that the CPU supports")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:1], help="parts to measure")
    parser.add_argument("--quick", action="store_true", help="use tiny shapes, to check that it works")
    arguments = parser.parse_args()
    precisions = ["fp32", "bf16"] if computes_in_bf16(torch.device("cpu")) else ["fp32"]
    by_precision: dict[str, Callable[[Bench, str], None]] = {"mini": mini, "base": base, "large": large}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer").mkdir()
        write_tokenizer(arguments.tokenizer, folder / "tokenizer")
        write_shards(arguments.texts, folder)
        bench = Bench(folder, 1 if arguments.quick else arguments.runs, arguments.quick, arguments.json)
        for part in (part for part in by_precision if part in arguments.only):
            for precision in [arguments.precision] if arguments.precision else precisions:
                by_precision[part](bench, precision)
        if "large" in arguments.only:
            bench.show("ALBERT-large and BERT-large", [parameters()], against="BERT-large")
        if "gpu" in arguments.only:
            gpu(bench)


if __name__ == "__main__":
    main()
