"""Token classification: predict a label for each word of a sentence (entities, chunks, parts of speech).

Texts are split into words like the training data of taggers (`split_words`), and each word into pieces
separately. A sentence that is too long is read in windows, and each piece is scored where it has the most
context. `entities` groups the labels of pieces.

Shapes: T tokens, P pieces of a sentence, K labels.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Literal

import numpy as np

from albertkit.config import IGNORED_LABEL, AlbertConfig
from albertkit.datasets.examples import CHARACTER_WORD, IGNORED, WordsExample
from albertkit.datasets.official import WORD_TABLES
from albertkit.engines.engine import Row
from albertkit.errors import DataError, did_you_mean
from albertkit.metrics import BEGINS, ENDS, OUTSIDE, has_no_types, of_scheme, spans, split_label
from albertkit.reference import softmax
from albertkit.tasks.labels import TAGS, LabelSet, infer_tags
from albertkit.tasks.rows import owned
from albertkit.tasks.settings import ProblemType
from albertkit.tasks.task import Decision, Task, directions
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.encoding import Encoding

logger = logging.getLogger(__name__)

Aggregation = Literal["none", "simple", "first", "max", "average"]
"""How to group pieces into entities.

    none      each piece separately
    simple    neighboring pieces of the same type form an entity
    first     neighboring words form an entity; a word has the label of its first piece
    max       ... the label of its most certain piece
    average   ... the label with the highest mean score of its pieces
