"""Prepare a run from files and a model's name: rows, a task, a config, a model with a new head."""

import logging
import random
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from albertkit.checkpoints.formats import load_config
from albertkit.checkpoints.match import LoadReport
from albertkit.config import THRESHOLDS_KEY, AlbertConfig
from albertkit.datasets.examples import content_of
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError, DataError, short
from albertkit.finetuning.batches import Unit
from albertkit.finetuning.evaluate import EvaluationSet
from albertkit.finetuning.losses import balanced_weights
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained import content_hashes, length_note, saved_columns, shared_note
from albertkit.heads import head_of
from albertkit.modeling import auto
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.labels import BLANK, LabelSet, spelling_key
from albertkit.tasks.loading import RowCounts, Splits, features_of_all, left_out, load_splits, open_reader
from albertkit.tasks.task import Task
from albertkit.vocabularies import load_tokenizer

logger = logging.getLogger(__name__)

_MAX_DRAWS = 21  # until the held-out examples have different labels
HELD_OUT = 10  # without validation data, one of this many training examples is held out
FEW = 20  # fewer held-out examples cause a warning
_CLASSIFIER = "classifier."  # tensors with one row for each label
_SHOWN = 5  # maximum number of labels in a message


@dataclass(frozen=True)
class Prepared:
    """The data and model that all runs on the same data share."""

    task: Task
    """The task, bound to the model's tokenizer and config."""
    start: str
    """The initial model."""
    units: list[Unit]
    validation: EvaluationSet
    metric: str
    """Name of the metric that selects the best model."""
    class_weights: Tensor | None
    """Weights (K,) of the classes in the loss; None for none."""
    data: dict[str, Any]
    """Facts about the data for the report."""
    columns: dict[str, Any]
    """The data options that `evaluate` and `predict` use as defaults."""
    contents: list[str]
    """Hashes of the texts, pairs or contexts of the training examples."""

    @property
    def rows(self) -> list[Any]:
        return [row for unit in self.units for row in unit]

    @property
    def lower_is_better(self) -> bool:
        return self.task.directions.get(self.metric) == "lower"


def prepare(
    task: Task,
    settings: FinetuningSettings,
    *,
    model: str | Path,
    train: Any,
    validation: Any,
    options: DataOptions,
) -> Prepared:
    """Read the data, convert its texts to rows, and log a summary."""
    readers = {"training": open_reader(task, train, options, name="train")}
    options = replace(options, **readers["training"].columns.found)
    if validation is not None:
        readers["validation"] = open_reader(task, validation, options, name="validation")
    splits = load_splits(task, readers, problem_type=settings.problem_type, merge_labels=options.merge_labels)
    if validation is None:
        _hold_out(task, splits, settings.seed)
    for report in splits.reports.values():
        _log(report.lines())
    examples = splits.examples
    config = load_config(str(model))
    if splits.labels is not None:
        labels = splits.labels.in_order_of(config).config_arguments()
    elif head_of(task.architecture).has_labels:
        labels = {}
    else:  # in other libraries, the size of a head depends on the number of labels
        labels = {"id2label": AlbertConfig().id2label, "problem_type": None}
    config = config.replace(**labels, **settings.dropouts)
    config.extra.pop(THRESHOLDS_KEY, None)  # of other labels, or of other scores
    task = task.bind(load_tokenizer(str(model)), config, settings.task)
    for name, value in task.saved(examples["training"]).items():
        if value is None:
            config.extra.pop(name, None)
        else:
            config.extra[name] = value
    task.check_fit(examples["validation"])
    _log([length_note(task)])
    _log([task.check(examples["training"], examples["validation"], settings.batch_size)])
    counts = RowCounts(task)
    units = make_units(task, examples["training"], counts)
    evaluated = EvaluationSet(task, examples["validation"], splits.rows["validation"])
    data = {}
    for name, counted in (("training", counts), ("validation", evaluated.counts)):
        data[name] = splits.reports[name].to_json() | counted.to_json()
        _log(f"{name}: {note}" for note in counted.notes())
    contents = {one for one in content_hashes(examples["training"]) if one is not None}
    shared = sum(one in contents for one in content_hashes(examples["validation"]))
    data["validation"]["shared_with_training"] = shared
    if shared:
        logger.info("validation: %s", shared_note(shared, len(examples["validation"])))
    if splits.labels is not None:
        _log(splits.labels.notes(map(task.truth, examples["training"])))
        for name in data:  # equal texts are in the same split
            data[name]["conflicting_labels"], notes = _equal_texts(task, examples[name])
            _log(f"{name}: {note}" for note in notes)
    weights = None
    if settings.class_weights != "none":
        classes = task.learnt_classes(row for unit in units for row in unit)
        if classes is None or task.objective != "head":
            raise ConfigError(f"class_weights cannot be used with {task.name}. Set it to 'none'.")
        weights = balanced_weights(classes, task.config.num_labels)
    return Prepared(
        task=task,
        start=str(model),
        units=units,
        validation=evaluated,
        metric=settings.best_metric or evaluated.main_metric,
        class_weights=weights,
        data=data,
        columns=saved_columns(options),
        contents=sorted(contents),
    )


