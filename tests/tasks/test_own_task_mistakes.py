"""Mistakes in a task of one's own: each is an error at once, which names the task and says what to do."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from new_head import add_new_head
from small_task import FAST, ROWS, Small, tiny_model

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import TextExample
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError, DataError, TrainingError
from albertkit.files import write_json
from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.objectives import LOSSES, HeadObjective, make_objective, weighted_cross_entropy
from albertkit.finetuning.predict import predict
from albertkit.finetuning.run import FinetuningRun
from albertkit.finetuning.train import finetune
from albertkit.pipelines import pipeline
from albertkit.tasks.label_kinds import CLASS, NUMBER, SEVERAL
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.measuring import Metric, directions, plain_value
from albertkit.tasks.registry import task_of
from albertkit.tasks.rows import text_rows
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.task import Task
from albertkit.tasks.text_classification import TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.distributed import World

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(scope="module")
def model(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tiny_vocabulary, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary: Path) -> AlbertTokenizer:
    return AlbertTokenizer(tiny_vocabulary)


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuningRun:
    return train(Small(), model, tmp_path_factory.mktemp("small") / "run")


def train(task: Any, model: Path, output: Path, **changes: Any) -> FinetuningRun:
    settings = {"train": ROWS, "validation": ROWS, "steps": 2, **FAST, **changes}
    return finetune(task, model=model, output=output, **settings)


def changed(**attributes: Any) -> type[Small]:
    return type("Changed", (Small,), attributes)


# --- the declaration


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"metrics": {"error": "min"}}, r"the metrics of small are \{'error': 'min'\}.*'higher' or 'lower'"),
        ({"metrics": {"error": False}}, r"the metrics of small are \{'error': False\}. Expected a mapping"),
        ({"metrics": ["error"]}, r"the metrics of small are \['error'\].*directions\("),
        ({"metrics": "error"}, "the metrics of small are 'error'. Expected a mapping"),
        ({"metrics": {}}, "Changed declares no metrics"),
        ({"name": ""}, "Changed has no name"),
        ({"name": "question-answering"}, "the name of Changed is 'question-answering', .* of albertkit"),
        ({"architecture": None}, "Changed has no architecture. Expected"),
        ({"architecture": "AlbertForQuestions"}, "the architecture of small is 'AlbertForQuestions'"),
        ({"architecture": "AlbertForMaskedLM"}, "architecture of small is 'AlbertForMaskedLM'.*vocabulary"),
    ],
)  # fmt: skip
def test_a_declaration_that_cannot_be(attributes: dict[str, Any], message: str) -> None:
    for task in (changed(**attributes)(), changed(**attributes)):
        with pytest.raises(ConfigError, match=message):
            task_of(task)
    with pytest.raises(ConfigError, match=message):
        pipeline(changed(**attributes)(), "no-model")


def test_a_task_without_name_or_architecture() -> None:
    for missing in ("name", "architecture"):
        body = {name: value for name, value in vars(Small).items() if name != missing}
        with pytest.raises(ConfigError, match=f"Nameless has no {missing}. Expected"):
            task_of(type("Nameless", (Task,), body)())


def test_directions_take_names() -> None:
    assert directions("f1", lower=("rank",)) == {"f1": "higher", "rank": "lower"}
    wrong: Any = "mean_rank"
    with pytest.raises(ConfigError, match=r"lower is 'mean_rank'. Expected a list of names: \['mean_rank'\]"):
        directions("f1", lower=wrong)
    with pytest.raises(ConfigError, match=r"is \['f1'\]. Expected names"):
        directions(["f1"])  # type: ignore[arg-type]


# --- what scores, records and predictions are


def scores_of(task: Task, *, true: Any = "good", predicted: Any = "bad") -> dict[str, float]:
    return task.measure([TextExample("the river", label=true)], [predicted])


@pytest.mark.parametrize("value", [np.float32(0.5), np.mean([0.0, 1.0]), torch.tensor(0.5), 0.5])
def test_numbers_of_any_library_are_scores(value: Any) -> None:
    for scores in (
        scores_of(changed(scores=lambda *_: {"error": value})()),
        scores_of(Small().with_metrics(Metric(lambda *_: value, name="own"))),
    ):
        assert [*scores.values()][-1] == 0.5
        assert all(type(one) is float for one in scores.values())


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), True, None, "0.5", [0.5], np.bool_(True), np.complex64(1)]
)
def test_a_score_is_a_finite_number(value: Any) -> None:
    with pytest.raises(
        DataError, match=r"the metric 'error' of small is .* for 1 example.*Expected a finite"
    ):
        scores_of(changed(scores=lambda *_: {"error": value})())
    with pytest.raises(DataError, match=r"the metric 'own' returned .* for 1 example.*Expected a finite"):
        scores_of(Small().with_metrics(Metric(lambda *_: value, name="own")))


def test_scores_are_a_dict() -> None:
    with pytest.raises(DataError, match=r"`scores` of small returned 0.5. Expected a dict"):
        scores_of(changed(scores=lambda *_: 0.5)())


def test_a_score_of_no_number_ends_the_run_at_once(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the metric 'error' of small is nan"):
        train(changed(scores=lambda *_: {"error": float("nan")})(), model, tmp_path / "run")


def test_an_undefined_correlation_is_zero_but_no_error_is(model: Path) -> None:
    nan = [float("nan")] * 3
    assert NUMBER.scores([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], ("LABEL_0",))["pearson"] == 0
    found = NUMBER.scores([1.0, 2.0, 3.0], nan, ("LABEL_0",))
    assert (found["pearson"], found["spearman"]) == (0, 0)
    assert np.isnan(found["mean_squared_error"])


def test_there_is_a_prediction_for_each_example(run: FinetuningRun) -> None:
    short = changed(predictions=lambda *_: ["good"])()
    message = r"`predictions` of small returned 1 prediction for 10 examples. Expected one for each"
    with pytest.raises(DataError, match=message):
        evaluate(run.folder, data=ROWS, task=short, device="cpu")
    with pytest.raises(DataError, match=message):
        predict(run.folder, input=ROWS, task=short, device="cpu")
    with pytest.raises(DataError, match=message):
        pipeline(short, run.folder, device="cpu")(ROWS)


def test_values_of_numpy_in_a_record_become_plain(run: FinetuningRun, tmp_path: Path) -> None:
    values = {
        "score": np.float32(0.5),
        "counts": np.arange(2),
        "nested": [{"n": np.int64(3)}],
        "pair": (1, 2),
    }
    task = changed(record=lambda _, __, one: {"label": one, **values}, probability="score")()
    plain = {"score": 0.5, "counts": [0, 1], "nested": [{"n": 3}], "pair": [1, 2]}
    output = tmp_path / "out"
    evaluate(run.folder, data=ROWS, task=task, output=output, device="cpu")
    predict(run.folder, input=ROWS, task=task, output=tmp_path / "rows.jsonl", device="cpu")
    for record in (
        json.loads((output / "predictions.jsonl").read_text().splitlines()[0]),
        json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0]),
        predict(run.folder, input=ROWS, task=task, device="cpu")[0],
        pipeline(task, run.folder, device="cpu")("the river"),
    ):
        assert {name: record[name] for name in plain} == plain
        assert type(record["nested"][0]["n"]) is int


def was_trained(run: Path) -> bool:
    """Return whether a run has a checkpoint after step 0."""
    return any(int(folder.name.removeprefix("step-")) > 0 for folder in run.rglob("step-*"))


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ({"label": "good", "when": {1, 2}}, DataError, r"'when' in a record of small is \{1, 2\} \(set\)"),
        ({"label": "good", 3: "a"}, DataError, r"a record of small has the column 3. Expected text"),
        ("good", DataError, r"`record` of small returned 'good'. Expected a dict"),
        ({"topic": "good"}, ConfigError, r"small has no column 'label', which `answer` names.*'topic'"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_written_ends_the_run_before_it_trains(
    model: Path, tmp_path: Path, record: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        train(changed(record=lambda *_: record)(), model, tmp_path / "run")
    assert not was_trained(tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "wrong", "error", "message"),
    [
        ("record", {"label": {1, 2}, "sure": 1}, DataError, r"'label' in a record of small is \{1, 2\}"),
        ("record", {"sure": 1}, ConfigError, r"no column 'label', which `answer` names"),
        ("record", {"label": "good", "sure": 2}, DataError, r"is 2\. Expected a probability from 0 to 1"),
        ("truth", {1, 2}, DataError, r"`truth` of small returned \{1, 2\} \(set\)"),
    ],
)
def test_all_records_are_checked_before_training(
    model: Path, tmp_path: Path, method: str, wrong: Any, error: type[Exception], message: str
) -> None:
    class Sure(Small):
        probability = "sure"

        def record(self, example: TextExample, prediction: str) -> dict[str, Any]:
            return {"label": prediction, "sure": 0.5}

    def wrong_for_the_last(self: Any, example: TextExample, *rest: Any) -> Any:
        return wrong if example.id == "last" else getattr(super(type(self), self), method)(example, *rest)

    task = type("Wrong", (Sure,), {method: wrong_for_the_last})()
    rows = [TextExample(row["text"], label=row["label"]) for row in ROWS]
    last = TextExample("the last one", label="good", id="last")
    with pytest.raises(error, match=message):
        train(task, model, tmp_path / "run", train=rows, validation=[*rows, last])
    assert not was_trained(tmp_path / "run")


def test_the_baseline_is_checked_before_training(model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"the metric 'error' of small is nan.*let `baseline` return a number"
    ):
        train(changed(baseline=lambda *_: {"error": float("nan")})(), model, tmp_path / "run")
    assert not was_trained(tmp_path / "run")


def test_the_columns_of_the_answer_and_its_probability_exist() -> None:
    def wrong(true: Any, predicted: Any) -> float:
        raise AssertionError

    with pytest.raises(ConfigError, match=r"no column 'topic', which `answer` names. It has 'label'"):
        scores_of(changed(answer="topic")().with_metrics(wrong))
    with pytest.raises(ConfigError, match=r"no column 'score', which `probability` names"):
        scores_of(changed(probability="score")())


def test_a_true_answer_is_plain_too(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"`truth` of small returned .*\(set\)"):
        scores_of(changed(truth=lambda *_: {1})())
    found = evaluate(
        train(Small(), model, tmp_path / "run").folder,
        data=ROWS, task=changed(truth=lambda _, one: {"label": np.str_(one.label)})(), device="cpu",
    )  # fmt: skip
    assert found.records[0]["true"] == {"label": "bad"}


@pytest.mark.parametrize(
    "value",
    [
        np.clongdouble(1), np.complex64(1), 1j, np.ones(2, np.clongdouble), [np.ones((1, 1), np.clongdouble)],
        {"a": np.clongdouble(1)}, np.void(b"a"), np.array([{1}], object), b"a",
    ],
)  # fmt: skip
def test_values_without_a_plain_form_are_named(value: Any) -> None:
    with pytest.raises(DataError, match=r"the answer is .*Expected text, a number, None, or lists and dicts"):
        plain_value(value, what="the answer is")


def test_numbers_of_any_precision_are_plain() -> None:
    for kind in (np.float16, np.float32, np.float64, np.longdouble, np.int8, np.uint64):
        for plain in (plain_value(kind(3), what=""), *plain_value(np.full((1, 2), kind(3)), what="")[0]):
            assert plain == 3
            assert type(plain) in (int, float)


# --- own metrics on parts of the data


def recall(true: list[str], predicted: list[str]) -> float:
    found = [answer == "good" for label, answer in zip(true, predicted, strict=True) if label == "good"]
    return sum(found) / len(found)


def recall_scores(_: Any, examples: Any, predictions: Any) -> dict[str, float]:
    return {"error": recall([one.label for one in examples], predictions)}


def test_a_metric_may_raise_for_a_part_of_the_data(run: FinetuningRun, tmp_path: Path) -> None:
    rows = [{"text": "the river " * (number + 1), "label": "bad"} for number in range(12)] + ROWS
    for task, options, name in (
        (Small(), {"metrics": recall}, "recall"),
        (changed(scores=recall_scores)(), {}, "error"),
        (Small(), {"metrics": Metric(recall, name="best_recall")}, "best_recall"),
    ):  # fmt: skip
        output = tmp_path / name
        found = evaluate(
            run.folder, data=rows, task=task, output=output, main_metric=name, device="cpu", **options
        )
        parts = [one["score"] for one in json.loads((output / "report.json").read_text())["by_length"]]
        assert None in parts
        assert any(one is not None for one in parts)
        assert 0 <= found.metrics[name] <= 1


def test_the_score_of_a_part_is_that_of_the_main_metric(run: FinetuningRun) -> None:
    metrics = [Metric(lambda *_: 0.25, name="recall"), Metric(lambda *_: 0.75, name="best_recall")]
    for name, value in (("recall", 0.25), ("best_recall", 0.75)):
        found = evaluate(run.folder, data=ROWS, task=Small(), metrics=metrics, main_metric=name, device="cpu")
        assert found.score_of([0, 1]) == value


def test_a_part_without_the_column_of_the_answer_is_an_error(run: FinetuningRun) -> None:
    def record(_: Any, example: TextExample, prediction: str) -> dict[str, Any]:
        return {"topic" if "painted letter" in example.text else "label": prediction}

    rows = [*ROWS, {"text": "the painted letter", "label": "good"}]
    found = evaluate(run.folder, data=rows, task=changed(record=record)(), device="cpu")
    assert 0 <= found.score_of([0, 1]) <= 1
    with pytest.raises(ConfigError, match="no column 'label', which `answer` names"):
        found.score_of([10])


# --- rows


class Long(Small):
    def features(self, examples: Any) -> list[Row]:
        bound = text_rows(self.tokenizer, [one.text for one in examples], max_length=512, truncation=True)
        return [Row(**{**{name: getattr(row, name) for name in ("input_ids", "token_type_ids", "example")},
                       "labels": 0}) for row in bound]  # fmt: skip


LONG = [*ROWS, {"text": "the river " * 20, "label": "bad"}]


def test_rows_fit_into_the_maximum_length(model: Path, run: FinetuningRun, tmp_path: Path) -> None:
    message = (
        r"1 of 11 examples cannot be used \(11\).*: `features` of small returned a row of 82 tokens for the "
        r"example TextExample\(text='the river .*max_length is 16.*text_rows"
    )
    with pytest.raises(DataError, match=message):
        train(Long(), model, tmp_path / "run", train=LONG, max_length=16)
    with pytest.raises(DataError, match=message):
        evaluate(run.folder, data=LONG, task=Long(), max_length=16, device="cpu")
    with pytest.raises(DataError, match=r"a row of 82 tokens .*max_length is 16"):
        predict(run.folder, input=LONG, task=Long(), max_length=16, device="cpu")
    short = train(Small(), model, tmp_path / "short", max_length=16)
    with pytest.raises(DataError, match=r"a row of 82 tokens"):
        pipeline(Long(), short.folder, device="cpu")("the river " * 20)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input_ids": [2, 3, 4]}, "3 input_ids and 2 token_type_ids"),
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
def test_rows_belong_to_their_examples(tokenizer: AlbertTokenizer, row: Any, message: str) -> None:
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
def test_features_are_a_list_of_rows(tokenizer: AlbertTokenizer, rows: Any, message: str) -> None:
    bound = changed(features=lambda *_: rows)().bind(tokenizer, AlbertConfig(), TaskSettings())
    with pytest.raises(DataError, match=rf"`features` of small returned {message}.*Expected a list of `Row`"):
        bound.checked_features([TextExample("the river"), TextExample("the key")])


# --- the loss


class Tagger(Small):
    """Labels of tokens, -100 or NaN where there are none."""

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
def test_the_items_of_tokens_are_their_labels(
    tokenizer: AlbertTokenizer, monkeypatch: pytest.MonkeyPatch, labels: np.ndarray, items: int
) -> None:
    for architecture in ("AlbertForTokenClassification", "AlbertForMaskedLM", add_new_head(monkeypatch)):
        task = type("Changed", (Tagger,), {"architecture": architecture, "arrays": labels})()
        assert task.items(rows_of(2)) == items
    texts = Small().bind(tokenizer, AlbertConfig(id2label={0: "a", 1: "b"}))
    assert texts.items(rows_of(2)) == 2


def test_an_objective_that_is_nan_at_first_is_skipped(model: Path, tmp_path: Path) -> None:
    """A resumed run must not stop at a batch that an uninterrupted one rolls back."""
    calls: list[None] = []

    def objective(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        return logits.sum() * float("nan") if len(calls) == 1 else F.cross_entropy(logits, labels)

    train(changed(objective=staticmethod(objective))(), model, tmp_path / "run")
    assert len(calls) > 2


@pytest.mark.parametrize("objective", ["head", "binary_cross_entropy", "own"])
def test_parts_and_processes_take_the_step_of_the_whole_batch(
    tokenizer: AlbertTokenizer, objective: str
) -> None:
    """A process sums its parts and the counts of all, so parts stand for processes too."""
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
        made = HeadObjective(task, torch.device("cpu"), loss=loss)
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
def test_an_objective_that_returns_no_loss(model: Path, tmp_path: Path, objective: Any, message: str) -> None:
    task = changed(objective=staticmethod(objective))()
    with pytest.raises(ConfigError, match=rf"the objective of small .*{message}.*Expected"):
        train(task, model, tmp_path / "run")


@pytest.mark.parametrize("objective", ["head", "binary_cross_entropy", "weights"])
def test_the_losses_of_albertkit_are_not_checked(tokenizer: AlbertTokenizer, objective: str) -> None:
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


def test_class_weights_need_the_counts_of_the_classes(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"class_weights.*`learnt_classes` of the task"):
        train(Small(), model, tmp_path / "run", class_weights="balanced")
    weighted = changed(
        learnt_classes=TextClassification.learnt_classes,
        objective=staticmethod(lambda logits, labels: F.cross_entropy(logits, labels)),
    )
    with pytest.raises(ConfigError, match="class_weights are for the loss of the model's head, but small"):
        train(weighted(), model, tmp_path / "run", class_weights="balanced")


# --- data


def test_a_reader_is_a_reader(model: Path, tmp_path: Path) -> None:
    def generated(self: Any, source: Any, options: Any, *, labeled: bool = True) -> Any:
        yield from ROWS

    for reader in (generated, lambda *_, labeled=True: ROWS):
        with pytest.raises(
            ConfigError, match=r"`reader` of small returned .* return super\(\).reader\(rows, op"
        ):
            train(changed(reader=reader)(), model, tmp_path / "run", train="rows.txt")


def test_a_reader_names_the_file(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    class Named(Small):
        def reader(self, source: Any, options: Any, *, labeled: bool = True) -> Any:
            rows = [*ROWS, {"label": "bad"}] if isinstance(source, str) else source
            return super().reader(rows, options, labeled=labeled)

    train(Named(), model, tmp_path / "run", train="rows.txt")
    assert "rows.txt: 10 examples, 1 skipped" in caplog.messages
    assert "    rows.txt, row 11: no 'text'" in caplog.messages


def test_examples_without_a_true_answer_are_unlabeled(
    model: Path, run: FinetuningRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rows = [*ROWS, {"text": "the key"}]
    examples = [TextExample(row["text"], label=row.get("label")) for row in rows]
    for number, data in enumerate((rows, examples)):
        train(Small(), model, tmp_path / str(number), train=data)
        assert "train: 10 examples, 1 skipped" in caplog.messages
        assert "  unlabeled: 1" in caplog.messages
        assert len(evaluate(run.folder, data=data, task=Small(), device="cpu").examples) == 10
        assert len(predict(run.folder, input=data, task=Small(), device="cpu")) == 11
        with pytest.raises(DataError, match=r"there are no usable examples:\n.*1 skipped\n  unlabeled: 1"):
            train(Small(), model, tmp_path / "none", train=data[-1:])


def test_the_counts_of_labels_are_those_of_the_examples() -> None:
    several = LabelSet(SEVERAL, ("food", "plant"))
    assert several.notes([[["food", "plant"], []], [["food"], ["food"]]])[0].endswith(": food 3, plant 1")
    mixed = LabelSet(CLASS, ("film", "stars"))
    for labels in ([{"topic": "film"}] * 2, [("film", 4.0)] * 2):
        assert mixed.notes(labels) == ["2 labels (single label classification): film, stars"]
    numbers = LabelSet(NUMBER, ("stars",))
    assert numbers.notes([[[0.5, float("nan")], [3.0]]]) == ["labels are numbers (regression): 0.5 to 3"]
    given = [0.5, [3.0]]
    for labels in (given, iter(given), (one for one in given), [iter(given)], dict(enumerate(given)).values(),
                   map(iter, [given]), filter(None, given), {0.5, 3.0}, [{0.5}, {3.0}]):  # fmt: skip
        assert numbers.notes(labels) == ["labels are numbers (regression): 0.5 to 3"]
    assert numbers.notes([{"stars": 3}]) == ["labels are numbers (regression)"]


# --- the folder of a task of one's own


USES: list[Callable[[Path, Any], Any]] = [
    lambda folder, task: evaluate(folder, data=ROWS, task=task, device="cpu"),
    lambda folder, task: predict(folder, input=ROWS, task=task, device="cpu"),
    lambda folder, task: pipeline(task, folder, device="cpu"),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("task", [None, "small", "text-classification"])
def test_the_folder_of_a_task_of_your_own_needs_the_class(
    run: FinetuningRun, use: Callable[[Path, Any], Any], task: Any
) -> None:
    with pytest.raises(ConfigError, match=r"was fine-tuned for 'small', a task of your own") as error:
        use(run.folder, task)
    assert "did you mean" not in str(error.value).lower()
    assert "In Python" in str(error.value)


@pytest.mark.parametrize("use", USES)
def test_the_class_is_as_good_as_an_instance(run: FinetuningRun, use: Callable[[Path, Any], Any]) -> None:
    use(run.folder, Small)


def test_pipelines_of_your_own_task_explain_themselves(run: FinetuningRun) -> None:
    answer = pipeline(Small, run.folder, device="cpu")
    assert answer({"text": "the river"})["label"] in ("bad", "good")
    with pytest.raises(DataError, match=r"small cannot read \{'txt': 'the river'\}: no 'text'"):
        answer({"txt": "the river"})
    with pytest.raises(DataError, match=r"input 1 \(counted from 0\): .*no 'text'"):
        answer([{"text": "the river"}, {"txt": "the river"}])
    with pytest.raises(ConfigError, match="unknown argument 'top_k'"):
        answer("the river", top_k=2)
    with pytest.raises(ConfigError, match="unknown argument 'top_k'"):
        pipeline(Small, run.folder, device="cpu", top_k=2)


# --- calls


@pytest.mark.parametrize("seeds", [0, -1, [1, 2], 1.5, True, "2"])
def test_seeds_are_a_number_of_runs(tmp_path: Path, seeds: Any) -> None:
    with pytest.raises(ConfigError, match=r"seeds is .*Expected .* number of runs.*seed="):
        finetune("text-classification", train=ROWS, output=tmp_path / "run", seeds=seeds)


def test_a_run_is_resumed_with_its_task_and_loss(model: Path, tmp_path: Path) -> None:
    assert not train(Small(), model, tmp_path / "run", max_minutes=1e-9).loop.finished
    for task, message in (
        (changed(name="other"), "task_name: saved 'small', now 'other'"),
        (changed(objective=staticmethod(F.cross_entropy)), "objective: saved 'head', now 'cross_entropy'"),
    ):
        with pytest.raises(TrainingError, match=f"cannot be resumed with these settings .*{message}"):
            train(task(), model, tmp_path / "run")
    for file in (tmp_path / "run").rglob("training_state.json"):  # as earlier versions wrote it
        document = json.loads(file.read_text())
        del document["fingerprint"]["task_name"], document["fingerprint"]["objective"]
        write_json(file, document)
    assert train(Small(), model, tmp_path / "run").loop.finished


class Lengths(Small):
    """A number for each token: how many there are. The last token has no label."""

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


def test_a_number_for_each_token_is_learnt_in_any_number_of_parts(model: Path, tmp_path: Path) -> None:
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


def test_labels_of_an_objective_and_names_of_labels(model: Path, tmp_path: Path) -> None:
    objective = staticmethod(lambda logits, labels: F.cross_entropy(logits, labels))
    without = changed(objective=objective, labels_of=lambda *_: {})()
    with pytest.raises(ConfigError, match=r"`labels_of` of small returns no 'labels'"):
        train(without, model, tmp_path / "run")
    listed = changed(objective=objective, labels_of=lambda _, rows: {"labels": [row.labels for row in rows]})
    assert train(listed(), model, tmp_path / "lists").loop.finished
    with pytest.raises(ConfigError, match=r"`find_labels` of small returned \['a'\]. Expected LabelSet"):
        train(changed(find_labels=lambda *_: ["a"])(), model, tmp_path / "none")


def test_a_report_of_any_answers(run: FinetuningRun, tmp_path: Path) -> None:
    for number, (truth, answer) in enumerate((("other", "good"), ("other", 0.5), ({"a": [1]}, {"a": [2]}))):
        values = {"truth": lambda *_, value=truth: value, "baseline": lambda *_: {"error": np.float32(0.5)}}
        task = changed(
            record=lambda *_, value=answer: {"label": value, "score": 0.5}, probability="score", **values
        )
        found = evaluate(run.folder, data=ROWS, task=task(), output=tmp_path / str(number), device="cpu")
        assert found.baseline == {"error": 0.5}
        assert found.task.constant_answer(found.examples, found.predictions) is None


@pytest.mark.parametrize("value", [1.5, "high", float("nan")])
def test_a_probability_is_from_0_to_1(value: Any) -> None:
    task = changed(record=lambda *_: {"label": "good", "score": value}, probability="score")
    with pytest.raises(
        DataError, match=r"'score' in a record of small, which `probability` names, is .*from 0"
    ):
        scores_of(task())