"""
_BETWEEN_SPACES = re.compile(r"\S+")
_REPEATED = re.compile(r"(.)\1*", re.DOTALL)


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
    table_formats = WORD_TABLES
    reads_windows = True
    labels: LabelSet

    def __init__(self, *, stride: int = 64) -> None:
        self.stride = stride

    def use_config(self, config: AlbertConfig) -> None:
        super().use_config(config)
        self.labels = LabelSet.of(config, kind=TAGS)
        self._has_no_types = has_no_types(self.labels.names)

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
        """Warn if each sentence is a single word, or if a few labels prevent scores of spans."""
        if len(training) > 1 and all(len(example.words) == 1 for example in training):
            logger.warning(
                "each training example has a single word, so the model cannot use the context. Expected a "
                "sentence in each example: in a table, a row with a list of words and a list of labels."
            )
            return
        names = [label for label in self.labels.names if label != OUTSIDE]
        others = [label for label in names if not of_scheme([label])]
        if 0 < len(others) <= len(names) / 2:
            known = [OUTSIDE, *(label for label in names if label not in others)]
            odd = ", ".join(f"{label!r}{did_you_mean(label, known)}" for label in others[:5])
            logger.warning(
                "the metrics count words instead of spans, because these labels follow no tagging scheme: "
                f"{odd}. Expected O, or a prefix (B, I, E, S, L or U), a hyphen and a type. Perhaps a "
                "comment or a header was read as a word."
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
        windows = sorted(windows, key=lambda encoding: encoding.window[0].start)
        sequence = windows[0].sequences[0]
        labels = self._piece_labels(number, example, sequence.words)
        ranges = [encoding.window[0] for encoding in windows]
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
        if len(example.labels) != len(example.words):
            sizes = f"{len(example.words)} words and {len(example.labels)} labels"
            raise DataError(f"example {example.id or number} has {sizes}. Expected one label for each word.")
        first, later = [], []  # for each word, the labels of its first piece and of the others
        for label in example.labels:
            first_id = later_id = IGNORED_LABEL
            if label != IGNORED:
                first_id = self.labels.encode(label, f"example {example.id or number}")
                if self.settings.labeled_tokens == "all":
                    inside = f"I{label[1:]}" if self._prefix(label) in [*BEGINS] else label
                    later_id = self.labels.ids.get(inside, first_id)
            first.append(first_id)
            later.append(later_id)
        return [(later if word == before else first)[word] for before, word in pairwise([-1, *words])]

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

    def decode(self, example: WordsExample, rows: list[tuple[WordsRow, np.ndarray]]) -> Tagged:
        logits = np.concatenate([scores for _, scores in rows])  # (P, K)
        words = [word for row, _ in rows for word in row.words]
        labels = [""] * len(example.words)
        best = logits.argmax(axis=-1).tolist()
        for word, label in zip(reversed(words), reversed(best), strict=True):  # the first piece comes last
            labels[word] = self.labels.names[label]
        return Tagged(
            labels=self._with_all_labels(labels),
            pieces=[row.input_ids[position] for row, _ in rows for position in row.positions],
            words=words,
            offsets=[span for row, _ in rows for span in row.offsets],
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
        completed = [outside]
        for label, later in zip(labels, following, strict=True):
            before, inside = completed[-1], f"I{later[1:]}"
            goes_on = before in (f"B{later[1:]}", inside) and self._prefix(later) in [*"IEL"]
            completed.append(label or (inside if goes_on and inside in self.labels.ids else outside))
        return completed[1:]

    def record(self, example: WordsExample, prediction: Tagged) -> dict[str, Any]:
        return {"tokens": list(example.words), "labels": prediction.labels}

    def truth(self, example: WordsExample) -> list[str] | None:
        return None if example.labels is None else list(example.labels)

    def scores(self, examples: Sequence[WordsExample], predictions: Sequence[Tagged]) -> dict[str, float]:
        true = [example.labels or () for example in examples]
        return self.labels.scores(true, [prediction.labels for prediction in predictions])

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

    def outcomes(self, example: WordsExample, prediction: Tagged) -> list[Decision]:
        """Return a decision for each true or predicted span, or for each word if labels follow no scheme."""
        words = [number for number, label in enumerate(example.labels or ()) if label != IGNORED]
        sides = ([labels[number] for number in words] for labels in (example.labels or (), prediction.labels))
        is_scheme = of_scheme(self.labels.names)
        true, predicted = (
            {(start, end): kind for kind, start, end in spans(side)}
            if is_scheme
            else {(number, number + 1): label for number, label in enumerate(side)}
            for side in sides
        )
        decisions = self.decisions(example, prediction)
        scores = {word: decision.confidence for word, decision in zip(words, decisions, strict=True)}
        outcomes = []
        for start, end in sorted({*true, *predicted}):
            pair = true.get((start, end), ""), predicted.get((start, end), "")
            others = predicted if pair[0] else true
            overlaps = any(first < end and start < last for first, last in others)
            error = "label" if all(pair) else "boundaries" if overlaps else "missed" if pair[0] else "extra"
            inside = words[start:end]
            known = [score for number in inside if (score := scores[number]) is not None]
            outcomes.append(
                Decision(
                    *pair,
                    is_right=pair[0] == pair[1],
                    confidence=sum(known) / len(known) if known else None,
                    details={
                        "error": error,
                        "words": " ".join(example.words[number] for number in inside),
                        "first_word": inside[0] + 1,
                    },
                )
            )
        return outcomes

    def errors(self, example: WordsExample, prediction: Tagged) -> list[Decision]:
        return [outcome for outcome in self.outcomes(example, prediction) if not outcome.is_right]

    def learnt_classes(self, rows: Iterable[WordsRow]) -> Counter[int]:
        counts = Counter(label for row in rows for label in row.labels)
        del counts[IGNORED_LABEL]
        return counts


def split_words(text: str) -> list[tuple[int, int]]:
    """Split a text into words like the training data of taggers: at spaces, and punctuation around words.

        He said: "Don't go to St. Ives (Cornwall)."
        He said :  " Don't go to St . Ives ( Cornwall ) . "

    Punctuation inside a word is kept (Don't, well-kept, 12,000), and repeated punctuation is one word
    ("..."). Scripts without spaces between words are split into characters, like most of their tagged
    corpora.

    Returns:
        The words in order, each as the characters (start, end).
    """
    words: list[tuple[int, int]] = []
    for run in _BETWEEN_SPACES.finditer(text):
        start = run.start()
        for character in [*CHARACTER_WORD.finditer(text, *run.span()), None]:
            end = character.start() if character else run.end()
            first, last = start, end
            while first < last and _is_punctuation(text[first]):
                first += 1
            while last > first and _is_punctuation(text[last - 1]):
                last -= 1
            words += [same.span() for same in _REPEATED.finditer(text, start, first)]
            words += [(first, last)] if first < last else []
            words += [same.span() for same in _REPEATED.finditer(text, last, end)]
            if character:
                words.append(character.span())
                start = character.end()
    return words


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def entities(
    tagged: Tagged,
    word_starts: Sequence[int],
    *,
    tokenizer: TokenizerBase,
    labels: Sequence[str],
    aggregation: Aggregation = "none",
    ignored_labels: Collection[str] = (OUTSIDE,),
) -> list[dict[str, Any]]:
    """Return the entities of a sentence in the format of `transformers`.

    Labels may follow a scheme: B- begins an entity, I- continues it, E- or L- ends it, and S- or U- is an
    entity of a single word (IOB1, IOB2, BIOES, BILOU). Labels without types (B, I, O) form entities of the
    type ENTITY. If a label follows no scheme, only B- and I- are prefixes. Neighbors with the same label
    without a prefix form an entity. Strategies and scores are those of `transformers`, which supports only B-
    and I-.

    Args:
        tagged: the prediction for its words.
        word_starts: the index in the text of each word's first character.
        tokenizer: decodes the pieces.
        labels: names of the scores, in order.
        aggregation: how to group the pieces.
        ignored_labels: labels, or entity types, to leave out.

    Returns:
        For "none", {entity, score, index, word, start, end} of each piece, where `index` counts the pieces
        from 1. Otherwise, {entity_group, score, word, start, end} of each entity.
    """
    is_scheme = of_scheme(labels)

    def parts(label: int) -> tuple[str, str]:
        """Return the prefix and the type of a label."""
        name = labels[label]
        if is_scheme and name != OUTSIDE:
            return split_label(name)
        return (name[0], name[2:]) if name.startswith(("B-", "I-")) else ("I", name)

    offsets = zip(tagged.words, tagged.offsets, strict=True)
    characters = [(word_starts[word] + start, word_starts[word] + end) for word, (start, end) in offsets]
    numbers = range(len(tagged.pieces))
    unit_of = numbers if aggregation in ("none", "simple") else tagged.words
    units: list[tuple[int, float, range]] = []  # the label, the score and the pieces of each piece or word
    for _, run in groupby(numbers, unit_of.__getitem__):
        first, *others = run
        pieces = range(first, first + 1 + len(others))
        of_pieces = tagged.scores[pieces.start : pieces.stop]  # (number of pieces, K)
        scores = of_pieces[0]
        if aggregation == "max":
            scores = of_pieces[int(of_pieces.max(axis=-1).argmax())]
        elif aggregation == "average":
            scores = of_pieces.mean(axis=0)
        units.append((int(scores.argmax()), float(scores.max()), pieces))
    if aggregation == "none":
        tokens = tokenizer.convert_ids_to_tokens(tagged.pieces)
        return [
            {
                "entity": labels[label],
                "score": score,
                "index": piece + 1,
                "word": tokens[piece],
                "start": characters[piece][0],
                "end": characters[piece][1],
            }
            for label, score, (piece,) in units
            if labels[label] not in ignored_labels
        ]
    groups: list[list[tuple[int, float, range]]] = []
    ending, kind, word = "", "", -1  # of the unit before
    for unit in units:
        (beginning, next_kind), next_word = parts(unit[0]), tagged.words[unit[2].start]
        continues = kind == next_kind and beginning not in BEGINS
        if groups and continues and (word == next_word or ending not in ENDS):
            groups[-1].append(unit)
        else:
            groups.append([unit])
        ending, kind, word = beginning, next_kind, next_word
    results = []
    for group in groups:
        _, kind = parts(group[0][0])
        first, last = group[0][2].start, group[-1][2].stop
        # A word-start mark has no characters, and the space before it does not belong to the entity.
        ends = [end for start, end in characters[first:last] if end > start]
        if kind not in ignored_labels and ends:
            results.append(
                {
                    "entity_group": kind,
                    "score": sum(score for _, score, _ in group) / len(group),
                    "word": tokenizer.decode(tagged.pieces[first:last]),
                    "start": characters[first][0],
                    "end": max(ends),
                }
            )
    return results
