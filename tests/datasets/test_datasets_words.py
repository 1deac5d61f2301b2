"""The readers for token classification accept CoNLL files and tables of words, and check the labels."""

import re
from pathlib import Path
from typing import Any

import pytest
from labeled_files import Write, label_counts, load_splits, report_of

from albertkit.datasets.examples import WordsExample
from albertkit.datasets.official import conll
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import ReadingReport
from albertkit.errors import DataError
from albertkit.tasks.labels import TAGS, LabelSet


def test_conll_columns(write: Write) -> None:
    content = (
        "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n# # I-NP O\n \n"
        "-DOCSTART- -X- -X- O\nLone NN B-NP\nword NN I-NP O\n\nLast NN B-NP B-LOC"
    )
    file = write("a.conll", content)
    entities = conll(file)
    assert [(one.words, one.labels) for one in entities] == [
        (("EU", "rejects"), ("B-ORG", "O")),
        (("#",), ("O",)),
        (("Last",), ("B-LOC",)),
    ]
    assert report_of(entities).problems["malformed"].first == [
        f"{file}, line 10: line 10 has 3 columns, expected 4"
    ]
    chunks = conll(file, label_column=2)
    assert next(iter(chunks)).labels == ("B-NP", "B-VP")
    with pytest.raises(DataError, match=r"no column 7 for the label. The columns are 0 'EU', 1 'NNP'"):
        list(conll(file, label_column=7))
    with pytest.raises(DataError, match="word and label are the same column"):
        list(conll(write("b.conll", "only\nwords\n")))
    assert [one.words for one in conll(write("b.conll", "only\nwords\n"), labeled=False)] == [
        ("only", "words")
    ]
    tabbed = conll(write("c.conll", "New York\tB-LOC\n10 000\tO\n"))
    (sentence,) = tabbed
    assert sentence == WordsExample(("New York", "10 000"), ("B-LOC", "O"), f"{tabbed.source}, line 1")


@pytest.mark.parametrize(
    "text", ["Peter went to Paris.", "Peter went to Paris .\n\nMary stayed here .\n", "Peter laughed.\n"]
)
def test_plain_text_is_an_error_in_predictions(write: Write, text: str) -> None:
    with pytest.raises(DataError, match=r"line 1: .* looks like plain text.* albertkit tag --file"):
        list(conll(write("a.txt", text), labeled=False))


@pytest.mark.parametrize(
    "text", ["Paris NNP B-loc\n\nRome NNP O\n", "Paris\n\nRome\n", "Paris x\n\nin x\nRome x\n"]
)
def test_short_sentences_are_not_plain_text(write: Write, text: str) -> None:
    assert len(list(conll(write("a.txt", text), labeled=False))) == 2


@pytest.mark.parametrize("labeled", [True, False])
def test_a_table_of_predictions_is_not_read_as_words(write: Write, labeled: bool) -> None:
    content = 'row\ttokens\tlabels\n1\t["a", "b"]\t["O", "B-X"]\n2\t["c"]\t["O"]\n'
    with pytest.raises(
        DataError, match=r"line 1: 'row', 'tokens', 'labels' are column names.* \.csv, and set"
    ):
        list(conll(write("a.tsv", content), labeled=labeled))
    table = WordsExample.read(write("a.csv", content), DataOptions(label_column="labels", delimiter="\t"))
    assert [(one.words, one.labels) for one in table] == [(("a", "b"), ("O", "B-X")), (("c",), ("O",))]
    assert len(list(conll(write("b.tsv", "tokens\tO\n"), labeled=labeled))) == 1


def test_lines_that_end_in_cr(write: Write) -> None:
    path = write("train.txt", "the O\rriver B-X\r\rAnna B-PER\r")
    with pytest.raises(DataError, match=r"train\.txt: the lines end in CR .* Expected LF or CRLF"):
        list(conll(path))


