"""Tests of the scripts that write the table of the bundled model and compute its baselines."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from random_models import save_random_model

from albertkit.modeling.model import AlbertModel
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("blank_pictures")

END = "<!-- end of table -->"


@pytest.fixture
def scripts(script: Callable[[str], ModuleType]) -> tuple[ModuleType, ModuleType]:
    return script("task_figures"), script("task_baselines")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    texts = [("a good day", 1), ("a bad day", 0), ("good and good", 1), ("bad and bad", 0)]
    pairs = [("a good day", "a day", "YES"), ("a bad day", "a night", "NO")]
    question = {
        "question": "Where did the captain sleep?",
        "answers": [{"text": "his cabin", "answer_start": 38}],
    }
    context = "The sea is blue. The captain slept in his cabin."
    articles = [
        {"title": "t", "paragraphs": [{"context": context, "qas": [question | {"id": str(number)}]}]}
        for number in range(4)
    ]
    files = {
        **dict.fromkeys(
            ("sst2/train.tsv", "sst2/dev.tsv"), "".join(f"{text}\t{label}\n" for text, label in texts)
        ),
        **dict.fromkeys(
            [
                f"rte/{name}.xml"
                for name in ("rte1_dev", "rte1_test", "rte2_dev", "rte2_test", "rte3_dev", "rte3_test")
            ],
            "<entailment-corpus>"
            + "".join(
                f'<pair id="{number}" entailment="{label}"><t>{text}</t><h>{other}</h></pair>'
                for number, (text, other, label) in enumerate(pairs)
            )
            + "</entailment-corpus>",
        ),
        **dict.fromkeys(
            ("conll2000/train.txt", "conll2000/test.txt"), "The DT B-NP\nsea NN I-NP\nshone VB B-VP\n\n" * 4
        ),
        "xquad/xquad.en.json": json.dumps({"version": "1.1", "data": articles}),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_every_cell_is_filled(
    scripts, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    figures, _ = scripts
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    sizes = {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 512}
    save_random_model(AlbertModel, tokenizer, tmp_path / "model", **sizes)
    for name, row in figures.TASKS.items():
        settings = row.settings | {"epochs": 1, "batch_size": 4}
        monkeypatch.setitem(figures.TASKS, name, replace(row, settings=settings))
    monkeypatch.setitem(figures.SEEDS, "pretrained", 2)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{figures.BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr(figures, "PAGE", page)
    monkeypatch.setattr(figures, "KEPT", tmp_path / "kept.jsonl")
    command = ["task_figures.py", "--data", str(data), "--output", str(tmp_path / "runs"), "--write-page"]
    monkeypatch.setattr(sys, "argv", [*command, "--model", str(tmp_path / "model"), "--only", "xquad"])
    figures.main()
    text = page.read_text()
    assert text.startswith(f"before\n{figures.BEGIN}\n| |")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    rows = [line.split("|") for line in text.splitlines() if "±" in line and line.startswith("|")]
    assert [row[1].partition(",")[0].strip() for row in rows] == ["XQuAD in English"]
    for name, row in zip(("xquad",), rows, strict=True):
        for start, cell in (("random", row[3]), ("pretrained", row[4])):
            seeds = json.loads((tmp_path / "runs" / name / start / "seeds.json").read_text())
            for metric in figures.TASKS[name].metrics:
                results = seeds[metric]
                assert f"{results['mean']:.3f} ± {results['deviation']:.3f}" in cell
                assert results["mean"] == pytest.approx(sum(results["values"]) / 2)

    # The script measures again only if the model or the settings have changed.
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(figures, "finetune", refuse)
    figures.main()
    assert page.read_text() == text
    save_random_model(AlbertModel, tokenizer, tmp_path / "model", seed=1, **sizes)
    with pytest.raises(AssertionError, match="measured again"):
        figures.main()


def test_the_baselines_solve_easy_data(scripts, data: Path, tmp_path: Path) -> None:
    figures, baselines = scripts
    metrics = {}
    for name, row in figures.TASKS.items():
        (tmp_path / name).mkdir()
        metrics[name] = baselines.BASELINES[name](*row.files(data, tmp_path / name))
    assert metrics == {
        "sst2": {"TF-IDF + logistic regression": "1.000", "majority": "0.500"},
        "rte": {"TF-IDF + logistic regression": "1.000", "majority": "0.500", "word overlap": "1.000"},
        "conll2000": {"linear tagger": "1.000", "most frequent tag of each word": "1.000"},
        "xquad": {"nearest sentence": "0.000 / 0.571"},
    }
