"""Sets of labels: their kinds, their names, and how both are inferred from training examples.

A label from a reader is text, a number, or several texts. The training examples determine its kind:

| the labels are | the kind |
|---|---|
| lists, or text split at a separator | `SEVERAL`: any number of classes |
| mostly numbers, some with a fraction | `NUMBER`: a regression |
| whole numbers | `CLASS`, in numeric order ("1.0" is "1": tables with gaps write whole numbers like this) |
| anything else | `CLASS`, in alphabetical order |
| one for each word | `TAGS`, in alphabetical order; in a scheme such as BIO, O first, then ordered by type |

Shapes: B rows, T tokens, K labels.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import chain
from numbers import Real
from typing import Any, Literal

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.datasets.cells import Label, number_of, whole_name
from albertkit.datasets.examples import IGNORED
from albertkit.errors import ConfigError, DataError, did_you_mean, short
from albertkit.metrics import (
    OUTSIDE,
    class_scores,
    f1_threshold,
    has_no_types,
    multi_label_scores,
    number_scores,
    of_scheme,
    span_scores,
    split_label,
)
from albertkit.reference import softmax
from albertkit.tasks.settings import ProblemType

Function = Literal["softmax", "sigmoid", "none"]
"""The function that converts logits to scores."""


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(-np.abs(logits))  # never overflows
    return np.where(logits >= 0, 1.0, powers) / (1 + powers)


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax": softmax,
    "sigmoid": _sigmoid,
    "none": lambda logits: logits,
}


class LabelKind(Enum):
    """The kinds of labels, each with the form of its labels in training and its loss."""

    CLASS = ("single_label_classification", "softmax", np.int64)
    """One class of K per example: labels (B,) int64, cross-entropy."""
    SEVERAL = ("multi_label_classification", "sigmoid", np.float32)
    """Any number of K classes per example: labels (B, K) float32, each 0 or 1, binary cross-entropy."""
    NUMBER = ("regression", "none", np.float32)
    """One number per example: labels (B,) float32, squared error."""
    TAGS = (None, "softmax", np.int64)
    """One class of K per word: labels (B, T) int64, -100 for tokens without a label, cross-entropy."""

    def __init__(self, problem_type: ProblemType | None, function: Function, dtype: type) -> None:
        self.problem_type: ProblemType | None = problem_type
        """The problem type in a model's config; None for `TAGS`, which the model class implies."""
        self.function: Function = function
        self.dtype = dtype
        self.title = (problem_type or "single_label_classification").replace("_", "-", 1).replace("_", " ")


CLASS, SEVERAL, NUMBER, TAGS = LabelKind.CLASS, LabelKind.SEVERAL, LabelKind.NUMBER, LabelKind.TAGS
KINDS = {kind.problem_type: kind for kind in (CLASS, SEVERAL, NUMBER)}

BLANK = {"-", "--", "?", "n/a", "n.a.", "#n/a", "#nv", "na", "nan", "null", "tbd", "(blank)", "(leer)"}
"""Texts of cells that may stand for a missing value."""
_SHOWN, _RARE_SHOWN = 20, 5
_FEW_NUMBERS = 10  # up to this many different whole numbers are likely classes
_WITH_COMMA = re.compile(r"[+-]?[0-9]+(,[0-9]+)+(\.[0-9]+)?")  # a decimal comma, or separated thousands
_NUMBER_FORM = "with a decimal point and no thousands separator"


class UnknownLabel(DataError):  # noqa: N818 - one kind of DataError
    """A label that is not in the set."""


