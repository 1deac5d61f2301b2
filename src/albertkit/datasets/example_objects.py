"""Examples in memory: objects of the classes in `examples.py`, with the checks that rows of tables get.

A table without a label in one row is common, so its reader leaves the row out. An object without a label is
a mistake in a program: it is an error that names the number of the example.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from albertkit.datasets.examples import ChoiceExample, PairExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.multiple_choice import read_choice, read_choices
from albertkit.datasets.question_answering import is_answer, read_question
from albertkit.datasets.reader import ExampleT, Reader, ReadingReport, is_missing, number_of, text_of
from albertkit.datasets.table import Row
from albertkit.datasets.text_classification import read_label
from albertkit.datasets.token_classification import word_labels, word_texts
from albertkit.errors import DataError, short

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
        self._base = next((one for one in _CHECKS if kind is not None and issubclass(kind, one)), object)

    def rows(self) -> Iterator[Row]:
        """Yield the examples, counted from 1."""
        for number, example in enumerate(self.examples, start=1):
            yield Row(f"{self.source}, example {number}", {"example": example})

    def example(self, row: Row, report: ReadingReport) -> ExampleT:
        """Return the example as a reader of tables returns it.

        Raises:
            DataError: the object has another class, or a value that cannot be.
        """
        example = row.values["example"]

        def texts(*fields: str) -> dict[str, str]:
            values = {name: getattr(example, name) for name in fields}
            return dict(zip(fields, self.texts(Row(row.origin, values), fields, report), strict=True))

        try:
            self._check_kind(example)
            check = _CHECKS.get(self._base)
            found: Any = example if check is None else check(example, self.labeled, texts)
        except DataError as error:
            raise DataError(f"{row.origin}: {error}") from None
        if self._base is QuestionExample and found.answers and found.answers != example.answers:
            report.add("moved", row.origin, f"the answers are {found.answers}, not {example.answers}")
        return found

    def _check_kind(self, example: Any) -> None:
        """Raise DataError for an object of another class, or with other optional fields than the first."""
        if self.kind is None:
            if isinstance(example, Mapping | str):
                raise DataError(
                    f"received {short(example)} ({type(example).__name__}), but the first example is another "
                    "object. Pass only dicts, or only examples."
                )
        elif not isinstance(example, self.kind):
            raise DataError(
                f"received {short(example)} ({type(example).__name__}). Expected a `{self.kind.__name__}`, "
                "or only dicts."
            )
        for name in _UNIFORM.get(self._base, ()):
            lacks, first_lacks = (getattr(one, name) is None for one in (example, self.examples[0]))
            if lacks != first_lacks and (self.labeled or name != "score"):
                has, others = ("no", "one") if lacks else ("a", "none")
                raise DataError(
                    f"the example has {has} {name}, but the first example has {others}. Pass examples of one "
                    "kind."
                )


Texts = Callable[..., dict[str, str]]
"""A function of the names of fields, which returns their texts without surrounding spaces."""


def _given(example: Any, *names: str) -> list[str]:
    """Return the optional fields that have a value."""
    return [name for name in names if getattr(example, name) is not None]


def _no_label(field: str, value: Any, *, expected: str) -> DataError:
    return DataError(
        f"the example has no {field} (the value is {value!r}). Expected {expected}. Add it, or omit the "
        "example."
    )


def _text_example(example: TextExample, labeled: bool, texts: Texts) -> TextExample:
    found, label = texts("text", *_given(example, "text_pair")), None
    if labeled:
        label = read_label(example.label, separator=None, names=None)
        if label is None:
            raise _no_label("label", example.label, expected="text, a number or a tuple of labels")
    return replace(example, **found, label=label)


def _pair_example(example: PairExample, labeled: bool, texts: Texts) -> PairExample:
    negative, score = (example.negative, example.score) if labeled else (None, None)
    for name, value in (("negative", negative), ("score", score)):
        if value is not None and example.pair is None:
            raise DataError(f"the example has a {name} but no pair. Add the second text as pair.")
    if negative is not None and score is not None:
        raise DataError("the example has both a negative and a score. Expected only one of them.")
    if score is not None:
        score = number_of(score)
        if score is None:
            raise DataError(
                f"the score is {short(example.score)}. Expected a number, or None for texts that belong "
                "together."
            )
    found = texts("text", *_given(replace(example, negative=negative), "pair", "negative"))
    return replace(example, **{"negative": None, **found}, score=score)


def _words_example(example: WordsExample, labeled: bool, _: Texts) -> WordsExample:
    words = _list_of(example, "words", "a list of words")
    if labeled and not words:
        raise DataError("the example has no words. Expected at least one.")
    texts = word_texts(words)
    labels = None
    if labeled:
        if example.labels is None:
            raise _no_label("labels", None, expected="one for each word")
        labels = word_labels(_list_of(example, "labels", "a list of labels"), texts, names=None)
    return replace(example, words=texts, labels=labels)


def _question_example(example: QuestionExample, labeled: bool, _: Texts) -> QuestionExample:
    answers, is_impossible = example.answers, bool(example.is_impossible)
    if labeled and not is_impossible:
        expected = "pairs (text, start), where start is the index of the first character in the context"
        for answer in _list_of(example, "answers", expected):
            if not (isinstance(answer, list | tuple) and len(answer) == 2 and is_answer(*answer)):
                raise DataError(f"answers is {short(answers)}. Expected {expected}.")
        if not answers:
            raise DataError(
                "the example has no answers. Expected at least one pair (text, start), or is_impossible=True "
                "for a question that the context does not answer."
            )
    given = (example.id, example.question, example.context, answers)
    read = read_question(*given, is_impossible=is_impossible, labeled=labeled)
    return replace(example, question=read.question, answers=read.answers, is_impossible=read.is_impossible)


def _choice_example(example: ChoiceExample, labeled: bool, _: Texts) -> ChoiceExample:
    context = text_of(example.context)
    if context is None:
        raise DataError(f"no text in 'context'. The value is {short(example.context)}. Expected text.")
    choices = read_choices(_list_of(example, "choices", "a list of texts"))
    label = None
    if labeled:
        if is_missing(example.label):
            raise _no_label("label", example.label, expected="the index of the correct choice, from 0")
        label = read_choice(example.label, choices)
    question = text_of(example.question)
    return replace(example, context=context, question=question, choices=choices, label=label)


def _list_of(example: Any, field: str, expected: str) -> Sequence[Any]:
    value = getattr(example, field)
    if not isinstance(value, list | tuple):
        raise DataError(f"{field} is {short(value)}. Expected {expected}.")
    return value


_CHECKS: dict[type, Callable[[Any, bool, Texts], Any]] = {
    TextExample: _text_example,
    PairExample: _pair_example,
    WordsExample: _words_example,
    QuestionExample: _question_example,
    ChoiceExample: _choice_example,
}
