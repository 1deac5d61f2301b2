"""Sets of labels, and how they are inferred from training examples.

A label from a reader is text, a number, or several texts. The training examples determine its kind:

| the labels are | the kind |
|---|---|
| lists, or text split at a separator | `SEVERAL`: any number of classes |
| mostly numbers, some with a fraction | `NUMBER`: a regression |
| whole numbers | `CLASS`, in numeric order ("1.0" is "1": tables with gaps write whole numbers like this) |
| anything else | `CLASS`, in alphabetical order |
| one for each word | `TAGS`, in alphabetical order; in a scheme such as BIO, O first, then ordered by type |
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, get_args

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import IGNORED, Label
from albertkit.datasets.reader import number_of
from albertkit.datasets.text_classification import whole_name
from albertkit.errors import ConfigError, DataError
from albertkit.metrics.token_classification import OUTSIDE, SCHEME_LABEL, has_no_types, of_scheme
from albertkit.tasks.label_kinds import (
    CLASS,
    KINDS,
    NUMBER,
    NUMBER_FORM,
    SEVERAL,
    TAGS,
    LabelKind,
    ProblemType,
    UnknownLabel,
    as_tuple,
    is_number_with_comma,
    kind_of,
)

_LABELS_SHOWN, _RARE_SHOWN = 20, 5
_FEW_NUMBERS = 10  # up to this many different whole numbers are likely classes


@dataclass(frozen=True)
class LabelSet:
    """The labels of a model: their kind, and their names in the order of the model's scores.

    Args:
        kind: `CLASS`, `SEVERAL`, `NUMBER` or `TAGS`.
        names: the name of each score, in the order of the scores.

    Raises:
        ConfigError: there are no names, or a name occurs twice.
    """

    kind: LabelKind
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise ConfigError(
                f"the labels are {list(self.names)!r:.200}. Expected at least one label, and no duplicates. "
                "The labels of a model are in id2label of its config.json."
            )

    @classmethod
    def of(cls, config: AlbertConfig, *, kind: LabelKind | None = None) -> "LabelSet":
        """Return the labels of a model. By default, the problem type in its config determines the kind."""
        names = (config.id2label[number] for number in range(config.num_labels))
        return cls(kind_of(config) if kind is None else kind, tuple(names))

    def in_order_of(self, config: AlbertConfig) -> "LabelSet":
        """Return these labels in the order of a model's scores if the model has the same labels."""
        names = tuple(config.id2label[number] for number in range(config.num_labels))
        return replace(self, names=names) if sorted(names) == sorted(self.names) else self

    @property
    def are_unnamed(self) -> bool:
        """Whether the names are those of a config without names: LABEL_0, LABEL_1, ..."""
        return self.names == tuple(f"LABEL_{number}" for number in range(len(self.names)))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each name."""
        return {name: number for number, name in enumerate(self.names)}

    def read(self, label: Any) -> Any:
        """Return the label of an example as a name in the set; raise `UnknownLabel` if the set lacks it."""
        return self.kind.read(label, self.names)

    def encode(self, label: Any, where: str) -> Any:
        """Return the label of an example in the form for training; see `LabelKind.encode`.

        Args:
            label: the label of the example.
            where: the name of the example, for messages.

        Raises:
            DataError: the label is unknown, or of another kind.
        """
        try:
            return self.kind.encode(label, self.ids)
        except UnknownLabel as error:
            known = "" if self.kind is NUMBER else f" The labels are {', '.join(self.names[:_LABELS_SHOWN])}."
            raise DataError(f"{where}: {str(error).rstrip('.')}.{known}") from error

    def config_arguments(self) -> dict[str, Any]:
        """Return the arguments of `AlbertConfig` for these labels."""
        return {"id2label": dict(enumerate(self.names)), "problem_type": self.kind.problem_type}

    def counts(self, labels: Iterable[Any]) -> Counter[str]:
        """Count the examples of each label. Other values, such as numbers, are not counted."""
        return Counter(name for name in map(str, _leaves(labels)) if name in self.ids)

    def notes(self, labels: Iterable[Any]) -> list[str]:
        """Return notes on the labels of the training examples: their counts, and likely mistakes."""
        if self.kind is NUMBER:
            numbers = [one for one in map(number_of, _leaves(labels)) if one is not None]
            span = f": {min(numbers):g} to {max(numbers):g}" if numbers else ""
            return [f"labels are numbers (regression){span}"]
        counts = Counter(map(str, _leaves(labels)))
        if self.kind is TAGS:
            del counts[IGNORED]
        if not counts.keys() <= {*self.names}:  # a task of your own may have other answers than label names
            return [f"{len(self.names)} labels ({self.kind.title}): {', '.join(self.names[:_LABELS_SHOWN])}"]
        shown = ", ".join(f"{name} {counts[name]:,}" for name in self.names[:_LABELS_SHOWN])
        more = ", ..." if len(self.names) > _LABELS_SHOWN else ""
        count = f"{len(self.names)} labels ({self.kind.title}): {shown}{more}"
        return [count, *self._likely_mistakes(counts)]

    def _likely_mistakes(self, counts: Counter[str]) -> Iterator[str]:
        """Yield notes on labels that may be mistakes, given the number of examples of each."""
        # The labels of a tagging scheme are all combinations of its prefixes and types.
        missing = [] if self.kind is TAGS else [name for name in self.names if not counts[name]]
        rare = [name for name in self.names if counts[name] == 1]
        for names, what in (
            (missing, "labels without a training example"),
            (rare, "labels with a single training example, perhaps by mistake"),
        ):
            if names:
                more = ", ..." if len(names) > _RARE_SHOWN else ""
                yield f"{what}: {', '.join(map(repr, names[:_RARE_SHOWN]))}{more}"
        spellings = Counter(name.casefold() for name in self.names)
        if similar := [name for name in self.names if spellings[name.casefold()] > 1]:
            shown = ", ".join(map(repr, sorted(similar, key=str.casefold)[:_LABELS_SHOWN]))
            yield f"labels that differ only in case, perhaps by mistake: {shown}"
        for mark in ";|":
            if any(mark in name for name in self.names):
                advice = f"If it separates several labels, use --label-separator {mark!r}."
                yield f"some labels contain {mark!r}. {advice}"
        if self.kind is SEVERAL:
            return
        if len(self.names) > _FEW_NUMBERS and all(name.removeprefix("-").isdecimal() for name in self.names):
            yield (
                f"the labels are {len(self.names)} whole numbers, which are read as classes. If they are "
                "amounts, such as ratings, use --problem-type regression."
            )
        commas = list(filter(is_number_with_comma, self.names))
        if len(commas) > len(self.names) / 2:
            yield (
                f"labels such as {commas[0]!r} look like numbers, but are read as classes. If they are "
                f"amounts, write them {NUMBER_FORM}."
            )


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the labels, also those in lists, tuples, sets and iterators of any depth."""
    for value in values:
        if isinstance(value, list | tuple | Set | Iterator):
            yield from _leaves(value)
        else:
            yield value


