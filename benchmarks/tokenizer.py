"""Tokenization, MB of text per second, ours against transformers' AlbertTokenizer on the same paragraphs.

    python benchmarks/tokenizer.py [--texts FILE] [--model FOLDER] [--runs 5] [--processor-time] [--json]

Without --texts the text is the prose of Python's own language reference, which every Python carries.
--processor-time is for one thread on a machine that does other work; give both sides one thread then
(ALBERTKIT_THREADS=1 RAYON_NUM_THREADS=1). The defaults took 5 s of processor time on an EPYC.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import transformers
from report import alternate, compare, show

from albertkit import AlbertTokenizer
from albertkit.hub import resolve
from albertkit.pretraining.corpus import Corpus

MAX_CHARACTERS = 8_000_000


def paragraphs(texts: str | None) -> list[str]:
    """Return the paragraphs of a corpus, at most 8 MB of them."""
    documents = (document.text for document in Corpus.find([texts])) if texts else iter(topics.values())
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
    tokenize: Callable[[list[str]], object],
    texts: list[str],
    megabytes: float,
    clock: Callable[[], float],
) -> Callable[[], list[float]]:
    """Return a measurement of `tokenize` in MB/s."""

    def measure() -> list[float]:
        begin = clock()
        tokenize(texts)
        return [megabytes / (clock() - begin)]

    return measure


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", help="a corpus: .txt, .jsonl, .parquet")
    parser.add_argument("--model", default="bundled", help="folder of the tokenizer both sides load")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each side")
    parser.add_argument("--processor-time", action="store_true", help="not the time on the clock")
    parser.add_argument("--json", action="store_true", help="one JSON line per figure")
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
    (rate,), (converted_rate,), (their_rate,) = alternate(
        arguments.runs,
        *(timed(one, texts, megabytes, clock) for one in (ours, converted, theirs)),
    )
    figures = [
        compare("from spiece.model (MB/s)", rate, their_rate, at_least=6.0),
        compare("from tokenizer.json (MB/s)", converted_rate, their_rate, at_least=6.0),
    ]
    title = f"{len(texts)} paragraphs, {megabytes:.1f} MB"
    show(title, figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
