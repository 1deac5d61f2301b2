"""Load labeled data: open readers, read splits with their labels, convert examples to rows in chunks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import ExampleT, Reader, ReadingReport, read_objects
from albertkit.datasets.rows import as_source
from albertkit.errors import AlbertKitError, DataError
from albertkit.tasks.labels import NUMBER, LabelSet, UnknownLabel
from albertkit.tasks.rows import UnknownTokens, failures
from albertkit.tasks.settings import ProblemType
from albertkit.tasks.task import Task, example_name

CHUNK = 1024  # examples that are sorted by length and computed together
_LISTED = 10  # number of examples listed in an error


def open_reader(
    task: Task, data: Any, options: DataOptions, *, name: str, labeled: bool = True
) -> Reader[Any]:
    """Return the reader of labeled data.

    Args:
        task: the task, whose reader reads files and tables.
        data: see `datasets.rows.as_source`.
        options: columns and layout of files and tables.
        name: the name of data in memory in error messages.
        labeled: whether examples must have labels.
    """
    source = as_source(data, name=name)
    if isinstance(source, list):
        return read_objects(source, name, example_class=task.example_class, labeled=labeled)
    return task.reader(source, options, labeled=labeled)


@dataclass(frozen=True)
class Splits(Generic[ExampleT]):
    """Examples and reports by split; labels for tasks that have label names."""

    examples: dict[str, list[ExampleT]]
    reports: dict[str, ReadingReport]
    labels: LabelSet | None


def load_splits(
    task: Task,
    readers: Mapping[str, Reader[ExampleT]],
    *,
    labels: LabelSet | None = None,
    problem_type: ProblemType | None = None,
) -> Splits[ExampleT]:
    """Read all splits.

    Args:
        task: the task of the examples.
        readers: the reader of each split. The training split comes first: its examples determine the labels.
        labels: the labels of a model that is only evaluated; None to use the labels of the first split.
        problem_type: the kind of labels of texts; None infers it.
    """
    located: dict[str, list[tuple[str, ExampleT]]] = {}
    reports = {name: ReadingReport(reader.source) for name, reader in readers.items()}
    for name, reader in readers.items():
        rows = located.setdefault(name, [])
        for origin, example in reader.read(reports[name]):
            if task.truth(example) is not None:
                rows.append((origin, example))
            else:
                reports[name].add("unlabeled", origin)
                reports[name].examples -= 1
        _check_usable(rows, reports[name])
    examples = {name: [example for _, example in rows] for name, rows in located.items()}
    training: ReadingReport | None = None
    if labels is None:
        first, *_ = located
        training = reports[first]
        try:
            labels = task.find_labels(examples[first], readers[first].columns.class_names, problem_type)
        except DataError as error:
            raise DataError(f"{training.source}: {error}{left_out(training)}") from error
    if labels is not None:
        for name, rows in located.items():
            is_training = reports[name] is training
            examples[name], unknown = _with_labels(task, rows, labels, reports[name], counts=is_training)
            if unknown:
                raise _unknown_labels(unknown, labels, training)
            _check_usable(examples[name], reports[name])
    return Splits(examples, reports, labels)


def left_out(report: ReadingReport | None) -> str:
    """Return the lines of a report with skipped rows, to append to a message; empty without such rows."""
    return "\n".join(["", *report.lines()]) if report and report.problems else ""


def _check_usable(examples: Sequence[Any], report: ReadingReport) -> None:
    if not examples:
        raise DataError("\n".join(["there are no usable examples:", *report.lines()]))


def _with_labels(
    task: Task, rows: list[tuple[str, Any]], labels: LabelSet, report: ReadingReport, *, counts: bool
) -> tuple[list[Any], list[str]]:
    """Return the examples with their labels in the set, and what is wrong with those that are not.

    If `counts`, and in a regression, invalid examples are only counted in the report.
    """
    examples, unknown = [], list[str]()
    for origin, example in rows:
        try:
            examples.append(task.with_label(example, labels))
        except UnknownLabel as error:
            if counts or labels.kind is NUMBER:
                report.add("mislabeled", origin, str(error))
                report.examples -= 1
            else:
                unknown.append(f"{origin}: {error}")
    return examples, unknown


def _unknown_labels(unknown: list[str], labels: LabelSet, training: ReadingReport | None) -> DataError:
    also = f" ({len(unknown):,} rows have an unknown label)" if len(unknown) > 1 else ""
    whose, otherwise = "The model", "evaluate a model with these labels"
    if labels.names == tuple(f"LABEL_{number}" for number in range(len(labels.names))):
        otherwise = "give the model's labels their names, in id2label of its config.json"
    if training:  # training examples with this label may have been left out
        whose, otherwise = "Training", "add training examples with this label"
    return DataError(
        f"{unknown[0]}{also}. {whose} has {', '.join(labels.names[:20])}. Correct the label, choose another "
        f"column, or {otherwise}.{left_out(training)}"
    )


def chunks(examples: Iterable[Any], size: int = CHUNK) -> Iterator[list[Any]]:
    examples = iter(examples)
    while some := list(islice(examples, size)):
        yield some


class RowCounts:
    """Counts examples that are truncated, cannot be predicted correctly, or are mostly unknown tokens."""

    def __init__(self, task: Task) -> None:
        self._task, self._unknown = task, UnknownTokens(task.tokenizer)
        self.cut = 0
        """Number of examples that were truncated."""
        self.warnings = Counter[str]()
        """Number of examples that cannot be predicted correctly, by the problem with their answers."""

    def add(self, examples: Sequence[Any], rows: Sequence[Any]) -> None:
        self._unknown.add(rows, count=len(examples))
        self.cut += len({row.example for row in rows if row.cut})
        self.warnings += self._task.warnings(rows)

    def notes(self) -> list[str]:
        counts = Counter({self._task.cut_note: self.cut}) + self.warnings  # a sum has no zeros
        notes = [f"{number:,} of {self._unknown.examples:,} {what}" for what, number in counts.items()]
        return [*notes, unknown] if (unknown := self._unknown.note()) else notes

    def to_json(self) -> dict[str, Any]:
        return {"examples_cut": self.cut, "warnings": dict(self.warnings)}


def features_of_all(task: Task, examples: Iterable[Any]) -> Iterator[tuple[list[Any], Sequence[Any]]]:
    """Yield chunks of examples with their rows."""
    count, wrong = 0, list[tuple[str, AlbertKitError]]()
    for chunk in chunks(examples):
        try:
            yield chunk, task.features(chunk)
        except AlbertKitError:
            errors = failures(task.features, chunk)
            if not errors:  # the examples are only invalid together
                raise
            wrong += [(example_name(chunk[n], count + n + 1), error) for n, error in errors.items()]
        count += len(chunk)
    if wrong:
        listed = ", ".join(name for name, _ in wrong[:_LISTED]) + (", ..." if len(wrong) > _LISTED else "")
        _, error = wrong[0]
        raise DataError(f"{len(wrong):,} of {count:,} examples cannot be used ({listed}). The first: {error}")
