"""Several splits of one task: read whole, with the labels of the first, and a report for each."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, cast

from albertkit.datasets.labels import (
    LabelSet,
    ProblemType,
    UnknownLabel,
    infer_labels,
    infer_word_labels,
    with_label,
)
from albertkit.datasets.reader import ExampleT, Reader
from albertkit.datasets.report import ReadingReport
from albertkit.errors import DataError
from albertkit.tasks.examples import TextExample, WordsExample


@dataclass(frozen=True)
class Splits(Generic[ExampleT]):
    """Examples and reports by split; labels for tasks that have names for them."""

    examples: dict[str, list[ExampleT]]
    reports: dict[str, ReadingReport]
    labels: LabelSet | None

    def label_counts(self, split: str) -> Counter[str]:
        """Return how often each label is there: of texts, of words, or the places of right choices."""
        counts: Counter[str] = Counter()
        for example in cast(list[Any], self.examples[split]):
            labels = example.labels if isinstance(example, WordsExample) else example.label
            counts.update(map(str, labels if isinstance(labels, tuple) else (labels,)))
        return counts


_OTHERWISE = {
    "Training": "give training examples that have it",
    "The model": "evaluate the model of these labels",
}


def load_splits(
    readers: Mapping[str, Reader[ExampleT]],
    *,
    labels: LabelSet | None = None,
    problem_type: ProblemType | None = None,
) -> Splits[ExampleT]:
    """Read all splits.

    Args:
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
        labels = _labels(found, readers[first], reports[first], problem_type)
    examples: dict[str, list[ExampleT]] = {}
    for name, rows in located.items():
        if labels is None:
            examples[name] = [one for _, one in rows]
            continue
        whose = "Training" if learnt_from else "The model"
        try:
            examples[name] = _checked(
                rows, labels, reports[name], is_training=name == learnt_from, whose=whose
            )
        except UnknownLabel as error:
            # Training examples with this label may be among those that were left out.
            raise DataError(f"{error}{_left_out(reports[learnt_from]) if learnt_from else ''}") from error
    return Splits(examples, reports, labels)


def _labels(
    examples: list[Any], reader: Reader[Any], report: ReadingReport, problem_type: ProblemType | None
) -> LabelSet | None:
    if isinstance(examples[0], WordsExample):
        return infer_word_labels(examples, names=reader.label_names())
    if isinstance(examples[0], TextExample):
        given = [example.label for example in examples if example.label is not None]
        if not given:
            return None  # pairs that belong together, without a column of labels
        try:
            return infer_labels(given, names=reader.label_names(), problem_type=problem_type)
        except DataError as error:
            raise DataError(f"{reader.source}: {error}{_left_out(report)}") from error
    return None


def _left_out(report: ReadingReport) -> str:
    return "\n".join(["", *report.lines()]) if report.problems else ""


def _checked(
    rows: list[tuple[str, Any]], labels: LabelSet, report: ReadingReport, *, is_training: bool, whose: str
) -> list[Any]:
    """Return the examples with labels of the set; what is wrong in the training split itself is left out."""
    found, unknown = [], list[tuple[str, str]]()
    for origin, example in rows:
        try:
            found.append(with_label(example, labels))
        except UnknownLabel as error:
            if not is_training and labels.problem_type != "regression":
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
