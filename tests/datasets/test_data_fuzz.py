"""Fuzz tests of data: damaged labeled files, inputs and corpora.

A reader returns or raises an error of albertkit, in bounded memory and time.
"""

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from structural_fuzz import (
    DATA_CASES,
    DATA_GROWTH,
    count_refused,
    damaged,
    damaged_files,
    damaged_json,
    damaged_json_files,
    mutated,
    rewritten,
)

from albertkit.datasets.inputs import NumberedInputs
from albertkit.datasets.options import DataOptions
from albertkit.pretraining.corpus import Corpus
from albertkit.tasks.loading import load_splits
from albertkit.tasks.registry import task_of

TEXTS = [
    {"text": f"the river {n}", "pair": "it's", "label": ["new", "old"][n % 2], "id": n} for n in range(8)
]
WORDS = [{"tokens": ["the", "river"], "ner_tags": ["O", "B-LOC"]} for _ in range(4)]
QUESTIONS = [
    {"question": "who?", "context": "Anne was.", "answers": {"text": ["Anne"], "answer_start": [0]}}
    for _ in range(4)
]
CHOICES = [
    {"sent1": "It rained.", "sent2": "He", **{f"ending{n}": f"end {n}" for n in range(4)}, "label": 1}
    for _ in range(4)
]
PAIRS = [{"text": "a", "pair": "b", "label": 0.5} for _ in range(4)]
ANSWER = {"text": "Anne", "answer_start": 0}
ASKED: list[dict[str, Any]] = [{"id": str(n), "question": "who?", "answers": [ANSWER]} for n in range(3)]
ASKED.append({"id": "3", "question": "who?", "is_impossible": True, "answers": []})
SQUAD = {"data": [{"paragraphs": [{"context": "Anne opened the harbour.", "qas": ASKED}]}]}
RACE = {"article": "It rained.", "questions": ["What?"], "options": [["a", "b", "c", "d"]], "answers": ["A"]}
TABLES = {
    "text-classification": TEXTS,
    "token-classification": WORDS,
    "question-answering": QUESTIONS,
    "multiple-choice": CHOICES,
    "sentence-embedding": PAIRS,
}


def read_labeled(task: str, path: Path, options: DataOptions | None = None) -> None:
    own = task_of(task)
    load_splits(own, {"data": own.reader(str(path), options or DataOptions())})


