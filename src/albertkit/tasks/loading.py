"""Labeled data: a source -> its reader; splits -> their examples and labels; examples -> rows in chunks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import ExampleReader, ExampleT, Reader, ReadingReport, as_source
from albertkit.errors import AlbertKitError, DataError
from albertkit.tasks.label_kinds import NUMBER, UnknownLabel
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.rows import UnknownTokens
from albertkit.tasks.settings import ProblemType
from albertkit.tasks.task import Task, example_name

CHUNK = 1024  # examples that are sorted by length and computed together
_LISTED = 10  # examples named in an error


def open_reader(
    task: Task, data: Any, options: DataOptions, *, name: str, labelled: bool = True
) -> Reader[Any]:
    """Return the reader of labeled data.

    Args:
        task: reads files and tables.
        data: as in `datasets.reader.as_source`.
        options: columns and layout of files and tables.
        name: what error messages call data in memory.
        labelled: whether examples are to have labels.

    Raises:
        DataError: there is no such source, or no such column.
    """
    source = as_source(data, name=name)
    if isinstance(source, list):
        return ExampleReader(source, name, labelled=labelled)
    return task.reader(source, options, labelled=labelled)


@dataclass(frozen=True)
class Splits(Generic[ExampleT]):
    """Examples and reports by split; labels for tasks that have names for them."""

    examples: dict[str, list[ExampleT]]
    reports: dict[str, ReadingReport]
    labels: LabelSet | None


_OTHERWISE = {
    "Training": "give training examples that have it",
    "The model": "evaluate the model of these labels",
}


def load_splits(
    task: Task,
    readers: Mapping[str, Reader[ExampleT]],
    *,
    labels: LabelSet | None = None,
    problem_type: ProblemType | None = None,
) -> Splits[ExampleT]:
    """Read all splits.

    Args:
        task: what the examples are of.
        readers: by split, the training split first: its examples say what the labels are.
        labels: those of a model that is only to be evaluated, in place of the first split's.
        problem_type: what labels of texts mean, where it is not to be inferred.

    Raises:
        DataError: a split without any example; a label that the training split does not have.
    """
    located: dict[str, list[tuple[str, ExampleT]]] = {}
    reports: dict[str, ReadingReport] = {}
    for name, reader in readers.items():
        reports[name] = ReadingReport(reader.source)
        located[name] = list(reader.read(reports[name]))
        if not located[name]:
            raise DataError("\n".join(["no example is left of", *reports[name].lines()]))
    first, *_ = located
    learnt_from = None if labels else first
    if labels is None:
        found = [example for _, example in located[first]]
        labels = _labels(task, found, readers[first], reports[first], problem_type)
    examples: dict[str, list[ExampleT]] = {}
    for name, rows in located.items():
        if labels is None:
            examples[name] = [one for _, one in rows]
            continue
        whose = "Training" if learnt_from else "The model"
        try:
            examples[name] = _checked(
                task, rows, labels, reports[name], is_training=name == learnt_from, whose=whose
            )
        except UnknownLabel as error:
            # Training examples with this label may be among those that were left out.
            raise DataError(f"{error}{_left_out(reports[learnt_from]) if learnt_from else ''}") from error
    return Splits(examples, reports, labels)


def _labels(
    task: Task,
    examples: list[Any],
    reader: Reader[Any],
    report: ReadingReport,
    problem_type: ProblemType | None,
) -> LabelSet | None:
    try:
        return task.find_labels(examples, reader.label_names(), problem_type)
    except DataError as error:
        raise DataError(f"{reader.source}: {error}{_left_out(report)}") from error


def _left_out(report: ReadingReport) -> str:
    return "\n".join(["", *report.lines()]) if report.problems else ""


def _checked(
    task: Task,
    rows: list[tuple[str, Any]],
    labels: LabelSet,
    report: ReadingReport,
    *,
    is_training: bool,
    whose: str,
) -> list[Any]:
    """Return the examples with labels of the set; what is wrong in the training split itself is left out."""
    found, unknown = [], list[tuple[str, str]]()
    for origin, example in rows:
        try:
            found.append(task.with_label(example, labels))
        except UnknownLabel as error:
            if not is_training and labels.kind is not NUMBER:
                unknown.append((origin, str(error)))
                continue
            report.add("mislabelled", origin, str(error))
            report.examples -= 1
    if unknown:
        (first, error), *others = unknown
        also = f" (and {len(others):,} more rows with an unknown label)" if others else ""
        raise UnknownLabel(
            f"{first}: {error}{also}. {whose} has {', '.join(labels.names[:20])}: correct the label, or "
            f"choose another column, or {_OTHERWISE[whose]}"
        )
    if not found:
        raise DataError("\n".join(["no example is left of", *report.lines()]))
    return found


def chunks(examples: Iterable[Any], size: int = CHUNK) -> Iterator[list[Any]]:
    """Yield lists of up to `size` examples."""
    examples = iter(examples)
    while some := list(islice(examples, size)):
        yield some


class RowCounts:
    """Counts the examples of a task that are cut, that cannot be right, and that are mostly unknown tokens.

    Args:
        task: made the rows.
    """

    def __init__(self, task: Task) -> None:
        self._task, self._unknown = task, UnknownTokens(task.tokenizer)
        self.cut = 0
        """Number of examples of which something was cut off."""
        self.troubles = Counter[str]()
        """Examples that cannot be right, by what is wrong with their answers."""

    def add(self, examples: Sequence[Any], rows: Sequence[Any]) -> None:
        """Count some examples with their rows."""
        self._unknown.add(rows, count=len(examples))
        self.cut += len({row.example for row in rows if row.cut})
        self.troubles += self._task.troubles(rows)

    def notes(self) -> list[str]:
        """Return what to say about the examples."""
        found = Counter({self._task.cut_note: self.cut}) + self.troubles  # a sum has no zeros
        notes = [f"{number:,} of {self._unknown.examples:,} {what}" for what, number in found.items()]
        return [*notes, unknown] if (unknown := self._unknown.note()) else notes

    def to_json(self) -> dict[str, Any]:
        """Return the counts for a report."""
        return {"examples_cut": self.cut, "troubles": dict(self.troubles)}


def features_of_all(task: Task, examples: Iterable[Any]) -> Iterator[tuple[list[Any], Sequence[Any]]]:
    """Yield chunks of examples with their rows.

    Raises:
        DataError: examples that are too long, or wrong in another way, after all chunks have been read: how
            many, the names of the first ones, and what is wrong with the very first.
    """
    count, wrong, first = 0, list[str](), None
    for chunk in chunks(examples):
        count += len(chunk)
        try:
            yield chunk, task.features(chunk)
        except AlbertKitError as error:
            before = len(wrong)
            for number, example in enumerate(chunk, start=1):
                try:
                    task.features([example])
                except AlbertKitError as own:
                    wrong.append(example_name(example, count - len(chunk) + number))
                    first = first or own
            if len(wrong) == before:  # only together are they wrong
                raise error
    if first is not None:
        listed = ", ".join(wrong[:_LISTED]) + (", ..." if len(wrong) > _LISTED else "")
        raise DataError(f"{len(wrong):,} of {count:,} examples cannot be used ({listed}). The first: {first}")
