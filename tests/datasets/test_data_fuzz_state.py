"""Fuzz tests of state: damaged shards, recipes, reports, predictions, runs and weights.

A reader returns or raises an error of albertkit, in bounded memory and time.
"""

import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from structural_fuzz import (
    DATA_CASES,
    DATA_GROWTH,
    WRONG,
    count_refused,
    damaged,
    damaged_files,
    damaged_json,
    damaged_json_files,
    rewritten,
)

from albertkit.checkpoints.folder import read_folder, read_h5, write_folder
from albertkit.finetuning.predict import ENDINGS, convert, resume
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained import data_options, task_settings
from albertkit.pretraining.prepare import PreparedFolder
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.pretraining.shards import Manifest, ShardBuilder, ShardRecord, ShardSet
from albertkit.recipe import build, read_recipe
from albertkit.tasks.registry import task_of
from albertkit.training.checkpoints import checkpoints, load_checkpoint, save_checkpoint
from albertkit.training.state import RunState


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    builder = ShardBuilder(500)
    for n in range(4):
        builder.add([[1, 2, 3], [n + 1]])
    record, content = builder.finish("shard-00000.arrow")
    (tmp_path / record.file).write_bytes(content)
    Manifest(
        tokenizer_sha256="x", vocabulary_size=500, documents=4, sentences=8, tokens=16, seed=0, settings={},
        shards=(record,),
    ).write(tmp_path)  # fmt: skip
    return tmp_path


def read_shards(folder: Path) -> None:
    found = ShardSet(folder)
    for n in range(min(len(found), 8)):
        found.tokens(n)


def test_manifests(shards: Path) -> None:
    refused = count_refused(
        lambda: read_shards(shards), damaged_json_files(shards / "manifest.json", seed=9, cases=DATA_CASES)
    )
    assert refused > DATA_CASES * 0.5


def test_shard_files(shards: Path) -> None:
    path, rng = shards / "shard-00000.arrow", random.Random(10)
    whole = path.read_bytes()
    contents = (damaged(whole, rng) for _ in range(DATA_CASES))
    count_refused(lambda: read_shards(shards), rewritten(path, contents))


def test_notes_of_finished_units(tmp_path: Path) -> None:
    record = ShardRecord(file="shard-00000.arrow", sha256="x", documents=1, sentences=1, tokens=1)
    note = tmp_path / ".progress" / "00000.json"
    note.parent.mkdir()
    note.write_text(json.dumps({"fingerprint": "x", "records": {"train": vars(record)}}))
    damaged_notes = damaged_json_files(note, seed=11, cases=DATA_CASES)
    # A damaged note means that the unit is not finished.
    assert count_refused(PreparedFolder(tmp_path).finished, damaged_notes) == 0


@pytest.mark.parametrize("settings", [PretrainingSettings, FinetuningSettings])
def test_recipes(tmp_path: Path, settings: type) -> None:
    path, rng = tmp_path / "recipe.toml", random.Random(12)
    top = {"batch_size": 8, "evaluation_sequences": 16, "epochs": 2, "learning_rate": 1e-3, "seed": 1}
    tables = {"model": {"hidden_size": 32}, "training": {"steps": 4}, "task": {"max_length": 24}}

    def line(name: str, value: Any) -> str:
        written = json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
        return f"{name} = {written}\n"

    def contents() -> Iterator[bytes]:
        for _ in range(DATA_CASES):
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

    count_refused(read, damaged_json_files(path, seed=13, cases=DATA_CASES))


def test_the_file_of_an_interrupted_prediction(tmp_path: Path) -> None:
    about = {"task": "text-classification", "part_size": 2, "model_sha256": "x"}
    record = {"row": 1, "label": "new", "score": 0.5, "scores": {"new": 0.5, "old": 0.5}, "cut": 3}
    path, output, rng = tmp_path / "partial.jsonl", tmp_path / "out", random.Random(14)
    head, line = json.dumps(about).encode() + b"\n", json.dumps(record).encode() + b"\n"

    def read() -> None:
        if resume(path, about, part_size=2):
            for ending in set(ENDINGS) - {".npy"}:  # its records are binary
                convert(path, output.with_suffix(ending))

    def contents() -> Iterator[bytes]:
        for _ in range(DATA_CASES // 2):
            yield damaged_json(about, rng) + b"\n" + line * 2
            yield head + line + damaged_json(record, rng) + b"\n"

    count_refused(read, rewritten(path, contents()), largest_growth=DATA_GROWTH)


def test_run_states(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = RunState(output=tmp_path, step=3, position={"epoch": 1})
    fingerprint = {"precision": "fp32", "settings": {"seed": 1}}
    save_checkpoint(
        state,
        optimizer=optimizer,
        save_model=lambda folder: write_folder(folder, {}, dict(model.state_dict())),
        fingerprint=fingerprint,
        keep=1,
    )

    (folder,) = checkpoints(tmp_path)

    def read() -> None:
        load_checkpoint(folder, model=model, optimizer=optimizer, fingerprint=fingerprint)

    read()
    count_refused(read, damaged_json_files(folder / "training_state.json", seed=15, cases=DATA_CASES))
    count_refused(read, damaged_files(folder / "training_state.safetensors", seed=16, cases=DATA_CASES // 3))


def test_indexes_of_shards(tmp_path: Path) -> None:
    tensors = {f"t{n}": np.ones(50, "f4") for n in range(4)}
    write_folder(tmp_path, {}, tensors, max_shard_size=250)
    index = tmp_path / "model.safetensors.index.json"
    assert (
        count_refused(lambda: read_folder(tmp_path), damaged_json_files(index, seed=17, cases=DATA_CASES))
        > DATA_CASES * 0.4
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
    contents = (damaged(whole, rng) for _ in range(DATA_CASES))
    refused = count_refused(lambda: read_h5(path), rewritten(path, contents))
    assert refused > DATA_CASES * 0.2


def test_pickled_weights(tmp_path: Path) -> None:
    path, rng = tmp_path / "pytorch_model.bin", random.Random(19)
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": torch.ones(20)}, path)
    assert zipfile.is_zipfile(path)
    whole = path.read_bytes()
    contents = (damaged(whole, rng) for _ in range(DATA_CASES))
    count_refused(lambda: read_folder(tmp_path), rewritten(path, contents))
