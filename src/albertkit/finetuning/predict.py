"""Predict with a fine-tuned model for data of any size, in order: `predict`.

Predictions to a file need constant memory and can be resumed. Each part of a few thousand examples is
appended to a file next to the output: JSON lines, or for a .npy file vectors. An interrupted run continues
after its last complete part. At the end, this file is converted to the format of the output.
"""

import base64
import csv
import hashlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from itertools import chain, islice
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import to_numpy
from albertkit.checkpoints.sentence_modules import TASK
from albertkit.config import AlbertConfig
from albertkit.datasets.cells import is_missing
from albertkit.datasets.examples import UNANSWERED
from albertkit.datasets.options import DataOptions, columns_in
from albertkit.datasets.reader import Reader, ReadingReport
from albertkit.datasets.rows import read_rows
from albertkit.devices import CPU, Device, read_device
from albertkit.engines.choosing import engine_device, make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import LightModel, Model
from albertkit.errors import ConfigError, DataError, reading
from albertkit.extras import optional, require
from albertkit.files import (
    atomic_path,
    check_ending,
    finite,
    full_disk_named,
    json_text,
    made_folder,
    values_sha256,
)
from albertkit.finetuning.trained import open_trained
from albertkit.logs import ProgressBar, lines_shown
from albertkit.parallel import check_runner, ordered_map
from albertkit.recipe import takes_settings
from albertkit.results import ROWS_SHOWN, Result
from albertkit.tasks.loading import CHUNK, chunks, features_of_all
from albertkit.tasks.rows import UnknownTokens, tokens_cut
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.task import Task
from albertkit.text_files import lone_surrogate

pa = optional("pyarrow", extra="arrow")
parquet = optional("pyarrow.parquet", extra="arrow")
openpyxl = optional("openpyxl", extra="excel")
logger = logging.getLogger(__name__)

SCORES, SCORE_PREFIX, VECTOR = "scores", "score_", "vector"
_FLOAT32 = "float32"  # the key of an array of these numbers in base64
_SPACES = str.maketrans("\t\r\n", "   ")
_SHEET_ROWS, _CELL_CHARACTERS, _EXACT = 1_048_576, 32_767, 10**15  # limits of Excel
ENDINGS = (".jsonl", ".csv", ".tsv", ".xlsx", ".parquet", ".npy")
_LIBRARIES = {".parquet": ("pyarrow", "arrow"), ".xlsx": ("openpyxl", "excel")}


