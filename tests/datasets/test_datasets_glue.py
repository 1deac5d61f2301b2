"""The readers of GLUE accept the official files of every task and report malformed rows."""

from pathlib import Path

import pytest
from labeled_files import CLASSES, NUMBERS, Write, load_splits, report_of

from albertkit.datasets.examples import PairExample, TextExample
from albertkit.datasets.official import GLUE_TASKS, glue
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError, DataError
from albertkit.tasks.text_classification import TextClassification

GLUE_FILES = {
    "CoLA/train.tsv": "gj04\t1\t\tThe car honked.\ngj04\t0\t*\tCar the honked.\n",
    "CoLA/test.tsv": "index\tsentence\n0\tBill whistled.\n",
    "SST-2/train.tsv": 'sentence\tlabel\na "fine film \t1\ndull \t0\n',
    "MRPC/train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    "1\t7\t8\tOne.\tUno.\n0\t9\t10\tTwo.\tTen.\n",
    "QQP/train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    "5\t1\t2\tWhy?\tHow?\t0\n6\t3\t4\tEh?\n7\t5\t6\tA?\tB?\t1\n",
    "STS-B/train.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\t"
    "score\n0\tnews\tf\t2012\t1\tn\tn\tOne.\tUno.\t5.000\n1\tnews\tf\t2012\t1\tn\tn\tOne.\tTwo.\t0.2\n",
    "MNLI/train.tsv": "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"
    "0\tx\tA.\tB.\tneutral\tneutral\n1\tx\tA.\tB.\tneutral\t-\n2\tx\tA.\tB.\tneutral\tcontradiction\n",
    "QNLI/train.tsv": "index\tquestion\tsentence\tlabel\n0\tQ?\tA.\tentailment\n1\tQ?\tB.\tnot_entailment\n",
    "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tnot_entailment\n1\tA.\tA.\tentailment\n",
    "WNLI/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n1\tA.\tC.\t0\n",
}


@pytest.mark.parametrize(
    ("task", "first", "count"),
    [
        ("cola", TextExample("The car honked.", None, "1"), 2),
        ("sst2", TextExample('a "fine film', None, "1"), 2),
        ("mrpc", TextExample("One.", "Uno.", "1"), 2),
        ("qqp", TextExample("Why?", "How?", "0", "5"), 2),
        ("stsb", TextExample("One.", "Uno.", 5.0, "0"), 2),
        ("mnli", TextExample("A.", "B.", "neutral", "0"), 2),
        ("qnli", TextExample("Q?", "A.", "entailment", "0"), 2),
        ("rte", TextExample("A.", "B.", "not_entailment", "0"), 2),
        ("wnli", TextExample("A.", "B.", "1", "0"), 2),
    ],
)
def test_the_tasks_of_glue(tmp_path: Path, write: Write, task: str, first: TextExample, count: int) -> None:
    for name, content in GLUE_FILES.items():
        write(name, content)
    splits = load_splits({"train": glue(tmp_path, task, "train")})
    example = splits.examples["train"][0]
    assert (example.text, example.text_pair, example.label) == (first.text, first.text_pair, first.label)
    assert example.id == first.id or not first.id
    assert len(splits.examples["train"]) == count
    assert splits.labels is not None
    assert splits.labels.kind.problem_type == (CLASSES if GLUE_TASKS[task].names else NUMBERS)
    assert splits.labels.names == (GLUE_TASKS[task].names or ("LABEL_0",))


def test_faults_and_splits_of_glue(tmp_path: Path, write: Write) -> None:
    for name, content in GLUE_FILES.items():
        write(name, content)
    assert (
        report_of(glue(tmp_path / "QQP", "qqp", "train"))
        .problems["malformed"]
        .first[0]
        .endswith("line 3: 4 cells, expected 6")
    )
    assert report_of(glue(tmp_path, "mnli", "train")).problems["unlabeled"].count == 1
    assert list(glue(tmp_path, "cola", "test")) == [TextExample("Bill whistled.", None, None, "0")]
    write("MNLI/dev_mismatched.tsv", "index\tsentence1\tsentence2\tgold_label\n0\tA.\tB.\tentailment\n")
    assert len(list(glue(tmp_path, "mnli", "validation_mismatched"))) == 1
    with pytest.raises(ConfigError, match="Expected one of train, validation_matched, validation_mismatched"):
        glue(tmp_path, "mnli", "validation")
    with pytest.raises(ConfigError, match="Did you mean 'sst2'"):
        glue(tmp_path, "sst-2", "train")
    with pytest.raises(DataError, match=r"dev.tsv: no such file. Expected the folder RTE"):
        glue(tmp_path, "rte", "validation")
    with pytest.raises(DataError, match=r"no column 'question'. The columns are index, sentence1"):
        glue(tmp_path / "RTE", "qnli", "train")


def test_predicting_for_glue_loses_no_row(tmp_path: Path, write: Write) -> None:
    content = GLUE_FILES["QQP/train.tsv"]
    write("QQP/dev.tsv", content)
    read, reader = TextClassification().reader, DataOptions(glue="qqp")
    source = str(tmp_path / "QQP" / "validation")
    assert len(list(read(source, reader))) == 2
    with pytest.raises(DataError, match=r"dev\.tsv, line 3: malformed \(4 cells, expected 6\)"):
        list(read(source, reader, labeled=False))
    with pytest.raises(DataError, match=r"dev\.tsv, line 3: malformed \(4 cells, expected 6\)"):
        list(glue(tmp_path, "qqp", "validation", labeled=False, example_class=PairExample))
    write("QQP/dev.tsv", content.replace("\t3\t4\tEh?\n", "\t3\t4\tEh?\t\t-\n"))
    found = list(read(source, reader, labeled=False))
    assert [(one.text, one.text_pair, one.label) for one in found] == [
        ("Why?", "How?", None), ("Eh?", "", None), ("A?", "B?", None)
    ]  # fmt: skip
