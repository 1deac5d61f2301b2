"""Damaged data and state: labeled files, corpora, shards, recipes, reports, parts of predictions, runs.

As in test_reader_fuzz.py: a reader returns or raises one of our errors, in bounded memory and time.
"""

import io
import json
import os
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from structural_fuzz import (
    MEGABYTE,
    WRONG,
    count_refused,
    damaged,
    damaged_files,
    damaged_json,
    damaged_json_files,
    mutated,
)

from albertkit.checkpoints.folder import read_folder, write_folder
from albertkit.checkpoints.keras_file import read_h5
from albertkit.datasets.options import DataOptions
from albertkit.finetuning.predict import _kept
from albertkit.finetuning.prediction_files import WRITERS, checked_records
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained import data_options, task_settings
from albertkit.inputs import read_inputs
from albertkit.pretraining.corpus import Corpus
from albertkit.pretraining.prepared_folder import PreparedFolder
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.pretraining.shards import Manifest, ShardBuilder, ShardRecord, ShardSet
from albertkit.recipe import build, read_recipe
from albertkit.tasks.loading import load_splits
from albertkit.tasks.registry import task_of
from albertkit.training.run_state import RunState
from albertkit.training.state import load_checkpoint, save_checkpoint

CASES = int(os.environ.get("ALBERTKIT_FUZZ_CASES", "60"))
"""Fewer than in test_reader_fuzz.py, for more readers."""
LARGER = 24 * MEGABYTE
"""Readers in blocks of a megabyte take some of them."""
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
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Anne opened the harbour.",
                    "qas": [
                        {
                            "id": str(n),
                            "question": "who?",
                            "is_impossible": n == 3,
                            "answers": [{"text": "Anne", "answer_start": 0}] * (n < 3),
                        }
                        for n in range(4)
                    ],
                }
            ]
        }
    ]
}
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


def rewritten(path: Path, contents: Iterator[bytes]) -> Iterator[bytes]:
    for content in contents:
        path.unlink(missing_ok=True)  # what an earlier case has mapped must not change
        path.write_bytes(content)
        yield content