@dataclass(frozen=True)
class LabelSet:
    """The labels of a model: their kind, and their names in the order of the model's scores.

    Args:
        kind: `CLASS`, `SEVERAL`, `NUMBER` or `TAGS`.
        names: the name of each score, in the order of the scores.
        thresholds: the probability that a label must exceed to be predicted, for labels that have a
            threshold; see `predict`.

    Raises:
        ConfigError: there are no names, or a name occurs twice.
    """

    kind: LabelKind
    names: tuple[str, ...]
    thresholds: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.names or len({*self.names}) != len(self.names):
            expected = "Expected at least one, and no duplicates, in id2label of config.json."
            raise ConfigError(f"the labels are {short(list(self.names))}. {expected}")

    @classmethod
    def of(cls, config: AlbertConfig, *, kind: LabelKind | None = None) -> "LabelSet":
        """Return the labels of a model. By default, the problem type in its config determines the kind.

        Without a problem type, several labels are classes. A single label is an independent decision
        (`SEVERAL`), as in the pipelines of transformers.
        """
        if kind is None and config.problem_type is None:
            kind = CLASS if config.num_labels > 1 else SEVERAL
        names = tuple(config.id2label[number] for number in range(config.num_labels))
        return cls(kind or KINDS[config.problem_type], names)  # type: ignore[index]

    def in_order_of(self, config: AlbertConfig) -> "LabelSet":
        """Return these labels in the order of a model's scores if the model has the same labels."""
        names = tuple(config.id2label[number] for number in range(config.num_labels))
        return replace(self, names=names) if sorted(names) == sorted(self.names) else self

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each name."""
        return {name: number for number, name in enumerate(self.names)}

    def config_arguments(self) -> dict[str, Any]:
        """Return the arguments of `AlbertConfig` for these labels."""
        return {"id2label": dict(enumerate(self.names)), "problem_type": self.kind.problem_type}

    # --- the label of an example

    def read(self, label: Any) -> Any:
        """Return the label of an example as a name, several names, or a number.

        Raises:
            UnknownLabel: the label is not in the set, or not a number.
        """
        if self.kind is TAGS:
            for tag in label or ():
                if tag not in self.ids and tag != IGNORED:
                    raise UnknownLabel(f"the label {short(tag)} is unknown{did_you_mean(tag, self.names)}")
            return label
        if self.kind is NUMBER:
            number = number_of(label)
            if number is None:
                hint = f". Write it {_NUMBER_FORM}." if _WITH_COMMA.fullmatch(str(label)) else ""
                raise UnknownLabel(f"the label {short(label)} is not a number{hint}")
            return number
        if self.kind is SEVERAL:
            given = {_known_name(name, self.ids) for name in _as_tuple(label)}
            return tuple(name for name in self.names if name in given)
        if len(given := _as_tuple(label)) != 1:
            expected = "Expected exactly one, or problem_type='multi_label_classification'"
            raise UnknownLabel(f"the labels are {short(label)}. {expected}")
        return _known_name(given[0], self.ids)

    def encode(self, label: Any, where: str) -> Any:
        """Return the label in the form for training: an id, a list of K times 0.0 or 1.0, or a number.

        For `TAGS`, the label is that of one word.

        Args:
            label: the label of the example.
            where: the name of the example, for messages.

        Raises:
            DataError: the label is unknown, or of another kind.
        """
        try:
            label = _known_name(label, self.ids) if self.kind is TAGS else self.read(label)
        except UnknownLabel as error:
            known = "" if self.kind is NUMBER else f" The labels are {', '.join(self.names[:_SHOWN])}."
            raise DataError(f"{where}: {str(error).rstrip('.')}.{known}") from error
        if self.kind is SEVERAL:
            return [float(name in label) for name in self.names]
        return label if self.kind is NUMBER else self.ids[label]

    def predict(self, logits: np.ndarray) -> Any:
        """Return the predicted label for logits (K,).

        Of several labels, these are all that exceed their thresholds, by default 0.5. Of classes, it is the
        most probable class that exceeds its threshold. If there is none, it is the most probable class, or
        None if this class has a threshold.
        """
        if self.kind is NUMBER:
            return logits.tolist()[0]
        default = 0.5 if self.kind is SEVERAL else math.inf
        pairs = zip(self.names, FUNCTIONS[self.kind.function](logits).tolist(), strict=True)
        passed = {name: share for name, share in pairs if share > self.thresholds.get(name, default)}
        if self.kind is SEVERAL:
            return tuple(passed)
        if passed:
            return max(passed, key=passed.__getitem__)
        best = self.names[int(logits.argmax())]
        return None if best in self.thresholds and self.may_abstain else best

    # --- thresholds

    def with_thresholds(self, given: Any, *, source: str = "threshold") -> "LabelSet":
        """Return the labels with a threshold for all of them, or one for each name; with None, without any.

        Raises:
            ConfigError: a label is unknown, a threshold is not a probability, or the label is a number.
        """
        if given is None:
            return replace(self, thresholds={})
        if self.kind is NUMBER:
            raise ConfigError(f"{source} is {short(given)}, but the model predicts numbers. Omit it.")
        values: dict[Any, Any] = (
            dict(given) if isinstance(given, Mapping) else dict.fromkeys(self.names, given)
        )
        for name, value in values.items():
            if name not in self.ids:
                what = f"the label {short(name)}, which the model does not have"
                known = f"{did_you_mean(str(name), self.names)}. The labels are {_listed(self.names, _SHOWN)}"
                raise ConfigError(f"{source} has {what}{known}.")
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) <= 1:
                expected = "Expected a number from 0 to 1, or such a number for each label."
                raise ConfigError(f"{source} is {short(given)}. {expected}")
        return replace(self, thresholds={name: float(value) for name, value in values.items()})

    @cached_property
    def may_abstain(self) -> bool:
        """Whether a prediction can be None: not if all probabilities cannot be below their thresholds."""
        if self.kind is not CLASS or not self.thresholds:
            return False
        return len(self.thresholds) < len(self.names) or sum(self.thresholds.values()) > 1 + 1e-9

    def tuned_thresholds(self, true: Sequence[Any], probabilities: np.ndarray) -> dict[str, float]:
        """Return the thresholds with the best F1: of each of several labels, or of the positive class.

        The threshold of the other class is one minus that of the positive class, so that a class is always
        predicted.
        """
        thresholds = {
            name: f1_threshold([name in _as_tuple(label) for label in true], probabilities[:, self.ids[name]])
            for name in (self.names if self.kind is SEVERAL else self.names[1:])
        }
        if self.kind is CLASS:
            thresholds = {self.names[0]: round(1 - thresholds[self.names[1]], 9), **thresholds}
        return thresholds

    # --- the labels of a data set

    def scores(self, true: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
        """Return the metrics of predicted labels; an undefined correlation is 0.

        For `TAGS` these are the scores of spans, or of words if the names follow no scheme.
        """
        if self.kind is SEVERAL:
            return multi_label_scores(true, predicted, labels=self.names)
        if self.kind is NUMBER:
            scores = number_scores(true, predicted)
            undefined = {name for name in ("pearson", "spearman") if math.isnan(scores[name])}
            return scores | dict.fromkeys(undefined, 0.0)
        if self.kind is TAGS:
            pairs = [
                [pair for pair in zip(*sides, strict=True) if pair[0] != IGNORED]
                for sides in zip(true, predicted, strict=True)
            ]
            true, predicted = ([[pair[side] for pair in sentence] for sentence in pairs] for side in (0, 1))
            if of_scheme(self.names):
                return span_scores(true, predicted)
            true, predicted = (list(chain.from_iterable(side)) for side in (true, predicted))
        scores = class_scores(true, predicted, labels=self.names)
        if self.may_abstain:
            pairs = zip(true, predicted, strict=True)
            right = [label == answer for label, answer in pairs if answer is not None]
            scores["coverage"] = len(right) / len(true)
            scores["accuracy_answered"] = sum(right) / max(1, len(right))
        return scores

    @property
    def main_metric(self) -> str:
        """The name of the metric that selects a model."""
        if self.kind is TAGS and of_scheme(self.names):
            return "f1"
        return {SEVERAL: "f1_micro", NUMBER: "pearson"}.get(self.kind, "accuracy")

    def baseline(self, true: Iterable[Any]) -> dict[str, float]:
        """Return the metrics of always predicting the same, the best label for each metric."""
        if self.kind is NUMBER:
            return {}
        if self.kind is TAGS:
            true = (label for label in chain.from_iterable(true) if label != IGNORED)
        if self.kind is not SEVERAL:
            counts = Counter(true)
            return {"accuracy": max(counts.values()) / counts.total()}
        labels = list(map(_as_tuple, true))
        counts = Counter(chain.from_iterable(labels))
        right, f1 = 0, 0.0
        for size, (_, count) in enumerate(counts.most_common(), start=1):
            right += count
            f1 = max(f1, 2 * right / (size * len(labels) + counts.total()))
        return {"accuracy": max(Counter(labels).values()) / len(labels), "f1_micro": f1}

    def prior_loss(self, labels: Sequence[Any]) -> float:
        """Return the loss of the best prediction that ignores the input, for encoded training labels."""
        if self.kind is NUMBER:
            return float(np.var(labels))
        if self.kind is SEVERAL:
            share = np.clip(np.mean(labels, axis=0), 1e-9, 1 - 1e-9)  # (K,)
            return float(-(share * np.log(share) + (1 - share) * np.log(1 - share)).mean())
        return entropy(Counter(labels))

    def counts(self, labels: Iterable[Any]) -> Counter[str]:
        """Count the examples of each label. Other values, such as numbers, are not counted."""
        return Counter(name for name in map(str, _leaves(labels)) if name in self.ids)

    def notes(self, labels: Iterable[Any]) -> list[str]:
        """Return notes on the labels of the training examples: their counts, and likely mistakes."""
        names = self.names
        if self.kind is NUMBER:
            numbers = [number for number in map(number_of, _leaves(labels)) if number is not None]
            span = f": {min(numbers):g} to {max(numbers):g}" if numbers else ""
            return [f"labels are numbers (regression){span}"]
        counts = Counter(map(str, _leaves(labels)))
        if self.kind is TAGS:
            del counts[IGNORED]
        summary = f"{len(names)} labels ({self.kind.title})"
        if not counts.keys() <= {*names}:  # of a task of your own
            return [f"{summary}: {_listed(names, _SHOWN)}"]
        notes = [f"{summary}: {_listed([f'{name} {counts[name]:,}' for name in names], _SHOWN)}"]
        # The labels of a tagging scheme are all combinations of its prefixes and types.
        if missing := [repr(name) for name in names if not counts[name] and self.kind is not TAGS]:
            notes.append(f"labels without a training example: {_listed(missing, _RARE_SHOWN)}")
        if rare := [repr(name) for name in names if counts[name] == 1]:
            shown = _listed(rare, _RARE_SHOWN)
            notes.append(f"labels with a single training example, perhaps by mistake: {shown}")
        if blank := [name for name in names if spelling_key(name) in BLANK]:
            shown = ", ".join(f"{name!r} ({counts[name]:,})" for name in blank)
            notes.append(f"labels that may stand for a missing label: {shown}. If so, empty these cells.")
        spellings = Counter(map(spelling_key, names))
        if similar := [name for name in names if spellings[spelling_key(name)] > 1]:
            shown = ", ".join(map(repr, sorted(similar, key=spelling_key)[:_SHOWN]))
            advice = "To merge them into the most frequent spelling, set --merge-labels "
            advice += "(in Python merge_labels=True)."
            notes.append(f"labels that differ only in case or spaces, perhaps by mistake: {shown}. {advice}")
        for mark in ";|":
            if any(mark in name for name in names):
                advice = f"If it separates several labels, use --label-separator {mark!r}."
                notes.append(f"some labels contain {mark!r}. {advice}")
        if self.kind is SEVERAL:
            return notes
        if len(names) > _FEW_NUMBERS and all(name.removeprefix("-").isdecimal() for name in names):
            notes.append(
                f"the labels are {len(names)} whole numbers, which are read as classes. If they are "
                "amounts, such as ratings, use --problem-type regression."
            )
        commas = list(filter(_WITH_COMMA.fullmatch, names))
        if len(commas) > len(names) / 2:
            notes.append(
                f"labels such as {commas[0]!r} look like numbers, but are read as classes. If they are "
                f"amounts, write them {_NUMBER_FORM}."
            )
        return notes


def spelling_key(label: str) -> str:
    """Return the text that is equal for labels that differ only in case or spaces."""
    return "".join(label.split()).casefold()


def entropy(counts: Counter[Any]) -> float:
    """Return the cross-entropy of always predicting these frequencies."""
    shares = np.array(list(counts.values())) / counts.total()
    return float(-(shares * np.log(shares)).sum())


def _listed(names: Sequence[str], count: int) -> str:
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")


def _as_tuple(label: Any) -> tuple[Any, ...]:
    return label if isinstance(label, tuple) else (label,)


def _known_name(label: str | float, names: Collection[str]) -> str:
    for name in (str(label), whole_name(label)):
        if name is not None and name in names:
            return name
    hint = did_you_mean(str(label), names)
    if spelling_key(str(label)) in map(spelling_key, names):
        hint += ", but with --merge-labels (in Python merge_labels=True) it is the same label"
    raise UnknownLabel(f"the label {short(label)} is unknown{hint}")


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the labels, also those in lists, tuples, sets and iterators of any depth."""
    for value in values:
        if isinstance(value, list | tuple | Set | Iterator):
            yield from _leaves(value)
        else:
            yield value


