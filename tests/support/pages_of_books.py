"""Small files in the form of the text that the bundled model is trained on."""

from pathlib import Path
from pydoc_data.topics import topics

import pyarrow as pa
from pyarrow import parquet


def write_books(folder: Path) -> None:
    """Write books.parquet and modern.parquet: 82 texts each of Python's language reference."""
    texts = [*topics.values()][:79]
    texts += [text[: len(text) // 2] for text in texts[:3]]
    parquet.write_table(pa.table({"text": [text * 3 for text in texts]}), folder / "books.parquet")
    sources = ["large"] * 60 + [f"small-{number}" for number in range(22)]
    parquet.write_table(pa.table({"source": sources, "text": texts}), folder / "modern.parquet")