def _log(notes: Iterable[str | None]) -> None:
    for note in notes:
        if note:
            logger.info("%s", note)


def _equal_texts(task: Task, examples: Sequence[Any]) -> tuple[int, list[str]]:
    """Return how many examples have a text that also has another label, and notes on equal texts."""
    labels: dict[Any, Counter[str]] = {}
    for example in examples:
        labels.setdefault(content_of(example), Counter())[str(task.truth(example))] += 1
    labels.pop(None, None)  # examples of your own class
    texts = [(" ".join(map(str, filter(None, content))), counts) for content, counts in labels.items()]
    differing = [(text, counts.total()) for text, counts in texts if len(counts) > 1]
    conflicting, notes = sum(count for _, count in differing), []
    if differing:
        what = (
            f"have a text that also occurs with another label, for example the text {short(differing[0][0])}"
        )
        notes.append(f"{conflicting:,} of {len(examples):,} examples {what}")
    for text, counts in texts:
        if spelling_key(text) in {*BLANK, "none"} and counts.total() > 1:
            what = f"{text!r} ({counts.total():,}) may stand for a missing text"
            notes.append(f"{what}. If so, empty these cells.")
    return conflicting, notes


def _hold_out(task: Task, splits: Splits[Any], seed: int) -> None:
    training, report = splits.examples["training"], splits.reports["training"]
    count = len(training) // HELD_OUT
    if not count:
        raise DataError(
            f"{report.source}: {len(training)} training examples are too few to hold out one in {HELD_OUT}. "
            f"Pass validation data.{left_out(report)}"
        )
    chosen = _held_out(task, training, splits.labels, seed=seed, count=count)
    held_out = [training[number] for number in sorted(chosen)]
    count = len(held_out)
    splits.examples["validation"] = held_out
    splits.rows["validation"] = [splits.rows["training"][number] for number in sorted(chosen)]
    splits.examples["training"] = [one for number, one in enumerate(training) if number not in chosen]
    splits.reports["validation"] = replace(
        report,
        source=f"{report.source} (held out)",
        rows=count,
        examples=count,
        problems={},
        merged_labels={},
    )
    report.rows, report.examples = report.rows - count, report.examples - count
    what = f"no validation data: albertkit holds out {count:,} of {len(training):,} training examples"
    contents = [content_of(example) for example in held_out]
    different = len({*contents} - {None}) + contents.count(None)
    if different < count:
        what += f". They have {different:,} distinct text{'' if different == 1 else 's'}"
    if different < FEW:
        logger.warning(
            f"{what}. With fewer than {FEW} validation texts, the metrics and the choice of the best model "
            "depend on chance. Pass validation data."
        )
    else:
        logger.info(what)