def infer_labels(
    labels: Iterable[Label], *, names: tuple[str, ...] | None = None, problem_type: ProblemType | None = None
) -> LabelSet:
    """Infer the label set from the labels of the training examples.

    Args:
        labels: one per example.
        names: all names in order, if the source defines them.
        problem_type: the kind of labels; None infers it.

    Raises:
        ConfigError: the problem type is unknown.
        DataError: there are no labels, only one class, or a different label in every row.
    """
    if problem_type is not None and problem_type not in KINDS:
        raise ConfigError(
            f"problem_type is {problem_type!r}. Expected one of {', '.join(get_args(ProblemType))}."
        )
    found = list(labels)
    if not found:
        raise DataError("there are no labels. Expected one for each training example.")
    if problem_type is not None:
        kind = KINDS[problem_type]
    elif any(isinstance(label, tuple) for label in found):
        kind = SEVERAL
    else:
        kind = CLASS if names else _infer_kind(found)
    if kind is NUMBER:
        return LabelSet(NUMBER, ("LABEL_0",))  # as configs call the one number of a regression
    used = _names([one for label in found for one in as_tuple(label)])
    if names is None:
        names = used
        if len(names) == sum(len(as_tuple(label)) for label in found) >= 20:
            raise DataError(
                f"each of the {len(found)} rows has a different label ({names[0]!r}, {names[1]!r}, ...). "
                "Choose the column of the labels (--label-column). If they are amounts, use --problem-type "
                "regression."
            )
    if not used:
        raise DataError("no example has a label. Expected labels for some examples.")
    if kind is CLASS and len(used) < 2:
        raise DataError(f"every row has the label {''.join(used)!r}. Expected at least two different labels.")
    if kind is SEVERAL and all(len({*as_tuple(label)}) == len(used) for label in found):
        listed = ", ".join(map(repr, used[:_LABELS_SHOWN]))
        columns = " If they are 0 or 1 for each label, use one column per label (--label-column A,B)."
        raise DataError(
            f"every row has the label{'s' * (len(used) > 1)} {listed}. Expected rows with different labels."
            + columns * ({*used} <= {"0", "1", "False", "True"})
        )
    return LabelSet(kind, names)


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
    if not used:
        raise DataError("there are no labels. Expected one for each word of the training examples.")
    if len(used) < 2:
        raise DataError(
            f"every word has the label {''.join(used)!r}. Expected at least two different labels."
        )
    return LabelSet(TAGS, names or _scheme(used) or _names(list(used)))


def _scheme(labels: set[str]) -> tuple[str, ...] | None:
    """Return all labels of the scheme that these labels follow, or None if they follow none."""
    if not of_scheme(labels):
        return None
    if has_no_types(labels):
        return (OUTSIDE, *sorted(labels - {OUTSIDE}))
    matches = [match for label in labels if (match := SCHEME_LABEL.fullmatch(label))]
    prefixes, types = (sorted({match[group] for match in matches}) for group in (1, 2))
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in prefixes))


def _infer_kind(labels: list[Label]) -> LabelKind:
    numbers = [number for label in labels if (number := number_of(label)) is not None]
    with_fraction = any(not number.is_integer() for number in numbers)
    # A few gaps written as words do not turn a column of numbers into classes.
    return NUMBER if with_fraction and len(numbers) > len(labels) / 2 else CLASS


def _names(labels: Sequence[str | float]) -> tuple[str, ...]:
    """Return the classes in order; whole numbers in numeric order only if all labels are whole numbers."""
    whole = {whole_name(label) for label in labels}
    if None not in whole:
        return tuple(sorted((name for name in whole if name is not None), key=int))
    return tuple(sorted({str(label) for label in labels}))