@dataclass(frozen=True, repr=False)
class Predictions(Result):
    """A sequence of records, in memory or in a file.

    The records of a file are read when they are used, with the columns of the file: the scores are in columns
    `score_LABEL`, except in a .jsonl file, and all values of a .csv or .tsv file are texts.
    """

    total: int
    """Number of predictions."""
    cut: list[int]
    """Number of removed tokens of each example that was truncated."""
    path: Path | None = None
    """The output file; None for predictions in memory."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """The columns of predictions in memory."""
    encoding: str | None = None
    """The encoding of a .csv or .tsv file; None for UTF-8."""
    delimiter: str | None = None
    """The separator between the cells of a .csv file; None for a comma."""

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.path is None:
            return iter(self.records)
        if self.path.suffix.lower() == ".npy":
            return ({VECTOR: vector} for vector in np.load(self.path, mmap_mode="r"))
        rows = read_rows(self.path, encoding=self.encoding, delimiter=self.delimiter)
        return (dict(row.values) for row in rows)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def summary(self) -> dict[str, Any]:
        """Return the values to show, by name."""
        figures: dict[str, Any] = {"predictions": self.total}
        if self.cut:
            figures["examples cut"] = len(self.cut)
        return figures if self.path is None else figures | {"file": self.path}

    def rows(self) -> list[dict[str, Any]]:
        """Return the first predictions."""
        return list(islice(self, ROWS_SHOWN))


@takes_settings(TaskSettings, DataOptions)
@lines_shown()
def predict(
    model: str | Path,
    *,
    input: Any,
    output: str | Path | None = None,
    task: str | Task | None = None,
    device: Device = "auto",
    batch_tokens: int | None = None,
    engine: str = "auto",
    runner: str = "local",
    workers: int | None = None,
    keep_columns: bool | str | Sequence[str] = False,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Predictions:
    """Return or write the prediction for each example.

    With an output file, the same call resumes after an interruption.

    Args:
        model: model folder or Hugging Face Hub name.
        input: file or folder of examples. Labels are ignored. In Python also a list of dicts, a DataFrame, an
            Arrow table, a database cursor, a `datasets.Dataset`, or an iterable of dicts or of the task's
            examples.
        output: file to write the predictions to: .jsonl, .csv, .tsv, .xlsx or .parquet; or .npy for the
            vectors of single texts alone. In Python also None, for predictions in memory.
        task: name of the task (default: the task that the model was fine-tuned for). In Python also a task of
            your own.
        device: the device: auto (the best available device), cpu, cuda, cuda:1, mps, ...
        batch_tokens: maximum number of tokens per batch, including padding; None for a default that suits the
            device.
        engine: "auto", "onnx", "onnx-int8", "torch" or "plain".
        runner: "local" for this process, or "ray" for a Ray cluster, which needs an output file.
        workers: number of Ray workers; None for one per GPU, or per CPU if there are no GPUs.
        keep_columns: copy the columns of the input to the output, before the predictions: all columns, or
            only the names after the flag, separated by commas. A column that has the name of a prediction's
            column is renamed `input_NAME`. In Python True, a name, or a list of names.
        progress: function that is called with the number of finished examples and the number of all examples
            after each part of an output file; None for a progress bar.
        **settings: fields of `TaskSettings` and `DataOptions`; the defaults are those of the fine-tuning.

    Returns:
        The predictions. Each record has `row`, the number of the input row, counted from 1; `id` if the input
        has ids; the kept columns; the prediction; and, for tasks that truncate texts, `cut`, the number of
        removed tokens.

    Raises:
        ConfigError: a task, engine, runner, setting or kind of output is unknown; or the runner is "ray"
            without an output.
        DataError: rows cannot be read, the output exists, or the model has no head.
        MissingExtraError: the output is a Parquet or XLSX file, and its library is not installed.
    """
    check_runner(runner, workers)
    if runner == "local" and workers is not None:
        raise ConfigError(f"workers is {workers}, but only the runner 'ray' has several. Omit it.")
    if output is None and runner != "local":
        raise ConfigError(f"runner is {runner!r}, which writes a file. Pass output, or omit runner.")
    output = None if output is None else Path(output)
    device = engine_device(engine, device)
    own_task, loaded, reader, about = open_trained(
        str(model),
        task,
        input,
        settings,
        call=predict,
        name="input",
        labeled=False,
        device=CPU if runner == "ray" else read_device(device),  # with Ray, only its workers compute
    )
    predictor, about = Predictor(own_task, loaded, batch_tokens, engine), {"task": own_task.name} | about
    if isinstance(keep_columns, str):
        keep_columns = columns_in(keep_columns, reader.rows.columns)
    if output is None:
        total, _ = _check_examples(reader, predictor.task, keep_columns)
        records: list[dict[str, Any]] = []
        with ProgressBar() as bar:
            for chunk in chunks(_items(reader, keep_columns)):
                records += predictor.records(chunk)
                bar.update_count(len(records), total, "examples")
        return Predictions(total, [one["cut"] for one in records if one.get("cut")], records=records)

    suffix = output.suffix.lower()
    check_ending(output, *ENDINGS)
    if library := _LIBRARIES.get(suffix):
        require(library[0], extra=library[1])
    if output.exists():
        raise DataError(f"{output} exists. Choose another name, or delete it first.")
    encoding = about.pop("encoding")  # another run can finish the file in another one
    encoding = encoding if suffix in (".csv", ".tsv") else None
    delimiter = about["delimiter"] if suffix == ".csv" else None
    total, content = _check_examples(reader, predictor.task, keep_columns)
    about |= {
        "part_size": CHUNK,
        "keep_columns": keep_columns,
        "model": model_sha256(predictor.model, predictor.task.config),
        "content of the input": content,
    }
    if engine == "onnx-int8":  # the scores of all other engines are equal up to rounding
        about["engine"] = engine
    if suffix == ".npy" and (predictor.task.name != TASK or next(iter(reader)).pair is not None):
        raise ConfigError(
            f"{output}: a .npy file is for the vectors of single texts, which these examples do not have. "
            "Choose another ending, such as .jsonl."
        )
    if suffix == ".npy":
        if keep_columns:
            raise ConfigError(f"{output}: a .npy file has no columns. Omit keep_columns, or write .parquet.")
        predictor.vectors = _vector_records(predictor.task)
    lines = output.with_name(f"{output.name}.partial")
    count = resume(lines, about, CHUNK, predictor.vectors)
    if count:
        logger.info(
            f"resuming after {count:,} of {total:,} predictions that an interrupted run kept in {lines}"
        )
    parts = ordered_map(
        predictor,
        chunks(islice(_items(reader, keep_columns), count, None), CHUNK),
        runner=runner,
        workers=1 if runner == "local" else workers,
        device=str(device),
        name=lambda part: f"rows {part[0].row} to {part[-1].row}",
        hint="the predictions before it are kept, and the same command resumes the work",
    )
    with ProgressBar() as bar, made_folder(output.parent), full_disk_named(lines):
        try:
            with closing(parts), lines.open("ab") as file:
                if not count:
                    file.write((json_text(about, default=str) + "\n").encode())
                for part in parts:
                    file.write(part)
                    file.flush()
                    count = min(count + CHUNK, total)
                    if progress:
                        progress(count, total)
                    else:
                        bar.update_count(count, total, "examples")
            cut, missing, unsure = list[int](), 0, 0
            if predictor.vectors is None:
                for record in _records(lines):
                    cut += [record["cut"]] if record.get("cut") else []
                    missing += "problem" in record
                    unsure += "problem" not in record and record.get(predictor.task.answer, "") is None
                convert(lines, output, encoding, delimiter)
            else:
                cut, missing = _write_npy(lines, output, predictor.vectors)
        except BaseException as error:
            if count:
                how = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped"
                kept = f"kept in {lines}; the same command resumes the work"
                logger.info(f"{how}: {count:,} of {total:,} predictions are {kept}")
            else:
                lines.unlink(missing_ok=True)
            raise
    lines.unlink()
    predicted = f"{count - missing - unsure:,}"
    also = f"; rows without a prediction: {missing:,}" if missing else ""
    also += f"; rows below the threshold: {unsure:,}" if unsure else ""
    logger.info("%s predictions in %s%s", predicted, output, also)
    if cut:
        where = "" if suffix == ".npy" else "; see the column 'cut'"
        logger.info(
            f"{len(cut):,} of {count:,} examples were truncated "
            f"({sum(cut):,} tokens removed, at most {max(cut):,} from one example{where})"
        )
    return Predictions(count, cut, output, encoding=encoding, delimiter=delimiter)


@dataclass(frozen=True)
class Item:
    """An example with the input values that its prediction repeats."""

    example: Any
    row: int  # its number in the input, from 1
    id: str | None = None  # in the input, if there is one
    kept: dict[str, Any] = field(default_factory=dict)  # columns of the input
    problem: str | None = None  # the reason why the example has no prediction

    def columns_beside(self, prediction: dict[str, Any]) -> dict[str, Any]:
        """Return the columns before the prediction's; columns with the same names are renamed input_NAME."""
        columns: dict[str, Any] = {"row": self.row} | ({} if self.id is None else {"id": self.id})
        taken = {*columns, *prediction, SCORES, "cut", "problem"}
        for name, value in self.kept.items():
            new = name
            while new in taken or new.startswith(SCORE_PREFIX) or (new != name and new in self.kept):
                new = f"input_{new}"
            columns[new] = None if is_missing(value) and not isinstance(value, str) else finite(value)
        return columns


