"""The location of the examples in a user's files: one flat set of options for the readers of all tasks."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Columns and layout of labeled files. Each task reads only the options that it needs."""

    text_column: str = "text"
    """Column of the texts."""
    pair_column: str | None = None
    """Column of the second texts, for tasks on pairs."""
    negative_column: str | None = None
    """For sentence embedding: column of the negatives, which are texts that do not match the first text."""
    label_column: str | None = None
    """Column of the labels, or its number in a CoNLL file (default: label; for token classification:
    ner_tags, or the last column of a CoNLL file). For a multi-label task, list the columns of 0 and 1,
    separated by commas."""
    label_separator: str | None = None
    """Separator between the labels in one cell, if a text can have several."""
    merge_labels: bool = False
    """Whether to merge labels that differ only in case or spaces. The most frequent spelling in the training
    data is used."""
    words_column: str | None = None
    """Column of the words, or its number in a CoNLL file (default: tokens, or the first column of a CoNLL
    file)."""
    question_column: str | None = None
    """Column of the questions (default: question; for multiple choice: sent2, as in SWAG)."""
    context_column: str | None = None
    """Column of the contexts (default: context; for multiple choice: sent1, as in SWAG)."""
    answers_column: str = "answers"
    """Column of the answers, in the SQuAD format of the library `datasets`."""
    choice_columns: str = "ending0,ending1,ending2,ending3"
    """Columns of the choices, separated by commas, or one column with lists."""
    id_column: str | None = None
    """Column of the example ids, which reports and predictions repeat (default: no column)."""
    header: bool = True
    """Whether the first row of a CSV or TSV file has the column names. Without a header, the names are 0, 1,
    ..."""
    delimiter: str | None = None
    """Character that separates the cells of a CSV or TSV file; '\\t' for a tab (default: a tab for .tsv; for
    .csv a comma, or a semicolon or a tab if the header has no comma)."""
    encoding: str | None = None
    """Encoding of text files, such as cp1252 (default: UTF-8, with or without a byte order mark, or UTF-16
    with one). For other files, evaluate and predict use the encoding of the fine-tuning. predict also writes
    .csv and .tsv files in it. For Excel, choose utf-8-sig."""
    sheet: str | None = None
    """Name of the sheet of an .xlsx file (default: the first sheet)."""
    glue: str | None = None
    """Name of a GLUE task, to read its official files. Pass the data as FOLDER/SPLIT, such as GLUE/train."""

    def layout(self) -> dict[str, Any]:
        """Return the arguments of `read_rows`."""
        return {name: getattr(self, name) for name in ("header", "delimiter", "encoding", "sheet")}


def columns_in(given: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that an option names: a column whose name has commas, or names between commas."""
    if given in columns:
        return (given,)
    return tuple(name for part in given.split(",") if (name := part.strip()))
