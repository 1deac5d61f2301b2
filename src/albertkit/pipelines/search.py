"""Search: texts with their vectors in memory or in a folder, and the texts that are most similar to a query.

A folder has these files:

    index.json     the model, its options, and the numbers of texts and dimensions
    vectors.npy    the vectors (N, D) of the texts, float32, scaled to length 1
    rows.jsonl     a line {"id": ..., "text": ...} for each text
    offsets.npy    the byte at which each line begins, and the size of the file

Shapes: N texts, Q queries, D dimensions.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from albertkit.datasets.cells import as_list, is_missing, text_of
from albertkit.datasets.columns import find_text_column
from albertkit.datasets.examples import USUAL_COLUMNS
from albertkit.datasets.inputs import NumberedInputs, is_table
from albertkit.datasets.rows import read_rows
from albertkit.errors import ConfigError, DataError, reading
from albertkit.files import check_new_folder, complete_files, file_sha256, json_text, read_json, write_json
from albertkit.hub import BUNDLED_SENTENCES
from albertkit.metrics import unit
from albertkit.pipelines.core import Pipeline, cut_note, pipeline
from albertkit.reference import largest_indices

logger = logging.getLogger(__name__)

INDEX, VECTORS, ROWS, OFFSETS = "index.json", "vectors.npy", "rows.jsonl", "offsets.npy"
_BLOCK = 1 << 18  # texts that are compared at once
_QUERIES = 64  # that are compared at once
_SAME_MODEL = 0.98  # minimum cosine of two vectors of one text, which another engine or device may change


class Index:
    """Texts with their vectors. It finds the texts with the highest cosine similarity to a query, exactly.

    `Index.build` computes the vectors of texts with a model. The constructor takes vectors that you have.

    Args:
        vectors: the vectors (N, D) of the texts, of any lengths.
        texts: the N texts.
        ids: the ids of the texts, as text or numbers; None for their numbers, counted from 1.
        model: the model that computed the vectors, as a name, a folder or a pipeline; None if there is none.
            Then only `nearest` can search.
        options: options of `feature-extraction` that the vectors were computed with, such as `pooling`.

    Raises:
        DataError: the numbers of vectors, texts and ids differ, or vectors are not finite.
    """

    def __init__(
        self,
        vectors: np.ndarray,
        texts: Sequence[str],
        ids: Sequence[Any] | None = None,
        *,
        model: str | Path | Pipeline | None = None,
        options: Mapping[str, Any] = {},
    ) -> None:
        self._start(model, options)
        self._add(vectors, texts, ids)

    def _start(self, model: str | Path | Pipeline | None, options: Mapping[str, Any]) -> None:
        self.model, self.options = model, dict(options)
        self.columns: dict[str, str | None] = {}
        """The columns of the last table of texts, `text_column` and `id_column`, also for the next table."""
        self.sources: list[list[str | None]] = []
        """The files that texts were read from: SHA-256, and columns of the texts and ids."""
        self._vectors: list[np.ndarray] = []
        self._rows: list[Sequence[bytes]] = []
        self._is_checked = True

    @classmethod
    def build(
        cls,
        texts: Any,
        model: str | Path | Pipeline = BUNDLED_SENTENCES,
        *,
        ids: Sequence[Any] | None = None,
        text_column: str | None = None,
        id_column: str | None = None,
        **options: Any,
    ) -> Self:
        """Compute the vectors of texts.

        Args:
            texts: a list of texts; or a file or table with one text per row, as for `albertkit.predict`.
                Rows without a text are left out.
            model: the model: a folder, a name, or a pipeline for `feature-extraction`.
            ids: the ids of a list of texts; None for their numbers, counted from 1.
            text_column: the column of the texts in a table; None for the usual names, in upper or lower
                case, or the texts that are clearly the longest.
            id_column: the column of the ids in a table; None for `id`, in upper or lower case, if there is
                one, otherwise the numbers of the rows, counted from 1.
            options: options of `feature-extraction`, such as `truncation=True`. Queries have the same.

        Raises:
            DataError: a column does not exist, there is no text, or a text is too long.
        """
        index = cls.__new__(cls)
        index._start(model, options)
        index.add(texts, ids=ids, text_column=text_column, id_column=id_column)
        return index

    def add(
        self,
        texts: Any,
        *,
        ids: Sequence[Any] | None = None,
        text_column: str | None = None,
        id_column: str | None = None,
        **options: Any,
    ) -> int:
        """Compute the vectors of further texts, and return the number of texts added.

        A text replaces the text of the index that has the same id, and comes last.

        Args:
            texts: see `build`.
            ids: see `build`. Numbers continue after the largest id.
            text_column: see `build`; None for the column of the last table, if this one has it.
            id_column: the same.
            options: options of `feature-extraction` for these texts, instead of those of the index.
        """
        path = Path(texts) if isinstance(texts, str | PathLike) else None
        known = self._ids()
        largest = max((int(name) for name in known if name.isdecimal()), default=0)
        columns = {"text_column": text_column, "id_column": id_column}
        first = max(largest, len(self)) + 1
        inputs, ids, columns = _read(texts, ids, columns, self.columns, first=first)
        if len(self):
            self._check_model()
        cut = list[int]()
        vectors, texts = self._encode(inputs, on_cut=cut.append, **options), list(inputs)
        if cut:
            logger.info(cut_note(self._pipeline, cut, len(texts)))
        given = {str(_plain(name)) for name in ids}
        if repeated := len(ids) - len(given):
            ((name, _),) = Counter(str(_plain(name)) for name in ids).most_common(1)
            what = f"{repeated:,}, such as {name!r}. All are kept."
            logger.warning(f"new texts with the id of another new text: {what}")
        self._keep([name not in given for name in known])
        self._add(vectors, texts, ids)
        self.columns = self.columns | {option: name for option, name in columns.items() if name}
        if path is not None and path.is_file():
            self.sources.append([_sha256(path), *columns.values()])
        return len(texts)

    def has_file(self, path: Path, *, text_column: str | None = None, id_column: str | None = None) -> bool:
        """Return whether the texts of a file were added, from these columns or any for None.

        After a text was removed or replaced, the index no longer has the files that were added before.

        Raises:
            DataError: the texts or ids were read from other columns.
        """
        digest, given = _sha256(path), (text_column, id_column)
        used = [columns for one, *columns in self.sources if one == digest]
        for columns in used:
            if all(name in (None, column) for name, column in zip(given, columns, strict=True)):
                return True
        if used:
            text, name = used[0]
            ids = "the numbers of the rows" if name is None else f"the column {name!r}"
            raise DataError(
                f"the index has the texts of {path} from the column {text!r}, with ids from {ids}. For other "
                "columns, build another index."
            )
        return False

    def remove(self, ids: Any) -> int:
        """Remove the texts with these ids, or the text with this id, and return how many there were.

        Raises:
            DataError: no text would be left.
        """
        given = {str(_plain(name)) for name in ([ids] if isinstance(ids, str | int) else ids)}
        before = len(self)
        known = self._ids()
        if not any(kept := [name not in given for name in known]):
            raise DataError("all texts of the index would be removed. An index has at least one.")
        if unknown := sorted(given.difference(known)):
            logger.warning("the index has no text with the id %s", ", ".join(map(repr, unknown[:5])))
        self._keep(kept)
        return before - len(self)

    def _ids(self) -> list[str]:
        """Return the ids as texts, because numbers in CSV files are texts."""
        return [str(self[number]["id"]) for number in range(len(self))]

    def _keep(self, kept: list[bool]) -> None:
        if not all(kept):
            rows = (row for part in self._rows for row in part)
            self._vectors, self._rows = [self.vectors[kept]], [list(compress(rows, kept))]
            self.sources = []  # the index no longer has all texts of its files

    def __len__(self) -> int:
        """Return the number of texts."""
        return sum(map(len, self._rows))

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return the `id` and the `text` of a text, counted from 0."""
        number += len(self) if number < 0 else 0
        for rows in self._rows:
            if 0 <= number < len(rows):
                return json.loads(rows[number])
            number -= len(rows)
        raise IndexError("there is no text of this number")

    def __repr__(self) -> str:
        return f"Index({len(self):,} texts, {self.dimensions} dimensions, model={self.model!s})"

    @property
    def dimensions(self) -> int:
        """The number of dimensions D of a vector."""
        return self._vectors[0].shape[1]

    @property
    def vectors(self) -> np.ndarray:
        """The vectors (N, D) of all texts, float32, scaled to length 1."""
        return self._vectors[0] if len(self._vectors) == 1 else np.concatenate(self._vectors)

    def search(self, queries: str | Iterable[str], top_k: int = 5, **options: Any) -> list[Any]:
        """Return the texts that are most similar to a query, or to each of several queries.

        Args:
            queries: a text, or several.
            top_k: the number of texts.
            options: options of `feature-extraction` for the queries, such as another `prompt_name`, instead
                of those of the texts.

        Returns:
            For a query, up to `top_k` dicts with `id`, `text` and `score`, the cosine similarity; the most
            similar text is first. For several queries, a list of these lists.

        Raises:
            ConfigError: the index has no model.
            DataError: the model is not the one that computed the vectors.
        """
        several = [queries] if isinstance(queries, str) else list(queries)
        if not several:
            return []
        self._check_model()
        indices, scores = self.nearest(self._encode(several, **options), top_k)
        results = [
            [
                self[int(number)] | {"score": min(float(score), 1.0)}
                for number, score in zip(*pair, strict=True)
            ]
            for pair in zip(indices, scores, strict=True)
        ]
        return results[0] if isinstance(queries, str) else results

    def nearest(self, vectors: np.ndarray, top_k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the most similar texts, counted from 0, and their similarities.

        Args:
            vectors: the vectors (Q, D) of queries, or the vector (D,) of one.
            top_k: the number of texts.

        Returns:
            The numbers and the cosine similarities, (Q, top_k) or (top_k,), in descending order.
        """
        if not isinstance(top_k, int) or top_k < 1:
            raise ConfigError(f"top_k is {top_k!r}. Expected a whole number of at least 1.")
        queries = unit(np.atleast_2d(np.asarray(vectors, np.float32)))
        if queries.shape[1] != self.dimensions:
            sizes = f"{queries.shape[1]} dimensions, but those of the index have {self.dimensions}"
            raise DataError(f"the vectors of the queries have {sizes}. Use the model of the index.")
        parts = [
            self._nearest(queries[start : start + _QUERIES], top_k)
            for start in range(0, len(queries), _QUERIES)
        ]
        numbers, scores = (np.concatenate(side) for side in zip(*parts, strict=True))
        return (numbers, scores) if np.ndim(vectors) > 1 else (numbers[0], scores[0])

    def _nearest(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Keep the best texts of each block, and choose among them at the end."""
        numbers, scores, first = [], [], 0
        for vectors in self._vectors:
            for start in range(0, len(vectors), _BLOCK):
                similar = queries @ vectors[start : start + _BLOCK].T  # (Q, block)
                best = largest_indices(similar, top_k)
                numbers.append(best + first + start)
                scores.append(np.take_along_axis(similar, best, axis=1))
            first += len(vectors)
        joined, values = np.concatenate(numbers, axis=1), np.concatenate(scores, axis=1)
        best = largest_indices(values, top_k)
        return np.take_along_axis(joined, best, axis=1), np.take_along_axis(values, best, axis=1)

    def save(self, folder: str | Path) -> None:
        """Write the index to a new folder, or replace the index in a folder.

        Args:
            folder: the folder. It may be the one that the index was loaded from.

        Raises:
            DataError: the folder has other files.
        """
        folder = Path(folder)
        if not (folder / INDEX).is_file():
            check_new_folder(folder)
        name = self.model.model.name_or_path if isinstance(self.model, Pipeline) else self.model
        if name and Path(name).is_dir():
            name = Path(name).resolve()
        about = {"texts": len(self), "dimensions": self.dimensions, "options": self.options}
        about |= {"columns": self.columns, "sources": self.sources}
        about["model"] = str(name) if name else None
        with complete_files(folder) as staged:
            with (staged / VECTORS).open("wb") as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(self), self.dimensions)}
                np.lib.format.write_array_header_1_0(file, header)
                for vectors in self._vectors:
                    vectors.astype("<f4", copy=False).tofile(file)
            offsets = [0]
            with (staged / ROWS).open("wb") as file:
                for rows in self._rows:
                    for row in rows:
                        offsets.append(offsets[-1] + file.write(row))
            np.save(staged / OFFSETS, np.array(offsets, np.int64))
            write_json(staged / INDEX, about)

    @classmethod
    def load(cls, folder: str | Path, model: str | Path | Pipeline | None = None) -> Self:
        """Return the index in a folder. Its vectors and texts stay in their files until they are used.

        Args:
            folder: the folder that `save` wrote.
            model: the model that computed the vectors, if it is no longer where it was; None for the saved
                name.

        Raises:
            DataError: there is no index in the folder, or its files are damaged.
        """
        folder = Path(folder)
        if not (folder / INDEX).is_file():
            raise DataError(f"{folder} has no {INDEX}. Expected the folder of an index.")
        about = read_json(folder / INDEX, DataError)
        index = cls.__new__(cls)
        with reading(folder, DataError):
            vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
            rows = _Lines(folder / ROWS, np.load(folder / OFFSETS, mmap_mode="r", allow_pickle=False))
            expected = (about["texts"], about["dimensions"])
            if vectors.shape != expected or len(rows) != expected[0] or vectors.dtype != np.float32:
                sizes = f"{VECTORS} has {vectors.shape} and {OFFSETS} {len(rows)} texts"
                raise ValueError(f"{INDEX} has {expected[0]} texts of {expected[1]} dimensions, but {sizes}")
            index._start(model or about["model"], about["options"])
            index.columns, index.sources = dict(about["columns"]), list(about["sources"])
        index._vectors.append(vectors)
        index._rows.append(rows)
        index._is_checked = False
        return index

    @cached_property
    def _pipeline(self) -> Pipeline:
        if self.model is None:
            raise ConfigError("the index has no model for texts. Pass model, or search with `nearest`.")
        if isinstance(self.model, Pipeline):
            return self.model
        return pipeline("feature-extraction", self.model)

    def _encode(self, texts: Sequence[str] | NumberedInputs, **options: Any) -> np.ndarray:
        return self._pipeline.encode(texts, **self.options | options)

    def _check_model(self) -> None:
        """Check once that the model computes the vector that a loaded index has for its first text."""
        if self._is_checked:
            return
        (vector,) = unit(self._encode([self[0]["text"]]))
        if vector.shape != self._vectors[0][0].shape or vector @ self._vectors[0][0] < _SAME_MODEL:
            name = self._pipeline.model.name_or_path
            raise DataError(
                f"the model {name} does not compute the vectors of this index: it has changed, or is another "
                "model. Pass the model of the index, or build the index again."
            )
        self._is_checked = True

    def _add(self, vectors: np.ndarray, texts: Sequence[str], ids: Sequence[Any] | None) -> None:
        vectors = np.asarray(vectors, np.float32)
        ids = range(len(self) + 1, len(self) + len(texts) + 1) if ids is None else ids
        if vectors.ndim != 2 or not len(texts) or not len(vectors) == len(texts) == len(ids):
            sizes = f"vectors of shape {vectors.shape}, {len(texts)} texts and {len(ids)} ids"
            raise DataError(f"received {sizes}. Expected equal numbers of at least 1, and vectors (N, D).")
        if not np.isfinite(vectors).all():
            raise DataError("a vector has a number that is NaN or infinite. Expected finite numbers.")
        self._vectors.append(unit(vectors))
        rows = ({"id": _plain(name), "text": text} for name, text in zip(ids, texts, strict=True))
        self._rows.append([(json_text(row, ensure_ascii=True) + "\n").encode() for row in rows])


