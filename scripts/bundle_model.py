"""Make the bundled model from a finished pretraining run, and check it.

    python scripts/bundle_model.py RUN SHARDS [--after "description of the earlier runs"]

The script stores the weights in fp16, with `ACTIVATION`. It evaluates the stored model on held-out text,
together with the run's model and a unigram model, and writes the metrics into the model card. It fails if
the stored model's loss is higher by more than `MAX_ROUNDING_LOSS` or if the folder is too large. It
replaces only a bundled model: any other folder at `--output` is an error.

SHARDS has the folders `train`, `books` and `modern` that `scripts/carry.py` makes.
"""

import argparse
import shutil
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import torch
from pages import command_line

from albertkit import AlbertForPreTraining, AlbertTokenizer
from albertkit.config import IGNORED_LABEL
from albertkit.files import contents
from albertkit.pretraining.batches import PretrainingBatch, fixed_batches
from albertkit.pretraining.loss import PretrainingObjective
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.recipe import build, read_recipe
from albertkit.training.checkpoints import written_folder
from albertkit.training.progress import plot_curves, read_metrics

MAX_BYTES = 12_000_000
MAX_ROUNDING_LOSS = 0.005  # maximum increase of the loss through fp16 and `ACTIVATION`, in nats
ACTIVATION = "gelu_new"
"""The runs compute `gelu`, which is faster. The formats of Google and Julia have only this approximation."""
SEQUENCES, LENGTH, MASKED = 2048, 128, 0.2
"""The evaluation of every edition: number of sequences, their maximum length, share of masked tokens."""

BUNDLED = Path("src/albertkit/assets/bundled")
SENTENCES = BUNDLED.with_name("bundled-sentences") / "README.md"  # its card lists the same sources
TITLE = "# The bundled ALBERT"

CARD = """\
---
license: apache-2.0
language: en
library_name: albertkit
pipeline_tag: fill-mask
---

{title}

A small ALBERT, pretrained with the commands of albertkit. It is part of the package:
`pipeline("fill-mask")` uses it, and so do `fill-mask`, `order`, `finetune` and
`inspect attention` without `--model`.

| | |
|---|---|
| shape | hidden size {hidden_size}, {num_hidden_layers} layers ({sets}), \
{num_attention_heads} heads, intermediate size {intermediate_size}, embedding size {embedding_size} |
| vocabulary | {vocab_size:,} SentencePiece pieces, lowercase, trained on the same texts, \
including the held-out ones |
| parameters | {parameters:,}, stored in fp16 |
| sequences | up to {positions} tokens; fill-mask reads a window around the mask in longer texts |
| data | 713 English books in the public domain, mostly of the 18th to early 20th century, and modern \
documents of open sources (list below), together {training_tokens:,} tokens; every 40th text was held out |
| training | {after}{tokens:,} tokens ({epochs:.2f} epochs) in {steps:,} steps, \
{hours:.1f} hours on {machine} |

`dev/bundled-model.md` in the repository has the recipe and the commands.

## Figures

On {sequences:,} sequences of up to {length} tokens from held-out texts, with {masked:.0%} of the tokens \
masked as whole words. A unigram model knows only how frequent each piece is.

| | books | unigram model | modern documents | unigram model |
|---|---|---|---|---|
{figures}

`python scripts/bundle_model.py RUN SHARDS` measured these figures. `docs/explanation/bundled-model.md` in the
repository has the metrics after fine-tuning, and results for words that need grammar, sense or facts.

## Limits

The model was trained on very little text and is far less accurate than the published ALBERT models. It knows
some grammar and few facts. It repeats the views of its texts about people. Most of the books are of the 18th
to early 20th century, and so are their views. It reads English, and lowercases its input. Before
the period at the end of a sentence, it often predicts a second period. Use it to try the library, to test
code, and as the start of small models for your own tasks.

{sources}
"""


def unigram_baseline(shards: ShardSet, batches: list[PretrainingBatch]) -> tuple[float, float]:
    """Return the loss and accuracy of a unigram model of the training text on the same masked tokens."""
    frequencies = shards.piece_frequencies()
    labels = np.concatenate([batch.masked_labels.ravel() for batch in batches])
    labels = labels[labels != IGNORED_LABEL]
    return float(-np.log(frequencies[labels]).mean()), float((labels == frequencies.argmax()).mean())


