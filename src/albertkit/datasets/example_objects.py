"""Examples in memory: objects of the classes in `examples.py`, with the checks that rows of tables get.

A table without a label in one row is common, so its reader leaves the row out. An object without a label is
a mistake in a program: it is an error that names the number of the example.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from albertkit.datasets.examples import ChoiceExample, PairExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.multiple_choice import place_of
from albertkit.datasets.question_answering import is_answer, nearest
from albertkit.datasets.reader import ANSWERED, ExampleT, Reader, ReadingReport, is_missing, text_of
from albertkit.datasets.sentence_embedding import number_of
from albertkit.datasets.text_classification import class_name, read_label
from albertkit.errors import DataError

_UNIFORM: dict[type, tuple[str, ...]] = {TextExample: ("text_pair",), PairExample: ("pair", "score")}
"""The optional fields that either all examples have, or none."""


class ExampleReader(Reader[ExampleT]):
    """Examples in memory.

    Args:
        examples: objects of the class that the task takes.
        source: the name of the examples in error messages.
        kind: the class of the examples; None for any.
        labeled: whether examples must have labels. Otherwise their labels are not read.
    """

    def __init__(
        self, examples: Sequence[ExampleT], source: str, *, kind: type | None = None, labeled: bool = True
    ) -> None:
        super().__init__(source, labeled=labeled)
        self.examples = examples
        self.kind = kind
        known = [name for name in _CHECKS if kind is not None and issubclass(kind, name)]
        self._check = _CHECKS[known[0]] if known else None
        self._uniform = _UNIFORM.get(known[0], ()) if known else ()

    def rows(self, report: ReadingReport) -> Iterator[tuple[str, ExampleT]]:
        """Yield the examples, counted from 1.

        Raises:
            DataError: an object has another class, or a value that cannot be.
        """
        first: Any = None
        for number, example in enumerate(self.examples, start=1):
            origin = f"{self.source}, example {number}"
            try:
                checked, note = self._checked(example)
                first = checked if first is None else first
                self._compare(checked, first)
            except DataError as error:
                raise DataError(f"{origin}: {error}") from None
            if note:
                report.add("empty", origin, f"{note}, and {ANSWERED}")
            yield origin, checked

    def _checked(self, example: Any) -> tuple[Any, str]:
        """Return an example as a reader of tables returns it, and a note if its text is empty."""
        if self.kind is None:
            if isinstance(example, Mapping | str):
                raise DataError(
                    f"received {example!r:.60} ({type(example).__name__}), but the first example is another "
                    "object. Pass only dicts, or only examples."
                )
        elif not isinstance(example, self.kind):
            raise DataError(
                f"received {example!r:.60} ({type(example).__name__}). Expected a `{self.kind.__name__}`, or "
                "only dicts."
            )
        return (example, "") if self._check is None else self._check(example, self.labeled)

    def _compare(self, example: Any, first: Any) -> None:
        """Raise DataError if an example has other optional fields than the first one."""
        for name in self._uniform:
            lacks, first_lacks = getattr(example, name) is None, getattr(first, name) is None
            if lacks != first_lacks:
                has, others = ("no", "one") if lacks else ("a", "none")
                raise DataError(
                    f"the example has {has} {name}, but the first example has {others}. Pass examples of one "
                    "kind."
                )


def _texts(example: Any, fields: Sequence[str], *, labeled: bool) -> tuple[dict[str, str], str]:
    """Return the texts in some fields without surrounding spaces, and a note if one is empty."""
    texts = {name: text_of(getattr(example, name)) or "" for name in fields}
    empty = next((name for name, text in texts.items() if not text), None)
    if empty is None:
        return texts, ""
    detail = f"no text in {empty!r}"
    if labeled:
        raise DataError(f"{detail}. The value is {getattr(example, empty)!r:.60}. Expected text.")
    return texts, detail


def _given(example: Any, *names: str) -> list[str]:
    """Return the optional fields that have a value."""
    return [name for name in names if getattr(example, name) is not None]


def _no_label(field: str, value: Any, *, expected: str) -> DataError:
    return DataError(
        f"the example has no {field} (the value is {value!r}). Expected {expected}. Add it, or omit the "
        "example."
    )


def _text_example(example: TextExample, labeled: bool) -> tuple[TextExample, str]:
    texts, note = _texts(example, ["text", *_given(example, "text_pair")], labeled=labeled)
    label = None
    if labeled:
        label = read_label(example.label, separator=None, names=None)
        if label is None:
            raise _no_label("label", example.label, expected="text, a number or a tuple of labels")
    return replace(example, **texts, label=label), note


def _pair_example(example: PairExample, labeled: bool) -> tuple[PairExample, str]:
    negative = _given(example, "negative") if labeled else []
    texts, note = _texts(example, ["text", *_given(example, "pair"), *negative], labeled=labeled)
    if not labeled:
        return replace(example, **texts, negative=None, score=None), note
    score = example.score
    if score is not None:
        score = number_of(example.score)
        if score is None:
            raise DataError(
                f"the score is {example.score!r:.40}. Expected a number, or None for texts that belong "
                "together."
            )
        if negative:
            raise DataError("the example has both a negative and a score. Expected only one of them.")
    return replace(example, **texts, score=score), note


def _words_example(example: WordsExample, labeled: bool) -> tuple[WordsExample, str]:
    words = _list_of(example, "words", "a list of words")
    if not words:
        raise DataError("the example has no words. Expected at least one.")
    for number, word in enumerate(words, start=1):
        if not isinstance(word, str) and text_of(word) is None:
            raise DataError(f"word {number} is {word!r:.40}. Expected text.")
    labels = None
    if labeled:
        if example.labels is None:
            raise _no_label("labels", None, expected="one for each word")
        given = _list_of(example, "labels", "a list of labels")
        if len(given) != len(words):
            raise DataError(f"the example has {len(words)} words and {len(given)} labels. Expected one each.")
        read = [read_label(one, separator=None, names=None) for one in given]
        if None in read:
            raise DataError(f"there is no label for word {read.index(None) + 1}. Expected one for each word.")
        labels = tuple(class_name(one) if isinstance(one, float) else str(one) for one in read)
    return replace(example, words=tuple(map(str, words)), labels=labels), ""


def _question_example(example: QuestionExample, labeled: bool) -> tuple[QuestionExample, str]:
    question, context = text_of(example.question), example.context
    if question is None or not isinstance(context, str) or not context.strip():
        missing = "question" if question is None else "context"
        raise DataError(f"the example has no {missing}. Expected text.")
    if not labeled or example.is_impossible:
        impossible = labeled and bool(example.is_impossible)
        return replace(example, question=question, answers=(), is_impossible=impossible), ""
    pairs = example.answers if isinstance(example.answers, list | tuple) else None
    if pairs is None or not all(
        isinstance(one, list | tuple) and len(one) == 2 and is_answer(*one) for one in pairs
    ):
        raise DataError(
            f"answers is {example.answers!r:.60}. Expected pairs (text, start), where start is the index of "
            "the first character of the answer in the context."
        )
    if not pairs:
        raise DataError(
            "the example has no answers. Expected at least one pair (text, start), or is_impossible=True for "
            "a question that the context does not answer."
        )
    placed = tuple(
        (text, start) for text, near in pairs if (start := nearest(context, text, near)) is not None
    )
    if not placed:
        raise DataError(f"the answer {pairs[0][0]!r:.60} is not in the context. Expected a part of it.")
    return replace(example, question=question, answers=placed), ""


def _choice_example(example: ChoiceExample, labeled: bool) -> tuple[ChoiceExample, str]:
    context = text_of(example.context)
    if context is None:
        raise DataError(f"no text in 'context'. The value is {example.context!r:.60}. Expected text.")
    choices = [text_of(one) for one in _list_of(example, "choices", "a list of texts")]
    texts = tuple(one for one in choices if one is not None)
    if len(texts) < max(2, len(choices)):
        raise DataError(f"{len(texts)} of {max(2, len(choices))} choices have a text. Expected two or more.")
    label = None
    if labeled:
        if is_missing(example.label):
            raise _no_label("label", example.label, expected="the index of the correct choice, from 0")
        label = place_of(example.label, texts)
        if label is None:
            raise DataError(
                f"the label is {example.label!r:.40}, but there are {len(texts)} choices. Expected the index "
                "of the correct choice, from 0."
            )
    question = text_of(example.question)
    return replace(example, context=context, question=question, choices=texts, label=label), ""


def _list_of(example: Any, field: str, expected: str) -> Sequence[Any]:
    value = getattr(example, field)
    if not isinstance(value, list | tuple):
        raise DataError(f"{field} is {value!r:.60}. Expected {expected}.")
    return value


_CHECKS: dict[type, Callable[[Any, bool], tuple[Any, str]]] = {
    TextExample: _text_example,
    PairExample: _pair_example,
    WordsExample: _words_example,
    QuestionExample: _question_example,
    ChoiceExample: _choice_example,
}
