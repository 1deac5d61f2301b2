"""A fine-tuned model with its task, and the settings and columns of its fine-tuning."""

import inspect
import json
import logging
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from albertkit.checkpoints.formats import load_config
from albertkit.checkpoints.match import saved_class
from albertkit.datasets.examples import content_of
from albertkit.datasets.options import DataOptions, columns_in
from albertkit.datasets.reader import Reader
from albertkit.datasets.rows import Rows, as_source, existing_file, read_rows
from albertkit.devices import CPU, Device
from albertkit.engines.choosing import load_model
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError, DataError, did_you_mean, reading, suggestion
from albertkit.files import values_sha256
from albertkit.recipe import build, scalar_fields
from albertkit.tasks.loading import open_reader
from albertkit.tasks.registry import task_for
from albertkit.tasks.settings import TaskSettings, saved_lengths
from albertkit.tasks.task import Task
from albertkit.text_files import file_format, is_utf8
from albertkit.training.progress import BEST, RUN_JSON
from albertkit.vocabularies import load_tokenizer

logger = logging.getLogger(__name__)

REPORT_JSON, PREDICTIONS = "report.json", "predictions.jsonl"
COLUMNS_KEY = "columns"
CONTENTS = "training_contents.jsonl"
"""File of a run with a hash of each text, pair or context of its training examples, one per line. Files with
this ending are not uploaded to the hub."""
_LAYOUT = ("header", "delimiter")
_OF_FILE = ("glue", "sheet")
_OF_LABELS = {"label_column", "label_separator", "merge_labels", "negative_column", "answers_column"}
_NO_COLUMNS = ("label_separator", "merge_labels")
_TEXTS = (".csv", ".tsv", ".jsonl", ".txt")


def task_settings(model: str | Path, given: dict[str, Any]) -> TaskSettings:
    """Return the settings for reading examples: those given, otherwise those of the fine-tuning."""
    if given.get("threshold") == "auto":
        raise ConfigError(
            "threshold is 'auto', which only finetune accepts, because it tunes thresholds on its validation "
            "data. Pass numbers, or omit it for the thresholds in the model's config."
        )
    trained = _report(Path(model)).get("settings")
    # Without a report: a checkpoint, a copy of only the model, a name on the hub.
    lengths = trained.get("task", {}) if trained else saved_lengths(load_config(str(model)))
    lengths = {name: value for name, value in lengths.items() if name != "threshold"}  # it is in the config
    return build(TaskSettings, {**lengths, **given}, where="settings")


def chosen_metric(model: str | Path, task: Task) -> str | None:
    """Return the metric that selected the model, or None if it is unknown or the task's main metric."""
    report = _report(Path(model))
    settings, name = report.get("settings"), report.get("main_metric")
    if settings is None or not isinstance(name, str):
        return None
    return name if settings.get("best_metric") or name not in task.metrics else None


def check_metric(metric: str, known: Iterable[str], *, name: str) -> None:
    known = list(known)
    if metric not in known:
        raise ConfigError(
            f"{name} is {metric!r}{did_you_mean(metric, known)}. Expected one of {', '.join(known)}."
        )