def main() -> None:
    """Bundle a run."""
    parser = command_line(__doc__)
    parser.add_argument("run", type=Path, help="folder of the finished run")
    parser.add_argument("shards", type=Path, help="folder of the shards of the run")
    parser.add_argument("--recipe", type=Path, default=Path("bundled"))
    parser.add_argument("--after", default="", help="description of the earlier runs, for the card")
    parser.add_argument("--machine", default="two CPU cores", help="hardware of the run, for the card")
    parser.add_argument("--output", type=Path, default=BUNDLED)
    arguments = parser.parse_args()
    check_output(arguments.output)
    with written_folder(arguments.output) as output:  # the old model stays if the new one fails a check
        bundle(arguments, output)
    if arguments.output == BUNDLED:
        shutil.copy(plot_curves(arguments.run), "docs/explanation/bundled-model.png")


def check_output(output: Path) -> None:
    """Exit with an error unless `output` is missing, empty or a bundled model."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    card = output / "README.md"
    if not (card.is_file() and TITLE in card.read_text(encoding="utf-8").splitlines()):
        problem = contents(output) if output.is_dir() else "is a file"
        raise SystemExit(f"{output} {problem}, and is not a bundled model. Choose another --output.")


def bundle(arguments: argparse.Namespace, output: Path) -> None:
    """Write the model into the folder `output`, and check it."""
    tokenizer = AlbertTokenizer.from_pretrained(arguments.run)
    exact = AlbertForPreTraining.from_pretrained(arguments.run)
    recipe = build(PretrainingSettings, read_recipe(arguments.recipe), where=str(arguments.recipe))
    settings = recipe.examples
    model = AlbertForPreTraining.from_pretrained(arguments.run, dtype=torch.float16, hidden_act=ACTIVATION)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    rounded = AlbertForPreTraining.from_pretrained(output)

    train = ShardSet(arguments.shards / "train")
    words = WordTable(arguments.run / "spiece.model")
    length = min(LENGTH, settings.max_seq_length)
    measured = replace(
        settings, max_seq_length=length, masked_lm_probability=MASKED, max_predictions=ceil(MASKED * length)
    )
    objective = PretrainingObjective(recipe)
    columns: list[list[str]] = []
    for name in ("books", "modern"):
        batches = fixed_batches(ShardSet(arguments.shards / name), words, measured, 64, limit=SEQUENCES)
        with torch.no_grad():
            before = objective.evaluate(exact.eval(), batches)
            metrics = objective.evaluate(rounded.eval(), batches)
        if metrics["masked_loss"] > before["masked_loss"] + MAX_ROUNDING_LOSS:
            raise SystemExit(
                f"the held-out loss of the stored model is {metrics['masked_loss']}, expected at most "
                f"{before['masked_loss'] + MAX_ROUNDING_LOSS}"
            )
        unigram_loss, unigram_accuracy = unigram_baseline(train, batches)
        keys = ("masked_loss", "masked_accuracy", "order_accuracy")
        columns.append([f"{metrics[key]:.3f}" for key in keys])
        columns.append([f"{unigram_loss:.3f}", f"{unigram_accuracy:.3f}", "0.5 by chance"])
    rows = ("loss of masked tokens (nats)", "accuracy of masked tokens", "accuracy of sentence order")
    table = "\n".join(f"| {' | '.join(row)} |" for row in zip(rows, *columns, strict=True))

    _, heading, rest = SENTENCES.read_text(encoding="utf-8").partition("## Sources")
    sources = heading + rest.partition("\n\n## ")[0]
    last = read_metrics(arguments.run)[-1]
    config = exact.config
    groups = config.num_hidden_groups
    card = CARD.format(
        **{name: getattr(config, name) for name in (
            "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "embedding_size",
            "vocab_size",
        )},
        sets="one set of weights" if groups == 1 else f"{groups} sets of weights",
        title=TITLE,
        parameters=exact.num_parameters(),
        positions=config.max_position_embeddings,
        length=length,
        masked=MASKED,
        training_tokens=train.manifest.tokens,
        tokens=int(last["tokens"]),
        epochs=last["tokens"] / train.manifest.tokens,
        steps=int(last["step"]),
        hours=last["seconds"] / 3600,
        sequences=sum(len(batch.input_ids) for batch in batches),
        machine=arguments.machine,
        after=f"{arguments.after}; then " if arguments.after else "",
        figures=table,
        sources=sources,
    )  # fmt: skip
    (output / "README.md").write_text(card)
    size = sum(file.stat().st_size for file in output.iterdir())
    if size > MAX_BYTES:
        raise SystemExit(f"the model takes {size:,} bytes, over the limit of {MAX_BYTES:,}")
    print(f"{arguments.output}: {size:,} bytes")
    print(table)


if __name__ == "__main__":
    main()
