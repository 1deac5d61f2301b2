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

from albertkit.datasets.examples import WordsExample
from albertkit.datasets.reader import (
    ANSWERED,
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
        for number, lines in self._blocks():
            origin = f"{self.path}, line {number}"
            width = width or self._checked_width(lines[0], origin)
            uneven = [place for place, cells in enumerate(lines) if len(cells) != width]
            if uneven:
                found = lines[uneven[0]]
                columns = f"{len(found)} column{'s' * (len(found) != 1)}"
                detail = f"line {number + uneven[0]} has {columns}, expected {width}"
                if not self.labeled:
                    detail += " (each line is a word; for plain text: albertkit tag --file)"
                yield Row(origin, {}, detail)
                continue
            words = tuple(cells[self.word_column] for cells in lines)
            labels = tuple(cells[self.label_column] for cells in lines) if self.labeled else None
            yield Row(origin, {"words": words, "labels": labels})

    def example(self, row: Row, report: ReadingReport) -> WordsExample:
        """Return the words with their labels."""
        return WordsExample(**row.values, id=row.origin)

    def _blocks(self) -> Iterator[tuple[int, list[list[str]]]]:
        """Yield the number of each sentence's first line, and the cells of its lines."""
        # If there are tabs, only they separate cells, which may then contain spaces.
        numbered = (
            (number, line.strip("\r\n").split("\t") if "\t" in line else line.split())
            for number, line, _ in read_records(self.path)
        )
        for is_sentence, lines in groupby(numbered, lambda line: _is_word(line[1])):
            if is_sentence:
                block = _without_comments(list(lines))
                yield block[0][0], [cells for _, cells in block]

    def _check_not_plain_text(self) -> None:
        """Check that a sentence has several lines, or that the last column has labels."""
        first, ends_in_labels = "", True
        for number, lines in self._blocks():
            if len(lines) > 1 or len(lines[0]) == 1:
                return
            first = first or f"line {number}: {short(' '.join(lines[0]))}"
            ends_in_labels = ends_in_labels and _LABEL.fullmatch(lines[0][-1]) is not None
        if not ends_in_labels:
            raise DataError(
                f"{self.path}, {first} looks like plain text. Expected one word per line, and a blank line "
                "after each sentence. For plain text: albertkit tag --file. If each sentence is a single "
                "word, remove the other columns."
            )

    def _checked_width(self, cells: list[str], origin: str) -> int:
        if "tokens" in cells[:-1] and not any(map(_LABEL.fullmatch, cells)):
            raise DataError(
                f"{origin}: {', '.join(map(repr, cells))} are column names. Expected one word per line. If "
                "the file is a table, rename it so that it ends in .csv, and set --delimiter '\\t' (in "
                "Python delimiter='\\t')."
            )
        for what, column in (("word", self.word_column), ("label", self.label_column)):
            if not -len(cells) <= column < len(cells) and (what == "word" or self.labeled):
                listed = ", ".join(f"{place} {cell!r}" for place, cell in enumerate(cells))
                raise DataError(f"{origin}: no column {column} for the {what}. The columns are {listed}.")
        if self.labeled and self.word_column % len(cells) == self.label_column % len(cells):
            raise DataError(
                f"{origin}: word and label are the same column. The line is {' '.join(cells)!r}. Set the "
                "columns with --words-column and --label-column."
            )
        return len(cells)


def _without_comments(block: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Return a sentence without the comments before it.

    A comment begins with "#" and has another number of columns than the first line that does not: "#" is also
    a word of CoNLL-2000.
    """
    width = next((len(cells) for _, cells in block if not cells[0].startswith("#")), None)
    comments = takewhile(lambda line: line[1][0].startswith("#") and len(line[1]) != width, block)
    return block if width is None else block[len(list(comments)) :]


def _is_word(cells: list[str]) -> bool:
    """Return whether a line has a word; blank lines and `DOCUMENT_START` lines do not."""
    return any(cell.strip() for cell in cells) and cells[0] != DOCUMENT_START


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
        if not words:  # its prediction is an empty list of labels
            report.add("empty", row.origin, f"no words in {self._words!r}, and {ANSWERED}")
        texts = word_texts(words)
        labels = None
        if self.labeled:
            if not given:
                raise RowError("unlabeled")
            labels = word_labels(given, len(words), names=self._class_names)
        return WordsExample(texts, labels, self.name_of(row))


def word_texts(words: Sequence[Any]) -> tuple[str, ...]:
    """Return words as texts; raise `RowError` if one is neither text nor a number."""
    for number, word in enumerate(words, start=1):
        if not isinstance(word, str) and text_of(word) is None:
            raise RowError("malformed", f"word {number} is {short(word)}. Expected text.")
    return tuple(map(str, words))


def word_labels(given: Sequence[Any], count: int, *, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the labels of `count` words; `names` are the names of the labels if the labels are numbers.

    Raises:
        RowError: a word has no label, or a label is invalid.
    """
    if len(given) != count:
        raise RowError("mislabeled", f"{count} words and {len(given)} labels")
    labels = [read_label(one, separator=None, names=names) for one in given]
    for number, label in enumerate(labels, start=1):
        if label is None:
            raise RowError("unlabeled", f"no label for word {number}")
        if isinstance(label, tuple):
            raise RowError(
                "mislabeled",
                f"word {number} has the label {short(given[number - 1])}. Expected one label for each word.",
            )
    return tuple(class_name(one) if isinstance(one, float) else str(one) for one in labels)


def _listed(value: Any) -> list[Any]:
    """Return the parts of a cell: of a list, of a list written as text, or the parts between spaces."""
    if isinstance(value, str):
        return list(nested(value)) if LIST.fullmatch(value.strip()) else value.split()
    value = as_list(value)
    return list(value) if isinstance(value, (list, tuple)) else []
