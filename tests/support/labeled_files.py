"""A fixture that writes labeled files, and functions that read their examples, labels and reports."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from albertkit.datasets.reader import ReadingReport
from albertkit.tasks import loading
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import QuestionAnswering
from albertkit.tasks.task import Task
from albertkit.tasks.text_classification import TextClassification
from albertkit.tasks.token_classification import TokenClassification

Write = Callable[[str, str], Path]

CLASSES, NUMBERS, SEVERAL = "single_label_classification", "regression", "multi_label_classification"

# A field that only the examples of one task have.
TASK_OF: dict[str, type[Task]] = {
    "text_pair": TextClassification,
    "words": TokenClassification,
    "answers": QuestionAnswering,
    "choices": MultipleChoice,
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_text(name: str, content: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8", newline="")
        return file

    return write_text


def load_splits(readers: dict[str, Any], **options: Any) -> loading.Splits:
    """Load splits for the task of their readers."""
    names = {name for reader in readers.values() for name in reader.columns.names}
    (task,) = (TASK_OF[name] for name in names & TASK_OF.keys())
    return loading.load_splits(task(), readers, **options)


def label_counts(splits: loading.Splits, name: str) -> Counter[str]:
    """Return the count of each label: labels of texts or words, or indices of the right choices."""
    counts: Counter[str] = Counter()
    for example in splits.examples[name]:
        labels = example.labels if hasattr(example, "labels") else example.label
        counts.update(map(str, labels if isinstance(labels, tuple) else (labels,)))
    return counts


def report_of(reader) -> ReadingReport:
    report = ReadingReport(reader.source)
    assert len(list(reader.read(report))) == report.examples
    return report
