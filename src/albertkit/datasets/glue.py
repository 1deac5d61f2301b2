"""The nine tasks of GLUE (Wang et al. 2019), read from the files as they are distributed.

Each task is a folder of TSV files without quotes. `TASKS` lists the columns, the labels in the order of their
numbers, and the metrics, the most important first.

MRPC may also have Microsoft's files (`msr_paraphrase_train.txt`, `msr_paraphrase_test.txt`) with GLUE's list
of the validation pairs (`dev_ids.tsv`, or `mrpc_dev_ids.tsv`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.datasets.examples import TextExample
from albertkit.datasets.reader import Reader, ReadingReport
from albertkit.datasets.table import DelimitedTable, Row, RowError
from albertkit.errors import ConfigError, DataError, suggestion

NO_CONSENSUS = "-"
"""The label in MNLI's files if the annotators did not agree."""


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE: its files, columns, labels and metrics."""

    folder: str
    text: str
    pair: str | None
    label: str
    names: tuple[str, ...] | None
    """The labels in order; None for regression."""
    metrics: tuple[str, ...]
    """Keys of `class_scores` or `number_scores`. The first one selects the best model."""
    columns: tuple[str, ...] | None = None
    """The columns of train.tsv and dev.tsv if they have no header."""
    validation: tuple[str, ...] = ("validation",)
    """The splits for validation."""


_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_YES = ("0", "1")

TASKS: dict[str, GlueTask] = {
    "cola": GlueTask(
        *("CoLA", "sentence", None, "label", _YES, ("matthews", "accuracy")),
        columns=("source", "label", "mark", "sentence"),
    ),
    "sst2": GlueTask("SST-2", "sentence", None, "label", _YES, ("accuracy",)),
    "mrpc": GlueTask("MRPC", "#1 String", "#2 String", "Quality", _YES, ("accuracy", "f1")),
    "qqp": GlueTask("QQP", "question1", "question2", "is_duplicate", _YES, ("accuracy", "f1")),
    "stsb": GlueTask("STS-B", "sentence1", "sentence2", "score", None, ("pearson", "spearman")),
    "mnli": GlueTask(
        *("MNLI", "sentence1", "sentence2", "gold_label", _NLI, ("accuracy",)),
        validation=("validation_matched", "validation_mismatched"),
    ),
    "qnli": GlueTask("QNLI", "question", "sentence", "label", _ENTAILMENT, ("accuracy",)),
    "rte": GlueTask("RTE", "sentence1", "sentence2", "label", _ENTAILMENT, ("accuracy",)),
    "wnli": GlueTask("WNLI", "sentence1", "sentence2", "label", _YES, ("accuracy",)),
}

_IDS = ("index", "id")
_MRPC_IDS = ("#1 ID", "#2 ID")


class GlueSplit(Reader[TextExample]):
    """One split of one task. Test splits have no labels, except MRPC's in Microsoft's files.

    Args:
        folder: the folder of all tasks, or the folder of this task.
        task: its name in `TASKS`.
        split: "train", "validation" or "test"; for MNLI "validation_matched", "validation_mismatched" and
            so on.
        labeled: whether to read labels, if the split has them.

    Raises:
        ConfigError: the task or split is unknown.
        DataError: the file does not exist, or has other columns.
    """

    def __init__(self, folder: str | Path, task: str, split: str, *, labeled: bool = True) -> None:
        if task not in TASKS:
            raise ConfigError(f"the task is {task!r}. {suggestion(task, TASKS)}")
        self.task = TASKS[task]
        tests = [name.replace("validation", "test") for name in self.task.validation]
        splits = ["train", *self.task.validation, *tests]
        if split not in splits:
            raise ConfigError(f"the split of {task} is {split!r}. Expected one of {', '.join(splits)}.")
        folder = Path(folder)
        self.folder = folder / self.task.folder if (folder / self.task.folder).is_dir() else folder
        file, self._chosen = self._find(split)
        is_test = split.startswith("test")
        self.table = DelimitedTable(file, names=None if is_test else self.task.columns, delimiter="\t")
        super().__init__(
            str(file), labeled=labeled and (not is_test or self.task.label in self.table.columns())
        )
        label = self.task.label if self.labeled else None
        wanted = [one for one in (self.task.text, self.task.pair, label) if one is not None]
        self.table.check_columns({"--glue": wanted})

    def label_names(self) -> tuple[str, ...] | None:
        """Return the task's labels."""
        return self.task.names

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the split."""
        for row in self.table.rows():
            if row.fault or self._chosen is None or self._chosen(row.values):
                yield row

    def example(self, row: Row, report: ReadingReport) -> TextExample:
        """Return the text, or the pair, with its label, named by the file's own index if it has one."""
        values = row.values
        text, *pair = self.texts(row, list(filter(None, (self.task.text, self.task.pair))), report)
        label = None
        if self.labeled:
            label = values[self.task.label].strip()
            if label in ("", NO_CONSENSUS):
                raise RowError("unlabeled")
        name = next((values[column] for column in _IDS if column in values), row.origin)
        return TextExample(text, pair[0] if pair else None, label, name)

    def _find(self, split: str) -> tuple[Path, Callable[[Mapping[str, Any]], bool] | None]:
        """Return the file of a split, and a condition for its rows if they are only a part of the file."""
        file = self.folder / f"{split.replace('validation', 'dev')}.tsv"
        if file.is_file():
            return file, None
        original = self.folder / f"msr_paraphrase_{'test' if split == 'test' else 'train'}.txt"
        if self.task is not TASKS["mrpc"] or not original.is_file():
            raise DataError(f"{file}: no such file. Expected the folder {self.task.folder} of GLUE.")
        if split == "test":
            return original, None
        names = ("dev_ids.tsv", "mrpc_dev_ids.tsv")
        listed = next((self.folder / name for name in names if (self.folder / name).is_file()), None)
        if listed is None:
            raise DataError(
                f"{self.folder}: {original.name} has training and validation examples of MRPC together. Put "
                f"GLUE's {names[0]} into the folder. It lists the validation examples."
            )
        lines = listed.read_text(encoding="utf-8-sig").splitlines()
        for_validation = {tuple(line.split("\t")[:2]) for line in lines}
        wanted = split == "validation"
        return original, lambda values: (tuple(values[one] for one in _MRPC_IDS) in for_validation) == wanted
