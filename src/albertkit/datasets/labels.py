"""The labels of a task: found in the training examples, the same for every other split.

A label as it is read is text, a number, or several texts. What the column means is inferred from all of it:

| the labels are | the task is |
|---|---|
| lists, or text cut at a separator | multi-label |
| mostly numbers, some with a fraction | regression |
| whole numbers | classes, in numeric order ("1.0" is "1": tables with gaps write whole numbers so) |
| anything else | classes, in alphabetic order |
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from albertkit.errors import ConfigError, DataError, did_you_mean
from albertkit.metrics.spans import OUTSIDE, SCHEME_LABEL, of_scheme
from albertkit.tasks.examples import TextExample, WordsExample

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
"""As in a model's config."""
Label = str | float | tuple[str, ...]

REGRESSION_NAMES = ("LABEL_0",)
"""The name that configs give to the one number of a regression."""
NUMBER_FORM = "with a decimal point and no thousands separator"
"""How a number with a comma must be written instead."""


@dataclass(frozen=True)
class LabelSet:
    """What labels mean, and their names in the order of the model's scores."""

    problem_type: ProblemType
    names: tuple[str, ...]

    def read(self, label: Label) -> Label:
        """Return a label as examples have it: a name, a number, or names in the order of the set.

        Raises:
            UnknownLabel: it is none of the set, or no number.
        """
        if self.problem_type == "regression":
            number = _number(label)
            if number is None:
                hint = f"; write it {NUMBER_FORM}" if is_number_with_comma(label) else ""
                raise UnknownLabel(f"the label {label!r:.60} is no number{hint}")
            return number
        if self.problem_type == "multi_label_classification":
            given = {self._name(one) for one in (label if isinstance(label, tuple) else (label,))}
            return tuple(name for name in self.names if name in given)
        if isinstance(label, tuple):
            if len(label) != 1:
                raise UnknownLabel(f"the labels are {label!r:.60}; expected exactly one")
            return self._name(label[0])
        return self._name(label)

    def _name(self, label: str | float) -> str:
        if isinstance(label, str) and label in self.names:
            return label
        whole = _whole_name(label)
        if whole in self.names:
            return whole
        raise UnknownLabel(f"the label {label!r:.60} is unknown{did_you_mean(str(label), self.names)}")

    def id2label(self) -> dict[int, str]:
        """Return the names by number, as a config writes them."""
        return dict(enumerate(self.names))


class UnknownLabel(DataError):  # noqa: N818 - one kind of DataError
    """A label that is none of the set."""


def infer_labels(
    labels: Iterable[Label],
    *,
    names: tuple[str, ...] | None = None,
    problem_type: ProblemType | None = None,
) -> LabelSet:
    """Return the set that the labels of the training examples are of.

    Args:
        labels: one for each example.
        names: all names in order, where the source says them.
        problem_type: what they mean, where it is not to be inferred.

    Raises:
        ConfigError: an unknown problem type.
        DataError: no labels, one class only, or a label that is different in every row.
    """
    if problem_type is not None and problem_type not in get_args(ProblemType):
        raise ConfigError(
            f"problem_type is {problem_type!r}; expected one of {', '.join(get_args(ProblemType))}"
        )
    found = list(labels)
    if not found:
        raise DataError("there are no labels; expected one for each training example")
    if problem_type is None:
        problem_type = "single_label_classification" if names else _problem_type(found)
        if any(isinstance(label, tuple) for label in found):
            problem_type = "multi_label_classification"
    if problem_type == "regression":
        return LabelSet(problem_type, REGRESSION_NAMES)
    if names is None:
        single = [one for label in found for one in (label if isinstance(label, tuple) else (label,))]
        names = _names(single)
        if len(names) == len(found) >= 20:
            raise DataError(
                f"each of the {len(found)} rows has another label ({names[0]!r}, {names[1]!r}, ...): choose "
                "the column of the labels (--label-column), or --problem-type regression if they are amounts"
            )
    if not names:
        raise DataError("no example has any label; expected some that have one")
    if problem_type == "single_label_classification" and len(names) < 2:
        raise DataError(f"every row has the label {''.join(names)!r}; expected at least two to tell apart")
    return LabelSet(problem_type, names)


def infer_word_labels(examples: Iterable[WordsExample], *, names: tuple[str, ...] | None = None) -> LabelSet:
    """Return the labels of words: O first, then by type.

    Of a scheme, every type has every prefix that is used: CoNLL-2000 has an I-LST in its test part only.

    Raises:
        DataError: no labels.
    """
    if names is None:
        found = {label for example in examples for label in example.labels or ()}
        names = _scheme(found) or _names(list(found))
    if not names:
        raise DataError("there are no labels; expected one for each word of the training examples")
    return LabelSet("single_label_classification", names)


def _scheme(labels: set[str]) -> tuple[str, ...] | None:
    """Return all labels of the scheme that these are of, or None if they are of none."""
    if not of_scheme(labels):
        return None
    matches = [match for label in labels if (match := SCHEME_LABEL.fullmatch(label))]
    prefixes, types = (sorted({match[group] for match in matches}) for group in (1, 2))
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in prefixes))


def with_label(example: TextExample | WordsExample, labels: LabelSet) -> TextExample | WordsExample:
    """Return the example with its label as the set reads it.

    Raises:
        UnknownLabel: the set does not have it.
    """
    if isinstance(example, TextExample):
        return example if example.label is None else replace(example, label=labels.read(example.label))
    for label in example.labels or ():
        if label not in labels.names:
            raise UnknownLabel(f"the label {label!r:.60} is unknown{did_you_mean(label, labels.names)}")
    return example


def _problem_type(labels: list[Label]) -> ProblemType:
    numbers = [number for label in labels if (number := _number(label)) is not None]
    with_fraction = any(not number.is_integer() for number in numbers)
    # A few gaps written as words do not make classes of a column of numbers.
    if with_fraction and len(numbers) > len(labels) / 2:
        return "regression"
    return "single_label_classification"


def _names(labels: Sequence[str | float]) -> tuple[str, ...]:
    """Return the classes in order; whole numbers as such only if all labels are."""
    whole = {_whole_name(label) for label in labels}
    if None not in whole:
        return tuple(sorted((name for name in whole if name is not None), key=int))
    return tuple(sorted({str(label) for label in labels}))


def _number(label: Label) -> float | None:
    """Return a label as a finite number."""
    if isinstance(label, tuple):
        return None
    try:
        number = float(label)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_number_with_comma(label: Label) -> bool:
    """Return whether a label looks like a number with a decimal comma or a thousands separator."""
    return isinstance(label, str) and _WITH_COMMA.fullmatch(label) is not None


def class_name(label: float) -> str:
    """Return the name of a class that is a number: 1.0 is named like 1."""
    return _whole_name(label) or str(label)


def _whole_name(label: str | float) -> str | None:
    """Return the name of a whole number, "1" for 1.0 and "1.0"; None for any other label.

    Text with leading zeros is a code, not a number: "007" and "7" are two classes.
    """
    if isinstance(label, str):
        number = _WHOLE.fullmatch(label)
        return str(int(number[1])) if number else None
    return str(int(label)) if float(label).is_integer() else None  # an int has is_integer from Python 3.12


_WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,17}))(?:\.0+)?")
_WITH_COMMA = re.compile(r"[+-]?[0-9]+(,[0-9]+)+(\.[0-9]+)?")
