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
from albertkit.datasets.examples import TextExample
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.objectives import LOSSES, HeadObjective, make_objective, weighted_cross_entropy
from albertkit.finetuning.predict import predict
from albertkit.finetuning.run import FinetuningRun
from albertkit.pipelines import pipeline
from albertkit.tasks.label_kinds import NUMBER
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.rows import text_rows
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.text_classification import TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.distributed import World

pytestmark = pytest.mark.usefixtures("blank_pictures")


class Long(Small):
    def features(self, examples: Any) -> list[Row]:
        bound = text_rows(self.tokenizer, [one.text for one in examples], max_length=512, truncation=True)
        return [Row(**{**{name: getattr(row, name) for name in ("input_ids", "token_type_ids", "example")},
                       "labels": 0}) for row in bound]  # fmt: skip


LONG = [*ROWS, {"text": "the river " * 20, "label": "bad"}]


def test_rows_must_not_exceed_the_maximum_length(
    model: Path, small_run: FinetuningRun, tmp_path: Path
) -> None:
    message = (
        r"1 of 11 examples cannot be used \(11\).*: `features` of small returned a row of 82 tokens for the "
        r"example TextExample\(text='the river .*max_length is 16.*text_rows"
    )
    with pytest.raises(DataError, match=message):
        train(Long(), model, tmp_path / "run", train=LONG, max_length=16)
    with pytest.raises(DataError, match=message):
        evaluate(small_run.folder, data=LONG, task=Long(), max_length=16, device="cpu")
    with pytest.raises(DataError, match=r"a row of 82 tokens .*max_length is 16"):
        predict(small_run.folder, input=LONG, task=Long(), max_length=16, device="cpu")
    short = train(Small(), model, tmp_path / "short", max_length=16)
    with pytest.raises(DataError, match=r"a row of 82 tokens"):
        pipeline(Long(), short.folder, device="cpu")("the river " * 20)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input_ids": [2, 3, 4]}, "3 input_ids and 2 token_type_ids"),
        ({"input_ids": [], "token_type_ids": []}, r"0 input_ids .* Expected equal numbers above 0"),
        ({"example": 7}, r"a row of example 7, but it received 2 examples"),
        ({"example": None}, r"a row of example None, but it received 2 examples.*Expected the index"),
        ({"example": 0.0}, r"a row of example 0\.0, but"),
        ({"input_ids": 5}, r"a row with input_ids 5 \(int\).*Expected a list"),
        ({"input_ids": None}, r"a row with input_ids None \(NoneType\)"),
        ({"input_ids": np.array([2, 3])}, r"input_ids array\(\[2, 3\]\) \(ndarray\)"),
        ({"input_ids": torch.tensor([2, 3])}, r"input_ids tensor\(\[2, 3\]\) \(Tensor\)"),
        ({"token_type_ids": np.zeros(2, int)}, r"a row with token_type_ids array\(\[0, 0\]\) \(ndarray\)"),
        ("row", r"returned 'row'. Expected a list of `Row`"),
    ],
)
def test_invalid_rows_are_an_error(tokenizer: AlbertTokenizer, row: Any, message: str) -> None:
    given = {"input_ids": [2, 3], "token_type_ids": [0, 0], "example": 0}
    first = row if isinstance(row, str) else Row(**{**given, **row})
    task = changed(features=lambda *_: [first, Row(**{**given, "example": 1})])()
    bound = task.bind(tokenizer, AlbertConfig(), TaskSettings())
    with pytest.raises(DataError, match=message):
        bound.checked_features([TextExample("the river"), TextExample("the key")])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (5, "5"),
        (None, "None"),
        (0.0, r"0\.0"),
        (np.array([1, 2]), r"array\(\[1, 2\]\)"),
        (np.array([]), r"array\(\[\]"),
        (torch.tensor([1, 2]), r"tensor\(\[1, 2\]\)"),
        (iter([]), "<list_iterator"),
        ({"input_ids": [[2, 3]]}, r"\{'input_ids'"),
        ([np.array([2, 3])], r"array\(\[2, 3\]\)"),
        ([5], "5"),
        ([None], "None"),
    ],
)
def test_features_must_return_a_list_of_rows(tokenizer: AlbertTokenizer, rows: Any, message: str) -> None:
    bound = changed(features=lambda *_: rows)().bind(tokenizer, AlbertConfig(), TaskSettings())
    with pytest.raises(DataError, match=rf"`features` of small returned {message}.*Expected a list of `Row`"):
        bound.checked_features([TextExample("the river"), TextExample("the key")])


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


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda logits, labels: F.cross_entropy(logits, labels, reduction="none"), r"of shape \(8,\)"),
        (lambda logits, labels: 0.5, r"returned 0.5 \(float\)"),
        (lambda logits, labels: None, r"returned None"),
        (lambda logits, labels: logits.sum().detach(), r"does not depend on the logits"),
    ],
)  # fmt: skip
def test_an_objective_must_return_a_loss(model: Path, tmp_path: Path, objective: Any, message: str) -> None:
    task = changed(objective=staticmethod(objective))()
    with pytest.raises(ConfigError, match=rf"the objective of small .*{message}.*Expected"):
        train(task, model, tmp_path / "run")


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
    with pytest.raises(ConfigError, match=r"class_weights.*`learnt_classes` of the task"):
        train(Small(), model, tmp_path / "run", class_weights="balanced")
    weighted = changed(
        learnt_classes=TextClassification.learnt_classes,
        objective=staticmethod(lambda logits, labels: F.cross_entropy(logits, labels)),
    )
    with pytest.raises(ConfigError, match="class_weights are for the loss of the model's head, but small"):
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


def test_labels_of_and_find_labels_are_checked(model: Path, tmp_path: Path) -> None:
    objective = staticmethod(lambda logits, labels: F.cross_entropy(logits, labels))
    without = changed(objective=objective, labels_of=lambda *_: {})()
    with pytest.raises(ConfigError, match=r"`labels_of` of small returns no 'labels'"):
        train(without, model, tmp_path / "run")
    listed = changed(objective=objective, labels_of=lambda _, rows: {"labels": [row.labels for row in rows]})
    assert train(listed(), model, tmp_path / "lists").loop.finished
    with pytest.raises(ConfigError, match=r"`find_labels` of small returned \['a'\]. Expected LabelSet"):
        train(changed(find_labels=lambda *_: ["a"])(), model, tmp_path / "none")
