"""The location of the examples in a user's files: one flat set of options for the readers of all tasks."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Columns and layout of labeled files. Each task reads only the options that it needs."""

    text_column: str = "text"
    """Texts."""
    pair_column: str | None = None
    """Column of the second texts, for tasks on pairs."""
    negative_column: str | None = None
    """Column of texts that do not belong to the first, for sentence embedding."""
    label_column: str | None = None
    """Column of labels (default: label; for words: ner_tags, or the last column of a CoNLL file, as a
    number). Several columns of 0 and 1, separated by commas, are the labels of a multi-label task."""
    label_separator: str | None = None
    """Separator between the labels in one cell, if a text can have several."""
    words_column: str | None = None
    """Column of words (default: tokens, or the first column of a CoNLL file, as a number)."""
    question_column: str | None = None
    """Column of questions (default: question; for multiple choice: sent2, as in SWAG)."""
    context_column: str | None = None
    """Column of the texts that the questions refer to (default: context; for multiple choice: sent1, as in
    SWAG)."""
    answers_column: str = "answers"
    """Column of answers, in the format of `datasets`."""
    choice_columns: str = "ending0,ending1,ending2,ending3"
    """Columns of choices, separated by commas, or one column with lists."""
    id_column: str | None = None
    """Column of example ids (default: file and line)."""
    header: bool = True
    """Whether the first row of a CSV or TSV file has the column names. Otherwise the names are 0, 1, ..."""
    delimiter: str | None = None
    """Character between the cells of a CSV or TSV file, '\\t' for a tab (default: by the file's ending)."""
    glue: str | None = None
    """Read the official files of this GLUE task. Sources are then FOLDER/SPLIT, such as GLUE/train."""