@dataclass
class Predictor:
    """A task with its model. It can be pickled for other processes."""

    task: Task
    model: Model
    batch_tokens: int | None = None
    engine: str = "auto"
    vectors: np.dtype[Any] | None = None
    """The type of the binary records to return; None for JSON lines."""
    _has_warned: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_computing"}

    @cached_property
    def _computing(self) -> Engine:
        return make_engine(self.model, self.engine)

    def to(self, device: Device) -> "Predictor":
        """Move the model to a device before predicting; a light model stays on the CPU."""
        device = read_device(device)
        if device != CPU or not isinstance(self.model, LightModel):
            self.model.to(device)
        return self

    def __call__(self, items: Sequence[Item]) -> bytes:
        """Return one record per example: a line of JSON, or the vector and the number of cut tokens."""
        records, lines = self.records(items), []
        if self.vectors is not None:
            vectors = (np.nan if record[VECTOR] is None else record[VECTOR] for record in records)
            cuts = (record.get("cut", 0) for record in records)
            return np.array([*zip(vectors, cuts, strict=True)], self.vectors).tobytes()
        for record in records:
            if isinstance(vector := record.get(VECTOR), np.ndarray):  # reading numbers as text takes long
                record = record | {
                    VECTOR: {_FLOAT32: base64.b64encode(vector.astype("<f4").tobytes()).decode()}
                }
            lines.append(json_text(record, default=_plain) + "\n")
            text = json_text(record, default=_plain, ensure_ascii=False) if "\\ud" in lines[-1] else ""
            if lone := lone_surrogate(text):
                raise DataError(f"row {record['row']}: {lone} is a lone surrogate. No file can contain it.")
        return "".join(lines).encode()

    def records(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Return the columns of each prediction; `cut` is the number of removed tokens.

        An example without text has None in the columns of the prediction, and a column `problem`.
        """
        examples = [item.example for item in items]
        self.task.check_fit(examples)
        with warnings.catch_warnings():  # an empty text gets no prediction
            warnings.filterwarnings("ignore", "a text is empty")
            rows = self.task.features(examples)
        unknown = UnknownTokens(self.task.tokenizer)
        if not self._has_warned:  # once per process
            unknown.add(rows, count=len(examples))
            self._has_warned = unknown.warn()
        with_tokens = {row.example for row in rows if unknown.has_text(row)}
        outputs = self.task.run(self._computing, rows, batch_tokens=self.batch_tokens)
        records = []
        for number, (item, prediction) in enumerate(
            zip(items, self.task.predictions(examples, rows, outputs), strict=True)
        ):
            record = self.task.record(item.example, prediction)
            problem = item.problem or (None if number in with_tokens else "no tokens")
            if problem:
                record = {
                    name: dict.fromkeys(value) if isinstance(value, dict) else None
                    for name, value in record.items()
                }
            records.append(item.columns_beside(record) | record | ({"problem": problem} if problem else {}))
        if self.task.settings.truncation and not self.task.reads_windows:
            for record, cut in zip(records, tokens_cut(rows, examples=len(records)), strict=True):
                record["cut"] = cut
        return records


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def resume(lines: Path, about: dict[str, Any], part_size: int, vectors: np.dtype[Any] | None = None) -> int:
    """Cut the file of an interrupted run after its last complete part, and return its predictions."""
    if not lines.is_file():
        return 0
    first = json_text(about, default=str)
    with reading(lines, DataError), lines.open("rb+") as file:
        head = file.readline()
        if head.endswith(b"\n"):
            before, now = dict(json.loads(head)), json.loads(first)
            if names := [name for name in before | now if before.get(name) != now.get(name)]:
                raise DataError(
                    f"{lines} has predictions of an interrupted run with different {', '.join(names)}. Run "
                    "the original command again to finish it, or delete the file to start again."
                )
        elif not first.encode().startswith(head):  # otherwise killed within the first line
            raise ValueError("the first line is incomplete")
        count, complete, end, position = 0, 0, 0, file.tell()
        if vectors is not None:
            size = part_size * vectors.itemsize
            parts = (file.seek(0, os.SEEK_END) - position) // size
            file.truncate(position + parts * size if parts else 0)
            return parts * part_size
        for line in file:
            if not line.endswith(b"\n"):
                break
            count, position = count + 1, position + len(line)
            if count % part_size == 0:
                complete, end = count, position
        file.truncate(end)  # without a complete part, the run starts again
    return complete


def _check_examples(reader: Reader[Any], task: Task, keep_columns: bool | Sequence[str]) -> tuple[int, str]:
    """Read all examples once, check that they can be used, and return their number and a hash of the rows."""
    if keep_columns:
        if not reader.rows.columns:
            raise ConfigError(f"keep_columns is for tables, but {reader.source} has no columns. Omit it.")
        names = reader.rows.columns if keep_columns is True else keep_columns
        reader.rows.check_columns(keep_columns=names)
    report, digest = ReadingReport(reader.source), hashlib.sha256()

    def examples() -> Iterator[Any]:
        for row, example in reader.numbered(report, counts_all=True):
            digest.update(values_sha256([row.values]).encode())
            yield example

    may_fail = task.may_be_too_long or not (task.settings.truncation or task.reads_windows)
    for _ in features_of_all(task, examples()) if may_fail else examples():
        pass
    if wrong := report.rows - report.examples:
        problems = report.problems.values()
        first = [one for rows in problems for one in rows.first if not one.endswith(UNANSWERED)]
        more = "; ..." if wrong > len(first) else ""
        raise DataError(
            f"{reader.source}: {wrong:,} of {report.rows:,} rows cannot be read, but predictions must match "
            f"the rows: {'; '.join(first)}{more}. Correct or remove them."
        )
    if not report.rows:
        raise DataError(f"{reader.source}: there are no examples to predict for.")
    if report.problems:
        logger.info("\n".join(report.lines()))
    return report.rows, digest.hexdigest()


def _items(reader: Reader[Any], keep_columns: bool | Sequence[str]) -> Iterator[Item]:
    """Yield the examples with their row numbers and the columns to keep."""
    report = ReadingReport(reader.source)
    empty = 0
    for row, example in reader.numbered(report):
        before, empty = empty, report.problems["empty"].count if "empty" in report.problems else 0
        names = row.values if keep_columns is True else keep_columns or ()
        kept = {name: row.values.get(name) for name in names if name != reader.columns.id}
        name = getattr(example, "id", "")
        given = None if name in ("", row.origin) else name
        yield Item(example, row.number, given, kept, problem="empty" if empty > before else None)


def model_sha256(model: Model, config: AlbertConfig) -> str:
    """Return the hash of all weights and the config, because a folder may contain another model by now."""
    digest = hashlib.sha256(config.to_json_string().encode())
    if isinstance(model, LightModel):
        parameters: dict[int, tuple[str, np.ndarray]] = {}
        for name, array in model.weights.items():
            parameters.setdefault(id(array), (name, array))  # tied ones once, as in a module
        named = iter(parameters.values())
    else:
        named = ((name, to_numpy(parameter)) for name, parameter in model.named_parameters())
    for name, array in named:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


# --- formats of the output


def convert(lines: Path, output: Path, encoding: str | None = None, delimiter: str | None = None) -> None:
    """Write the records of a file of JSON lines, after its first line, in the format of the output."""
    with reading(lines, DataError), atomic_path(output) as target:
        match output.suffix.lower():
            case ".jsonl":
                _write_jsonl(lines, target)
            case ".xlsx":
                _write_xlsx(lines, target)
            case ".parquet":
                _write_parquet(lines, target)
            case suffix:
                try:
                    _write_cells(lines, target, suffix, encoding or "utf-8", delimiter or ",")
                except UnicodeEncodeError as error:
                    raise ConfigError(
                        f"{output}: {encoding} cannot encode {error.object[error.start]!r}. Choose another "
                        "--encoding, or write an .xlsx file."
                    ) from error


def _records(lines: Path) -> Iterator[dict[str, Any]]:
    with reading(lines, DataError), lines.open("rb") as file:
        yield from map(_record, islice(file, 1, None))


def _record(line: bytes) -> dict[str, Any]:
    record = json.loads(line)
    vector = record.get(VECTOR)
    if isinstance(vector, dict) and vector.keys() == {_FLOAT32}:
        record[VECTOR] = np.frombuffer(base64.b64decode(vector[_FLOAT32]), "<f4")
    return record


def _flat_records(lines: Path) -> Iterator[dict[str, Any]]:
    """Yield the records with a column for each score."""
    for record in _records(lines):
        flat: dict[str, Any] = {}
        for name, value in record.items():
            if name == SCORES and isinstance(value, dict | list):
                named = value.items() if isinstance(value, dict) else enumerate(value)
                flat |= {f"{SCORE_PREFIX}{label}": score for label, score in named}
            else:
                flat[name] = value
        yield flat


def _columns(lines: Path) -> dict[str, set[type]]:
    """Return the columns of all records, each with the types of its values; `cut` comes last."""
    columns: dict[str, set[type]] = {}
    for record in _flat_records(lines):
        for name, value in record.items():
            kinds = columns.setdefault(name, set())
            if value is not None:
                kinds.add(float if type(value) is int else type(value))
    return dict(sorted(columns.items(), key=lambda column: column[0] == "cut"))


def _cell(value: Any) -> str:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, list | dict):
        return json_text(value, ensure_ascii=False)
    return "" if value is None else str(value)


def _write_jsonl(lines: Path, target: Path) -> None:
    with lines.open("rb") as source, target.open("wb") as file:
        mark = f'"{VECTOR}": {{"{_FLOAT32}": "'.encode()
        for line in islice(source, 1, None):
            file.write((json_text(_record(line), default=_plain) + "\n").encode() if mark in line else line)


def _vector_records(task: Task) -> np.dtype[Any]:
    """Return the type of a vector with the number of cut tokens."""
    size = task.keep(np.zeros((1, task.config.hidden_size), np.float32)).shape[-1]
    return np.dtype([(VECTOR, "<f4", size), ("cut", "<i4")])


def _write_npy(source: Path, output: Path, records: np.dtype[Any]) -> tuple[list[int], int]:
    """Write a row for each record, NaN without a text.

    Return the numbers of cut tokens above 0, and the number of rows without a text.
    """
    missing, cut = 0, list[int]()
    with atomic_path(output) as target, source.open("rb") as file, target.open("wb") as written:
        count = (source.stat().st_size - len(file.readline())) // records.itemsize
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, *records[VECTOR].shape)}
        # Not a memory map: on a full disk, it would end the process.
        np.lib.format.write_array_header_1_0(written, header)
        while part := file.read(CHUNK * records.itemsize):
            block = np.frombuffer(part, records)
            missing += int(np.isnan(block[VECTOR][:, 0]).sum())
            cut += block["cut"][block["cut"] > 0].tolist()
            written.write(block[VECTOR].tobytes())
    if missing:
        logger.warning("rows without text: %s. Their vectors are NaN.", f"{missing:,}")
    return cut, missing


def _size_of_vectors(lines: Path) -> int | None:
    """Return the number of dimensions of the vectors; None if there are none."""
    vectors = (record.get(VECTOR) for record in _records(lines))
    return next((len(vector) for vector in vectors if isinstance(vector, np.ndarray)), None)


def _write_cells(lines: Path, target: Path, suffix: str, encoding: str, delimiter: str) -> None:
    """Write a .csv or .tsv file. In a .tsv file, tabs and line breaks in cells become spaces.

    albertkit reads .tsv files without quoting, so a quoted cell would not be read as it was written.
    """
    columns, changed = list(_columns(lines)), 0
    rows = ([_cell(record.get(name)) for name in columns] for record in _flat_records(lines))
    with target.open("w", encoding=encoding, newline="") as file:
        if suffix == ".csv":
            writer = csv.writer(file, delimiter="\t" if delimiter == "\\t" else delimiter)
            writer.writerows(chain([columns], rows))
            return
        for cells in chain([columns], rows):
            written = [cell.translate(_SPACES) for cell in cells]
            changed += sum(map(ne, written, cells))
            file.write("\t".join(written) + "\n")
    if changed:
        logger.warning(
            f"replaced the tabs and line breaks in {changed:,} cell{'s' * (changed != 1)} with spaces, "
            "because a .tsv file cannot contain them. To keep them, write a .jsonl, .csv or .parquet file."
        )


def _write_xlsx(lines: Path, target: Path) -> None:
    """Write a sheet. Columns that have only ISO dates become dates, and texts never become formulas."""
    columns, count = _columns(lines), 0
    dates = {name for name, kinds in columns.items() if kinds == {str}}
    for record in _flat_records(lines):
        count += 1
        dates = {name for name in dates if not record.get(name) or _date(record[name])}
    if count >= _SHEET_ROWS:
        raise DataError(
            f"a sheet has {_SHEET_ROWS:,} rows, but there are {count:,} predictions. Write a .csv file."
        )
    workbook, changed = openpyxl.Workbook(write_only=True), 0
    sheet = workbook.create_sheet("predictions")
    sheet.freeze_panes = "A2"

    def cell(value: Any) -> Any:
        nonlocal changed
        if (
            value is None
            or isinstance(value, bool | float | date)
            or (type(value) is int and abs(value) < _EXACT)
        ):
            return value
        written = openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE.sub(" ", _cell(value))[:_CELL_CHARACTERS]
        changed += written != _cell(value)
        made = openpyxl.cell.WriteOnlyCell(sheet, written)
        made.data_type = "s"
        return made

    sheet.append([*map(cell, columns)])
    for record in _flat_records(lines):
        values = ((name, record.get(name)) for name in columns)
        sheet.append([cell(_date(value) if value and name in dates else value) for name, value in values])
    workbook.save(target)
    if changed:
        logger.warning(
            f"changed {changed:,} text{'s' * (changed != 1)}, because a cell in Excel can contain at most "
            f"{_CELL_CHARACTERS:,} characters and no control characters. To keep all characters, write a "
            ".jsonl, .csv or .parquet file."
        )


def _date(text: str) -> date | None:
    """Return the date, or the date and time, that an ISO text is, or None."""
    try:
        return date.fromisoformat(text) if len(text) == 10 else datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None


def _write_parquet(lines: Path, target: Path) -> None:
    """Write row groups of one schema. Types are merged, because some rows may have only empty lists."""
    columns = _columns(lines)
    mixed = [name for name, kinds in columns.items() if len(kinds) > 1]  # become text

    def table(records: Iterable[dict[str, Any]], schema: Any = None) -> Any:
        rows = [{name: record.get(name) for name in columns} for record in records]
        for row in rows:
            for name in mixed:
                if row[name] is not None and not isinstance(row[name], str):
                    row[name] = json_text(row[name], ensure_ascii=False)
        return pa.Table.from_pylist(rows, schema=schema)

    try:
        schemas = [table(records).schema for records in chunks(_flat_records(lines))]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        if size := _size_of_vectors(lines):
            vectors = pa.field(VECTOR, pa.list_(pa.float32(), size))
            schema = schema.set(schema.get_field_index(VECTOR), vectors)
        # A dictionary of different vectors only adds to their size.
        others = [name for name in columns if name != VECTOR]
        with parquet.ParquetWriter(target, schema, use_dictionary=others) as writer:
            for records in chunks(_flat_records(lines)):
                writer.write_table(table(records, schema))
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise DataError(
            f"the predictions do not fit into a Parquet file ({error}). Write them as .jsonl, or without "
            "--keep-columns."
        ) from error
