"""From files and a model's name to what a run works on: rows, a task, a config, a model with a new head."""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from albertkit.config import AlbertConfig
from albertkit.datasets.labels import NUMBER_FORM, is_number_with_comma
from albertkit.datasets.splits import Splits, load_splits
from albertkit.finetuning.batches import Unit
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.evaluation import EvaluationSet
from albertkit.finetuning.exits import note_exits
from albertkit.finetuning.features import features_of_all
from albertkit.finetuning.labelled_task import LabelledTask, room_note
from albertkit.finetuning.registry import labelled_task
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained_settings import saved_columns
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.task import SETTINGS_KEY, Task
from albertkit.tasks.unknown import UnknownTokens
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.base import TokenizerBase


@dataclass(frozen=True)
class Prepared:
    """What all runs on the same data share."""

    labelled: LabelledTask
    task: Task
    tokenizer: TokenizerBase
    config: AlbertConfig
    start: str
    """The model to begin with."""
    units: list[Unit]
    validation: EvaluationSet
    data: dict[str, Any]
    """What is reported about the data."""
    columns: dict[str, Any]
    """The options of the files that `evaluate` and `predict` use as defaults."""

    @property
    def rows(self) -> list[Any]:
        """Return all training rows."""
        return [row for unit in self.units for row in unit]

    @property
    def main_metric(self) -> str:
        """Name of the task's own main metric."""
        return self.labelled.main_metric(self.config, self.validation.examples)


def prepare(
    task: str,
    settings: FinetuningSettings,
    *,
    model: str | Path,
    train_data: str | Path,
    validation_data: str | Path,
    options: DataOptions,
    say: Callable[[str], None],
) -> Prepared:
    """Read the files and cut their texts into rows, and say what was found."""
    labelled = labelled_task(task)
    splits = load_splits(
        {
            "training": labelled.reader(str(train_data), options),
            "validation": labelled.reader(str(validation_data), options),
        },
        problem_type=settings.problem_type,
    )
    for report in splits.reports.values():
        for line in report.lines():
            say(line)
    config = AlbertConfig.from_pretrained(str(model)).replace(
        **labelled.config_changes(splits.labels), **settings.dropouts
    )
    labelled.note(config, settings.task, splits.examples["training"])
    labelled.check_fit(splits.examples["validation"], config)
    note_exits(labelled, config, settings)
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    own = labelled.task(tokenizer, config, settings.task)
    config.extra[SETTINGS_KEY] = {name: getattr(own, name) for name in own.lengths}
    if line := room_note(config, settings.task):
        say(line)
    if line := labelled.check(splits.examples, config, settings):
        say(line)
    training = splits.examples["training"]
    unknown = UnknownTokens(tokenizer)
    units, cut, troubles = _units(labelled, own, training, unknown)
    validation = EvaluationSet(labelled, own, splits.examples["validation"])
    data = {
        "training": splits.reports["training"].to_json() | {"examples_cut": cut, "troubles": dict(troubles)},
        "validation": splits.reports["validation"].to_json()
        | {"examples_cut": validation.cut, "troubles": dict(validation.troubles)},
    }
    for name, notes in (
        ("training", labelled.notes(own, len(training), cut, troubles)),
        ("training", [note] if (note := unknown.note()) else []),
        ("validation", validation.notes()),
    ):
        for note in notes:
            say(f"{name}: {note}")
    _say_labels(splits, say)
    return Prepared(
        labelled, own, tokenizer, config, str(model), units, validation, data, saved_columns(options)
    )


def _units(
    labelled: LabelledTask, task: Task, examples: list[Any], unknown: UnknownTokens
) -> tuple[list[Unit], int, Counter[str]]:
    """Return the training units, how many examples were cut, and how many have which other trouble."""
    units: list[Unit] = []
    cut, troubles = 0, Counter[str]()
    for chunk, rows in features_of_all(task, examples):
        unknown.add(rows, count=len(chunk))
        cut += len({row.example for row in rows if row.cut})
        troubles += labelled.troubles(task, rows)
        units += [[labelled.lean(row) for row in unit] for unit in task.units(labelled.learnable(rows))]
    # Rows of any chunks meet in a batch, and the examples of each chunk count from 0.
    numbered = [[replace(row, example=number) for row in unit] for number, unit in enumerate(units)]
    return numbered, cut, troubles


def _say_labels(splits: Splits[Any], say: Callable[[str], None]) -> None:
    labels = splits.labels
    if labels is None:
        return
    if labels.problem_type == "regression":
        numbers = [example.label for example in splits.examples["training"]]
        say(f"labels are numbers (regression): {min(numbers):g} to {max(numbers):g}")
        return
    counts = splits.label_counts("training")
    shown = ", ".join(f"{name} {counts[name]:,}" for name in labels.names[:_LABELS_SHOWN])
    more = ", ..." if len(labels.names) > _LABELS_SHOWN else ""
    say(f"{len(labels.names)} labels ({labels.problem_type.replace('_', ' ')}): {shown}{more}")
    if rare := [name for name in labels.names if counts[name] == 1]:
        shown = ", ".join(map(repr, rare[:_RARE_SHOWN])) + (", ..." if len(rare) > _RARE_SHOWN else "")
        say(f"{shown}: seen once in training; is that a slip?")
    if labels.problem_type == "single_label_classification":
        if len(labels.names) > _FEW_NUMBERS and all(map(_is_whole, labels.names)):
            say(
                f"the labels are {len(labels.names)} whole numbers, read as classes; if they are amounts, "
                "such as ratings: --problem-type regression"
            )
        commas = list(filter(is_number_with_comma, labels.names))
        if len(commas) > len(labels.names) / 2:
            say(
                f"labels such as {commas[0]!r} look like numbers, but are read as classes; if they are "
                f"amounts, write them {NUMBER_FORM}"
            )
        for mark in ";|":
            if any(mark in name for name in labels.names):
                say(f"some labels hold a {mark!r}: if it stands between several, --label-separator {mark!r}")


_LABELS_SHOWN, _RARE_SHOWN = 20, 5
_FEW_NUMBERS = 10  # so many whole numbers may well be classes


def _is_whole(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def starting_model(prepared: Prepared, settings: FinetuningSettings) -> AlbertPreTrainedModel:
    """Return the model with a new head, or with random weights."""
    torch.manual_seed(settings.seed)
    labelled = prepared.labelled
    if settings.from_scratch:
        model = labelled.model_class(prepared.config)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the head is new: so it should be
            model = labelled.model_class.from_pretrained(
                prepared.start, config=prepared.config, ignore_mismatched_sizes=True
            )
    for name, parameter in model.named_parameters():
        if name.startswith(labelled.unused):
            parameter.requires_grad_(False)
    return model
