"""A tiny model learns each kind of label, and the report has the metrics of the saved predictions."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from finetuning_runs import CPU, FAST, texts, tune
from json_lines import write_json_lines
from matplotlib.figure import Figure

from albertkit.config import AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.engines.choosing import make_engine
from albertkit.errors import ConfigError
from albertkit.finetuning import evaluate as report
from albertkit.finetuning.finetune import finetune
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained import load_task
from albertkit.metrics import class_scores
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.task import Decision
from albertkit.training.progress import read_metrics

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_training_on_classes(classifier: Path) -> None:
    report = json.loads((classifier / "report.json").read_text())
    assert report["main_metric"] == "accuracy"
    assert report["data"]["training"]["examples"] == 64
    assert AlbertConfig.from_pretrained(classifier).id2label == {0: "bad", 1: "good"}
    for name in ("report.md", "predictions.jsonl", "confusion.png", "calibration.png", "by_length.png"):
        assert (classifier / name).stat().st_size > 0


def test_the_report_is_of_the_predictions(classifier: Path, data: Path) -> None:
    report = json.loads((classifier / "report.json").read_text())
    said = [json.loads(line)["label"] for line in (classifier / "predictions.jsonl").read_text().splitlines()]
    true = [json.loads(line)["label"] for line in (data / "validation.jsonl").read_text().splitlines()]
    assert report["metrics"] == class_scores(true, said, labels=["bad", "good"])
    assert sum(one["examples"] for one in report["by_length"]) == len(true)


def test_labels_with_dollar_signs_are_no_formulas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figure.draw_without_rendering())
    decisions = [Decision("US$ 5% to US$ 10%", "$10_$20", is_right=False)]
    report._draw_confusion(tmp_path, decisions, ["$10_$20", "US$ 5% to US$ 10%"])


def test_rare_classes_weigh_more(model: Path, data: Path, tmp_path: Path) -> None:
    """At a rate of nothing the weighted loss is that of the frequencies evened out."""
    rows = texts(64, 0)
    write_json_lines(
        tmp_path / "train.jsonl", [row for number, row in enumerate(rows) if number % 8 in (0, 1, 2, 4, 6)]
    )
    write_json_lines(tmp_path / "validation.jsonl", texts(20, 1))
    settings = replace(FAST, steps=1, batch_size=64, learning_rate=1e-12, log_every=1)
    losses = {}
    for weights_of in ("none", "balanced"):
        output = tmp_path / weights_of
        tune("text-classification", replace(settings, class_weights=weights_of), model, tmp_path, output)  # type: ignore[arg-type]
        losses[weights_of] = next(line["train/loss"] for line in read_metrics(output) if "train/loss" in line)
    task, loaded = load_task("text-classification", tmp_path / "none", TaskSettings(), device=CPU)
    examples = list(task.reader(str(tmp_path / "train.jsonl"), DataOptions()))
    found = task.features(examples)
    logits = torch.from_numpy(np.stack(task.run(make_engine(loaded, "torch"), found)))
    labels = torch.tensor([row.labels for row in found])
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    mean_of_classes = (each[labels == 0].mean() + each[labels == 1].mean()) / 2
    assert losses["none"] == pytest.approx(float(each.mean()), abs=1e-4)
    assert losses["balanced"] == pytest.approx(float(mean_of_classes), abs=1e-4)


def test_training_on_numbers(model: Path, tmp_path: Path) -> None:
    values = {"good": 1.5, "bad": -0.5}
    for name, seed, count in (("train", 0, 64), ("validation", 1, 20)):
        rows = [row | {"label": values[row["label"]]} for row in texts(count, seed)]
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    report = tune("text-classification", replace(FAST, epochs=12), model, tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["main_metric"] == "pearson"
    assert report["metrics"]["pearson"] > 0.95
    assert AlbertConfig.from_pretrained(tmp_path / "run").problem_type == "regression"


def test_training_on_several_labels(model: Path, tmp_path: Path) -> None:
    for name, seed, count in (("train", 0, 64), ("validation", 1, 20)):
        rows = [
            {"text": row["text"], "label": {"good": ["good", "any"], "bad": ["any"]}[row["label"]]}
            for row in texts(count, seed)
        ]
        rows[0]["label"] = []
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    report = tune("text-classification", replace(FAST, epochs=9), model, tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["main_metric"] == "f1_micro"
    assert report["metrics"]["f1_micro"] > 0.95


def test_training_on_words(model: Path, tmp_path: Path) -> None:
    """Train on CoNLL columns in which the word determines its label."""
    kinds = {"river": "B-PLACE", "harbour": "B-PLACE", "key": "B-THING"}
    for name, seed, count in (("train.conll", 0, 64), ("validation.conll", 1, 20)):
        sentences = [row["text"].split() for row in texts(count, seed)]
        lines = ["".join(f"{word} {kinds.get(word, 'O')}\n" for word in words) for words in sentences]
        (tmp_path / name).write_text("\n".join(lines))
    report = finetune(
        "token-classification",
        recipe=replace(FAST, epochs=12),
        model=model,
        device="cpu",
        train=tmp_path / "train.conll",
        validation=tmp_path / "validation.conll",
        output=tmp_path / "run",
    ).report
    assert report is not None
    assert report["main_metric"] == "f1"
    assert report["metrics"]["f1"] > 0.85
    assert set(AlbertConfig.from_pretrained(tmp_path / "run").id2label.values()) == {
        "O", "B-PLACE", "B-THING",
    }  # fmt: skip


@pytest.mark.parametrize("rate", [0.0, -1e-3, math.nan, math.inf])
def test_an_invalid_learning_rate_is_an_error(rate: float) -> None:
    for name in ("learning_rate", "epochs", "temperature"):
        with pytest.raises(ConfigError, match=f"{name} must be (more than 0|finite), not {rate}"):
            replace(FAST, **{name: rate})


@pytest.mark.parametrize(
    ("hidden_size", "steps_per_epoch", "rate", "epochs"),
    [
        (768, 500, 3e-5, 3),
        (4096, 10_000, 3e-5, 3),
        (256, 47, 4e-4, 7),
        (128, 10, 4e-4, 20),
        (443, 100, (4e-4 * 3e-5) ** 0.5, 3),  # half way, in logarithms
    ],
)
def test_the_defaults_depend_on_the_size_of_model_and_data(
    hidden_size: int, steps_per_epoch: int, rate: float, epochs: int
) -> None:
    size = {"hidden_size": hidden_size, "steps_per_epoch": steps_per_epoch}
    found = FinetuningSettings().completed(**size)
    assert (found.learning_rate, found.epochs) == (pytest.approx(rate, rel=0.01), epochs)
    given = FinetuningSettings(learning_rate=1e-9, epochs=2)
    assert given.completed(**size) == given
    assert FinetuningSettings(steps=7).completed(**size).epochs is None


def test_the_defaults_learn_rare_entities(model: Path, tmp_path: Path) -> None:
    """One word in thirty is an entity."""
    rows = {}
    for name, count, seed in (("train", 320, 0), ("validation", 80, 1)):
        rows[name] = [{"tokens": row["text"].split() * 3} for row in texts(count, seed)]
        for number, row in enumerate(rows[name]):
            marks = {"lost"} if number % 4 == 0 else set()
            row["tokens"] = [one for one in row["tokens"] if one not in ("lost", "painted")]
            row["tokens"][number % 2 : number % 2] = marks
            row["tags"] = ["B-X" if one in marks else "O" for one in row["tokens"]]
    run = finetune("token-classification", **rows, model=model, output=tmp_path, label_column="tags")
    assert run.metrics["f1"] > 0.9
    assert run.report is not None
    assert run.report["settings"]["epochs"] == 20


def test_training_on_choices(model: Path, tmp_path: Path) -> None:
    """The right choice contains a certain word. Some questions have an additional choice."""
    draw = random.Random(0)
    for name, count in (("train", 64), ("validation", 20)):
        asked = []
        for number in range(count):
            choices = ["lost", "lost", "painted"][-2 - number % 2 :]
            draw.shuffle(choices)
            asked.append(
                {"sent1": "the river", "sent2": "was", "choices": choices, "label": choices.index("painted")}
            )
        write_json_lines(tmp_path / f"{name}.jsonl", asked)
    report = tune("multiple-choice", FAST, model, tmp_path, tmp_path / "run", choice_columns="choices").report
    assert report is not None
    assert report["metrics"] == {"accuracy": 1.0}