# --- inference


def infer_labels(
    labels: Sequence[Label], *, names: tuple[str, ...] | None = None, problem_type: ProblemType | None = None
) -> LabelSet:
    """Infer the label set from the labels of the training examples.

    Args:
        labels: one per example.
        names: all names in order, if the source defines them.
        problem_type: the kind of labels; None infers it.

    Raises:
        DataError: there are no labels, only one class, or a different label in every row.
    """
    kind = CLASS
    if problem_type is not None:
        kind = KINDS[problem_type]
    elif any(isinstance(label, tuple) for label in labels):
        kind = SEVERAL
    elif not names:
        numbers = [number for label in labels if (number := number_of(label)) is not None]
        # A few gaps written as words do not turn a column of numbers into classes.
        if len(numbers) > len(labels) / 2 and not all(map(float.is_integer, numbers)):
            kind = NUMBER
    if kind is NUMBER:
        return LabelSet(NUMBER, ("LABEL_0",))  # as configs call the one number of a regression
    sets = list(map(_as_tuple, labels))
    used = _ordered(list(chain.from_iterable(sets)))
    if not used:
        raise DataError("no example has a label. Expected labels for some examples.")
    if names is None and len(used) == sum(map(len, sets)) >= 20:
        raise DataError(
            f"each of the {len(labels)} rows has a different label ({used[0]!r}, {used[1]!r}, ...). Choose "
            "the column of the labels (--label-column). If they are amounts, use --problem-type regression."
        )
    if kind is CLASS and len(used) < 2:
        raise DataError(f"every row has the label {''.join(used)!r}. Expected at least two different labels.")
    if kind is SEVERAL and all(len({*label}) == len(used) for label in sets):
        expected = "Expected rows with different labels."
        if {*used} <= {"0", "1", "False", "True"}:
            expected = "If they are 0 or 1 for each label, use one column per label (--label-column A,B)."
        shown = ", ".join(map(repr, used[:_SHOWN]))
        raise DataError(f"every row has the label{'s' * (len(used) > 1)} {shown}. {expected}")
    return LabelSet(kind, names or used)


