"""Token classification: predict a label for each word of a sentence (entities, chunks, parts of speech).

Each word is split into pieces separately, so a text is labeled in the words that taggers are trained on. A
sentence that is too long is read in windows, and each piece is scored where it has the most context.

Shapes: T tokens, P pieces of a sentence, K labels.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.config import IGNORED_LABEL, AlbertConfig
from albertkit.datasets.examples import IGNORED, WordsExample
from albertkit.datasets.official import conll
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import Reader
from albertkit.datasets.rows import FORMATS
from albertkit.engines.engine import Row, by_example
from albertkit.errors import ConfigError, DataError, did_you_mean
from albertkit.metrics.token_classification import BEGINS, OUTSIDE, has_no_types, of_scheme
from albertkit.reference import softmax
from albertkit.tasks.labels import TAGS, LabelSet, infer_tags
from albertkit.tasks.rows import owned
from albertkit.tasks.settings import ProblemType
from albertkit.tasks.task import Decision, Task, directions
from albertkit.text_files import file_format
from albertkit.tokenization.encoding import Encoding

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsRow(Row):
    """A window over the pieces of a sentence."""

    positions: range
    """Tokens that this row predicts: those with the most context here, without special tokens."""
    words: list[int]
    """For each of these tokens, the index of its word."""
    offsets: list[tuple[int, int]]
    """For each of these tokens, its characters in its word."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """The prediction for one sentence."""

    labels: list[str]
    """The label of each word, which is the label of its first piece. A word without pieces (an accent or a
    control character) has the label "I-..." inside an entity, otherwise "O", or else the first label."""
    pieces: list[int]
    """(P,), the ids."""
    words: list[int]
    """(P,), the index of each piece's word."""
    offsets: list[tuple[int, int]]
    """(P,), the characters of each piece in its word."""
    scores: np.ndarray
    """(P, K), the probabilities."""


