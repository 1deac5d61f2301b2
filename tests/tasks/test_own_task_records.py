"""Tests of the predictions and the records of a task of your own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_task import ROWS, Small, changed, scores_of, train

from albertkit.datasets.examples import TextExample
from albertkit.datasets.reader import open_table
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.predict import predict
from albertkit.finetuning.run import FinetuningRun
from albertkit.pipelines import pipeline
from albertkit.tasks.measuring import plain_value

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_predictions_must_match_the_examples(small_run: FinetuningRun) -> None:
    short = changed(predictions=lambda *_: ["good"])()
    message = r"`predictions` of small returned 1 prediction for 10 examples. Expected one for each"
    with pytest.raises(DataError, match=message):
        evaluate(small_run.folder, data=ROWS, task=short, device="cpu")
    with pytest.raises(DataError, match=message):
        predict(small_run.folder, input=ROWS, task=short, device="cpu")
    with pytest.raises(DataError, match=message):
        pipeline(short, small_run.folder, device="cpu")(ROWS)


def test_numpy_values_in_records_become_python_values(small_run: FinetuningRun, tmp_path: Path) -> None:
    values = {
        "score": np.float32(0.5),
        "counts": np.arange(2),
        "nested": [{"n": np.int64(3)}],
        "pair": (1, 2),
    }
    task = changed(record=lambda _, __, one: {"label": one, **values}, probability="score")()
    plain = {"score": 0.5, "counts": [0, 1], "nested": [{"n": 3}], "pair": [1, 2]}
    output = tmp_path / "out"
    evaluate(small_run.folder, data=ROWS, task=task, output=output, device="cpu")
    predict(small_run.folder, input=ROWS, task=task, output=tmp_path / "rows.jsonl", device="cpu")
    for record in (
        json.loads((output / "predictions.jsonl").read_text().splitlines()[0]),
        json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0]),
        predict(small_run.folder, input=ROWS, task=task, device="cpu")[0],
        pipeline(task, small_run.folder, device="cpu")("the river"),
    ):
        assert {name: record[name] for name in plain} == plain
        assert type(record["nested"][0]["n"]) is int


def test_a_record_may_have_a_single_value_as_scores(small_run: FinetuningRun, tmp_path: Path) -> None:
    task = changed(record=lambda *_: {"label": "good", "scores": 0.5})()
    for name in ("rows.jsonl", "rows.csv"):
        predict(small_run.folder, input=ROWS, task=task, output=tmp_path / name, device="cpu")
        row = next(iter(open_table(tmp_path / name).rows()))
        assert float(row.values["scores"]) == 0.5


@pytest.mark.parametrize("column", ["row", "cut", "true"])
def test_a_record_has_no_columns_of_albertkit(small_run: FinetuningRun, column: str) -> None:
    task = changed(record=lambda *_: {"label": "good", column: 7})()
    for use in (
        lambda: predict(small_run.folder, input=ROWS, task=task, device="cpu"),
        lambda: evaluate(small_run.folder, data=ROWS, task=task, device="cpu"),
        lambda: pipeline(task, small_run.folder, device="cpu")("the river"),
    ):
        with pytest.raises(
            DataError, match=f"a record of small has the column '{column}'.* except row, cut, t"
        ):
            use()


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
def test_an_invalid_record_ends_the_run_before_it_trains(
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


def test_answer_and_probability_must_name_columns_of_the_record() -> None:
    def wrong(true: Any, predicted: Any) -> float:
        raise AssertionError

    with pytest.raises(ConfigError, match=r"no column 'topic', which `answer` names. It has 'label'"):
        scores_of(changed(answer="topic")().with_metrics(wrong))
    with pytest.raises(ConfigError, match=r"no column 'score', which `probability` names"):
        scores_of(changed(probability="score")())


def test_truth_must_be_a_plain_value(model: Path, tmp_path: Path) -> None:
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
def test_values_without_a_plain_form_are_an_error(value: Any) -> None:
    with pytest.raises(DataError, match=r"the answer is .*Expected text, a number, None, or lists and dicts"):
        plain_value(value, what="the answer is")


def test_numbers_of_any_precision_become_python_numbers() -> None:
    for kind in (np.float16, np.float32, np.float64, np.longdouble, np.int8, np.uint64):
        for plain in (plain_value(kind(3), what=""), *plain_value(np.full((1, 2), kind(3)), what="")[0]):
            assert plain == 3
            assert type(plain) in (int, float)


def test_reports_of_answers_of_any_type(small_run: FinetuningRun, tmp_path: Path) -> None:
    for number, (truth, answer) in enumerate((("other", "good"), ("other", 0.5), ({"a": [1]}, {"a": [2]}))):
        values = {"truth": lambda *_, value=truth: value, "baseline": lambda *_: {"error": np.float32(0.5)}}
        task = changed(
            record=lambda *_, value=answer: {"label": value, "score": 0.5}, probability="score", **values
        )
        found = evaluate(
            small_run.folder, data=ROWS, task=task(), output=tmp_path / str(number), device="cpu"
        )
        assert found.baseline == {"error": 0.5}
        assert found.task.constant_answer(found.examples, found.predictions) is None


@pytest.mark.parametrize("value", [1.5, "high", float("nan")])
def test_a_probability_must_be_from_0_to_1(value: Any) -> None:
    task = changed(record=lambda *_: {"label": "good", "score": value}, probability="score")
    with pytest.raises(
        DataError,
        match=r"'score' in a record of small, which `probability` names, is .*from 0 .*None\.$",
    ):
        scores_of(task())