def test_labels_of_words_are_checked_between_splits(write: Write) -> None:
    train = conll(write("train.txt", "a I-B\nb O\nc B-A\n"))
    splits = load_splits({"train": train})
    assert splits.labels is not None
    assert splits.labels.names == ("O", "B-A", "I-A", "B-B", "I-B")
    assert label_counts(splits, "train")["O"] == 1
    test = conll(write("test.txt", "a O\n\nb E-A\n"))
    with pytest.raises(DataError, match=r"test.txt, line 3: the label 'E-A' is unknown"):
        load_splits({"train": train, "validation": test})
    parts_of_speech = load_splits({"train": conll(write("pos.txt", "a NN\nb -LRB-\nc B-X\n"))})
    assert parts_of_speech.labels is not None
    assert parts_of_speech.labels.names == ("-LRB-", "B-X", "NN")


def test_comments_before_a_sentence_are_skipped(write: Write) -> None:
    content = "# id 1\n# text = Anne went\nAnne B-PER\nwent O\n\n# # x\n# O\n5 O\n\n# id\nnewdoc\n"
    file = conll(write("a.conll", content))
    report = ReadingReport("a.conll")
    found = [(one.words, one.labels, one.id.rpartition(" ")[2]) for _, one in file.read(report)]
    assert found == [(("Anne", "went"), ("B-PER", "O"), "3"), (("#", "5"), ("O", "O"), "7")]
    assert report.problems["malformed"]  # of the last lines
    unlabeled = conll(write("b.conll", "# id 1\nAnne\nwent\n"), labeled=False)
    assert [one.words for one in unlabeled] == [("Anne", "went")]


def test_an_empty_last_column_is_ignored(write: Write) -> None:
    for content in (
        "EU\tB-ORG\t\nrejects\tO\t\n\nNew York\tB-LOC\t\n",
        "EU\tB-ORG\t\t\nrejects\tO\n\nNew York\tB-LOC\t\n",
        "EU\tB-ORG\nrejects\tO\t\n\nNew York\tB-LOC\n",
    ):
        for labeled in (True, False):
            reader = conll(write("a.conll", content), labeled=labeled)
            labels = [("B-ORG", "O"), ("B-LOC",)] if labeled else [None, None]
            assert [one.words for one in reader] == [("EU", "rejects"), ("New York",)]
            assert [one.labels for one in reader] == labels
    # The column is empty in the first line only.
    reader = conll(write("b.conll", "EU\tNNP\t\n\nrejects\tVBZ\tO\nit\tPRP\tB-X\n"))
    assert [one.labels for one in reader] == [("O", "B-X")]
    assert report_of(reader).problems["unlabeled"].first[0].endswith("line 1: no label for word 1")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("EU\tB-ORG\nrejects\t\n", "unlabeled"),
        ("EU\tB-ORG\n\tO\n", "malformed"),
        ("EU\tB-ORG\n  \tO\n", "malformed"),
        ("EU\tB-ORG\nrejects\n", "malformed"),
        ("EU\tB-ORG\nNew York\n", "malformed"),
        ("EU\t-100\nrejects\t-100\n", "unlabeled"),
    ],
)
def test_a_word_without_a_label_and_a_label_without_a_word(write: Write, lines: str, problem: str) -> None:
    reader = conll(write("a.conll", f"It\tO\nis\tB-X\n\n{lines}"))
    assert [one.words for one in reader] == [("It", "is")]
    assert {name: rows.count for name, rows in report_of(reader).problems.items()} == {problem: 1}
    assert load_splits({"train": reader}).labels == LabelSet(TAGS, ("O", "B-X"))


