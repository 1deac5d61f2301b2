"""Labeled examples, which readers yield and tasks convert to features. No torch, no vocabulary.

An example has the original text and label names; only tasks know ids. A label of None means that the example
has no label, as in the test files of GLUE.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

Label = str | float | tuple[str, ...]
"""A class name, a number (regression), or several class names (multi-label)."""

IGNORED = "-100"
"""The label of a word that training and metrics ignore."""


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text or a pair of texts with a class, a number, or several classes."""

    text: str
    text_pair: str | None = None
    label: Label | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class PairExample:
    """Two texts that belong together, two texts with a similarity score, or a single text."""

    text: str
    pair: str | None = None
    negative: str | None = None
    """A negative: a text that does not belong to the first text, although it may look similar."""
    score: float | None = None
    """Similarity score, higher for more similar texts; None for texts that belong together."""
    id: str = ""


@dataclass(frozen=True, slots=True)
class WordsExample:
    """The words of a sentence, each with a label; `IGNORED` for none."""

    words: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a context, and the answers with their positions in the context."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    """Each answer with the index of its first character in the context. If it is empty and `is_impossible` is
    False, the example has no label."""
    is_impossible: bool = False
    """Whether the context does not answer the question (SQuAD 2.0)."""


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context with an optional question, and the choices, of which exactly one is right (RACE, SWAG)."""

    id: str
    context: str
    question: str | None
    choices: tuple[str, ...]
    label: int | None = None
    """The index of the right choice, from 0."""


def content_of(example: Any) -> Hashable:
    """Return the text, pair or context that training and validation data should not share.

    For an example of your own class, return None.
    """
    match example:
        case TextExample():
            return example.text, example.text_pair
        case PairExample():
            return example.text, example.pair
        case WordsExample():
            return tuple(example.words)
        case QuestionExample():
            return example.context
        case ChoiceExample():
            return example.context or (example.question, tuple(example.choices))
    return None