class _Lines(Sequence[bytes]):
    """The lines of a file, which are read when they are used."""

    def __init__(self, path: Path, offsets: np.ndarray) -> None:
        self._bytes, self._offsets = np.memmap(path, np.uint8, mode="r"), offsets
        if offsets[-1] != len(self._bytes):
            raise ValueError(f"{path.name} has {len(self._bytes):,} bytes. Expected {offsets[-1]:,}")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: Any) -> Any:
        return self._bytes[self._offsets[number] : self._offsets[number + 1]].tobytes()


def _sha256(path: Path) -> str:
    with reading(path, DataError):
        return file_sha256(path)


def _plain(name: Any) -> int | str:
    """Return an id as JSON has it."""
    name = as_list(name)
    return name if isinstance(name, int | str) else str(name)


def _read(
    source: Any,
    ids: Sequence[Any] | None,
    columns: dict[str, str | None],
    last: dict[str, str | None],
    *,
    first: int,
) -> tuple[NumberedInputs, list[Any], dict[str, str | None]]:
    """Return the texts of a source that are not empty, their ids from `first`, and their columns."""
    kind = "row"
    if not isinstance(source, str | PathLike | Mapping) and not is_table(source, None):
        source = list(source)
    if isinstance(source, list) and any(isinstance(text, str) for text in source):
        for number, text in enumerate(source, start=1):
            if not isinstance(text, str):
                raise DataError(f"text {number} is {text!r}. Expected a string.")
        if any(columns.values()):
            raise ConfigError("text_column and id_column are for tables. Omit them for a list of texts.")
        texts, name, kind, columns = source, "the texts", "text", {}
        names = list(range(first, first + len(texts)) if ids is None else ids)
        if len(texts) != len(names):
            raise DataError(f"received {len(texts)} texts and {len(names)} ids. Expected equal numbers.")
    else:
        texts, names, name, columns = _read_table(source, ids, columns, last, first=first)
    filled = [number for number, text in enumerate(texts) if text.strip()]
    if not filled:
        raise DataError(f"{name}: there is no text. Expected at least one.")
    if empty := len(texts) - len(filled):
        logger.info(f"{name}: {empty:,} of {len(texts):,} rows have no text and are left out")
    numbers = [number + 1 for number in filled]
    where = name if kind == "row" else ""
    inputs = NumberedInputs([texts[number] for number in filled], where, numbers, kind)
    return inputs, [names[number] for number in filled], columns


