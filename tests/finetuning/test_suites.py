"""Tests of suites: random models on small data in the official layouts, and the published metrics."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Run, assert_one_line_error
from json_lines import read_json_lines
from random_models import save_random_model

from albertkit.config import AlbertConfig
from albertkit.datasets.official import GLUE_TASKS
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.suites import DOWNSTREAM, SUITES, TABLES, average, evaluate_suite
from albertkit.finetuning.trained import task_settings
from albertkit.metrics import normalize_answer
from albertkit.modeling.heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
)
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.recipe import recipes
from albertkit.tasks.question_answering import THRESHOLD_KEY
from albertkit.tokenization.tokenizer import AlbertTokenizer

RECIPES = recipes()["squad1"].parent
CPU = torch.device("cpu")
COUNT = 12


def table(path: Path, header: str | None, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str]) -> Path:
    """`glue/` with five tasks, `squad/` and `race/` as they are distributed."""
    folder = tmp_path_factory.mktemp("data")
    lines = [line for text in tiny_texts[:20] for line in text.split("\n")]
    first, second = lines[:COUNT], lines[COUNT : 2 * COUNT]
    pairs = list(enumerate(zip(first, second, strict=True)))
    glue = folder / "glue"
    table(glue / "CoLA" / "dev.tsv", None, [f"x\t{number % 2}\t\t{one}" for number, (one, _) in pairs])
    table(
        glue / "SST-2" / "dev.tsv", "sentence\tlabel", [f"{one}\t{number % 2}" for number, (one, _) in pairs]
    )
    table(
        glue / "STS-B" / "dev.tsv",
        "index\tsentence1\tsentence2\tscore",
        [f"{number}\t{one}\t{two}\t{number % 5 + 0.5}" for number, (one, two) in pairs],
    )
    names = ("neutral", "entailment", "contradiction", "-")
    for split, shift in (("matched", 0), ("mismatched", 1)):
        table(
            glue / "MNLI" / f"dev_{split}.tsv",
            "index\tsentence1\tsentence2\tgold_label",
            [f"{number}\t{one}\t{two}\t{names[(number + shift) % 4]}" for number, (one, two) in pairs],
        )
    for version in ("1.1", "2.0"):
        asked = [
            {
                "id": f"{number}",
                "question": two,
                "answers": [{"text": one.split()[0], "answer_start": 0}] * (number % 2 or version == "1.1"),
                "is_impossible": version == "2.0" and number % 2 == 0,
            }
            for number, (one, two) in pairs
        ]
        paragraphs = [{"context": pair[1][0], "qas": [qa]} for pair, qa in zip(pairs, asked, strict=True)]
        squad = folder / "squad" / f"dev-v{version}.json"
        squad.parent.mkdir(exist_ok=True)
        squad.write_text(json.dumps({"version": version, "data": [{"paragraphs": paragraphs}]}))
    for number, (one, two) in pairs:
        text = {"article": one, "questions": [two], "options": [second[:4]], "answers": ["ABCD"[number % 4]]}
        race = folder / "race" / "test" / ("middle", "high")[number % 3 == 0] / f"{number}.txt"
        race.parent.mkdir(parents=True, exist_ok=True)
        race.write_text(json.dumps(text))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: AlbertTokenizer) -> Path:
    """Random models for all of these but SST-2, and for QNLI, which has no data."""
    folder = tmp_path_factory.mktemp("models")
    sizes = {"num_attention_heads": 2, "num_hidden_layers": 1, "max_position_embeddings": 512}

    def save(name: str, model_class: type[AlbertPreTrainedModel], **labels: Any) -> None:
        settings = sizes | {"initializer_range": 0.5} | labels
        save_random_model(model_class, tokenizer, folder / name, seed=len(name), **settings)

    for task, name in (("cola", "glue_cola"), ("mnli", "mnli"), ("qnli", "glue_qnli"), ("stsb", "glue_stsb")):
        of_glue = GLUE_TASKS[task].names
        labels = {
            "id2label": dict(enumerate(of_glue or ("score",))),
            "problem_type": "single_label_classification" if GLUE_TASKS[task].names else "regression",
        }
        save(name, AlbertForSequenceClassification, **labels)
    save("squad1", AlbertForQuestionAnswering)
    save("squad2", AlbertForQuestionAnswering)
    with_threshold = AlbertConfig.from_pretrained(folder / "squad2")
    with_threshold.extra[THRESHOLD_KEY] = 0.0
    with_threshold.save_pretrained(folder / "squad2")
    save("race", AlbertForMultipleChoice)
    return folder


def said(folder: Path) -> list[dict[str, Any]]:
    return read_json_lines(folder / "predictions.jsonl")


def share(true: list[Any], predicted: list[Any]) -> float:
    assert len(true) == len(predicted)
    return sum(one == other for one, other in zip(true, predicted, strict=True)) / len(true)


def cells(page: str, section: str, row: str) -> dict[str, str]:
    """Return a row of a table by the names of its columns."""
    lines = page.split(f"## {section}\n")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    (found,) = [one for one in rows if one[0] == row]
    return dict(zip(rows[0], found, strict=True))


def test_all_suites_at_once(data: Path, models: Path, tmp_path: Path, run: Run) -> None:
    result = run(
        "evaluate",
        "--suite",
        "all",
        "--data",
        data,
        "--model",
        models,
        "--output",
        tmp_path,
        "--device",
        "cpu",
    )
    assert result.status == 0, result.errors
    assert f"skipping sst2: no model at {models}/glue_sst2" in result.errors
    assert f"skipping qnli: no data at {data}/QNLI" in result.errors
    assert f"skipping race_dev: no data at {data}/dev" in result.errors
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["suite"], report["model"]) == ("all", str(models))
    assert [*report["measurements"]] == [one.name for one in SUITES["all"]]
    found = {name: one["metrics"] for name, one in report["measurements"].items() if "metrics" in one}
    assert {*found} == {"cola", "mnli", "mnli_mismatched", "stsb", "squad1", "squad2", "race_test"}

    # Counted again, from the files themselves.
    for name, split in (("mnli", "matched"), ("mnli_mismatched", "mismatched")):
        with (data / "glue" / "MNLI" / f"dev_{split}.tsv").open() as file:
            labels = [row["gold_label"] for row in csv.DictReader(file, delimiter="\t")]
        labels = [label for label in labels if label != "-"]
        assert found[name]["accuracy"] == share(labels, [one["label"] for one in said(tmp_path / name)])
    labels = [str(number % 2) for number in range(COUNT)]
    predicted = [one["label"] for one in said(tmp_path / "cola")]
    assert found["cola"]["accuracy"] == share(labels, predicted)
    matthews = np.corrcoef([*map(int, labels)], [*map(int, predicted)])[0, 1] if len({*predicted}) > 1 else 0
    assert found["cola"]["matthews"] == pytest.approx(matthews)
    scores = [one["label"] for one in said(tmp_path / "stsb")]
    pearson = np.corrcoef([number % 5 + 0.5 for number in range(COUNT)], scores)[0, 1]
    assert found["stsb"]["pearson"] == pytest.approx(pearson)
    assert abs(pearson) > 0.01
    chosen = {one["id"]: one["choice"] for one in said(tmp_path / "race_test")}
    parts: dict[str, list[bool]] = {"middle": [], "high": []}
    for name, choice in chosen.items():
        part, number, _ = re.split("[/-]", name)
        parts[part].append(choice == int(number) % 4)
    assert {part: found["race_test"][part] for part in parts} == {
        part: pytest.approx(np.mean(right)) for part, right in parts.items()
    }
    answers = [
        normalize_answer(one["answer"]) for one in said(tmp_path / "squad2")
    ]  # of "the" nothing is left
    assert found["squad2"]["no_answer_exact"] == share([""] * (COUNT // 2), answers[::2])

    page = (tmp_path / "report.md").read_text()
    assert page == result.output.rstrip("\n") + "\n"
    row = cells(page, DOWNSTREAM.title, f"**{models}**")
    assert row["SQuAD1.1"] == f"{100 * found['squad1']['f1']:.1f}/{100 * found['squad1']['exact']:.1f}"
    assert row["SQuAD2.0"] == f"{100 * found['squad2']['f1']:.1f}/{100 * found['squad2']['exact']:.1f}"
    assert row["MNLI"] == f"{100 * found['mnli']['accuracy']:.1f}"
    assert (row["SST-2"], row["RACE"], row["Average"]) == ("missing", "missing", "-")
    row = cells(page, "GLUE, development sets", f"**{models}**")
    assert row["CoLA"] == f"{100 * matthews:.1f}"
    assert row["STS-B"] == f"{100 * pearson:.1f}"
    assert cells(page, DOWNSTREAM.title, "albert-base-v2")["SQuAD2.0"] == "82.1/79.3"
    assert cells(page, DOWNSTREAM.title, "albert-base-v2")["Average"] == "82.3"


def test_one_suite_is_shown_alone(data: Path, models: Path, run: Run) -> None:
    result = run("evaluate", "--suite", "race", "--data", data / "race", "--model", models / "race", "--json")
    assert result.status == 0, result.errors
    assert result.json[0]["race_dev"] is None
    assert {*result.json[0]["race_test"]} == {"accuracy", "middle", "high"}
    result = run("evaluate", "--suite", "squad", "--data", data, "--model", models, "--max-length", "24")
    row = cells(result.output, DOWNSTREAM.title, f"**{models}**")
    assert (row["MNLI"], row["RACE"]) == ("-", "-")
    assert "GLUE, development sets" not in result.output


def test_missing_models_and_data(data: Path, models: Path, tmp_path: Path, run: Run) -> None:
    here = ("--data", data, "--model", models, "--device", "cpu")
    result = run("evaluate", "--suite", "glue", "--task", "text-classification", *here)
    assert_one_line_error(result, "a suite has its own tasks", "Omit task")
    result = run("evaluate", "--suite", "glue", "--text-column", "sentence", *here)
    assert_one_line_error(result, "Omit text_column")

    def suite(name: str, of: Path, model: Path | str) -> None:
        evaluate_suite(name, of, model, device=CPU)

    with pytest.raises(ConfigError, match="Did you mean 'glue'"):
        suite("gleu", data, models)
    with pytest.raises(DataError, match="nothing in the suite glue can be measured: cola: no data at"):
        suite("glue", tmp_path, models)
    for name, model in (("glue", models / "race"), ("squad", "bundled")):
        with pytest.raises(DataError, match="is not a folder with a model for each task"):
            suite(name, data, model)
    (tmp_path / "CoLA").mkdir()
    with pytest.raises(DataError, match=r"dev\.tsv: no such file"):
        suite("glue", tmp_path, models)


def test_a_model_is_used_as_it_was_trained(tmp_path: Path) -> None:
    assert task_settings("bundled", {}).max_length is None
    settings = {"epochs": 3.0, "task": {"max_length": 384, "doc_stride": 64}}
    (tmp_path / "report.json").write_text(json.dumps({"settings": settings}))
    assert task_settings(tmp_path, {}).max_length == 384
    found = task_settings(str(tmp_path), {"max_length": 128})
    assert (found.max_length, found.doc_stride) == (128, 64)


def test_models_are_called_as_the_recipes_are() -> None:
    assert {one.models[0] for one in SUITES["all"]} == {path.stem for path in RECIPES.glob("*.toml")}


def figures(row: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, cell.split("/"))) for cell in row.split()]


def test_published_averages_come_about_so() -> None:
    """Also a check that no figure was mistyped."""
    for row in DOWNSTREAM.rows.values():
        (mean,), *columns = figures(row)
        assert average(columns) == pytest.approx(mean, abs=0.0501)
    assert average([(90.0, 80.0), (70.0,)]) == 77.5


def test_the_model_card_has_the_same_figures(shared: Path) -> None:
    (card,) = (shared / "spec").glob("002*.txt")
    rows = re.findall(r"^\|ALBERT-(\w+) *\|(.*)\|$", card.read_text(), re.MULTILINE)
    assert len(rows) == 8
    for place, (size, cells) in enumerate(rows):
        name = f"albert-{size}-{'v2' if place < 4 else 'v1'}"
        assert figures(cells.replace("|", " ")) == figures(DOWNSTREAM.rows[name])


def test_every_column_is_measured() -> None:
    names = {one.name for one in SUITES["all"]}
    for published in TABLES:
        keys = [keys.split() for _, keys in published.columns.values()]
        assert {key.split("/")[0] for of_column in keys for key in of_column} <= names
        for row in published.rows.values():
            cells = row.split()[int(published.has_averages) :]
            for cell, of_column in zip(cells, keys, strict=True):
                assert cell == "-" or len(cell.split("/")) == len(of_column)