def split_settings(
    settings: type, given: dict[str, Any], *, call: Callable[..., Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keyword arguments of a call into fields of `settings` and of `DataOptions`."""
    known, options = ({field.name for _, field in scalar_fields(one)} for one in (settings, DataOptions))
    for name in given:
        if name not in known | options:
            raise ConfigError(
                f"unknown setting {name!r}. {suggestion(name, inspect.signature(call).parameters)}"
            )
    flags = {name: value for name, value in given.items() if name not in options}
    return flags, {name: given[name] for name in given if name in options}


def load_task(
    task: str | Task | None, model: str | Path, settings: TaskSettings, *, device: Device = CPU
) -> tuple[Task, Model]:
    model = str(model)
    chosen = task_for(load_config(model), model, task)
    loaded, report = load_model(model, chosen.architecture, device=device)
    if missing := [name for name in report.missing if not name.startswith(chosen.unused)]:
        raise DataError(
            f"{model} is saved as {saved_class(loaded.config)} and lacks {', '.join(missing[:3])}: it was "
            f"not fine-tuned for {chosen.name} ({chosen.architecture})."
        )
    return chosen.bind(load_tokenizer(model), loaded.config, settings), loaded


def open_trained(
    model: str,
    task: str | Task | None,
    data: Any,
    given: dict[str, Any],
    *,
    call: Callable[..., Any],
    name: str,
    labeled: bool,
    device: Device,
) -> tuple[Task, Model, Reader[Any], dict[str, Any]]:
    """Load a fine-tuned model, open its data, and log the data options that come from the fine-tuning.

    Returns:
        The task, bound to the model; the model; the reader; and the settings and data options by name.
    """
    flags, columns = split_settings(TaskSettings, given, call=call)
    settings = task_settings(model, flags)
    bound, loaded = load_task(task, model, settings, device=device)
    if (best := Path(model) / BEST).is_dir() and not is_run(Path(model)):
        logger.info("%s is a run that has not finished. This is its last model; its best is %s.", model, best)
    source = as_source(data, name=name)
    options = data_options(model, bound, source, columns, labeled=labeled)
    if used := _changes(options, build(DataOptions, columns, where="columns")):
        shown = " ".join(
            f"--{name.replace('_', '-')}{'' if value is True else ' ' + shlex.quote(value)}"
            if value is not False
            else f"--no-{name}"
            for name, value in used.items()
        )
        logger.info("options from the fine-tuning run: %s", shown)
    reader = open_reader(bound, source, options, name=name, labeled=labeled)
    if note := length_note(bound):
        logger.info("%s", note)
    return bound, loaded, reader, asdict(settings) | asdict(options)


def length_note(task: Task) -> str | None:
    """Return a note if the maximum length in the settings exceeds the model's maximum, otherwise None."""
    wanted, limit = task.settings.max_length, task.max_length
    if wanted is None or wanted <= limit:
        return None
    return f"max_length is {wanted}, but the model's maximum is {limit} tokens: using {limit}"


def saved_columns(options: DataOptions) -> dict[str, Any]:
    """Return the data options that differ from their defaults, for a report.

    The options of the file alone, such as its sheet, are left out.
    """
    changes = _changes(options, DataOptions())
    return {name: value for name, value in changes.items() if name not in _OF_FILE}


def _changes(options: DataOptions, default: DataOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if value != getattr(default, name)}


def data_options(
    model: str | Path, task: Task, data: Any, given: dict[str, Any], *, labeled: bool
) -> DataOptions:
    """Return the options passed, otherwise those of the fine-tuning whose columns the data has."""
    options = build(DataOptions, given, where="columns")
    remembered = _report(Path(model)).get(COLUMNS_KEY, {})
    known = {field.name for field in fields(DataOptions)} - set(given)
    if not labeled:
        known -= _OF_LABELS
    trained = {name: value for name, value in remembered.items() if name in known}
    if not trained or options.glue is not None:
        return options
    is_text = isinstance(data, str | Path) and file_format(Path(data))[0] in _TEXTS
    if "encoding" in trained and is_text and not is_utf8(existing_file(Path(data))):
        options = replace(options, encoding=trained["encoding"])
    table = _table(task, data, options)
    if table is not None and file_format(Path(table.name))[0] in (".csv", ".tsv"):
        layout = replace(options, **{name: trained[name] for name in _LAYOUT if name in trained})
        with suppress(DataError):  # the file has another delimiter
            table, options = _table(task, data, layout), layout
    if table is not None:  # only tables in memory have spaces around their names
        spaced = {column.strip(): column for column in table.columns if column != column.strip()}
        trained = {name: spaced.get(value, value) for name, value in trained.items()}

    def applies(name: str) -> bool:
        if name in (*_NO_COLUMNS, *_LAYOUT, "encoding"):
            return name in _NO_COLUMNS
        if table is None:  # CoNLL files have column numbers
            return str(trained[name]).removeprefix("-").isdecimal()
        return {*columns_in(str(trained[name]), table.columns)} <= {*table.columns}

    for name in ("text_column", "label_column"):
        if table is None or name not in trained or applies(name):
            continue
        default = getattr(options, name)
        used = f". Using the column {default!r} instead" if default in table.columns else ""
        logger.info(f"{table.name} has no column {trained[name]!r}, which the fine-tuning run used{used}")
    return replace(options, **{name: value for name, value in trained.items() if applies(name)})


def _table(task: Task, data: Any, options: DataOptions) -> Rows | None:
    if not isinstance(data, str | Path):
        return data if isinstance(data, Rows) else None
    path = Path(data)
    if not ((path / "state.json").is_file() or file_format(path)[0] in task.table_formats):
        return None
    return read_rows(path, **options.layout())


def content_hashes(examples: Iterable[Any]) -> list[str | None]:
    """Return a hash of the text, pair or context of each example; None for examples of your own class."""
    contents = map(content_of, examples)
    return [one if one is None else values_sha256([one])[:16] for one in contents]


def shared_note(shared: int, examples: int) -> str:
    return (
        f"{shared:,} of {examples:,} examples have the same text or context as a training example, so the "
        "metrics can be too high"
    )


def shared_with_training(model: str, examples: Sequence[Any]) -> int | None:
    """Return how many examples have the content of a training example; None if that is unknown."""
    file = Path(model) / CONTENTS
    if not file.is_file():
        return None
    known = {*file.read_text(encoding="utf-8").split()}
    return sum(f'"{one}"' in known for one in content_hashes(examples))


def is_run(folder: Path) -> bool:
    return "settings" in _report(folder)


def _report(folder: Path) -> dict[str, Any]:
    """Return the content of a report; without one, only the columns of the run; empty outside of a run."""
    run = folder
    if folder.name == BEST:
        run = folder.parent
    elif folder.parent.name == "checkpoints":
        run = folder.parent.parent
    file = next(filter(Path.is_file, (folder / REPORT_JSON, run / RUN_JSON)), None)
    if file is None:
        return {}
    with reading(file, ConfigError):
        report = json.loads(file.read_bytes())
        if file.name == RUN_JSON:
            options = {field.name for field in fields(DataOptions)}
            columns = {name: value for name, value in report["settings"].items() if name in options}
            report = {COLUMNS_KEY: columns}
        settings = report.get("settings", {})
        for table in (settings, settings.get("task", {}), report.get(COLUMNS_KEY, {})):
            table.keys()
    build(DataOptions, report.get(COLUMNS_KEY, {}), where=f"{file}: {COLUMNS_KEY}")  # checks names and types
    return report
