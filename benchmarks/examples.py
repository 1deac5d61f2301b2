"""Measure the speed of drawing examples on one core, and the share of real tokens in the batches.

    python benchmarks/examples.py [--shards FOLDER --tokenizer FOLDER] [--length 128] [--runs 5] [--json]

Without --shards, the text is Python's language reference, which is part of every Python installation. The
speed is in tokens per second of processor time, without padding, and includes planning. The defaults took
18 s on an AMD EPYC.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

from report import alternate, command_line, compare, show

from albertkit.hub import resolve
from albertkit.pretraining.batches import ExampleStream
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable

TARGET = 200_000  # tokens per second on one core, without padding
TOKENS = 1_000_000  # tokens that each run draws


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
    parser.add_argument("--length", type=int, default=128, help="maximum length of a sequence in tokens")
    arguments = parser.parse_args()
    vocabulary = resolve(arguments.tokenizer, patterns=("spiece.model",)) / "spiece.model"
    words, settings = WordTable(vocabulary), ExampleSettings(max_seq_length=arguments.length)
    with tempfile.TemporaryDirectory() as name:
        shards = ShardSet(arguments.shards) if arguments.shards else shards_of(Path(name), vocabulary)
        by_tokens, by_rows = alternate(
            arguments.runs,
            timed(lambda: ExampleStream(shards, words, settings, batch_tokens=32 * arguments.length)),
            timed(lambda: ExampleStream(shards, words, settings, batch_size=32)),
        )
    speed = [
        compare("batches by tokens (tokens/s)", by_tokens[0], TARGET, at_least=1.0),
        compare("batches by rows (tokens/s)", by_rows[0], TARGET, at_least=1.0),
    ]
    show("drawing examples on one core", speed, against="required", as_json=arguments.json)
    padding = [compare("share of real tokens", by_tokens[1], by_rows[1], at_least=1.0)]
    show("batches by tokens", padding, against="by rows", as_json=arguments.json)


if __name__ == "__main__":
    main()
