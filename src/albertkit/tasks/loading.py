"""Load labeled data: open readers, read splits with their labels, convert examples to rows in chunks."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic

from albertkit.datasets.examples import TextExample, WordsExample
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import ExampleT, Reader, ReadingReport, read_objects
from albertkit.datasets.rows import ClassNames, Row, as_source
from albertkit.errors import AlbertKitError, ConfigError, DataError
from albertkit.metrics import SCHEME_LABEL
from albertkit.tasks.labels import NUMBER, LabelSet, UnknownLabel, spelling_key
from albertkit.tasks.rows import UnknownTokens, failures
from albertkit.tasks.settings import ProblemType
from albertkit.tasks.task import Task

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
    rows: dict[str, list[Row]]
    """The row of each example."""
    reports: dict[str, ReadingReport]
    labels: LabelSet | None


def load_splits(
    task: Task,
    readers: Mapping[str, Reader[ExampleT]],
    *,
    labels: LabelSet | None = None,
    problem_type: ProblemType | None = None,
    merge_labels: bool = False,
    skip_unknown_labels: bool | None = None,
) -> Splits[ExampleT]:
    """Read all splits.

    Args:
        task: the task of the examples.
        readers: the reader of each split. The training split comes first: its examples determine the labels.
        labels: the labels of a model that is only evaluated; None to use the labels of the first split.
        problem_type: the kind of labels of texts; None infers it.
        merge_labels: whether to merge labels that differ only in case or spaces: into the names in `labels`,
            or else into the most frequent spelling in the first split.
        skip_unknown_labels: whether to count examples with other labels than `labels` in the report, instead
            of raising an error; None if the caller has no such option.
    """
    located: dict[str, list[tuple[Row, ExampleT]]] = {}
    reports = {name: ReadingReport(reader.source) for name, reader in readers.items()}
    for name, reader in readers.items():
        rows = located.setdefault(name, [])
        is_large = name != [*readers][-1]  # training data beside validation data, whose columns nobody reads
        for row, example in reader.numbered(reports[name]):
            if task.truth(example) is not None:
                rows.append((row._replace(values={}) if is_large else row, example))
            else:
                reports[name].leave_out("unlabeled", row.origin)
        _check_usable(rows, reports[name])
    first, *_ = located
    names = readers[first].columns.class_names
    if merge_labels:
        if task.example_class not in (TextExample, WordsExample):
            raise ConfigError(f"merge_labels is for tasks with label names, not for {task.name}. Omit it.")
        names = _merge_labels(located, reports, names, labels)
    training: ReadingReport | None = None
    if labels is None:
        training = reports[first]
        try:
            labels = task.find_labels([example for _, example in located[first]], names, problem_type)
        except DataError as error:
            raise DataError(f"{training.source}: {error}{left_out(training)}") from error
    if labels is not None:
        for name, rows in located.items():
            report, unknown, located[name] = reports[name], list[str](), []
            for row, example in rows:
                try:
                    located[name].append((row, task.with_label(example, labels)))
                except UnknownLabel as error:
                    if skip_unknown_labels or report is training or labels.kind is NUMBER:
                        report.leave_out("invalid label", row.origin, str(error))
                    else:
                        unknown.append(f"{row.origin}: {error}")
            if unknown:
                raise _unknown_labels(unknown, labels, training, has_option=skip_unknown_labels is not None)
            _check_usable(located[name], report)
    rows = {name: [row for row, _ in pairs] for name, pairs in located.items()}
    examples = {name: [example for _, example in pairs] for name, pairs in located.items()}
    return Splits(examples, rows, reports, labels)


def left_out(report: ReadingReport | None) -> str:
    """Return the lines of a report with skipped rows, to append to a message; empty without such rows."""
    return "\n".join(["", *report.lines()]) if report and report.problems else ""


def _check_usable(examples: Sequence[Any], report: ReadingReport) -> None:
    if not examples:
        raise DataError("\n".join(["there are no usable examples:", *report.lines()]))


def _merge_labels(
    located: Mapping[str, list[tuple[Row, Any]]],
    reports: Mapping[str, ReadingReport],
    names: ClassNames,
    labels: LabelSet | None,
) -> ClassNames:
    """Merge the spellings of labels in all examples, and return the merged names that a source defines."""
    training = next(iter(located.values()))
    has_tags = isinstance(training[0][1], WordsExample)
    counts, spellings = Counter[str](), dict[str, str]()
    merged: dict[str, Counter[str]] = {}

    def count(label: str) -> str:
        counts[label] += 1
        return label

    def spell(label: str) -> str:
        is_exact = labels is not None and label in counts
        spelling = label if is_exact else spellings.get(spelling_key(label), label)
        if spelling != label:
            merged.setdefault(spelling, Counter())[label] += 1
        return spelling

    def each_tag(tag: str, change: Callable[[str], str]) -> str:
        """Change the type of a label in a tagging scheme, or the whole label."""
        match = SCHEME_LABEL.fullmatch(tag) if has_tags else None
        return f"{match[1]}-{change(match[2])}" if match else change(tag)

    def changed(example: Any, change: Callable[[str], str]) -> Any:
        match example:
            case TextExample(label=str() as label):
                return replace(example, label=change(label))
            case TextExample(label=tuple() as several):
                return replace(example, label=tuple(dict.fromkeys(map(change, several))))
            case WordsExample(labels=tuple() as tags):
                return replace(example, labels=tuple(each_tag(tag, change) for tag in tags))
        return example

    for _, example in training if labels is None else ():
        changed(example, count)
    for name in () if labels is None else labels.names:
        each_tag(name, count)
    for label, _ in counts.most_common():
        spellings.setdefault(spelling_key(label), label)
    names = names and tuple(dict.fromkeys(each_tag(name, spell) for name in names))
    for split, rows in located.items():
        merged.clear()
        rows[:] = [(row, changed(example, spell)) for row, example in rows]
        reports[split].merged_labels = {label: dict(others) for label, others in merged.items()}
    return names


def _unknown_labels(
    unknown: list[str], labels: LabelSet, training: ReadingReport | None, *, has_option: bool
) -> DataError:
    also = f" ({len(unknown):,} rows have an unknown label)" if len(unknown) > 1 else ""
    whose = "The model"
    otherwise = "remove the row"
    if has_option:
        otherwise = "pass --skip-unknown-labels (in Python skip_unknown_labels=True)"
    if labels.names == tuple(f"LABEL_{number}" for number in range(len(labels.names))):
        otherwise = "give the model's labels their names, in id2label of its config.json"
    if training:  # training examples with this label may have been left out
        whose, otherwise = "The training data", "add training examples with this label"
    return DataError(
        f"{unknown[0]}{also}. {whose} has the labels {', '.join(labels.names[:20])}. Correct the label, "
        f"choose another column, or {otherwise}.{left_out(training)}"
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
            for number, error in errors.items():
                name = getattr(chunk[number], "id", "") or count + number + 1
                wrong.append((str(name), error))
        count += len(chunk)
    if wrong:
        listed = ", ".join(name for name, _ in wrong[:_LISTED]) + (", ..." if len(wrong) > _LISTED else "")
        _, error = wrong[0]
        raise DataError(f"{len(wrong):,} of {count:,} examples cannot be used ({listed}). The first: {error}")