def test_words_that_are_ignored(write: Write) -> None:
    """Labels of -100, which loss functions ignore."""
    table = [
        {"tokens": ["a", "b", "c"], "ner_tags": ["O", ignored, "B-X"]} for ignored in (-100, "-100", -1e2)
    ]
    sources = [
        *(WordsExample.read([one]) for one in table),
        WordsExample.read(
            write("a.csv", 'tokens,ner_tags\na b c,"[""O"", -100, ""B-X""]"\na b c,O -100 B-X\n')
        ),
        conll(write("a.conll", "a O\nb -100\nc B-X\n")),
    ]
    for reader in sources:
        splits = load_splits({"train": reader})
        assert {one.labels for one in splits.examples["train"]} == {("O", "-100", "B-X")}
        assert splits.labels == LabelSet(TAGS, ("O", "B-X"))
    labels = LabelSet(TAGS, ("O", "B-X"))
    true, predicted = [("O", "-100", "B-X"), ("-100", "O")], [("O", "B-X", "B-X"), ("O", "B-X")]
    assert labels.scores(true, predicted) == labels.scores([("O", "B-X"), ("O",)], [("O", "B-X"), ("B-X",)])
    assert labels.baseline(true) == {"accuracy": 2 / 3}


def test_a_single_label_is_an_error(write: Write) -> None:
    for reader in (
        conll(write("a.conll", "EU O\nrejects O\n")),
        conll(write("b.conll", "EU B-X\nrejects B-X\n")),
        WordsExample.read([{"tokens": ["EU", "rejects"], "ner_tags": ["O", -100]}]),
    ):
        with pytest.raises(DataError, match=r"every word has the label '(O|B-X)'\. Expected at least two"):
            load_splits({"train": reader})


CONLLU = (
    "# newdoc id = a\n# sent_id = 1\n# text = Vámonos al mar\n"
    "1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_\n"
    "2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_\n"
    "2.1\tél\t_\tPRON\t_\t_\t_\t_\t1:nsubj\t_\n"
    "3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_\n"
    "4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_\n"
    "5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No\n"
    "\n# sent_id = 2\n# text = one two three four five six seven eight\n"
    "1\t1.5\t1.5\tNUM\t_\t_\t0\troot\t_\t_\n"
    "2\t3-4\t3-4\tNUM\t_\t_\t1\tdep\t_\t_\n"
)


def test_ranges_and_empty_nodes_of_conllu_are_left_out(write: Write) -> None:
    reader = conll(write("a.conllu", CONLLU), word_column=1, label_column=3)
    assert [(one.words, one.labels) for one in reader] == [
        (("Vamos", "nos", "a", "el", "mar"), ("VERB", "PRON", "ADP", "DET", "NOUN")),
        (("1.5", "3-4"), ("NUM", "NUM")),
    ]
    assert report_of(reader).problems == {}
    unlabeled = conll(reader.source, word_column=1, labeled=False)
    assert [one.words for one in unlabeled] == [one.words for one in reader]
    negative = conll(reader.source, word_column=-9, label_column=-7)
    assert [one.labels for one in negative] == [one.labels for one in reader]


def test_columns_that_count_words_are_an_error(write: Write) -> None:
    for labeled in (True, False):
        with pytest.raises(DataError, match="line 3: column 0 counts the words, as in CoNLL-U files"):
            list(conll(write("a.conllu", "# id\n# a\n1\tIt\tPRON\n2\tis\tVERB\n"), labeled=labeled))
    numbers = conll(write("b.conll", "1 O\n2 O\n"))
    assert [one.words for one in numbers] == [("1", "2")]


def test_a_comment_of_as_many_words_as_columns(write: Write) -> None:
    content = "# text = a\nthe\tDET\tx\ty\nriver\tNOUN\tx\ty\n"
    reader = conll(write("a.conll", content), label_column=1)
    assert [one.words for one in reader] == [("the", "river")]


def test_errors_about_labels_list_skipped_training_rows(write: Write) -> None:
    train = conll(write("bad.conll", "a O\nb B-A\n\nc\nd B-B\n"))
    validation = conll(write("validation.conll", "c O\nd B-B\n"))
    with pytest.raises(DataError, match=r"validation.conll, line 1: the label 'B-B' is unknown") as caught:
        load_splits({"training": train, "validation": validation})
    assert "bad.conll: 1 example, 1 skipped" in str(caught.value)
    assert "malformed: 1" in str(caught.value)