def infer_tags(sentences: Iterable[Sequence[str]], *, names: tuple[str, ...] | None = None) -> LabelSet:
    """Infer the label set from the labels of words: O first, then by type.

    In a scheme, every type gets every prefix that occurs: CoNLL-2000 has an I-LST only in its test data.

    Args:
        sentences: the labels of each sentence.
        names: all names in order, if the source defines them.

    Raises:
        DataError: there are fewer than two labels.
    """
    used = {*chain.from_iterable(sentences)} - {IGNORED}
    if len(used) < 2:
        raise DataError(f"every word has the label {''.join(used)!r}. Expected at least two labels.")
    if names or not of_scheme(used):
        return LabelSet(TAGS, names or _ordered(list(used)))
    inside = sorted(used - {OUTSIDE})
    if not has_no_types(used):
        prefixes, types = (sorted({*side}) for side in zip(*map(split_label, inside), strict=True))
        inside = [f"{prefix}-{kind}" for kind in types for prefix in prefixes]
    return LabelSet(TAGS, (OUTSIDE, *inside))


def _ordered(labels: Sequence[str | float]) -> tuple[str, ...]:
    """Return the classes in order; whole numbers in numeric order only if all labels are whole numbers."""
    whole = {whole_name(label) for label in labels}
    if None not in whole:
        return tuple(sorted((name for name in whole if name is not None), key=int))
    return tuple(sorted({str(label) for label in labels}))