def _held_out(
    task: Task, training: Sequence[Any], labels: LabelSet | None, *, seed: int, count: int
) -> set[int]:
    """Return the numbers of about `count` training examples to hold out.

    Examples with the same content stay together. If possible, every label keeps a training example, and the
    labels of the held-out examples differ.
    """
    groups: dict[Hashable, list[int]] = {}
    group_of: list[list[int]] = []
    for number, example in enumerate(training):
        content = content_of(example)
        group_of.append(groups.setdefault(number if content is None else content, []))
        group_of[-1].append(number)
    truths = [task.truth(example) for example in training]
    can_differ = labels is not None and len(set(map(str, truths))) > 1

    def counts(numbers: Iterable[int]) -> Counter[str]:
        return labels.counts(truths[number] for number in numbers) if labels else Counter()

    draw, every, chosen = random.Random(seed), range(len(training)), set[int]()
    for _ in range(_MAX_DRAWS):
        left, chosen = counts(every), set[int]()
        drawn = draw.sample(every, count)  # the result if all contents differ and every label is frequent
        for number in chain(drawn, draw.sample(every, len(every))):
            group = group_of[number]
            # The first of equal examples draws them all, so that many equal ones are not drawn more often.
            if number != group[0] or number in chosen or len(chosen) + len(group) > count:
                continue
            taken = counts(group)
            if all(left[name] > those for name, those in taken.items()):
                chosen.update(group)
                left -= taken
        if not chosen:
            chosen = set(drawn) if len(groups) == 1 else set(min(groups.values(), key=len))
        if not can_differ or len({str(truths[number]) for number in chosen}) > 1:
            break
    return chosen


def make_units(task: Task, examples: Iterable[Any], counts: RowCounts) -> list[Unit]:
    units: list[Unit] = []
    unneeded: dict[str, Any] = dict.fromkeys(task.for_predictions, ())

    def compact(row: Any, number: int) -> Any:
        # All rows are in memory: an array has 4 bytes for a token, a list 36.
        ids, segments = np.array(row.input_ids, np.int32), np.array(row.token_type_ids, np.int8)
        return replace(row, input_ids=ids, token_type_ids=segments, example=number, **unneeded)

    for chunk, rows in features_of_all(task, examples):
        counts.add(chunk, rows)
        # A batch mixes rows of all chunks, but each chunk numbers its examples from 0.
        units += [[compact(row, len(units) + n) for row in unit] for n, unit in enumerate(task.units(rows))]
    return units


def starting_model(prepared: Prepared, settings: FinetuningSettings) -> AlbertPreTrainedModel:
    """Return the model, with a new head unless it has one for these labels, or with random weights."""
    torch.manual_seed(settings.seed)
    model_class = auto.model_class(prepared.task.architecture)
    if settings.from_scratch:
        model = model_class(prepared.task.config)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the head is expected to be new
            loaded: Any = model_class.from_pretrained(
                prepared.start,
                config=prepared.task.config,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        model, info = loaded
        _renew_classifier(model, load_config(prepared.start), info["report"])
    for name, parameter in model.named_parameters():
        if name.startswith(prepared.task.unused):
            parameter.requires_grad_(False)
    return model


def _renew_classifier(model: AlbertPreTrainedModel, start: AlbertConfig, loaded: LoadReport) -> None:
    """Initialize a loaded classifier that is for other labels than the config of the model."""
    old, new = ([one.id2label[row] for row in range(one.num_labels)] for one in (start, model.config))
    # In a model whose labels have no names, LABEL_1 is the label 1.
    if old == new or old == [f"LABEL_{name}" for name in new]:
        return
    names = [name for name, _ in model.named_parameters() if name.startswith(_CLASSIFIER)]
    kept = [name for name in names if name in loaded.loaded]
    if kept or any(name in loaded.reshaped for name in names):
        logger.info(
            f"the model's classifier is for the labels {_listed(old)}. Training starts with a new classifier "
            f"for {_listed(new)}."
        )
    model.initialize(kept)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
