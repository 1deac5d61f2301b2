"""Labeled examples: what readers make of files and tasks make features of. No torch, no vocabulary.

An example holds text as the user wrote it, and labels by their names; ids are the task's business. A label of
None means that the example has none, as in the test files of GLUE.
"""

from dataclasses import dataclass

Label = str | float | tuple[str, ...]
"""The name of a class; a number (regression); or the names of any number of classes (multi-label)."""


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or two, with a class, a number, or several classes."""

    text: str
    text_pair: str | None = None
    label: Label | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class PairExample:
    """Two texts that belong together, or with a number that says how alike they are; or a text alone."""

    text: str
    pair: str | None = None
    negative: str | None = None
    """A text that does not belong to the first, though it may look so."""
    score: float | None = None
    """The higher, the more alike; None for texts that belong together."""
    id: str = ""


@dataclass(frozen=True, slots=True)
class WordsExample:
    """The words of a sentence, with a label for each."""

    words: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a text, and the places of the text that answer it."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    """Each answer with the character of the context where it starts. Without any and not `is_impossible`, the
    example has no label."""
    is_impossible: bool = False
    """The text does not answer the question (SQuAD 2.0)."""


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A text, perhaps a question about it, and the choices of which one is right (RACE, SWAG)."""

    id: str
    context: str
    question: str | None
    choices: tuple[str, ...]
    label: int | None = None
    """The place of the right choice, from 0."""