def test_tables_of_words(write: Write) -> None:
    rows = [
        {"words": ["a", "b"], "tags": ["O", "B-X"]},
        {"words": "a b", "tags": "O B-X"},
        {"words": ["a", "b"], "tags": ["O"]},
        {"words": [], "tags": []},
        {"words": ["a"], "tags": None},
        {"words": ["a"], "tags": [None]},
    ]
    reader = WordsExample.read(rows, DataOptions(words_column="words", label_column="tags"))
    assert [(one.words, one.labels) for one in reader] == [(("a", "b"), ("O", "B-X"))] * 2
    problems = report_of(reader).problems
    assert {name: rows.count for name, rows in problems.items()} == {
        "invalid label": 1,
        "empty": 1,
        "unlabeled": 2,
    }
    assert problems["invalid label"].first[0].endswith("row 3: 2 words and 1 labels")


def test_a_sentence_without_words_is_predicted() -> None:
    rows: list[dict[str, Any]] = [{"tokens": []}, {"tokens": None}, {"tokens": ["a"]}]
    reader = WordsExample.read(rows, labeled=False)
    assert [one.words for one in reader] == [(), (), ("a",)]
    first, _ = report_of(reader).problems["empty"].first
    assert first.endswith("row 1: no words in 'tokens', so the row has no prediction")


def test_conll_2000(shared: Path) -> None:
    train, test = (conll(shared / "data" / "conll2000" / f"{name}.txt") for name in ("train", "test"))
    splits = load_splits({"train": train, "test": test})
    words = {name: sum(len(one.words) for one in examples) for name, examples in splits.examples.items()}
    assert words == {"train": 211727, "test": 47377}  # as its README counts them
    assert [len(splits.examples[name]) for name in ("train", "test")] == [8936, 2012]
    assert splits.labels is not None
    assert len(splits.labels.names) == 1 + 2 * 11
    assert "I-LST" in splits.labels.names  # in the test part only


def test_lists_of_words_in_cells(write: Write) -> None:
    rows = [
        ("a river", "O B-X"),
        ('["a", "river bank"]', '["O", "B-X"]'),
        ("['a', \"river's\"]", "['O', 'B-X']"),
        ("[ a river ]", "O O O O"),
        ("['a' 'river']", "O B-X"),
        ("a river", "['O' 'B-X']"),
        ("", "O"),
    ]
    lines = [
        "tokens,ner_tags",
        *(",".join('"' + one.replace('"', '""') + '"' for one in row) for row in rows),
    ]
    reader = WordsExample.read(write("a.csv", "\n".join(lines) + "\n"))
    report = ReadingReport("")
    found = [(one.words, one.labels) for _, one in reader.read(report)]
    assert found == [
        (("a", "river"), ("O", "B-X")),
        (("a", "river bank"), ("O", "B-X")),
        (("a", "river's"), ("O", "B-X")),
        (("[", "a", "river", "]"), ("O", "O", "O", "O")),
    ]
    assert report.problems["malformed"].count == 2
    assert "['a' 'river']\" is neither a JSON list nor" in report.problems["malformed"].first[0]
    assert report.problems["empty"].first[0].endswith("no words in 'tokens'")


@pytest.mark.parametrize(
    ("words", "labels", "problem"),
    [
        ([["the", "river"]], ["O"], r"malformed: 1\n.*word 1 is \['the', 'river'\]. Expected text"),
        (["the", None], ["O", "O"], "malformed: 1\n.*word 2 is None. Expected text"),
        (["the"], [["O", "B-X"]], r"invalid label: 1\n.*word 1 has the label \['O', 'B-X'\]. Expected one"),
    ],
)
def test_a_word_is_a_text_with_one_label(words: list[Any], labels: list[Any], problem: str) -> None:
    report = ReadingReport("x")
    assert list(WordsExample.read([{"tokens": words, "ner_tags": labels}]).read(report)) == []
    assert re.search(problem, "\n".join(report.lines()))
