"""Tests of the rows, the labels and the loss of a task of your own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from new_head import add_new_head
from small_task import ROWS, Small, changed, train

from albertkit.config import AlbertConfig
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError
from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.losses import LOSSES, HeadObjective, make_objective, weighted_cross_entropy
from albertkit.tasks.labels import NUMBER, LabelSet
from albertkit.tasks.rows import text_rows
from albertkit.tasks.text_classification import TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.distributed import World

pytestmark = pytest.mark.usefixtures("blank_pictures")


LONG = [*ROWS, {"text": "the river " * 20, "label": "bad"}]


class Tagger(Small):
    """A task whose tokens have labels. -100 and NaN mark tokens without a label."""

    architecture = "AlbertForTokenClassification"
    arrays: Any = None

    def labels_of(self, rows: Any) -> dict[str, np.ndarray]:
        return {"labels": self.arrays[[row.example for row in rows]]}


def rows_of(count: int, length: int = 3) -> list[Row]:
    ids = {"input_ids": [2] * length, "token_type_ids": [0] * length}
    return [Row(example=number, labels=0, **ids) for number in range(count)]


@pytest.mark.parametrize(
    ("labels", "items"),
    [
        (np.array([[1, -100, 0], [-100, -100, 2]]), 3),
        (np.array([[[1, 0], [-100, -100], [0, 0]], [[-100, -100], [-100, -100], [1, 1]]], np.float32), 3),
        (np.array([[np.nan, 0.5, 1], [np.nan, np.nan, np.nan]], np.float32), 2),
        (np.array([1, 0]), 2),
        (np.array([1, -100]), 1),
    ],
)
def test_items_are_the_labeled_tokens(
    tokenizer: AlbertTokenizer, monkeypatch: pytest.MonkeyPatch, labels: np.ndarray, items: int
) -> None:
    for architecture in ("AlbertForTokenClassification", "AlbertForMaskedLM", add_new_head(monkeypatch)):
        task = type("Changed", (Tagger,), {"architecture": architecture, "arrays": labels})()
        assert task.items(rows_of(2)) == items
    texts = Small().bind(tokenizer, AlbertConfig(id2label={0: "a", 1: "b"}))
    assert texts.items(rows_of(2)) == 2


def test_a_batch_with_a_nan_loss_is_skipped(model: Path, tmp_path: Path) -> None:
    """A resumed run must not stop at a batch that an uninterrupted run rolls back."""
    calls: list[None] = []

    def objective(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        return logits.sum() * float("nan") if len(calls) == 1 else F.cross_entropy(logits, labels)

    train(changed(objective=staticmethod(objective))(), model, tmp_path / "run")
    assert len(calls) > 2


@pytest.mark.parametrize("objective", ["head", "binary_cross_entropy", "own"])
def test_the_parts_of_a_batch_have_its_loss_and_gradients(tokenizer: AlbertTokenizer, objective: str) -> None:
    """Each process sums its parts and the counts of all processes, so the parts also represent processes."""
    generator = np.random.default_rng(0)
    labels: Any = generator.integers(0, 2, (4, 8))
    labels[generator.random((4, 8)) < 0.6] = -100
    labels[1] = -100  # a part without labels
    if objective == "binary_cross_entropy":
        labels = np.repeat(labels[..., None], 2, -1).astype(np.float32)
    elif objective == "own":
        labels = np.where(labels == -100, np.nan, labels).astype(np.float32)
    task = Tagger().bind(tokenizer, AlbertConfig(id2label={0: "a", 1: "b"}))
    task.arrays = labels
    weights = torch.randn(8, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def model(**inputs: Any) -> Any:
        logits = weights.expand(len(inputs["input_ids"]), -1, -1)
        given = inputs.get("labels")
        loss = None if given is None else weighted_cross_entropy(torch.ones(2))(logits, given)
        return type("Output", (), {"logits": logits, "loss": loss})

    def own(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        there = ~labels.isnan()
        return F.mse_loss(logits[..., 0][there], labels[there])

    loss = own if objective == "own" else LOSSES[objective]
    rows, found = rows_of(4), []
    for parts in (1, 4):
        made = HeadObjective(task, World(torch.device("cpu")), loss=loss)
        batch = UnitBatch([[row] for row in rows])
        split = batch.split(parts)
        items = sum(made.counts(part)["items"] for part in split)
        weights.grad = None
        losses = [made(model, part, {"items": items, "tokens": 1}).loss for part in split]
        torch.stack(losses).sum().backward()
        found.append((torch.stack(losses).sum().item(), weights.grad.clone()))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-6)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-6)


@pytest.mark.parametrize("objective", ["head", "binary_cross_entropy", "weights"])
def test_the_losses_of_albertkit_may_be_nan(tokenizer: AlbertTokenizer, objective: str) -> None:
    """The training loop handles a loss of NaN."""
    task = Tagger().bind(tokenizer, AlbertConfig(id2label={0: "a", 1: "b"}))
    task.arrays = np.zeros((2, 3, 2)) if objective == "binary_cross_entropy" else np.zeros((2, 3), int)
    if objective != "weights":
        task.objective = objective
    made = make_objective(
        task,
        World(torch.device("cpu")),
        class_weights=torch.ones(2) if objective == "weights" else None,
        temperature=0.05,
    )

    def model(**inputs: Any) -> Any:
        logits = torch.full((2, 3, 2), torch.nan, requires_grad=True)
        return type("Output", (), {"logits": logits, "loss": logits.sum()})

    batch = UnitBatch([[row] for row in rows_of(2)])
    assert made(model, batch, made.counts(batch)).loss.isnan()


def test_an_objective_may_be_a_method(model: Path, tmp_path: Path) -> None:
    def objective(self: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        assert self.labels.names == ("bad", "good")
        return F.cross_entropy(logits, labels)

    assert train(changed(objective=objective)(), model, tmp_path / "run").loop.finished


def test_class_weights_need_learnt_classes_and_the_loss_of_the_head(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="class_weights cannot be used with small"):
        train(Small(), model, tmp_path / "run", class_weights="balanced")
    weighted = changed(
        learnt_classes=TextClassification.learnt_classes,
        objective=staticmethod(lambda logits, labels: F.cross_entropy(logits, labels)),
    )
    with pytest.raises(ConfigError, match="class_weights cannot be used with small"):
        train(weighted(), model, tmp_path / "run", class_weights="balanced")


class Lengths(Small):
    """A task that predicts the number of tokens from each token. The last token has no label."""

    architecture = "AlbertForTokenClassification"

    def find_labels(self, examples: Any, *_: Any) -> LabelSet:
        return LabelSet(NUMBER, ("length",))

    def features(self, examples: Any) -> list[Row]:
        texts = [one.text for one in examples]
        rows = text_rows(self.tokenizer, texts, max_length=self.max_length, truncation=True)
        return [replace(row, labels=[len(row.input_ids) / 10] * (len(row.input_ids) - 1)) for row in rows]

    def labels_of(self, rows: Any) -> dict[str, np.ndarray]:
        labels = np.full((len(rows), self.padded_length(rows)), np.nan, np.float32)
        for number, row in enumerate(rows):
            labels[number, : len(row.labels)] = row.labels
        return {"labels": labels}

    def objective(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        labeled = ~labels.isnan()
        return F.mse_loss(logits[..., 0][labeled], labels[labeled])

    def predictions(self, examples: Any, rows: Any, outputs: Any) -> Any:
        return [float(one[0]) for one in outputs]

    def scores(self, examples: Any, predictions: Any) -> dict[str, Any]:
        return {"error": np.float32(0.5)}


def test_accumulation_does_not_change_the_losses(model: Path, tmp_path: Path) -> None:
    losses = []
    for parts in (1, 4):
        settings = {
            "accumulation": parts,
            "steps": 3,
            "log_every": 1,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        }
        found = train(Lengths(), model, tmp_path / str(parts), classifier_dropout=0.0, **settings)
        losses.append([line["train/loss"] for line in found.history if "train/loss" in line])
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
