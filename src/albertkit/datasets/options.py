"""Where in a user's files the examples are; one flat set of options for the readers of all tasks."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Columns and layout of labeled files. What a task has no use for is not looked at."""

    text_column: str = "text"
    """Texts."""
    pair_column: str | None = None
    """Second texts, of a task on pairs."""
    negative_column: str | None = None
    """Texts that do not belong to the first, of sentence embedding."""
    label_column: str | None = None
    """Labels (default: label; for words: ner_tags, or the last column of a CoNLL file, given as a number).
    Several columns of 0 and 1, separated by commas, are the labels of a multi-label task."""
    label_separator: str | None = None
    """What stands between the labels of one cell, if a text can have several."""
    words_column: str | None = None
    """Words (default: tokens, or the first column of a CoNLL file, here a number)."""
    question_column: str | None = None
    """Questions (default: question; of multiple choice: sent2, as in SWAG)."""
    context_column: str | None = None
    """Texts that the questions are about (default: context; of multiple choice: sent1, as in SWAG)."""
    answers_column: str = "answers"
    """Answers, as in `datasets`."""
    choice_columns: str = "ending0,ending1,ending2,ending3"
    """Choices: a column for each, separated by commas, or one that holds lists."""
    id_column: str | None = None
    """What examples are called (default: file and line)."""
    header: bool = True
    """The first row of a CSV or TSV file names the columns; without, they are 0, 1, ..."""
    delimiter: str | None = None
    """The character between the cells of a CSV or TSV file, '\\t' for a tab (default: by the file's name)."""
    glue: str | None = None
    """Read the official files of this task of GLUE; a source is then FOLDER/SPLIT, as in GLUE/train."""