class TokenClassification(Task[WordsExample, WordsRow, Tagged]):
    """Predicts the labels of the words of a sentence.

    Args:
        stride: overlap of windows in pieces, at most half of a window.
    """

    name = "token-classification"
    architecture = "AlbertForTokenClassification"
    example_class = WordsExample
    answer = "labels"
    metrics = directions("f1", "precision", "recall", "accuracy", "f1_macro", "matthews")
    for_predictions = ("words", "offsets")
    table_formats = tuple(name for name in FORMATS if name != ".tsv")  # .tsv has CoNLL columns
    reads_windows = True
    labels: LabelSet

    def __init__(self, *, stride: int = 64) -> None:
        self.stride = stride

    def use_config(self, config: AlbertConfig) -> None:
        super().use_config(config)
        labeled = self.settings.labeled_tokens
        if labeled not in ("first", "all"):
            raise ConfigError(f"labeled_tokens is {labeled!r}. Expected 'first' or 'all'.")
        self.labels = LabelSet.of(config, kind=TAGS)
        self._has_no_types = has_no_types(self.labels.names)

    def reader(self, source: Any, options: DataOptions, *, labeled: bool = True) -> Reader[WordsExample]:
        path = Path(source) if isinstance(source, str) else None
        if path is None or path.is_dir() or file_format(path)[0] in self.table_formats:
            return super().reader(source, options, labeled=labeled)
        return conll(
            path,
            word_column=_number("words_column", options.words_column or "0"),
            label_column=_number("label_column", options.label_column or "-1"),
            labeled=labeled,
        )

    def find_labels(
        self,
        examples: Sequence[WordsExample],
        names: tuple[str, ...] | None,
        problem_type: ProblemType | None,
    ) -> LabelSet:
        return infer_tags([example.labels or () for example in examples], names=names)

    def with_label(self, example: WordsExample, labels: LabelSet) -> WordsExample:
        labels.read(example.labels)
        return example

    def check(
        self, training: Sequence[WordsExample], validation: Sequence[WordsExample], batch_size: int
    ) -> None:
        """Log a warning if each sentence is a single word, or a few labels prevent scores of spans."""
        if len(training) > 1 and all(len(example.words) == 1 for example in training):
            logger.warning(
                "each training example has a single word, so the model cannot use the context. Expected a "
                "sentence in each example: in a table, a row with a list of words and a list of labels."
            )
            return
        fitting, others = [OUTSIDE], []
        for label in self.labels.names:
            if label != OUTSIDE:
                (fitting if of_scheme([label]) else others).append(label)
        if 0 < len(others) <= len(fitting) - 1:
            odd = ", ".join(f"{label!r}{did_you_mean(label, fitting)}" for label in others[:5])
            logger.warning(
                "the metrics count words instead of spans, because these labels follow no tagging scheme: "
                "%s. Expected O, or a prefix (B, I, E, S, L or U), a hyphen and a type. Perhaps a comment or "
                "a header was read as a word.",
                odd,
            )

    def features(self, examples: Sequence[WordsExample]) -> list[WordsRow]:
        """Return the windows of each sentence; `labels` is -100 for tokens without a training label."""
        if not examples:
            return []
        encoded = self.tokenizer(
            [list(example.words) for example in examples],
            is_split_into_words=True,
            truncation=True,
            max_length=self.max_length,
            stride=min(self.stride, (self.max_length - 2) // 2),
            return_overflowing_tokens=True,
            parse_special_tokens=False,
        )
        windows: list[list[Encoding]] = [[] for _ in examples]
        for number, example in enumerate(encoded["overflow_to_sample_mapping"]):
            windows[example].append(encoded[number])
        return [
            row
            for number, (example, own) in enumerate(zip(examples, windows, strict=True))
            for row in self._rows(number, example, own)
        ]

    def _rows(self, number: int, example: WordsExample, windows: list[Encoding]) -> list[WordsRow]:
        windows = sorted(windows, key=lambda one: one.window.first.start)
        sequence = windows[0].sequences[0]
        labels = self._piece_labels(number, example, sequence.words)
        ranges = [one.window.first for one in windows]
        rows = []
        for window, shown, own in zip(windows, ranges, owned(ranges), strict=True):
            positions = range(1 + own.start - shown.start, 1 + own.stop - shown.start)  # after [CLS]
            row_labels = None
            if labels is not None:
                row_labels = [IGNORED_LABEL] * len(window)
                row_labels[positions.start : positions.stop] = labels[own.start : own.stop]
            rows.append(
                WordsRow(
                    input_ids=window.ids,
                    token_type_ids=window.type_ids,
                    example=number,
                    labels=row_labels,
                    positions=positions,
                    words=sequence.words[own.start : own.stop],
                    offsets=sequence.offsets[own.start : own.stop],
                )
            )
        return rows

    def _piece_labels(self, number: int, example: WordsExample, words: list[int]) -> list[int] | None:
        if example.labels is None:
            return None
        where = f"example {example.id or number}"
        if len(example.labels) != len(example.words):
            raise DataError(
                f"{where} has {len(example.words)} words and {len(example.labels)} labels. Expected equal "
                "numbers."
            )
        first = [  # of each word
            IGNORED_LABEL if label == IGNORED else self.labels.encode(label, where)
            for label in example.labels
        ]
        return [
            first[word] if word != before else self._later_label(example.labels[word])
            for before, word in pairwise([-1, *words])
        ]

    def _later_label(self, label: str) -> int:
        if self.settings.labeled_tokens == "first" or label == IGNORED:
            return IGNORED_LABEL
        inside = f"I{label[1:]}" if self._prefix(label) in [*BEGINS] else label
        return self.labels.ids.get(inside, self.labels.ids[label])

    def _prefix(self, label: str) -> str:
        return label[:1] if label[1:2] == "-" or (self._has_no_types and label != OUTSIDE) else ""

    def labels_of(self, rows: Sequence[WordsRow]) -> dict[str, np.ndarray]:
        labels = np.full((len(rows), self.padded_length(rows)), IGNORED_LABEL, np.int64)
        for number, row in enumerate(rows):
            labels[number, : len(row.labels)] = row.labels
        return {"labels": labels}

    def read(self, row: WordsRow) -> Sequence[int]:
        return row.positions

    def keep(self, scores: np.ndarray) -> np.ndarray:
        return scores

    def predictions(
        self, examples: Sequence[WordsExample], rows: Sequence[WordsRow], outputs: Sequence[np.ndarray]
    ) -> list[Tagged]:
        return [
            self._prediction(example, [row for row, _ in own], np.concatenate([logits for _, logits in own]))
            for example, own in zip(examples, by_example(rows, outputs, count=len(examples)), strict=True)
        ]

    def _prediction(self, example: WordsExample, rows: list[WordsRow], logits: np.ndarray) -> Tagged:
        words = [word for row in rows for word in row.words]
        labels = [""] * len(example.words)
        best = logits.argmax(axis=-1).tolist()
        for word, label in zip(reversed(words), reversed(best), strict=True):  # the first piece comes last
            labels[word] = self.labels.names[label]
        return Tagged(
            labels=self._with_all_labels(labels),
            pieces=[row.input_ids[position] for row in rows for position in row.positions],
            words=words,
            offsets=[place for row in rows for place in row.offsets],
            scores=softmax(logits),
        )

    def _with_all_labels(self, labels: list[str]) -> list[str]:
        """Return the labels of words, with a label in place of the empty label of a word without pieces.

        If the words around it belong to one entity, the word belongs to it too.
        """
        outside = OUTSIDE if OUTSIDE in self.labels.ids else self.labels.names[0]
        following = list(labels)
        for number in reversed(range(len(labels) - 1)):
            following[number] = labels[number] or following[number + 1]
        found = [outside]
        for label, later in zip(labels, following, strict=True):
            before, inside = found[-1], f"I{later[1:]}"
            goes_on = before in (f"B{later[1:]}", inside) and self._prefix(later) in [*"IEL"]
            found.append(label or (inside if goes_on and inside in self.labels.ids else outside))
        return found[1:]

    def record(self, example: WordsExample, prediction: Tagged) -> dict[str, Any]:
        return {"tokens": list(example.words), "labels": prediction.labels}

    def truth(self, example: WordsExample) -> list[str] | None:
        return None if example.labels is None else list(example.labels)

    def scores(self, examples: Sequence[WordsExample], predictions: Sequence[Tagged]) -> dict[str, float]:
        true = [example.labels or () for example in examples]
        return self.labels.scores(true, [one.labels for one in predictions])

    def main_metric(self, examples: Sequence[WordsExample]) -> str:
        return self.labels.main_metric

    def baseline(self, examples: Sequence[WordsExample]) -> dict[str, float]:
        return self.labels.baseline(example.labels or () for example in examples)

    def decisions(self, example: WordsExample, prediction: Tagged) -> list[Decision]:
        confidence: dict[int, float] = {}
        for word, scores in zip(prediction.words, prediction.scores.tolist(), strict=True):
            confidence.setdefault(word, max(scores))
        return [
            Decision(true, predicted, true == predicted, confidence.get(number))
            for number, (true, predicted) in enumerate(
                zip(example.labels or (), prediction.labels, strict=True)
            )
            if true != IGNORED
        ]

    def learnt_classes(self, rows: Iterable[WordsRow]) -> Counter[int]:
        counts = Counter(label for row in rows for label in row.labels)
        del counts[IGNORED_LABEL]
        return counts


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise DataError(
            f"{name} is {value!r}, but columns of CoNLL files are numbers from 0, or from the end with -1"
        ) from None
