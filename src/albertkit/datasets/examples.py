"""Labeled examples: dataclasses with the original texts and label names, made from the rows of a source.

A label of None means that the example has no label, as in the test files of GLUE. Only tasks know ids.
"""

import logging
import re
import shlex
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, ClassVar, Self

from albertkit.datasets.cells import (
    Label,
    as_list,
    class_name,
    is_missing,
    nested,
    number_of,
    parts_of,
    read_indicators,
    read_label,
    text_of,
    whole_name,
)
from albertkit.datasets.columns import find_columns
from albertkit.datasets.options import DataOptions, columns_in
from albertkit.datasets.reader import Columns, Reader, Warn
from albertkit.datasets.rows import ClassNames, Row, RowError, Rows, read_rows
from albertkit.errors import DataError, short

logger = logging.getLogger(__name__)

_SECOND_TEXTS = {"text_pair", "sentence2", "hypothesis", "question2", "text2", "sentence_b"}

IGNORED = "-100"
"""The label of a word that training and metrics ignore."""

UNANSWERED = "so the row has no prediction"
"""End of the detail of a row without text that is an example, because predictions must match the rows."""

# Han with its extensions and iteration marks, Hiragana and Katakana
CHARACTER_WORD = re.compile(
    r"[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


class _Example:
    """Base class of examples that can be read from tables."""

    __slots__ = ()
    _columns: ClassVar[dict[str, tuple[str, str | None]]] = {}
    """Field -> the option that names its column, and the default name. The last field has the labels."""

    @classmethod
    def read(cls, source: Any, options: DataOptions | None = None, *, labeled: bool = True) -> Reader[Self]:
        """Return the reader of a table.

        Args:
            source: the path of a file or folder, a table, or an iterable of dicts.
            options: columns and layout. Column names that are not given have the usual defaults.
            labeled: whether to read labels, and leave out rows without labels.
        """
        options = options or DataOptions()
        rows = read_rows(source, **options.layout())
        columns = cls.find_columns(rows, options, labeled)
        rows.check_columns(id_column=options.id_column)
        return cls.reader(rows, columns)

    @classmethod
    def reader(cls, rows: Rows, columns: Columns) -> Reader[Any]:
        return Reader(rows, lambda row, warn: cls.from_row(row, columns, warn), columns)

    @classmethod
    def find_columns(cls, rows: Rows, options: DataOptions, labeled: bool) -> Columns:
        """Return the columns of a table; raise DataError if it lacks one."""
        names: dict[str, Any] = {}
        for field, (option, default) in cls._columns.items():
            given = getattr(options, option)
            names[field] = default if given is None else given
            if given == "" and field != "question" and default is not None:
                raise DataError(f"{rows.name}: {option} is empty. Pass the name of a column, or omit it.")
            if field in ("label", "choices"):
                several = columns_in(names[field], rows.columns)
                names[field] = several[0] if len(several) == 1 else several or ""
        *_, label = names.values()
        needed = [*cls._columns] if labeled else [*cls._columns][:-1]
        rows.check_columns(**{cls._columns[field][0]: names[field] for field in needed})
        return Columns(
            names=names,
            labeled=labeled,
            id=options.id_column,
            class_names=rows.class_names(label) if isinstance(label, str) else label,
            separator=options.label_separator,
        )

    @classmethod
    def from_row(cls, row: Row, columns: Columns, warn: Warn) -> Self:
        """Return the example of a row; raise `RowError` if the row cannot be used."""
        raise NotImplementedError


def _texts(row: Row, columns: Columns, fields: Sequence[str], warn: Warn) -> dict[str, str]:
    """Return the texts of a row by field. Without labels, an empty text is only counted."""
    named = {field: column for field in fields if (column := columns.names.get(field)) is not None}
    texts = {field: text_of(row.values.get(column)) for field, column in named.items()}
    empty = next((named[field] for field, text in texts.items() if not text), None)
    if empty is not None:
        value = row.values.get(empty)
        detail = f"no text in {empty!r}" + ("" if is_missing(value) else f" (found {short(value)})")
        if columns.labeled:
            raise RowError("empty", detail)
        warn("empty", f"{detail}, {UNANSWERED}")
    return texts


@dataclass(frozen=True, slots=True)
class TextExample(_Example):
    """A text or a pair of texts with a class, a number, or several classes."""

    text: str
    text_pair: str | None = None
    label: Label | None = None
    id: str = ""

    _columns: ClassVar[Any] = {
        "text": ("text_column", "text"),
        "text_pair": ("pair_column", None),
        "label": ("label_column", "label"),
    }

    @classmethod
    def find_columns(cls, rows: Rows, options: DataOptions, labeled: bool) -> Columns:
        text = options.text_column == "text" and "text" not in rows.columns
        label = labeled and options.label_column is None and "label" not in rows.columns
        labels = columns_in(options.label_column or "label", rows.columns)
        taken = (options.text_column, options.pair_column, options.id_column, *labels)
        found = find_columns(rows, text=text, label=label, taken=taken) if text or label else {}
        second = [name for name in rows.columns if name.casefold() in _SECOND_TEXTS]
        if text and second and options.pair_column is None:
            what = f"no column 'text', and {second[0]!r} looks like the second text of a pair"
            raise DataError(f"{rows.name}: {what}. Set --text-column and, for pairs, --pair-column.")
        # Not `super()`, because `slots` replaces the class.
        columns = super(TextExample, cls).find_columns(rows, replace(options, **found), labeled)
        if found:
            shown = ", ".join(f"--{name.replace('_', '-')} {shlex.quote(found[name])}" for name in found)
            logger.info(f"{rows.name}: columns found: {shown}. Pass other columns if these are wrong.")
        return replace(columns, found=found)

    @classmethod
    def from_row(cls, row: Row, columns: Columns, warn: Warn) -> Self:
        texts, label = _texts(row, columns, ("text", "text_pair"), warn), None
        if columns.labeled:
            column = columns.names["label"]
            if isinstance(column, str):  # `LabelSet.read` interprets the label
                value = row.values.get(column)
                label = read_label(value, separator=columns.separator, names=columns.class_names)
            else:
                label = read_indicators(row.values, column)
            if label is None:
                raise RowError("unlabeled")
        return cls(**texts, label=label, id=columns.id_of(row))


USUAL_COLUMNS = {
    "text": ("text", "sentence1", "anchor", "query", "question"),
    "pair": ("text_pair", "sentence2", "positive", "answer"),
    "negative": ("negative",),
    "score": ("score", "label", "similarity"),
}
"""The usual names of the columns of pairs, in order of preference."""


@dataclass(frozen=True, slots=True)
class PairExample(_Example):
    """Two texts that belong together, two texts with a similarity score, or a single text."""

    text: str
    pair: str | None = None
    negative: str | None = None
    """A negative: a text that does not belong to the first text, although it may look similar."""
    score: float | None = None
    """Similarity score, higher for more similar texts; None for texts that belong together."""
    id: str = ""

    @classmethod
    def find_columns(cls, rows: Rows, options: DataOptions, labeled: bool) -> Columns:
        default_text = options.text_column == DataOptions().text_column
        given = {
            "text": None if default_text else options.text_column,
            "pair": options.pair_column,
            "negative": options.negative_column,
            "score": options.label_column,
        }
        free = {*rows.columns} - {*given.values()}
        names = {
            field: given[field] or next((name for name in usual if name in free), None)
            for field, usual in USUAL_COLUMNS.items()
        }
        if not labeled or names["pair"] is None:
            names["negative"] = names["score"] = None
            if labeled and (column := given["negative"] or given["score"]) is not None:
                needed = "needs a column of second texts (--pair-column)"
                raise DataError(f"{rows.name}: the column {column!r} {needed}.")
        rows.check_columns(
            text_column=names["text"] or USUAL_COLUMNS["text"][0],
            pair_column=names["pair"],
            negative_column=names["negative"],
            label_column=names["score"],
        )
        if names["negative"] and names["score"]:
            both = f"negatives, {names['negative']!r}, and scores, {names['score']!r}"
            raise DataError(f"{rows.name}: there are {both}. Remove or rename one of these columns.")
        return Columns(names=names, labeled=labeled, id=options.id_column)

    @classmethod
    def from_row(cls, row: Row, columns: Columns, warn: Warn) -> Self:
        labeled = columns.labeled
        texts = _texts(row, columns, ("text", "pair", "negative") if labeled else ("text", "pair"), warn)
        score, column = None, columns.names["score"]
        if labeled and column is not None:
            value = row.values.get(column)
            if is_missing(value):
                raise RowError("unlabeled")
            score = number_of(value)
            if score is None:
                raise RowError("invalid label", f"{short(value)} in {column!r} is not a number")
        if "pair" not in texts and ("negative" in texts or score is not None):
            raise RowError("malformed", "the example has a negative or a score, but no pair")
        if "negative" in texts and score is not None:
            raise RowError("malformed", "the example has both a negative and a score. Expected only one")
        return cls(**texts, score=score, id=columns.id_of(row))


@dataclass(frozen=True, slots=True)
class WordsExample(_Example):
    """The words of a sentence, each with a label; `IGNORED` for none."""

    words: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    id: str = ""

    _columns: ClassVar[Any] = {
        "words": ("words_column", "tokens"),
        "labels": ("label_column", "ner_tags"),
    }

    @classmethod
    def from_row(cls, row: Row, columns: Columns, warn: Warn) -> Self:
        column = columns.names["words"]
        words = parts_of(row.values.get(column))
        if not words:
            if columns.labeled:
                raise RowError("empty", f"no words in {column!r}")
            warn("empty", f"no words in {column!r}, {UNANSWERED}")
        for number, word in enumerate(words, start=1):
            if not isinstance(word, str) and not text_of(word):
                raise RowError("malformed", f"word {number} is {short(word)}. Expected text.")
        texts, labels = tuple(map(str, words)), None
        if columns.labeled:
            given = parts_of(row.values.get(columns.names["labels"]))
            if not given:
                raise RowError("unlabeled")
            labels = _word_labels(given, texts, names=columns.class_names)
        return cls(texts, labels, columns.id_of(row))


def _word_labels(given: Sequence[Any], words: Sequence[str], *, names: ClassNames) -> tuple[str, ...]:
    if len(given) != len(words):
        raise RowError("invalid label", f"{len(words)} words and {len(given)} labels")
    labels = []
    for number, (word, written) in enumerate(zip(words, given, strict=True), start=1):
        is_ignored = str(written) in (IGNORED, f"{IGNORED}.0")
        label = IGNORED if is_ignored else read_label(written, names=names)
        if label is None:
            raise RowError("unlabeled", f"no label for word {number}")
        if isinstance(label, tuple):
            detail = f"word {number} has the label {short(written)}. Expected one label for each word."
            raise RowError("invalid label", detail)
        if not word.strip():
            raise RowError("malformed", f"word {number} is {short(word)}, with the label {short(label)}")
        labels.append(class_name(label) if isinstance(label, float) else str(label))
    if {*labels} == {IGNORED}:
        raise RowError("unlabeled", f"each word has the label {IGNORED}")
    return tuple(labels)


@dataclass(frozen=True, slots=True)
class QuestionExample(_Example):
    """A question about a context, and the answers with their positions in the context."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    """Each answer with the index of its first character in the context. If it is empty and `is_impossible` is
    False, the example has no label."""
    is_impossible: bool = False
    """Whether the context does not answer the question (SQuAD 2.0)."""

    _columns: ClassVar[Any] = {
        "question": ("question_column", "question"),
        "context": ("context_column", "context"),
        "answers": ("answers_column", "answers"),
    }

    @classmethod
    def from_row(cls, row: Row, columns: Columns, warn: Warn) -> Self:
        """Return the question with its answers, each at its closest occurrence in the context.

        Files with shifted indices are common (other line ends, translated data), so an answer that is not at
        its index is searched in the context, and counted.
        """
        names, values = columns.names, row.values
        answers, is_impossible = list[tuple[str, int | None]](), False
        if columns.labeled:
            answers, is_impossible = _answers(values.get(names["answers"]))
            if "is_impossible" in names:
                is_impossible = bool(values.get(names["is_impossible"]))
        # The context is not changed, because answers count its characters.
        question, context = text_of(values.get(names["question"])), values.get(names["context"])
        if not question or not isinstance(context, str) or not context.strip():
            raise RowError("empty", f"no {'context' if question else 'question'}")
        identity = columns.id_of(row)
        if not columns.labeled or is_impossible:
            return cls(identity, question, context, (), is_impossible)
        if not answers:
            raise RowError("unlabeled")
        located, notes = [], list[str]()
        for answer, near in answers:
            start = _nearest(context, answer, near or 0)
            if start is None:
                notes.append(f"{short(answer)} is not in the context, so this answer is ignored")
                continue
            located.append((answer, start))
            if near not in (start, None):
                notes.append(f"{short(answer)} is at offset {start}, not {near}")
            elif near is None and not _between_words(context, start, start + len(answer)):
                notes.append(f"{short(answer)} occurs only inside a word, at offset {start}")
        if not located:
            raise RowError("invalid label", f"{short(answers[0][0])} is not in the context")
        if notes:
            warn("changed answer", "; ".join(notes))
        return cls(identity, question, context, tuple(located))


def _answers(given: Any) -> tuple[list[tuple[str, int | None]], bool]:
    """Return the answers in a cell, and whether the cell says that there is none.

    Answers are {"text": [...], "answer_start": [...]} as in `datasets`, where two empty lists mean that there
    is no answer; a list of pairs (text, start); or the text of one answer.
    """
    if isinstance(given, str) and given.startswith(("{'", '{"')):
        try:
            given = nested(given)
        except RowError as error:
            raise RowError("invalid label", error.detail) from error
    if isinstance(given, str) or is_missing(given):
        return ([] if is_missing(given) else [(given, None)]), False
    try:
        pairs = given
        if isinstance(given, Mapping):
            texts, starts = as_list(given["text"]), as_list(given["answer_start"])
            pairs = [(texts, starts)] if isinstance(texts, str) else [*zip(texts, starts, strict=True)]
        if not all(isinstance(text, str) and not isinstance(start, bool) for text, start in pairs):
            raise TypeError
        answers: list[Any] = [(text, index(start)) for text, start in pairs]
    except (KeyError, TypeError, ValueError) as error:
        expected = "expected the text of an answer, or {'text': [...], 'answer_start': [...]}"
        raise RowError("invalid label", f"{expected}, not {short(given)}") from error
    return answers, not answers


def _nearest(context: str, text: str, near: int) -> int | None:
    """Return the index of the occurrence of a text in the context closest to the expected index.

    Occurrences that begin and end between words come first.
    """
    if not text.strip():
        return None
    if near >= 0 and context.startswith(text, near):
        return near
    starts = [match.start() for match in re.finditer(f"(?={re.escape(text)})", context)]
    return min(
        starts,
        key=lambda start: (not _between_words(context, start, start + len(text)), abs(start - near)),
        default=None,
    )


def _between_words(context: str, start: int, end: int) -> bool:
    return not (inside_word(context, start) or inside_word(context, end))


def inside_word(text: str, index: int) -> bool:
    """Return whether the characters before and at an index belong to one word: both are letters or digits.

    In scripts without spaces, every character is a word.
    """
    pair = text[index - 1 : index + 1]
    return len(pair) == 2 and pair.isalnum() and not CHARACTER_WORD.search(pair)


@dataclass(frozen=True, slots=True)
class ChoiceExample(_Example):
    """A context with an optional question, and the choices, of which exactly one is right (RACE, SWAG)."""

    id: str
    context: str
    question: str | None
    choices: tuple[str, ...]
    label: int | None = None
    """The index of the right choice, from 0."""

    _columns: ClassVar[Any] = {  # of SWAG
        "context": ("context_column", "sent1"),
        "question": ("question_column", "sent2"),
        "choices": ("choice_columns", None),
        "label": ("label_column", "label"),
    }

    @classmethod
    def reader(cls, rows: Rows, columns: Columns) -> Reader[Any]:
        """Return the reader, which raises DataError at the end if the labels seem to count from 1."""
        seen = set[str]()

        def example(row: Row, warn: Warn) -> Self:
            try:
                choice = cls.from_row(row, columns, warn)
            except RowError as error:
                if error.counts_from_1:
                    seen.add("too high")
                raise
            if choice.label == 0:
                seen.add("0")
            return choice

        def after() -> None:
            if seen == {"too high"}:
                what = f"the labels in {columns.names['label']!r} seem to count from 1"
                raise DataError(f"{rows.name}: {what}. Expected the index of the right choice, from 0.")

        return Reader(rows, example, columns, after=after)

    @classmethod
    def from_row(cls, row: Row, columns: Columns, warn: Warn) -> Self:  # noqa: ARG003
        names, values = columns.names, row.values
        context = text_of(values.get(names["context"]))
        question = text_of(values.get(names["question"])) if names["question"] else ""
        cells, own_labels = _choices(values, names["choices"])
        if not context:
            raise RowError("empty", f"no text in {names['context']!r}")
        texts = tuple(filter(None, map(text_of, cells)))
        if len(texts) < (expected := max(2, len(cells))):
            raise RowError("empty", f"{len(texts)} of {expected} choices have a text")
        label = None
        if columns.labeled:
            written = values.get(names["label"])
            if is_missing(written) or str(written).strip() in ("-1", "-1.0"):
                raise RowError("unlabeled")
            label = read_choice(written, texts, own_labels)
        return cls(columns.id_of(row), context, question or None, texts, label)


def _choices(values: Mapping[str, Any], columns: str | Sequence[str]) -> tuple[list[Any], list[str]]:
    """Return the cells of the choices, and their own labels if they have any.

    Choices with labels are {"text": [...], "label": [...]}, or a list of {"text": ..., "label": ...}.
    """
    columns = [columns] if isinstance(columns, str) else columns
    cells = [as_list(values.get(column)) for column in columns]
    if len(cells) > 1:
        return cells, []
    cell = nested(cells[0]) if isinstance(cells[0], str) else cells[0]
    if isinstance(cell, Mapping) and "text" in cell:
        texts, labels = as_list(cell["text"]), as_list(cell.get("label"))
    elif isinstance(cell, list | tuple) and all(isinstance(choice, Mapping) for choice in cell):
        texts, labels = [choice.get("text") for choice in cell], [choice.get("label") for choice in cell]
    else:
        texts, labels = cell, None
    if not isinstance(texts, list | tuple):
        return [texts], []
    labeled = isinstance(labels, list | tuple) and len(labels) == len(texts) and None not in labels
    return list(texts), [class_name(label) for label in labels or ()] if labeled else []


def read_choice(written: Any, choices: Sequence[str], labels: Sequence[str] = ()) -> int:
    """Return the index of the right choice from a label: a number from 0, a letter from A, or its own label.

    The number may be a float, because tables with gaps write 1 as 1.0.
    """
    text = str(written).strip()
    if (name := class_name(text)) in labels:
        return labels.index(name)
    if any(map(whole_name, labels)):  # then a number is no index
        raise RowError("invalid label", f"the label is {short(written)}, not one of {', '.join(labels)}")
    index = None
    if len(text) == 1 and text.isalpha() and text.isascii():
        index = ord(text.upper()) - ord("A")
    elif number := re.fullmatch(r"(\d{1,9})(\.0+)?", text):
        index = int(number[1])
    if index is None or index >= len(choices):
        error = RowError(
            "invalid label", f"the label is {short(written)}, but there are {len(choices)} choices"
        )
        error.counts_from_1 = name == str(len(choices))
        raise error
    return index


_ANSWERS = ("id", "label", "score", "answers", "is_impossible")


def texts_of(example: Any) -> dict[str, Any]:
    """Return the texts of an example by field; empty for examples of your own class."""
    if isinstance(example, WordsExample):
        return {"text": " ".join(example.words)}
    names = example.__slots__ if isinstance(example, _Example) else ()
    values = {name: getattr(example, name) for name in names if name not in _ANSWERS}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }


def content_of(example: Any) -> Hashable:
    """Return the text, pair or context that training and validation data should not share, if known."""
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
