"""A path or an object -> a table, by its kind."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from albertkit.datasets.arrow_table import ArrowTable
from albertkit.datasets.reader import existing_file
from albertkit.datasets.table import DelimitedTable, JsonLinesTable, ObjectTable, Table
from albertkit.errors import ConfigError, DataError
from albertkit.text_files import COMPRESSIONS, file_format

Source = str | Path | Table | Iterable[Mapping[str, Any]]
"""A file, a folder of `datasets`, a table, or rows in memory."""
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")


def open_table(source: Source, *, header: bool = True, delimiter: str | None = None) -> Table:
    """Return the table of a source.

    Args:
        source: see `Source`.
        header: whether the first row of a CSV or TSV file names the columns; without, they are "0", "1", ...
        delimiter: what stands between its cells, where it is not what its suffix says.

    Raises:
        DataError: no such file, or an unknown kind of file.
        ConfigError: header or delimiter of a source that has none.
    """
    path = Path(source) if isinstance(source, (str, Path)) else None
    kind = file_format(path)[0] if path else None
    if path and kind in (".csv", ".tsv"):
        return DelimitedTable(existing_file(path), header=header, delimiter=delimiter)
    if not header or delimiter is not None:
        raise ConfigError("header and delimiter are of CSV and TSV files; leave them out for this source")
    if isinstance(source, Table):
        return source
    if path is None:
        return ObjectTable(cast(Iterable[Mapping[str, Any]], source))
    if path.is_dir():
        return ArrowTable.folder(path)
    if kind == ".jsonl":
        return JsonLinesTable(existing_file(path))
    if kind in (".parquet", ".arrow"):
        return ArrowTable([existing_file(path)], name=str(path))
    todo = {
        ".json": f". If it is an array of objects: jq -c '.[]' {path} > lines.jsonl",
        ".xlsx": ". Save the sheet as .csv",
    }
    raise DataError(
        f"{existing_file(path)}: unknown kind of file; expected {', '.join(FORMATS)}, perhaps with "
        f"{', '.join(COMPRESSIONS)} after it, or a folder saved by `datasets`{todo.get(kind or '', '')}"
    )
