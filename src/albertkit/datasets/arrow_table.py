"""Rows of Parquet files, and of the folders and files of the library `datasets`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from albertkit.datasets.table import Row, Table, schema_class_names
from albertkit.errors import DataError, short
from albertkit.extras import optional
from albertkit.files import read_json
from albertkit.text_files import decompressed, file_format

pa = optional("pyarrow", extra="arrow")
parquet = optional("pyarrow.parquet", extra="arrow")

ROWS_AT_ONCE = 1024


class ArrowTable(Table):
    """Files of one schema, read one after the other: Parquet, or Arrow streams as `datasets` writes them."""

    def __init__(self, files: list[Path], *, name: str) -> None:
        self.files = files
        self.name = name
        with ExitStack() as stack:
            self._schema, _ = self._open(files[0], stack)
            try:
                self._names = list(self._schema.names)
            except UnicodeDecodeError as error:
                raise DataError(f"{files[0]}: the name of a column is not UTF-8 ({error})") from error

    @classmethod
    def folder(cls, path: Path) -> "ArrowTable":
        """Return the split that `Dataset.save_to_disk` wrote into a folder.

        Raises:
            DataError: the folder has several splits, or none.
        """
        if (path / "dataset_dict.json").is_file():
            splits = read_json(path / "dataset_dict.json", DataError).get("splits")
            first = path / str(splits[0]) if isinstance(splits, list) and splits else path
            raise DataError(f"{path} has several splits. Pass one of them: {first}, ...")
        if not (path / "state.json").is_file():
            raise DataError(
                f"{path}: a folder without state.json. Expected a file, or a folder that `datasets` has "
                "saved."
            )
        try:
            names = [one["filename"] for one in read_json(path / "state.json", DataError)["_data_files"]]
            if not names or any(Path(name).name != name for name in names):
                raise ValueError(f"the files are {short(names)}")
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path / 'state.json'}: does not list the files of a split ({error}). Save the data again."
            ) from error
        return cls([path / name for name in names], name=str(path))

    def columns(self) -> list[str]:
        """Return the names in the schema."""
        return self._names

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all files, counted from 1 in each."""
        for file in self.files:
            number = 0
            for rows in self._batches(file, lambda batch: batch.to_pylist()):
                for values in rows:
                    number += 1
                    yield Row(f"{file}, row {number}", values)

    def _batches(self, file: Path, convert: Callable[[Any], Any]) -> Iterator[Any]:
        """Yield the converted batches of a file."""
        number = 0
        with ExitStack() as stack:
            _, batches = self._open(file, stack)
            try:
                for batch in batches:
                    batch.validate(full=True)  # the offsets of a damaged stream may be invalid
                    yield convert(batch)
                    number += len(batch)
            except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
                raise DataError(f"{file}, after row {number}: cannot be read ({error})") from error

    def _open(self, file: Path, stack: ExitStack) -> tuple[Any, Iterator[Any]]:
        kind, compression = file_format(file)
        try:
            source = stack.enter_context(decompressed(file, compression)) if compression else file
            if kind == ".parquet":
                opened = stack.enter_context(parquet.ParquetFile(source))
                return opened.schema_arrow, opened.iter_batches(batch_size=ROWS_AT_ONCE)
            stream = stack.enter_context(pa.ipc.open_stream(stack.enter_context(pa.OSFile(str(file)))))
            return stream.schema, iter(stream)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{file}: not a readable {kind} file ({error})") from error

    def class_names(self, column: str) -> tuple[str, ...] | None:
        """Return the names of a `ClassLabel` or a list of them in the schema, or ordered categories."""
        names = schema_class_names(self._schema, column, source=self.name)
        if names or column not in self._names or not _is_ordered(self._schema.field(column).type):
            return names
        read = partial(self._batches, convert=lambda batch: batch.column(column))
        return tuple(map(str, _categories(chain.from_iterable(map(read, self.files)))))


def arrow_categories(table: Any) -> dict[str, list[Any]]:
    """Return the categories of each ordered column of an Arrow table or batch in memory."""
    columns = {field.name: table.column(field.name) for field in table.schema if _is_ordered(field.type)}
    return {name: _categories(getattr(one, "chunks", [one])) for name, one in columns.items()}


def _is_ordered(kind: Any) -> bool:
    """Return whether this is the type of an ordered column of categories, as pandas writes it."""
    return pa.types.is_dictionary(kind) and kind.ordered


def _categories(chunks: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(value for chunk in chunks for value in chunk.dictionary.to_pylist()))
