"""Predict with a fine-tuned model for data of any size, in order: `predict`.

Predictions to a file are resumable and need constant memory. Each part of a few thousand examples is written
completely, into a folder next to the output. An interrupted run continues after the last part. At the end,
the parts are merged into the output.
"""

import hashlib
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import to_numpy
from albertkit.config import AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import UNANSWERED, Reader, ReadingReport, TableReader
from albertkit.devices import CPU, Device, read_device
from albertkit.engines.choosing import engine_device
from albertkit.engines.light_model import LightModel, Model
from albertkit.errors import ConfigError, DataError
from albertkit.extras import require
from albertkit.files import atomic_path, made_folder, read_json, values_sha256, write_json
from albertkit.finetuning.prediction_files import WRITERS, checked_records, part_files, read_records
from albertkit.finetuning.predictor import Asked, Predictor
from albertkit.finetuning.trained import open_trained
from albertkit.logs import ProgressBar, lines_shown
from albertkit.parallel import RUNNERS, check_runner, ordered_map
from albertkit.recipe import takes_settings
from albertkit.results import ROWS_SHOWN, Result
from albertkit.tasks.loading import CHUNK, chunks, features_of_all
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.task import Task

logger = logging.getLogger(__name__)

_ABOUT = "about.json"
_NAMES = {"model_sha256": "model", "input_sha256": "content of the input"}


