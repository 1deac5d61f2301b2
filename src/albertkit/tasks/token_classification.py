"""Token classification: the words of a sentence -> a label for each (entities, chunks, parts of speech).

Words are cut into pieces one by one, so a text is tagged in the words that taggers learn from. A sentence
that is too long is read in windows, and each piece is scored where it has most context.

Shapes: T tokens, P pieces of a sentence, K labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from albertkit.config import IGNORED_LABEL
from albertkit.engines.engine import Row, by_example
from albertkit.errors import ConfigError, DataError
from albertkit.metrics.spans import OUTSIDE
from albertkit.tasks.examples import WordsExample
from albertkit.tasks.scores import softmax
from albertkit.tasks.task import Task, label_ids, unknown_label
from albertkit.tasks.windows import overlap, owned
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.encoding import Encoding

LabelledPieces = Literal["first", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsRow(Row):
    """A window over the pieces of a sentence."""

    positions: range
    """Tokens of the row that it answers for: those with most context here, no special ones."""
    words: list[int]
    """For each of them, the number of its word."""
    offsets: list[tuple[int, int]]
    """For each of them, its characters in its word."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """What is predicted for one sentence."""

    labels: list[str]
    """The label of each word: that of its first piece. A word that the vocabulary has nothing of (a control
    character) has the label "O", or else the first."""
    pieces: list[int]
    """(P,), the ids."""
    words: list[int]
    """(P,), the number of each piece's word."""
    offsets: list[tuple[int, int]]
    """(P,), the characters of each piece in its word."""
    scores: np.ndarray
    """(P, K), the probabilities."""


class TokenClassification(Task[WordsExample, WordsRow, Tagged]):
    """The task for one tokenizer and one set of labels.

    Args:
        tokenizer: cuts words into pieces.
        max_length: most tokens of a row, special tokens included.
        labels: names of the model's scores, in their order.
        labelled_pieces: what learns a word's label: its first piece, or all of them; then the later ones are
            "inside" (I-) where the word begins something (B-, S-, U-) and there is such a label.
        stride: pieces that a window repeats from the one before, at most half of it.

    Raises:
        ConfigError: labels twice, or an unknown choice of pieces.
    """

    name = "token-classification"
    architecture = "AlbertForTokenClassification"

    def __init__(
        self,
        tokenizer: TokenizerBase,
        *,
        max_length: int,
        labels: Sequence[str],
        labelled_pieces: LabelledPieces = "first",
        stride: int = 64,
    ) -> None:
        super().__init__(tokenizer, max_length=max_length)
        if labelled_pieces not in get_args(LabelledPieces):
            raise ConfigError(f"labelled_pieces is {labelled_pieces!r}; expected 'first' or 'all'")
        self.labels = list(labels)
        self.labelled_pieces: LabelledPieces = labelled_pieces
        self.stride = overlap(stride, room=max_length - 2)
        self._ids = label_ids(labels)

    def features(self, examples: Sequence[WordsExample]) -> list[WordsRow]:
        """Return the windows of each sentence; `labels` has -100 for every token that learns nothing."""
        if not examples:
            return []
        encoded = self.tokenizer(
            [list(example.words) for example in examples],
            is_split_into_words=True,
            truncation=True,
            max_length=self.max_length,
            stride=self.stride,
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
        places = windows[0].sequences[0].places
        labels = self._piece_labels(number, example, places.words)
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
                    words=places.words[own.start : own.stop],
                    offsets=places.offsets[own.start : own.stop],
                )
            )
        return rows

    def _piece_labels(self, number: int, example: WordsExample, words: list[int]) -> list[int] | None:
        """Return what each piece is to learn, (P,)."""
        if example.labels is None:
            return None
        where = f"example {example.id or number}"
        if len(example.labels) != len(example.words):
            raise DataError(
                f"{where} has {len(example.words)} words and {len(example.labels)} labels; expected as many"
            )
        for label in example.labels:
            if label not in self._ids:
                raise unknown_label(label, self.labels, where=where)
        firsts = [position == 0 or words[position - 1] != word for position, word in enumerate(words)]
        return [
            self._ids[example.labels[word]] if is_first else self._later_label(example.labels[word])
            for word, is_first in zip(words, firsts, strict=True)
        ]

    def _later_label(self, label: str) -> int:
        """Return what the pieces after a word's first are to learn."""
        if self.labelled_pieces == "first":
            return IGNORED_LABEL
        inside = f"I-{label[2:]}" if label[:2] in ("B-", "S-", "U-") else label
        return self._ids.get(inside, self._ids[label])

    def labels_of(self, rows: Sequence[WordsRow]) -> dict[str, np.ndarray]:
        """Return `labels` (B, T)."""
        labels = np.full((len(rows), self.padded_length(rows)), IGNORED_LABEL, np.int64)
        for number, row in enumerate(rows):
            labels[number, : len(row.labels)] = row.labels
        return {"labels": labels}

    def read(self, row: WordsRow) -> Sequence[int]:
        """Return the pieces that a row answers for."""
        return row.positions

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the logits (P, K) of these pieces."""
        return scores

    def predictions(
        self, examples: Sequence[WordsExample], rows: Sequence[WordsRow], outputs: Sequence[np.ndarray]
    ) -> list[Tagged]:
        """Return the labels of each example's words, and the scores of their pieces."""
        return [
            self._prediction(example, [row for row, _ in own], np.concatenate([logits for _, logits in own]))
            for example, own in zip(examples, by_example(rows, outputs, count=len(examples)), strict=True)
        ]

    def _prediction(self, example: WordsExample, rows: list[WordsRow], logits: np.ndarray) -> Tagged:
        words = [word for row in rows for word in row.words]
        labels = [OUTSIDE if OUTSIDE in self._ids else self.labels[0]] * len(example.words)
        best = logits.argmax(axis=-1).tolist()
        for word, label in zip(reversed(words), reversed(best), strict=True):  # the first piece comes last
            labels[word] = self.labels[label]
        return Tagged(
            labels=labels,
            pieces=[row.input_ids[position] for row in rows for position in row.positions],
            words=words,
            offsets=[place for row in rows for place in row.offsets],
            scores=softmax(logits),
        )
