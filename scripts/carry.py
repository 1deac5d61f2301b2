"""Pack the text of the bundled model for a machine with a GPU that only gets small files.

    python scripts/carry.py DATA [--output carried] [--tokens 42000000]

DATA has books.parquet and modern.parquet, with the columns `text` and, for modern.parquet, `source`. The
command takes one passage of each book and the same amount of text of every source, where the source has so
much. It tokenizes this mix and packs the shards into one compressed file, which `scripts/gpu.py --shards`
reads. The file holds other people's sentences: copy it, but do not publish it. It takes about four
minutes of processor time.

Every 40th book and every 40th modern document is held out. The folder `validation` in the file has passages
of both, and `books` and `modern` have each alone.
"""

import lzma
import shutil
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
from pages import command_line

from albertkit import AlbertTokenizer, prepare
from albertkit.files import atomic_path
from albertkit.pretraining.shards import ShardSet

HOLDOUT_EVERY = 40
MODERN_SHARE = 0.65  # of the characters
CHARACTERS_PER_TOKEN = 4.35  # roughly, to choose the amount of text
HELD_OUT_CHARACTERS = 1_500_000  # of books and of modern text
LIMIT = 64 << 20  # bytes that the machine accepts together with the repository
# Token ids have two bytes, so the compressor predicts even and odd bytes separately.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 1, "pb": 1}]


def books(path: Path, characters: int, *, held_out: bool) -> Iterator[str]:
    """Yield a passage from the middle of each book, at paragraphs, all of about the same length."""
    texts: list[str] = parquet.read_table(path, columns=["text"])["text"].to_pylist()
    texts = [text for number, text in enumerate(texts) if (number % HOLDOUT_EVERY == 0) == held_out]
    length = characters // len(texts)
    for text in texts:
        begin = max(0, (len(text) - length) // 2)
        begin = text.find("\n\n", begin) if begin else 0
        yield text[max(begin, 0) :][:length].rpartition("\n\n")[0] or text[:length]


def modern(path: Path, characters: int, *, held_out: bool) -> Iterator[str]:
    """Yield documents, of each source as many as its share allows; a small source has all of its own."""
    table = parquet.read_table(path, columns=["source", "text"])
    of_source: dict[str, list[str]] = defaultdict(list)
    rows = zip(table["source"].to_pylist(), table["text"].to_pylist(), strict=True)
    for number, (source, text) in enumerate(rows):
        if (number % HOLDOUT_EVERY == 0) == held_out:
            of_source[source].append(text)
    sizes = {source: sum(map(len, texts)) for source, texts in of_source.items()}
    left, share = characters, 0
    for number, size in enumerate(sorted(sizes.values())):  # the smallest first
        share = left // (len(sizes) - number)
        left -= min(size, share)
    for texts in of_source.values():
        room = share
        for text in texts:
            if room > 0:
                yield text
            room -= len(text)


def make_shards(data: Path, tokenizer: str, folder: Path, characters: int) -> None:
    """Write the folders train, validation, books and modern."""

    def texts(*, held_out: bool, share: float = MODERN_SHARE) -> Iterator[str]:
        total = HELD_OUT_CHARACTERS if held_out else characters
        if share < 1:
            yield from books(data / "books.parquet", round(total * (1 - share)), held_out=held_out)
        if share > 0:
            yield from modern(data / "modern.parquet", round(total * share), held_out=held_out)

    chosen = {
        "train": texts(held_out=False),
        "validation": texts(held_out=True),
        "books": texts(held_out=True, share=0.0),
        "modern": texts(held_out=True, share=1.0),
    }
    for name, part in chosen.items():
        report = prepare(
            ({"text": text} for text in part), tokenizer=tokenizer, output=folder / "made" / name
        )
        (folder / "made" / name / "train").rename(folder / name)
        print(f"{name}: {report.train.documents:,} documents, {report.train.tokens:,} tokens")
    shutil.rmtree(folder / "made")


def pack(folder: Path, file: Path) -> None:
    """Pack the shard folders and the tokenizer into one compressed file."""
    with (
        atomic_path(file) as path,
        lzma.open(path, "wb", filters=FILTERS) as stream,
        tarfile.open(fileobj=stream, mode="w|") as archive,
    ):
        for part in sorted(folder.iterdir()):
            archive.add(part, arcname=part.name)


def unpack(file: Path, folder: Path) -> None:
    """Unpack a packed file, unless it has been unpacked already."""
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.tmp")
        with tarfile.open(file, "r:xz") as archive:
            archive.extractall(unfinished, filter="data")
        unfinished.rename(folder)


def main() -> None:
    """Pack, and print what to copy."""
    parser = command_line(__doc__)
    parser.add_argument("data", type=Path, help="folder of books.parquet and modern.parquet")
    parser.add_argument("--tokenizer", default="bundled", help="name or folder of the tokenizer's model")
    parser.add_argument("--output", type=Path, default=Path("carried"), help="folder of the packed file")
    parser.add_argument("--tokens", type=int, default=42_000_000, help="training tokens, roughly")
    arguments = parser.parse_args()
    for name in ("books.parquet", "modern.parquet"):
        if not (arguments.data / name).is_file():
            raise SystemExit(f"{arguments.data / name}: no such file")
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "shards.tar.xz"
    with tempfile.TemporaryDirectory(dir=arguments.output) as name:
        folder = Path(name) / "shards"
        folder.mkdir()
        make_shards(
            arguments.data, arguments.tokenizer, folder, round(arguments.tokens * CHARACTERS_PER_TOKEN)
        )
        AlbertTokenizer.from_pretrained(arguments.tokenizer).save_pretrained(folder / "tokenizer")
        tokens = ShardSet(folder / "train").manifest.tokens
        pack(folder, file)
    size = file.stat().st_size
    print(f"{file}: {size / 2**20:.1f} MiB, {8 * size / tokens:.2f} bits for each training token")
    print(f"Copy {arguments.output}/ and the repository to the machine: together at most {LIMIT >> 20} MiB.")


if __name__ == "__main__":
    main()