@dataclass(frozen=True, repr=False)
class Predictions(Result):
    """A sequence of records, in memory or in a file. The records of a file are read when they are used."""

    total: int
    """Number of predictions."""
    cut: list[int]
    """Number of removed tokens of each example that was truncated."""
    path: Path | None = None
    """The output file; None for predictions in memory."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """The columns of predictions in memory."""
    types: dict[str, Counter[type]] = field(default_factory=dict)
    """The number of values of each type, by column of a file."""

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.path is None:
            return iter(self.records)
        return read_records(self.path, self.types)

    def __getitem__(self, place: Any) -> Any:
        return self.records[place] if self.path is None else list(self)[place]

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
    keep_columns: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Predictions:
    """Return or write the prediction for each example.

    With an output file, the same call resumes after an interruption.

    Args:
        model: folder or name of the model.
        input: examples: the path of a file or folder, a list of dicts, a DataFrame, an Arrow table, a
            `datasets.Dataset`, or an iterable of dicts or of the task's examples; labels are not read.
        output: file for the predictions: .jsonl, .csv, .tsv or .parquet; None for predictions in memory.
        task: name of the task, or a task of your own; None for the task that the model was fine-tuned for.
        device: "auto", "cpu", "cuda" and so on.
        batch_tokens: maximum number of tokens per batch, including padding; None for a default that suits the
            device.
        engine: "auto", "onnx", "onnx-int8", "torch" or "plain".
        runner: "local" for this process, or "ray" for a Ray cluster, which needs an output file.
        workers: number of Ray workers; None for one per GPU, or per CPU if there are no GPUs.
        keep_columns: whether to copy the columns of the input to the output. A column with the name of a
            prediction's column is renamed `input_NAME`.
        progress: function that is called with the number of finished examples and the number of all examples
            after each part of an output file; None for a progress bar.
        **settings: fields of `TaskSettings` and `DataOptions`; the defaults are those of the fine-tuning.

    Returns:
        The predictions. Each record has `row`, the number of the input row, counted from 1; `id` if the input
        has ids; the kept columns; the prediction; and, for tasks that truncate texts, `cut`, the number of
        removed tokens.

    Raises:
        ConfigError: a task, engine, runner or setting is unknown; or the runner is "ray" without an output.
        DataError: rows cannot be read, the output exists, or the model has no head.
        MissingExtraError: the output is a Parquet file, and pyarrow is not installed.
    """
    if engine in RUNNERS:
        raise ConfigError(f"--engine is {engine!r}, but that is a runner. Use --runner {engine}.")
    model = str(model)
    check_runner(runner, workers)
    if runner == "local" and workers is not None:
        raise ConfigError(f"workers is {workers}, but the local runner is a single process. Choose ray.")
    if output is None and runner != "local":
        raise ConfigError(f"runner is {runner!r}, which writes a file. Pass output, or omit runner.")
    device = engine_device(engine, device)
    place = CPU if runner == "ray" else read_device(device)  # with Ray, only its workers compute
    setup = open_trained(
        model, task, input, settings, call=predict, name="input", labeled=False, device=place
    )
    predictor = Predictor(setup.task, setup.model, batch_tokens, engine)
    if output is None:
        return _predict_in_memory(predictor, setup.reader, keep_columns)
    with ProgressBar() as bar:
        made = predict_file(
            predictor,
            setup.reader,
            Path(output),
            about={"task": setup.task.name} | setup.settings,
            runner=runner,
            workers=workers,
            device=str(device),
            keep_columns=keep_columns,
            progress=progress
            or (lambda done, total: bar.update(f"{done:,} of {total:,} examples", done, total)),
        )
    logger.info("%s predictions in %s", f"{made.total:,}", output)
    if cut := made.cut:
        logger.info(
            f"{len(cut):,} of {made.total:,} predictions are for examples that were truncated ({sum(cut):,} "
            f"tokens removed, up to {max(cut):,} of one example); the column 'cut' has the numbers"
        )
    return made


def _predict_in_memory(predictor: Predictor, reader: Reader[Any], keep_columns: bool) -> Predictions:
    _checked(reader, predictor.task, keep_columns)
    records: list[dict[str, Any]] = []
    for chunk in chunks(_asked(reader, keep_columns)):
        records += predictor.records(chunk)
    cut = [record["cut"] for record in records if record.get("cut")]
    return Predictions(len(records), cut, records=records)


def predict_file(
    predictor: Predictor,
    reader: Reader[Any],
    output: Path,
    *,
    about: dict[str, Any],
    part_size: int = CHUNK,
    runner: str = "local",
    workers: int | None = None,
    device: str = "auto",
    keep_columns: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Predictions:
    """Write the predictions for all examples of a reader, one row per example; see `predict`.

    `about` has the settings of this run, as JSON values. Parts of a run with other settings, another model or
    another input are not continued. A part has `part_size` examples. All runners write the same parts, so one
    can continue a run of another.

    Raises:
        ConfigError: `keep_columns` is set for an input that is not a table, the runner is unknown, or the Ray
            cluster does not have enough workers.
        MissingExtraError: the output is a Parquet file, and pyarrow is not installed.
        DataError: rows cannot be read, the output has an unknown format, exists or is part of the input, its
            folder has parts of another run, or a part failed.
    """
    _check_output(Path(reader.source), output)
    parts = output.with_name(f".{output.name}.parts")
    about = about | {
        "part_size": part_size,
        "keep_columns": keep_columns,
        "model_sha256": model_sha256(predictor.model, predictor.task.config),
        "input_sha256": values_sha256(row.values for row in reader.rows()),
    }
    if predictor.engine == "onnx-int8":  # the scores of all other engines are equal up to rounding
        about["engine"] = predictor.engine
    done = _kept(parts, about)
    total = _checked(reader, predictor.task, keep_columns)
    count = min(len(done) * part_size, total)
    if done:
        logger.info(
            f"resuming after {count:,} of {total:,} predictions, which an interrupted run kept in {parts}"
        )
    examples = islice(_asked(reader, keep_columns), count, None)
    finished = ordered_map(
        predictor,
        chunks(examples, part_size),
        runner=runner,
        workers=1 if runner == "local" else workers,
        device=device,
        name=lambda part: f"rows {part[0].row} to {part[-1].row}",
        hint="the predictions before it are kept, and the same command resumes the work",
    )
    with made_folder(output.parent):
        try:
            if not done:
                parts.mkdir(exist_ok=True)
                write_json(parts / _ABOUT, about, indent=None)
            with closing(finished):
                for number, text in enumerate(finished, start=len(done)):
                    with atomic_path(parts / f"{number:08d}.jsonl") as file:
                        file.write_text(text, encoding="utf-8")
                    count += text.count("\n")
                    progress(count, total)
            cut, types = [], dict[str, Counter[type]]()
            for record in checked_records(parts):
                if left_out := record.get("cut", 0):
                    cut.append(left_out)
                for name, value in record.items():
                    types.setdefault(name, Counter())[type(value)] += 1
            with atomic_path(output) as file:
                WRITERS[output.suffix.lower()](parts, file)
        except BaseException as error:
            if part_files(parts):
                how = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped"
                kept = f"kept in {parts}; the same command resumes the work"
                logger.info(f"{how}: {count:,} of {total:,} predictions are {kept}")
            else:
                shutil.rmtree(parts, ignore_errors=True)
            raise
    shutil.rmtree(parts)
    return Predictions(count, cut, output, types=types)


def _check_output(source: Path, output: Path) -> None:
    if output.suffix.lower() not in WRITERS:
        raise DataError(
            f"{output}: unsupported file type. Expected a name that ends in {', '.join(WRITERS)}."
        )
    if output.suffix.lower() == ".parquet":
        require("pyarrow", extra="arrow")
    if output.is_dir():
        raise DataError(f"{output} is a folder. Pass the name of a file.")
    if output.exists() and source.exists() and output.samefile(source):
        raise DataError(f"{output} is the input. Choose another file for the predictions.")
    if output.exists():
        raise DataError(f"{output} exists. Choose another name, or delete it first.")
    if source.is_dir() and output.resolve().is_relative_to(source.resolve()):
        raise DataError(
            f"{output} is inside the input {source} and would be read as a part of it. Choose a file in "
            "another folder."
        )


def _checked(reader: Reader[Any], task: Task, keep_columns: bool) -> int:
    """Return the number of examples, after reading all of them once and checking that they can be used."""
    if keep_columns:
        if not isinstance(reader, TableReader):
            raise ConfigError(f"keep_columns is for tables, but {reader.source} has no columns. Omit it.")
        reader.table.check_columns({"--keep-columns": reader.table.columns()})
    report = ReadingReport(reader.source, counts_all=True)
    examples = (example for _, example in reader.read(report))
    for _ in features_of_all(task, examples) if task.refuses else examples:
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
        raise DataError(f"{reader.source}: there are no examples to predict for. Expected at least one.")
    if report.problems:
        logger.info("\n".join(report.lines()))
    return report.rows


def _asked(reader: Reader[Any], keep_columns: bool) -> Iterator[Asked]:
    """Yield the examples with their row numbers and the columns to keep."""
    report = ReadingReport(reader.source)
    table = reader.table if keep_columns and isinstance(reader, TableReader) else None
    own_id = reader.options.id_column if isinstance(reader, TableReader) else None
    rows = table.rows() if table else repeat(None)
    empty = 0
    for (origin, example), row in zip(reader.read(report), rows, strict=False):
        before, empty = empty, report.problems["empty"].count if "empty" in report.problems else 0
        kept = {name: value for name, value in row.values.items() if name != own_id} if row else {}
        name = getattr(example, "id", "")
        yield Asked(
            example, report.rows, None if name in ("", origin) else name, kept,
            problem="empty" if empty > before else None,
        )  # fmt: skip


def _kept(parts: Path, about: dict[str, Any]) -> list[Path]:
    """Return the finished parts of this run."""
    file = parts / _ABOUT
    if not file.is_file() or not part_files(parts):
        return []
    try:
        before = read_json(file, DataError)
    except DataError as error:
        raise DataError(f"{str(error).rstrip('.')}. Delete the folder {parts} to start again.") from error
    names = [name for name in before | about if before.get(name) != about.get(name)]
    if names:
        listed = ", ".join(_NAMES.get(name, name) for name in names)
        raise DataError(
            f"{parts} has predictions of an interrupted run with different {listed}. Run the original "
            "command again to finish it, or delete the folder to start again."
        )
    return part_files(parts)


def model_sha256(model: Model, config: AlbertConfig) -> str:
    """Return the hash of all weights and the config, because a folder may contain another model by now."""
    found = hashlib.sha256(config.to_json_string().encode())
    if isinstance(model, LightModel):
        parameters: dict[int, tuple[str, np.ndarray]] = {}
        for name, array in model.weights.items():
            parameters.setdefault(id(array), (name, array))  # tied ones once, as in a module
        named = iter(parameters.values())
    else:
        named = ((name, to_numpy(parameter)) for name, parameter in model.named_parameters())
    for name, array in named:
        found.update(name.encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()
