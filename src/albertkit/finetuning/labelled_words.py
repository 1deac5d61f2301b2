"""Token classification: entities, chunks, parts of speech; CoNLL columns, and tables of lists."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from albertkit.config import IGNORED_LABEL, AlbertConfig
from albertkit.datasets.labels import LabelSet
from albertkit.datasets.reader import Reader
from albertkit.datasets.words import ConllFile, WordsColumns, WordsTable
from albertkit.errors import DataError, did_you_mean
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.labelled_task import Judged, LabelledTask, majority, task_room, without
from albertkit.finetuning.settings import FinetuningSettings, TaskSettings
from albertkit.metrics.classification import class_scores
from albertkit.metrics.spans import OUTSIDE, of_scheme, span_scores
from albertkit.tasks.examples import WordsExample
from albertkit.tasks.task import Task
from albertkit.tasks.token_classification import Tagged, TokenClassification, WordsRow
from albertkit.text_files import file_format
from albertkit.tokenization.base import TokenizerBase


class LabelledWords(LabelledTask):
    """Sentences with a label for each word."""

    architecture = "AlbertForTokenClassification"
    metrics = ("f1", "precision", "recall", "accuracy", "f1_macro", "matthews")

    def reader(self, source: str, options: DataOptions, *, labelled: bool = True) -> Reader[WordsExample]:
        """Return the reader of a table or, by any other name, of a file of CoNLL columns."""
        path = Path(source)
        if path.is_dir() or self.is_table(path):
            columns = WordsColumns(
                words=options.words_column or "tokens",
                labels=options.label_column or "ner_tags",
                id=options.id_column,
            )
            return WordsTable(
                source, columns, labelled=labelled, header=options.header, delimiter=options.delimiter
            )
        return ConllFile(
            path,
            word_column=_number("words_column", options.words_column or "0"),
            label_column=_number("label_column", options.label_column or "-1"),
            labelled=labelled,
        )

    def is_table(self, path: Path) -> bool:
        """Return whether a file is a table: a .tsv file has the columns of CoNLL."""
        return file_format(path)[0] != ".tsv" and super().is_table(path)

    def task(
        self, tokenizer: TokenizerBase, config: AlbertConfig, settings: TaskSettings
    ) -> TokenClassification:
        """Return the task with the labels of the config."""
        return TokenClassification(
            tokenizer,
            max_length=task_room(config, settings),
            labels=list(config.id2label.values()),
            labelled_pieces=settings.labelled_pieces,
        )

    def labels(self, config: AlbertConfig) -> LabelSet:
        """Return the labels of a model."""
        return LabelSet("single_label_classification", tuple(config.id2label.values()))

    def check(
        self,
        examples: Mapping[str, Sequence[WordsExample]],
        config: AlbertConfig,
        settings: FinetuningSettings,
    ) -> str | None:
        """Return a note if a few labels keep the others from being scored as spans."""
        del examples, settings
        fitting, others = [OUTSIDE], []
        for label in config.id2label.values():
            if label != OUTSIDE:
                (fitting if of_scheme([label]) else others).append(label)
        if not 0 < len(others) <= len(fitting) - 1:
            return None
        odd = ", ".join(f"{label!r}{did_you_mean(label, fitting)}" for label in others[:5])
        return (
            f"warning: the metrics count words instead of spans, because these labels fit no tagging "
            f"scheme: {odd}. Expected O, or a prefix (B, I, E, S, L or U), a hyphen and a type"
        )

    def main_metric(self, config: AlbertConfig, examples: Sequence[WordsExample]) -> str:
        """Return F1 of spans where labels are of a scheme, else accuracy."""
        del examples
        return "f1" if of_scheme(config.id2label.values()) else "accuracy"

    def scores(
        self, examples: Sequence[WordsExample], predictions: Sequence[Tagged], config: AlbertConfig
    ) -> dict[str, float]:
        """Return the scores of spans, or without a scheme those of words."""
        true = [example.labels or () for example in examples]
        predicted = [prediction.labels for prediction in predictions]
        if of_scheme(config.id2label.values()):
            return span_scores(true, predicted).summary()
        return class_scores(
            list(chain.from_iterable(true)),
            list(chain.from_iterable(predicted)),
            labels=list(config.id2label.values()),
        )

    def baseline(self, examples: Sequence[WordsExample], config: AlbertConfig) -> dict[str, float]:
        """Return the share of the most frequent label."""
        del config
        return majority(chain.from_iterable(example.labels or () for example in examples))

    def judge(self, example: WordsExample, prediction: Tagged, config: AlbertConfig) -> list[Judged]:
        """Return the decisions on the words, each as sure as that on its first piece."""
        del config
        confidence: dict[int, float] = {}
        for word, scores in zip(prediction.words, prediction.scores.tolist(), strict=True):
            confidence.setdefault(word, max(scores))
        return [
            Judged(true, predicted, true == predicted, confidence.get(number))
            for number, (true, predicted) in enumerate(
                zip(example.labels or (), prediction.labels, strict=True)
            )
        ]

    def record(self, example: WordsExample, prediction: Tagged, config: AlbertConfig) -> dict[str, Any]:
        """Return {tokens, labels}."""
        del config
        return {"tokens": list(example.words), "labels": prediction.labels}

    def truth(self, example: WordsExample) -> list[str]:
        """Return the labels."""
        return list(example.labels or ())

    def lean(self, row: WordsRow) -> WordsRow:
        """Return a row without words and their characters."""
        return without(row, "words", "offsets")

    def items(self, task: Task, rows: Sequence[WordsRow]) -> int:
        """Count the pieces that have a label."""
        del task
        return sum(label != IGNORED_LABEL for row in rows for label in row.labels)

    def learnt_classes(self, rows: Iterable[WordsRow]) -> Counter[int]:
        """Count the labels of pieces."""
        counts = Counter(label for row in rows for label in row.labels)
        del counts[IGNORED_LABEL]
        return counts


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise DataError(
            f"{name} is {value!r}, but columns of CoNLL files are numbers, from 0, or from the end with -1"
        ) from None
