"""Measure the speed of drawing examples on one core, and the share of real tokens in the batches.

    python benchmarks/examples.py [--shards FOLDER --tokenizer FOLDER] [--runs 5] [--json]

The examples are those of the recipes: n-grams of up to three words as in those of the paper, and single
words as in `bundled`, with the lengths of these recipes. Without --shards, the text is Python's language
reference, which is part of every Python installation. The speed is in tokens per second of processor time,
without padding, and includes planning. The defaults took half a minute on an AMD EPYC.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from report import Figure, alternate, command_line, compare, show

from albertkit.hub import resolve
from albertkit.pretraining.batches import ExampleStream
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet

TARGETS = {32: 1e6, 128: 2e6, 256: 2e6}  # length -> tokens per second on one core, without padding
TOKENS = 2_000_000  # tokens that each run draws
BATCH_TOKENS = 32_768
WORDS = {"masked_lm_probability": 0.2, "max_ngram": 1}  # as in the recipe bundled


def shards_of(folder: Path, vocabulary: Path) -> ShardSet:
    """Prepare shards of Python's language reference and open them."""
    corpus = folder / "topics.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in topics.values()))
    prepare([corpus], vocabulary, folder / "shards", workers=1)
    return ShardSet(folder / "shards/train")


def timed(stream: Callable[[], ExampleStream]) -> Callable[[], list[float]]:
    """Return a function that measures a stream: real tokens per second, and their share in the batches."""

    def measure() -> list[float]:
        batches = iter(stream())
        tokens = positions = 0
        begin = time.process_time()
        while tokens < TOKENS:
            batch = next(batches)
            tokens += batch.num_tokens
            positions += batch.input_ids.size
        return [tokens / (time.process_time() - begin), tokens / positions]

    return measure


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=5)
    parser.add_argument("--shards", type=Path, help="folder of the training shards, such as shards/train")
    parser.add_argument("--tokenizer", default="bundled", help="name or folder of the shards' tokenizer")
    arguments = parser.parse_args()
    vocabulary = resolve(arguments.tokenizer, patterns=("spiece.model",)) / "spiece.model"
    words = WordTable(vocabulary)
    speed: list[Figure] = []
    padding: list[Figure] = []
    with tempfile.TemporaryDirectory() as name:
        shards = ShardSet(arguments.shards) if arguments.shards else shards_of(Path(name), vocabulary)

        def stream(length: int, **settings: Any) -> ExampleStream:
            rows = BATCH_TOKENS // length if settings.pop("rows", False) else None
            examples = ExampleSettings(max_seq_length=length, **settings)
            tokens = None if rows else BATCH_TOKENS
            return ExampleStream(shards, words, examples, rows, batch_tokens=tokens)

        for length, target in TARGETS.items():
            single = WORDS | {"max_predictions": round(0.2 * length) + 1}
            ngrams, singles, by_rows = alternate(
                arguments.runs,
                timed(lambda length=length: stream(length)),
                timed(lambda length=length, single=single: stream(length, **single)),
                timed(lambda length=length: stream(length, rows=True)),
            )
            for kind, measured in (("n-grams", ngrams), ("single words", singles), ("by rows", by_rows)):
                speed.append(
                    compare(f"{length} tokens, {kind} (tokens/s)", measured[0], target, at_least=1.0)
                )
            padding.append(
                compare(f"{length} tokens: share of real tokens", ngrams[1], by_rows[1], at_least=1.0)
            )
    show("drawing examples on one core", speed, against="required", as_json=arguments.json)
    show("batches by tokens", padding, against="by rows", as_json=arguments.json)


if __name__ == "__main__":
    main()
