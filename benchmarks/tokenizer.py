"""Compare the speed of albertkit's tokenizer with transformers' AlbertTokenizer on the same paragraphs.

    python benchmarks/tokenizer.py [--texts FILE] [--model FOLDER] [--runs 5] [--processor-time] [--json]

The speed is in MB of text per second. Without --texts, the text is Python's language reference, which is part
of every Python installation. --processor-time is for a machine with other work; set ALBERTKIT_THREADS=1 and
RAYON_NUM_THREADS=1 with it. The defaults took 5 s of processor time on an AMD EPYC.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import transformers
from report import alternate, command_line, compare, show

from albertkit import AlbertTokenizer
from albertkit.hub import resolve
from albertkit.pretraining.corpus import Corpus

MAX_CHARACTERS = 8_000_000


def paragraphs(texts: str | None) -> list[str]:
    """Return the paragraphs of a corpus, up to the document that reaches 8 million characters."""
    documents = (document.text for document in Corpus([texts])) if texts else iter(topics.values())
    result: list[str] = []
    characters = 0
    for document in documents:
        for paragraph in document.split("\n\n"):
            if paragraph.strip():
                result.append(paragraph)
                characters += len(paragraph)
        if characters >= MAX_CHARACTERS:
            break
    return result


def timed(
    tokenize: Callable[[list[str]], object], texts: list[str], megabytes: float, clock: Callable[[], float]
) -> Callable[[], list[float]]:
    """Return a function that measures `tokenize` in MB/s."""

    def measure() -> list[float]:
        begin = clock()
        tokenize(texts)
        return [megabytes / (clock() - begin)]

    return measure


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=5)
    parser.add_argument("--texts", help="corpus: a .txt, .jsonl or .parquet file")
    parser.add_argument("--model", default="bundled", help="name or folder of the tokenizer for both sides")
    parser.add_argument("--processor-time", action="store_true", help="measure processor time")
    arguments = parser.parse_args()
    folder: Path = resolve(arguments.model, patterns=("spiece.model",))
    texts = paragraphs(arguments.texts)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    clock = time.process_time if arguments.processor_time else time.perf_counter
    ours = AlbertTokenizer.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as copy:
        ours.save_pretrained(copy)
        converted = AlbertTokenizer(tokenizer_file=Path(copy) / "tokenizer.json")
    theirs = transformers.AlbertTokenizer.from_pretrained(folder)
    (speed,), (converted_speed,), (their_speed,) = alternate(
        arguments.runs, *(timed(tokenize, texts, megabytes, clock) for tokenize in (ours, converted, theirs))
    )
    figures = [
        compare("from spiece.model (MB/s)", speed, their_speed, at_least=6.0),
        compare("from tokenizer.json (MB/s)", converted_speed, their_speed, at_least=6.0),
    ]
    title = f"{len(texts)} paragraphs, {megabytes:.1f} MB"
    show(title, figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