def json_lines(rows: list[Any], seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(CASES):
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
    count_refused(lambda: read_labeled(task, path), cases, largest_growth=LARGER)


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_delimited_tables(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    mark = "," if ending == "csv" else "\t"
    rows = [[*TEXTS[0]], *([str(cell) for cell in row.values()] for row in TEXTS)]
    path.write_text("\n".join(mark.join(row) for row in rows) + "\n")
    cases = damaged_files(path, seed=2, cases=CASES)
    count_refused(lambda: read_labeled("text-classification", path), cases, largest_growth=LARGER)


def tables(rows: list[Any], rng: random.Random) -> Iterator[pa.Table]:
    """Yield tables of swapped types."""
    while True:
        value = mutated(rows, rng)
        try:
            table = pa.Table.from_pylist([row for row in value if isinstance(row, dict)])
            parquet.write_table(table, io.BytesIO())
        except Exception:  # no file can hold it
            continue
        yield table


@pytest.mark.parametrize("task", TABLES)
def test_parquet(tmp_path: Path, task: str) -> None:
    path, rng = tmp_path / "x.parquet", random.Random(3)
    parquet.write_table(pa.Table.from_pylist(TABLES[task]), path)
    whole = path.read_bytes()
    made = tables(TABLES[task], rng)

    def contents() -> Iterator[bytes]:
        for _ in range(CASES):
            if rng.random() < 0.5:
                yield damaged(whole, rng)
            else:
                parquet.write_table(next(made), path)
                yield path.read_bytes()

    cases = rewritten(path, contents())
    count_refused(lambda: read_labeled(task, path), cases, largest_growth=LARGER)


def test_arrow_folders(tmp_path: Path) -> None:
    """Of the library `datasets`: its state, the names of classes, the stream."""
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
        for _ in range(CASES):
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

    count_refused(lambda: read_labeled("text-classification", tmp_path), contents(), largest_growth=LARGER)


@pytest.mark.parametrize(
    ("name", "value", "task"),
    [("squad.json", SQUAD, "question-answering"), ("middle/1.txt", RACE, "multiple-choice")],
    ids=["SQuAD", "RACE"],
)
def test_json_of_data_sets(tmp_path: Path, name: str, value: Any, task: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
    source = path if task == "question-answering" else tmp_path
    cases = damaged_json_files(path, seed=5, cases=CASES)
    count_refused(lambda: read_labeled(task, source), cases, largest_growth=LARGER)


CONLL = "-DOCSTART- -X- O\n\nThe DT O\nriver NN B-LOC\n\nAnne NNP B-PER\nsang VBD O\n"
ENTAILMENT = (
    '<?xml version="1.0"?><entailment-corpus>'
    + "".join(
        f'<pair id="{n}" entailment="YES" task="IE"><t>The river.</t><h>It is.</h></pair>' for n in range(4)
    )
    + "</entailment-corpus>"
)


@pytest.mark.parametrize(
    ("name", "content", "task", "options"),
    [
        ("x.conll", CONLL, "token-classification", {}),
        ("x.xml", ENTAILMENT, "text-classification", {}),
        ("CoLA/train.tsv", "a\t1\t*\tHe sang.\nb\t0\t*\tSang he.\n", "text-classification", {"glue": "cola"}),
        (
            "RTE/train.tsv",
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n",
            "text-classification",
            {"glue": "rte"},
        ),
    ],
    ids=["CoNLL", "XML", "CoLA", "RTE"],
)
def test_text_of_data_sets(tmp_path: Path, name: str, content: str, task: str, options: dict) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    source = path.parent / "train" if options else path
    read = lambda: read_labeled(task, source, DataOptions(**options))  # noqa: E731
    count_refused(read, damaged_files(path, seed=6, cases=CASES), largest_growth=LARGER)


@pytest.mark.parametrize("format", ["lines", "tsv", "jsonl"])
def test_inputs(tmp_path: Path, format: Any) -> None:
    path = tmp_path / "x"
    rows = [{"text": "a", "pair": "b"}, "text", {"text": "c"}]
    path.write_text("a\tb\nc\td\n")

    def read() -> None:
        with path.open("rb") as stream:
            list(read_inputs(stream, "x", format=format, fields=("text", "pair")))

    cases = (
        rewritten(path, json_lines(rows, seed=7))
        if format == "jsonl"
        else damaged_files(path, seed=7, cases=CASES)
    )
    count_refused(read, cases, largest_growth=LARGER)


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
        for _ in range(CASES):
            if ending == ".txt.gz":
                packed = gzip.compress(text.encode(), mtime=0)
                yield damaged(packed, rng) if rng.random() < 0.5 else gzip.compress(damaged(whole, rng))
            else:
                yield damaged(whole, rng)

    cases = json_lines([{"text": text}] * 3, seed=8) if ending == ".jsonl" else contents()
    count_refused(
        lambda: list(Corpus.find([str(path)], text_column="text")),
        rewritten(path, cases),
        largest_growth=LARGER,
    )


# --- shards -------------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    builder = ShardBuilder(500)
    for n in range(4):
        builder.add([[1, 2, 3], [n + 1]])
    shard = builder.finish("shard-00000.arrow")
    (tmp_path / shard.record.file).write_bytes(shard.content)
    Manifest(
        tokenizer_sha256="x", vocabulary_size=500, documents=4, sentences=8, tokens=16, seed=0, settings={},
        shards=(shard.record,),
    ).write(tmp_path)  # fmt: skip
    return tmp_path


def read_shards(folder: Path) -> None:
    found = ShardSet(folder)
    for n in range(min(len(found), 8)):
        found.document(n)


def test_manifests(shards: Path) -> None:
    refused = count_refused(
        lambda: read_shards(shards), damaged_json_files(shards / "manifest.json", seed=9, cases=CASES)
    )
    assert refused > CASES * 0.5


def test_shard_files(shards: Path) -> None:
    path, rng = shards / "shard-00000.arrow", random.Random(10)
    whole = path.read_bytes()
    contents = (damaged(whole, rng) for _ in range(CASES))
    count_refused(lambda: read_shards(shards), rewritten(path, contents))


def test_notes_of_finished_units(tmp_path: Path) -> None:
    record = ShardRecord(file="shard-00000.arrow", sha256="x", documents=1, sentences=1, tokens=1)
    note = tmp_path / ".progress" / "00000.json"
    note.parent.mkdir()
    note.write_text(json.dumps({"fingerprint": "x", "records": {"train": vars(record)}}))
    refused = count_refused(PreparedFolder(tmp_path).finished, damaged_json_files(note, seed=11, cases=CASES))
    assert refused > CASES * 0.5


# --- settings and reports -----------------------------------------------------------------------


@pytest.mark.parametrize("settings", [PretrainingSettings, FinetuningSettings])
def test_recipes(tmp_path: Path, settings: type) -> None:
    path, rng = tmp_path / "recipe.toml", random.Random(12)
    top = {"batch_size": 8, "evaluation_sequences": 16, "epochs": 2, "learning_rate": 1e-3, "seed": 1}
    tables = {"model": {"hidden_size": 32}, "training": {"steps": 4}, "task": {"max_length": 24}}

    def line(name: str, value: Any) -> str:
        written = json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
        return f"{name} = {written}\n"

    def contents() -> Iterator[bytes]:
        for _ in range(CASES):
            text = "".join(line(*item) for item in top.items() if rng.random() < 0.5)
            name, table = rng.choice(list(tables.items()))
            text += f"[{name}]\n" + "".join(line(*item) for item in table.items())
            if rng.random() < 0.6:
                name = rng.choice([*top, *table])
                wrong = [one for one in WRONG if not isinstance(one, dict) and one != "\ud800"]
                text = text.replace(f"{name} = ", f"{name} = {line('', rng.choice(wrong))[3:-1]} # ")
            if rng.random() < 0.05:
                text += "x = " + "[" * 5000
            yield damaged(text.encode(), rng) if rng.random() < 0.4 else text.encode()

    count_refused(lambda: build(settings, read_recipe(path), where="recipe"), rewritten(path, contents()))


def test_reports(tmp_path: Path) -> None:
    data = tmp_path / "x.csv"
    data.write_text("sentence,kind\na,new\n")
    report = {
        "settings": {"task": {"max_length": 24, "truncation": True}},
        "columns": {"text_column": "sentence", "label_column": "kind", "header": True},
        "metrics": {"accuracy": 0.5},
    }
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))

    def read() -> None:
        task_settings(tmp_path, {})
        data_options(tmp_path, task_of("text-classification"), str(data), {}, labeled=True)

    count_refused(read, damaged_json_files(path, seed=13, cases=CASES))


# --- what goes on -------------------------------------------------------------------------------


def test_parts_of_predictions(tmp_path: Path) -> None:
    about = {"task": "text-classification", "part_size": 2, "model_sha256": "x"}
    record = {"row": 1, "label": "new", "score": 0.5, "scores": {"new": 0.5, "old": 0.5}, "cut": 3}
    (tmp_path / "about.json").write_text(json.dumps(about))
    part, rng = tmp_path / "00000000.jsonl", random.Random(14)
    output = tmp_path / "out"

    def read() -> None:
        if _kept(tmp_path, about):
            list(checked_records(tmp_path))
            for write in WRITERS.values():
                write(tmp_path, output)

    for path, value in ((tmp_path / "about.json", about), (part, record)):
        part.write_text((json.dumps(record) + "\n") * 2)
        (tmp_path / "about.json").write_text(json.dumps(about))
        contents = (damaged_json(value, rng) for _ in range(CASES // 2))
        count_refused(read, rewritten(path, contents), largest_growth=LARGER)


def test_run_states(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state, fingerprint = RunState(step=3, position={"epoch": 1}), {"settings": {"seed": 1}}
    folder = save_checkpoint(
        tmp_path,
        state,
        optimizer=optimizer,
        save_model=lambda folder: write_folder(folder, {}, dict(model.state_dict())),
        fingerprint=fingerprint,
        keep=1,
    )

    def read() -> None:
        load_checkpoint(folder, model=model, optimizer=optimizer, fingerprint=fingerprint, defaults={})

    read()
    count_refused(read, damaged_json_files(folder / "training_state.json", seed=15, cases=CASES))
    count_refused(read, damaged_files(folder / "training_state.safetensors", seed=16, cases=CASES // 3))


# --- weights ------------------------------------------------------------------------------------


def test_indexes_of_shards(tmp_path: Path) -> None:
    tensors = {f"t{n}": np.ones(50, "f4") for n in range(4)}
    write_folder(tmp_path, {}, tensors, max_shard_size=250)
    index = tmp_path / "model.safetensors.index.json"
    assert (
        count_refused(lambda: read_folder(tmp_path), damaged_json_files(index, seed=17, cases=CASES))
        > CASES * 0.4
    )


def test_h5_files(tmp_path: Path) -> None:
    path, rng = tmp_path / "tf_model.h5", random.Random(18)
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"layer", b"dropout"]
        file.create_group("dropout").attrs["weight_names"] = np.array([], dtype="S1")
        group = file.create_group("layer")
        group.attrs["weight_names0"], group.attrs["weight_names1"] = [b"a/kernel:0"], [b"a/bias:0"]
        group["a/kernel:0"], group["a/bias:0"] = np.ones((4, 8), "f4"), np.ones(8, "f4")
    whole = path.read_bytes()
    contents = (damaged(whole, rng) for _ in range(CASES))
    refused = count_refused(lambda: read_h5(path), rewritten(path, contents))
    assert refused > CASES * 0.2


def test_pickled_weights(tmp_path: Path) -> None:
    path, rng = tmp_path / "pytorch_model.bin", random.Random(19)
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": torch.ones(20)}, path)
    assert zipfile.is_zipfile(path)
    whole = path.read_bytes()
    contents = (damaged(whole, rng) for _ in range(CASES))
    count_refused(lambda: read_folder(tmp_path), rewritten(path, contents))