def _read_table(
    source: Any,
    ids: Sequence[Any] | None,
    columns: dict[str, str | None],
    last: dict[str, str | None],
    *,
    first: int,
) -> tuple[list[str], list[Any], str, dict[str, str | None]]:
    if ids is not None:
        raise ConfigError("ids are for a list of texts. For a table, pass id_column.")
    rows = read_rows(Path(source) if isinstance(source, PathLike) else source, name="the texts")
    known = rows.columns

    def usual(option: str, *names: str | None) -> str | None:
        wanted = [name for name in (last.get(option), *names) if name]
        lower = {column.lower(): column for column in reversed(known)}
        found = (name if name in known else lower.get(name.lower()) for name in wanted)
        return columns[option] or next(filter(None, found), None)

    text = usual("text_column", *USUAL_COLUMNS["text"], known[0] if len(known) == 1 else None)
    text = text or find_text_column(rows) or "text"
    id_column = usual("id_column", "id" if text.lower() != "id" else None)
    if id_column is None and (wanted := last.get("id_column")):
        logger.warning(f"{rows.name} has no column {wanted!r}. The ids of its texts are numbers")
    elif id_column is None and len(known) > 1:
        logger.info(f"{rows.name} has no column 'id'. The ids are the numbers of the rows")
    rows.advice = ""  # an index has no options of the layout
    rows.check_columns(text_column=text, id_column=id_column)
    texts, names, missing = [], [], 0
    for number, row in enumerate(rows, start=first):
        if row.fault:
            raise DataError(f"{row.origin}: {row.fault}")
        name = row.values.get(id_column) if id_column else None
        texts.append(text_of(row.values.get(text)))
        names.append(number if is_missing(name) else name)
        missing += id_column is not None and is_missing(name)
    if missing:
        logger.warning(f"{rows.name}: {missing:,} of {len(texts):,} rows have no id. Their ids are numbers")
    return texts, names, rows.name, {"text_column": text, "id_column": id_column}
