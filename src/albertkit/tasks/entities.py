"""Group the labels of pieces into entities, with their characters in the text.

    none      each piece separately
    simple    neighboring pieces of the same type form an entity
    first     neighboring words form an entity; a word has the label of its first piece
    max       ... the label of its most certain piece
    average   ... the label with the highest mean score of its pieces

Labels may follow a scheme: B- begins an entity, I- continues it, E- or L- ends it, and S- or U- is an entity
of a single word (IOB1, IOB2, BIOES, BILOU). Labels without types (B, I, O) form entities of the type ENTITY.
If a label follows no scheme, only B- and I- are prefixes. Neighbors with the same label without a prefix form
an entity. The strategies and scores are the same as in `transformers`, which supports only B- and I-.

Shapes: P pieces, K labels.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, get_args

from albertkit.errors import ConfigError, short
from albertkit.metrics.token_classification import BEGINS, ENDS, OUTSIDE, of_scheme, split_label
from albertkit.tasks.token_classification import Tagged
from albertkit.tokenization.base import TokenizerBase

Aggregation = Literal["none", "simple", "first", "max", "average"]


@dataclass(frozen=True, slots=True)
class Unit:
    label: int
    score: float
    pieces: range  # indices of its pieces
    word: int


class Entities:
    """Groups the labels of a sentence into entities, for one set of labels.

    Args:
        tokenizer: decodes the pieces.
        labels: names of the scores, in order.
        aggregation: how to group the pieces: a strategy of the table in the module's description.
        ignored_labels: labels, or entity types, to leave out.
    """

    def __init__(
        self,
        tokenizer: TokenizerBase,
        labels: Sequence[str],
        *,
        aggregation: Aggregation = "none",
        ignored_labels: Collection[str] = (OUTSIDE,),
    ) -> None:
        if aggregation not in get_args(Aggregation):
            raise ConfigError(
                f"aggregation_strategy is {aggregation!r}. Expected one of "
                f"{', '.join(get_args(Aggregation))}."
            )
        are_labels = isinstance(ignored_labels, Collection) and all(
            isinstance(x, str) for x in ignored_labels
        )
        if isinstance(ignored_labels, str) or not are_labels:  # a string would be read as its letters
            raise ConfigError(
                f"ignore_labels is {short(ignored_labels)}. Expected a list of labels, such as ['O']."
            )
        self.tokenizer = tokenizer
        self.labels = list(labels)
        self.aggregation: Aggregation = aggregation
        self.ignored_labels = frozenset(ignored_labels)
        # The prefix and the type of each label. Without a prefix, neighbors with the same label form an
        # entity.
        is_scheme = of_scheme(labels)

        def parts(label: str) -> tuple[str, str]:
            if is_scheme and label != OUTSIDE:
                return split_label(label)
            return (label[0], label[2:]) if label.startswith(("B-", "I-")) else ("I", label)

        self._parts = list(map(parts, labels))

    def __call__(self, tagged: Tagged, word_starts: Sequence[int]) -> list[dict[str, Any]]:
        """Return the entities of a sentence in the format of `transformers`.

        Args:
            tagged: the prediction for its words.
            word_starts: the index in the text of each word's first character.

        Returns:
            For "none", {entity, score, index, word, start, end} of each piece, where `index` counts the
            pieces from 1. Otherwise, {entity_group, score, word, start, end} of each entity.
        """
        spans = [
            (word_starts[word] + start, word_starts[word] + end)
            for word, (start, end) in zip(tagged.words, tagged.offsets, strict=True)
        ]
        units = self._units(tagged)
        if self.aggregation == "none":
            tokens = self.tokenizer.convert_ids_to_tokens(tagged.pieces)
            return [
                {
                    "entity": self.labels[unit.label],
                    "score": unit.score,
                    "index": index + 1,
                    "word": tokens[index],
                    "start": spans[index][0],
                    "end": spans[index][1],
                }
                for index, unit in enumerate(units)
                if self.labels[unit.label] not in self.ignored_labels
            ]
        groups: list[list[Unit]] = []
        for unit in units:
            if groups and self._goes_on(groups[-1][-1], unit):
                groups[-1].append(unit)
            else:
                groups.append([unit])
        entities = []
        for group in groups:
            _, kind = self._parts[group[0].label]
            first, last = group[0].pieces.start, group[-1].pieces.stop
            # A word-start mark has no characters, and the space before it does not belong to the entity.
            ends = [end for start, end in spans[first:last] if end > start]
            if kind not in self.ignored_labels and ends:
                entities.append(
                    {
                        "entity_group": kind,
                        "score": sum(unit.score for unit in group) / len(group),
                        "word": self.tokenizer.decode(tagged.pieces[first:last]),
                        "start": spans[first][0],
                        "end": max(ends),
                    }
                )
        return entities

    def _units(self, tagged: Tagged) -> list[Unit]:
        numbers = range(len(tagged.pieces))
        unit_of = numbers if self.aggregation in ("none", "simple") else tagged.words
        units = []
        for _, run in groupby(numbers, unit_of.__getitem__):
            first, *others = run
            pieces = range(first, first + 1 + len(others))
            of_pieces = tagged.scores[pieces.start : pieces.stop]  # (number of pieces, K)
            scores = of_pieces[0]
            if self.aggregation == "max":
                scores = of_pieces[int(of_pieces.max(axis=-1).argmax())]
            elif self.aggregation == "average":
                scores = of_pieces.mean(axis=0)
            label = int(scores.argmax())
            units.append(Unit(label, float(scores[label]), pieces, tagged.words[first]))
        return units

    def _goes_on(self, before: Unit, unit: Unit) -> bool:
        """Return whether a unit continues the entity of the unit before."""
        (ending, kind), (beginning, next_kind) = self._parts[before.label], self._parts[unit.label]
        if kind != next_kind or beginning in BEGINS:
            return False
        return before.word == unit.word or ending not in ENDS
