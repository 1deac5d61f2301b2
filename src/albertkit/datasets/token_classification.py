"""Sentences with a label per word: CoNLL columns, and tables with a list of words and a list of labels.

A CoNLL file has one word per line with its columns, and a blank line after each sentence. Lines with
`-DOCSTART-` separate documents. Chunks and entities may be columns of the same file: in CoNLL-2000, chunks
are column 2, the last (-1); in CoNLL-2003 they are column 2, and entities are column 3, the last.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from albertkit.datasets.examples import IGNORED, WordsExample
from albertkit.datasets.reader import (
    UNANSWERED,
    Reader,
    ReadingReport,
    TableReader,
    as_list,
    nested,
    text_of,
)
from albertkit.datasets.table import Row, RowError, existing_file
from albertkit.datasets.text_classification import LIST, class_name, read_label
from albertkit.errors import DataError, short
from albertkit.text_files import read_records

DOCUMENT_START = "-DOCSTART-"
_RANGE = re.compile(r"[0-9]+[-.][0-9]+")
_LABEL = re.compile(r"[A-Z]-\S+|[A-Z][A-Z0-9$_|-]*")  # B-PER, O, PRP$; plain text usually ends otherwise


class ConllFile(Reader[WordsExample]):
    """The sentences of a CoNLL file, compressed or not.

    Args:
        path: the file.
        word_column: the index of the word in a line, from 0; negative counts from the end.
        label_column: the index of the label.
        labeled: whether to read labels.
    """

    def __init__(
        self, path: str | Path, *, word_column: int = 0, label_column: int = -1, labeled: bool = True
    ) -> None:
        super().__init__(str(path), labeled=labeled)
        self.path = existing_file(path)
        self.word_column = word_column
        self.label_column = label_column

    def rows(self) -> Iterator[Row]:
        """Yield the sentences.

        Raises:
            DataError: the first line does not have a column or is a header, or a file without labels is plain
                text.
        """
        if not self.labeled:
            self._check_not_plain_text()
        width = 0
        for lines in self._blocks():
            origin = f"{self.path}, line {lines[0][0]}"
            is_first, width = not width, width or self._checked_width(lines[0][1], origin)
            uneven = [(number, cells) for number, cells in lines if len(_without_end(cells, width)) != width]
            if uneven:
                number, cells = uneven[0]
                columns = f"{len(cells)} column{'s' * (len(cells) != 1)}"
                detail = f"line {number} has {columns}, expected {width}"
                if not self.labeled:
                    detail += " (each line is a word; for plain text: albertkit tag --file)"
                yield Row(origin, {}, detail)
                continue
            if self.word_column % width:
                lines = _without_ranges(lines)
            words = tuple(cells[:width][self.word_column] for _, cells in lines)
            if is_first and width > 2 and words[1:] and words == tuple(map(str, range(1, len(words) + 1))):
                raise DataError(
                    f"{origin}: column {self.word_column} counts the words, as in CoNLL-U files. Set the "
                    "columns of the words and labels: in CoNLL-U, --words-column 1 and --label-column 3."
                )
            labels = tuple(cells[:width][self.label_column] for _, cells in lines) if self.labeled else None
            yield Row(origin, {"words": words, "labels": labels})

    def example(self, row: Row, report: ReadingReport) -> WordsExample:
        """Return the words with their labels."""
        words, labels = word_texts(row.values["words"]), row.values["labels"]
        if labels is not None:
            labels = word_labels(labels, words, names=None)
        return WordsExample(words, labels, row.origin)

    def _blocks(self) -> Iterator[list[tuple[int, list[str]]]]:
        """Yield the lines of each sentence: their numbers and cells."""
        numbered = ((number, line.rstrip("\r\n")) for number, line, _ in read_records(self.path))
        for is_sentence, group in groupby(numbered, lambda one: _is_word(one[1])):
            if is_sentence:
                lines = list(group)
                first = next((line for _, line in lines if not line.startswith("#")), lines[0][1])
                # If there are tabs, only they separate cells, which may then contain spaces.
                separator = "\t" if "\t" in first else None
                yield _without_comments([(number, line.split(separator)) for number, line in lines])

    def _check_not_plain_text(self) -> None:
        """Check that a sentence has several lines, or that the last column has labels."""
        first, ends_in_labels = "", True
        for lines in self._blocks():
            number, cells = lines[0]
            if len(lines) > 1 or len(cells) == 1:
                return
            first = first or f"line {number}: {short(' '.join(cells))}"
            ends_in_labels = ends_in_labels and _LABEL.fullmatch(cells[-1]) is not None
        if not ends_in_labels:
            raise DataError(
                f"{self.path}, {first} looks like plain text. Expected one word per line, and a blank line "
                "after each sentence. For plain text: albertkit tag --file. If each sentence is a single "
                "word, remove the other columns."
            )

    def _checked_width(self, cells: list[str], origin: str) -> int:
        """Return the number of columns: of the first line, without a column that is empty in every line."""
        width = len(cells)
        if not cells[-1]:
            width = max(len(_without_end(cells)) for lines in self._blocks() for _, cells in lines)
        if "tokens" in cells[:-1] and not any(map(_LABEL.fullmatch, cells)):
            raise DataError(
                f"{origin}: {', '.join(map(repr, cells))} are column names. Expected one word per line. If "
                "the file is a table, rename it so that it ends in .csv, and set --delimiter '\\t' (in "
                "Python delimiter='\\t')."
            )
        for what, column in (("word", self.word_column), ("label", self.label_column)):
            if not -width <= column < width and (what == "word" or self.labeled):
                listed = ", ".join(f"{place} {cell!r}" for place, cell in enumerate(cells))
                raise DataError(f"{origin}: no column {column} for the {what}. The columns are {listed}.")
        if self.labeled and self.word_column % width == self.label_column % width:
            raise DataError(
                f"{origin}: word and label are the same column. The line is {' '.join(cells)!r}. Set the "
                "columns with --words-column and --label-column."
            )
        return width


def _without_end(cells: list[str], width: int = 0) -> list[str]:
    """Return the cells of a line without the empty cells at its end, if it has more than `width`."""
    while len(cells) > width and not cells[-1]:
        cells = cells[:-1]
    return cells


def _without_ranges(lines: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Return the words of a sentence in CoNLL-U, without ranges of words (1-2) and empty nodes (5.1)."""
    words = [line for line in lines if not _RANGE.fullmatch(line[1][0])]
    return words if words and all(cells[0].isdecimal() for _, cells in words) else lines