def json_lines(rows: list[Any], seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(DATA_CASES):
        if rng.random() < 0.3:
            yield damaged("\n".join(map(json.dumps, rows)).encode(), rng)
        else:
            lines = [json.dumps(row).encode() for row in rows]
            lines[rng.randrange(len(lines))] = damaged_json(rng.choice(rows), rng)
            yield b"\n".join(lines)


@pytest.mark.parametrize("task", TABLES)
def test_json_lines(tmp_path: Path, task: str) -> None:
    path = tmp_path / "x.jsonl"
    cases = rewritten(path, json_lines(TABLES[task], seed=1))
    count_refused(lambda: read_labeled(task, path), cases, largest_growth=DATA_GROWTH)


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_delimited_tables(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    mark = "," if ending == "csv" else "\t"
    rows = [[*TEXTS[0]], *([str(cell) for cell in row.values()] for row in TEXTS)]
    path.write_text("\n".join(mark.join(row) for row in rows) + "\n")
    cases = damaged_files(path, seed=2, cases=DATA_CASES)
    count_refused(lambda: read_labeled("text-classification", path), cases, largest_growth=DATA_GROWTH)


def tables(rows: list[Any], rng: random.Random) -> Iterator[pa.Table]:
    """Yield tables with values of other types."""
    while True:
        value = mutated(rows, rng)
        try:
            table = pa.Table.from_pylist([row for row in value if isinstance(row, dict)])
            parquet.write_table(table, io.BytesIO())
        except Exception:  # Parquet cannot store the table
            continue
        yield table


@pytest.mark.parametrize("task", TABLES)
def test_parquet(tmp_path: Path, task: str) -> None:
    path, rng = tmp_path / "x.parquet", random.Random(3)
    parquet.write_table(pa.Table.from_pylist(TABLES[task]), path)
    whole = path.read_bytes()
    made = tables(TABLES[task], rng)

    def contents() -> Iterator[bytes]:
        for _ in range(DATA_CASES):
            if rng.random() < 0.5:
                yield damaged(whole, rng)
            else:
                parquet.write_table(next(made), path)
                yield path.read_bytes()

    cases = rewritten(path, contents())
    count_refused(lambda: read_labeled(task, path), cases, largest_growth=DATA_GROWTH)


def test_arrow_folders(tmp_path: Path) -> None:
    """Damage the files of the library `datasets`: the state, the names of the classes and the stream."""
    note = {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}
    table = pa.Table.from_pylist([{"text": "a", "label": n % 2} for n in range(8)])
    state, stream, rng = tmp_path / "state.json", tmp_path / "data.arrow", random.Random(4)

    def write(note: bytes) -> bytes:
        stream.unlink(missing_ok=True)
        noted = table.replace_schema_metadata({"huggingface": note})
        with pa.OSFile(str(stream), "wb") as file, pa.ipc.new_stream(file, noted.schema) as writer:
            writer.write_table(noted)
        return stream.read_bytes()

    def contents() -> Iterator[bytes]:
        whole_state = {"_data_files": [{"filename": "data.arrow"}], "_split": "train"}
        whole = write(json.dumps(note).encode())
        for _ in range(DATA_CASES):
            state.write_text(json.dumps(whole_state))
            match rng.randrange(3):
                case 0:
                    yield write(damaged_json(note, rng))
                case 1:
                    write(json.dumps(note).encode())
                    state.write_bytes(damaged_json(whole_state, rng))
                    yield state.read_bytes()
                case _:
                    stream.unlink()
                    stream.write_bytes(damaged(whole, rng))
                    yield stream.read_bytes()

    count_refused(
        lambda: read_labeled("text-classification", tmp_path), contents(), largest_growth=DATA_GROWTH
    )


@pytest.mark.parametrize(
    ("name", "value", "task"),
    [("squad.json", SQUAD, "question-answering"), ("middle/1.txt", RACE, "multiple-choice")],
    ids=["SQuAD", "RACE"],
)
def test_json_files_of_data_sets(tmp_path: Path, name: str, value: Any, task: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
    source = path if task == "question-answering" else tmp_path
    cases = damaged_json_files(path, seed=5, cases=DATA_CASES)
    count_refused(lambda: read_labeled(task, source), cases, largest_growth=DATA_GROWTH)


CONLL = "-DOCSTART- -X- O\n\nThe DT O\nriver NN B-LOC\n\nAnne NNP B-PER\nsang VBD O\n"


@pytest.mark.parametrize(
    ("name", "content", "task", "options"),
    [
        ("x.conll", CONLL, "token-classification", {}),
        ("CoLA/train.tsv", "a\t1\t*\tHe sang.\nb\t0\t*\tSang he.\n", "text-classification", {"glue": "cola"}),
        (
            "RTE/train.tsv",
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n",
            "text-classification",
            {"glue": "rte"},
        ),
    ],
    ids=["CoNLL", "CoLA", "RTE"],
)
def test_text_files_of_data_sets(tmp_path: Path, name: str, content: str, task: str, options: dict) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    source = path.parent / "train" if options else path
    read = lambda: read_labeled(task, source, DataOptions(**options))  # noqa: E731
    count_refused(read, damaged_files(path, seed=6, cases=DATA_CASES), largest_growth=DATA_GROWTH)


@pytest.mark.parametrize("format", ["lines", "tsv", "jsonl"])
def test_inputs(tmp_path: Path, format: Any) -> None:
    path = tmp_path / "x"
    rows = [{"text": "a", "pair": "b"}, "text", {"text": "c"}]
    path.write_text("a\tb\nc\td\n")

    def read() -> None:
        with path.open("rb") as stream:
            list(NumberedInputs.read(stream, "x", format=format, fields=("text", "pair")))

    cases = (
        rewritten(path, json_lines(rows, seed=7))
        if format == "jsonl"
        else damaged_files(path, seed=7, cases=DATA_CASES)
    )
    count_refused(read, cases, largest_growth=DATA_GROWTH)


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".jsonl", ".parquet"])
def test_corpora(tmp_path: Path, ending: str) -> None:
    import gzip

    path, rng = tmp_path / f"x{ending}", random.Random(8)
    text = "The river.\nIt is.\n\nAnne sang.\n"
    if ending == ".parquet":
        parquet.write_table(pa.table({"text": [text] * 4}), path)
    else:
        path.write_bytes(text.encode())
    whole = path.read_bytes()

    def contents() -> Iterator[bytes]:
        for _ in range(DATA_CASES):
            if ending == ".txt.gz":
                packed = gzip.compress(text.encode(), mtime=0)
                yield damaged(packed, rng) if rng.random() < 0.5 else gzip.compress(damaged(whole, rng))
            else:
                yield damaged(whole, rng)

    cases = json_lines([{"text": text}] * 3, seed=8) if ending == ".jsonl" else contents()
    count_refused(
        lambda: list(Corpus([str(path)], text_column="text")),
        rewritten(path, cases),
        largest_growth=DATA_GROWTH,
    )