def _without_comments(block: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Return a sentence without the comments before it.

    A comment begins with "#" and has another number of columns than the first line that does not: "#" is also
    a word of CoNLL-2000.
    """
    width = next((len(cells) for _, cells in block if not cells[0].startswith("#")), None)
    comments = takewhile(lambda line: line[1][0].startswith("#") and len(line[1]) != width, block)
    return block if width is None else block[len(list(comments)) :]


def _is_word(line: str) -> bool:
    """Return whether a line has a word; blank lines and `DOCUMENT_START` lines do not."""
    return line.split(maxsplit=1)[:1] not in ([], [DOCUMENT_START])


class WordsTable(TableReader[WordsExample]):
    """The sentences of a table: columns of lists, or of text that is split at spaces."""

    def check_columns(self) -> None:
        """Raise DataError if the table lacks a column."""
        options = self.options
        self._words, self._labels = options.words_column or "tokens", options.label_column or "ner_tags"
        self.table.check_columns(
            {
                "--words-column": self._words,
                "--label-column": self._labels if self.labeled else None,
            }
        )
        self._class_names = self.table.class_names(self._labels)

    def example(self, row: Row, report: ReadingReport) -> WordsExample:
        """Return the sentence with its labels."""
        words = _listed(row.values.get(self._words))
        given = _listed(row.values.get(self._labels)) if self.labeled else []
        if not words and self.labeled:
            raise RowError("empty", f"no words in {self._words!r}")
        if not words:  # predictions must match the rows
            report.add("empty", row.origin, f"no words in {self._words!r}, {UNANSWERED}")
        texts = word_texts(words)
        labels = None
        if self.labeled:
            if not given:
                raise RowError("unlabeled")
            labels = word_labels(given, texts, names=self._class_names)
        return WordsExample(texts, labels, self.name_of(row))


def word_texts(words: Sequence[Any]) -> tuple[str, ...]:
    """Return words as texts; raise `RowError` if one is neither text nor a number."""
    for number, word in enumerate(words, start=1):
        if not isinstance(word, str) and text_of(word) is None:
            raise RowError("malformed", f"word {number} is {short(word)}. Expected text.")
    return tuple(map(str, words))


def word_labels(
    given: Sequence[Any], words: Sequence[str], *, names: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the labels of words; `names` are the names of the labels if the labels are numbers.

    Raises:
        RowError: a word has no label, a label has no word, a label is invalid, or all are ignored.
    """
    if len(given) != len(words):
        raise RowError("mislabeled", f"{len(words)} words and {len(given)} labels")
    labels = [
        IGNORED if str(one) in (IGNORED, f"{IGNORED}.0") else read_label(one, separator=None, names=names)
        for one in given
    ]
    for number, (word, label) in enumerate(zip(words, labels, strict=True), start=1):
        if label is None:
            raise RowError("unlabeled", f"no label for word {number}")
        if isinstance(label, tuple):
            raise RowError(
                "mislabeled",
                f"word {number} has the label {short(given[number - 1])}. Expected one label for each word.",
            )
        if not word.strip():
            raise RowError("malformed", f"word {number} is {short(word)}, with the label {short(label)}")
    if {*labels} == {IGNORED}:
        raise RowError("unlabeled", f"each word has the label {IGNORED}")
    return tuple(class_name(one) if isinstance(one, float) else str(one) for one in labels)


def _listed(value: Any) -> list[Any]:
    """Return the parts of a cell: of a list, of a list written as text, or the parts between spaces."""
    if isinstance(value, str):
        return list(nested(value)) if LIST.fullmatch(value.strip()) else value.split()
    value = as_list(value)
    return list(value) if isinstance(value, (list, tuple)) else []
