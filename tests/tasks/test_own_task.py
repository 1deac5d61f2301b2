"""A task in one file outside of the package, metrics of one's own, and data in memory."""

import json
import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from places import ROOT
from small_task import FAST, ROWS, tiny_model

from albertkit.datasets.examples import TextExample
from albertkit.errors import CheckpointError, ConfigError, DataError, TrainingError
from albertkit.files import write_json
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.predict import predict
from albertkit.finetuning.run import FinetuningRun
from albertkit.finetuning.train import finetune
from albertkit.pipelines import pipeline
from albertkit.tasks.label_kinds import NUMBER
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.measuring import Metric, directions
from albertkit.tasks.task import Task
from albertkit.tasks.text_classification import TextClassification

pytestmark = pytest.mark.usefixtures("blank_pictures")

OWN = runpy.run_path(str(ROOT / "examples" / "own_task.py"))


@pytest.fixture(scope="module")
def model(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tiny_vocabulary, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def classifier(model: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuningRun:
    output = tmp_path_factory.mktemp("run") / "run"
    return finetune(
        "text-classification", train=ROWS, validation=ROWS, model=model, output=output, steps=2, **FAST
    )


def test_a_task_of_your_own_learns_and_predicts(model: Path, tmp_path: Path) -> None:
    task, sentences = OWN["SeveralTags"](), OWN["sentences"]
    run = finetune(
        task, train=sentences(96, 0), validation=sentences(20, 1), model=model, output=tmp_path / "run",
        epochs=8, metrics=Metric(OWN["mistakes"], lower_is_better=True), **FAST,
    )  # fmt: skip
    assert run.report is not None
    assert run.report["main_metric"] == "mistakes"
    assert run.metrics["exact"] > 0.8
    assert run.metrics["mistakes"] < 1
    measured = evaluate(run.folder, data=sentences(20, 1), task=task, device="cpu")
    assert measured.metrics == {"exact": run.metrics["exact"]}
    found = predict(run.folder, input=[{"words": ["the", "bread"]}] * 3, task=task, device="cpu")
    assert [one["row"] for one in found] == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"was fine-tuned for 'several-tags', a task of your own"):
        evaluate(run.folder, data=sentences(3, 1), device="cpu")
    for name in (None, "token-classification", "ner", "text-classification"):
        with pytest.raises(ConfigError, match=r"was fine-tuned for 'several-tags', a task of your own"):
            pipeline(name, run.folder, device="cpu")
    assert pipeline("feature-extraction", run.folder, device="cpu")("the")
    answer = pipeline(task, run.folder, device="cpu")
    with pytest.raises(ConfigError, match=r"the model was fine-tuned for 'several-tags'"):
        pipeline(None, answer.model, answer.tokenizer)
    assert answer({"words": ["the", "bread"]})["labels"] == found[0]["labels"]
    frame = pd.DataFrame({"words": [["the", "bread"], ["ships"]]})
    assert [one["words"] for one in answer(frame)] == [["the", "bread"], ["ships"]]
    assert run.pipeline(device="cpu")([{"words": ["the", "bread"]}])[0]["labels"] == found[0]["labels"]


def test_a_name_of_transformers_in_the_config_is_no_task_of_your_own(
    classifier: FinetuningRun, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(classifier.folder, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    del config["task_settings"]
    (copy / "config.json").write_text(json.dumps(config | {"finetuning_task": "mrpc"}))
    expected = pipeline(None, classifier.folder, device="cpu")("the river")
    assert pipeline(None, copy, device="cpu")("the river") == expected
    assert pipeline("text-classification", copy, device="cpu")("the river") == expected


def test_rows_that_a_task_does_not_read_are_counted(model: Path, tmp_path: Path) -> None:
    task = OWN["SeveralTags"]()
    sentences = OWN["sentences"](20, 0)
    run = finetune(task, train=sentences, model=model, output=tmp_path / "run", steps=1, **FAST)
    with pytest.raises(DataError, match=r"1 of 2 rows cannot be read.*input, row 2: no 'words'"):
        predict(run.folder, input=[{"words": ["the"]}, {"text": "the"}], task=task, device="cpu")


def test_data_in_memory_is_as_good_as_a_file(classifier: FinetuningRun, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    file = tmp_path / "rows.csv"
    frame = pd.DataFrame(ROWS)
    frame.to_csv(file, index=False)
    examples = [TextExample(row["text"], label=row["label"]) for row in ROWS]
    expected = evaluate(classifier.folder, data=file, device="cpu")
    for data in (
        ROWS, frame, pa.Table.from_pylist(ROWS), datasets.Dataset.from_list(ROWS), examples, iter(examples)
    ):  # fmt: skip
        found = evaluate(classifier.folder, data=data, device="cpu")
        assert found.metrics == expected.metrics
    labels = [one["label"] for one in predict(classifier.folder, input=frame, device="cpu")]
    assert labels == [one["label"] for one in predict(classifier.folder, input=file, device="cpu")]
    written = predict(classifier.folder, input=ROWS, output=tmp_path / "out.jsonl", device="cpu")
    assert (written.total, len((tmp_path / "out.jsonl").read_text().splitlines())) == (10, 10)
    assert list(frame.join(pd.DataFrame(list(predict(classifier.folder, input=frame)))[["score"]])) == [
        "text", "label", "score",
    ]  # fmt: skip
    for wrong in (3, {"train": ROWS}):
        with pytest.raises(DataError):
            evaluate(classifier.folder, data=wrong, device="cpu")


@pytest.mark.parametrize("data", [[], (), iter([]), pd.DataFrame(), pa.Table.from_pylist([])])
def test_data_without_examples_say_so(classifier: FinetuningRun, data: Any) -> None:
    with pytest.raises(DataError, match=r"^input has no examples. Expected at least one\.$"):
        predict(classifier.folder, input=data, device="cpu")


def test_texts_are_no_examples(classifier: FinetuningRun) -> None:
    with pytest.raises(
        DataError, match=r"input is an iterable of texts, such as 'the river'. Expected dicts"
    ):
        predict(classifier.folder, input=["the river"], device="cpu")


def test_a_metric_of_your_own_chooses_the_best_model(model: Path, tmp_path: Path) -> None:
    values = iter([0.5, 0.7, 0.3, 0.6, 0.6])

    def error(true: list[str], predicted: list[str]) -> float:
        assert len(true) == len(predicted)
        return next(values)

    for lower, best in ((True, 2), (False, 1)):
        values = iter([0.5, 0.7, 0.3, 0.6] + [0.5] * 20)
        run = finetune(
            "text-classification", train=ROWS, validation=ROWS, model=model, output=tmp_path / str(lower),
            metrics=Metric(error, lower_is_better=lower), steps=3, evaluate_every=1, **FAST,
        )  # fmt: skip
        assert run.loop.state.best_step == best


def cost(true: list[str], predicted: list[str]) -> float:
    return float(sum(map(str.__ne__, true, predicted)))


def gain(true: list[str], predicted: list[str]) -> float:
    return -cost(true, predicted)


COST = Metric(cost, lower_is_better=True)


def costly(model: Path, output: Path, **changes: Any) -> FinetuningRun:
    settings = FAST | {"steps": 2, "evaluate_every": 1, "metrics": COST} | changes
    return finetune(
        "text-classification", train=ROWS, validation=ROWS, model=model, output=output, **settings
    )


@pytest.fixture(scope="module")
def costly_run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuningRun:
    return costly(model, tmp_path_factory.mktemp("costly") / "run")


@pytest.mark.parametrize("stopped", [True, False])
def test_the_metrics_of_a_run_cannot_change(
    costly_run: FinetuningRun, model: Path, tmp_path: Path, stopped: bool
) -> None:
    folder = tmp_path / "run"
    if stopped:
        assert not costly(model, folder, max_minutes=1e-9).loop.finished
    else:
        shutil.copytree(costly_run.folder, folder)
    report = folder / "report.json"
    before = None if stopped else report.read_bytes()
    for metrics, message in (
        (None, "main_metric: saved 'cost', now 'accuracy'; own_metrics.cost: saved 'lower', now nothing"),
        (gain, "main_metric: saved 'cost', now 'gain'"),
        ([COST, gain], "own_metrics.gain: saved nothing, now 'higher'"),
        (cost, "own_metrics.cost: saved 'lower', now 'higher'"),
    ):
        with pytest.raises(TrainingError, match=f"cannot be resumed with these settings .*{message}"):
            costly(model, folder, metrics=metrics)
    assert stopped or report.read_bytes() == before
    for file in folder.rglob("training_state.json"):  # as earlier versions wrote it
        document = json.loads(file.read_text())
        del document["fingerprint"]["main_metric"], document["fingerprint"]["own_metrics"]
        write_json(file, document)
    assert costly(model, folder).loop.finished


def test_an_evaluation_knows_the_metric_that_chose_the_model(
    costly_run: FinetuningRun, classifier: FinetuningRun, model: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    folder = costly_run.folder
    assert evaluate(folder, data=ROWS, metrics=COST, device="cpu").main_metric == "cost"
    assert "not measured here" not in caplog.text
    assert evaluate(folder, data=ROWS, device="cpu").main_metric == "accuracy"
    note = "the model was selected by cost, which is not measured here: the main metric is accuracy"
    assert caplog.text.count(note) == 1
    assert evaluate(folder, data=ROWS, metrics=COST, main_metric="f1", device="cpu").main_metric == "f1"
    run = costly(model, tmp_path / "run", metrics=COST, best_metric="matthews")
    assert evaluate(run.folder, data=ROWS, device="cpu").main_metric == "matthews"
    assert evaluate(classifier.folder, data=ROWS, device="cpu").main_metric == "accuracy"
    assert caplog.text.count("not measured here") == 1


def test_a_main_metric_that_is_not_there_is_refused(classifier: FinetuningRun) -> None:
    for name, message in (
        ("acuracy", r"main_metric is 'acuracy' \(did you mean 'accuracy'\?\). Expected one of accuracy, f1"),
        ("cost", "main_metric is 'cost'. Expected one of accuracy, f1"),
        ("pearson", "main_metric is 'pearson'. Expected one of accuracy, matthews"),
    ):
        with pytest.raises(ConfigError, match=message):
            evaluate(classifier.folder, data=ROWS, main_metric=name, device="cpu")


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (Metric(cost, name="accuracy"), "'accuracy', which is also the name of a metric of text-class"),
        (
            [cost, Metric(gain, name="cost")],
            "the name of a metric is 'cost', which is also the name of another metric in `metrics`",
        ),
        ("accuracy", "metrics has 'accuracy'. Expected functions .* pass its name as best_metric"),
        (["accuracy"], "metrics has 'accuracy'. Expected functions"),
        (3, "metrics has 3. Expected functions"),
    ],
)
def test_metrics_that_cannot_be(model: Path, tmp_path: Path, metrics: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        costly(model, tmp_path / "run", metrics=metrics)


@pytest.mark.parametrize("value", [float("nan"), None, "0.5", [0.5], np.array([1.0, 2.0])])
def test_a_metric_without_a_number_is_named(classifier: FinetuningRun, value: Any) -> None:
    metric = Metric(lambda *_: value, name="cost")
    with pytest.raises(
        DataError, match=r"the metric 'cost' returned .* for 10 examples. Expected a finite number"
    ):
        evaluate(classifier.folder, data=ROWS, metrics=metric, device="cpu")


def test_a_metric_may_have_no_value_for_a_few_examples(classifier: FinetuningRun, tmp_path: Path) -> None:
    def spread(true: list[str], predicted: list[str]) -> float:
        return 0.5 if len(true) == len(ROWS) else float("nan")

    found = evaluate(classifier.folder, data=ROWS, metrics=spread, output=tmp_path / "out", device="cpu")
    assert found.metrics["spread"] == 0.5


def test_the_result_names_the_model_and_what_chose_it(costly_run: FinetuningRun) -> None:
    assert costly_run.report is not None
    kept = costly_run.report["step"]
    line = f"of step {kept}, selected by cost (lower is better)"
    assert costly_run.summary()["model"] == line
    assert line in repr(costly_run)
    assert costly_run.report["lower_is_better"] == ["cost"]
    markdown = (costly_run.folder / "report.md").read_text()
    assert "\n| cost (lower is better) | " in markdown
    assert "\n| accuracy | " in markdown


def test_unknown_arguments_are_told_from_those_of_the_call(classifier: FinetuningRun) -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'main_metrics'\. Did you mean 'main_metric'"):
        evaluate(classifier.folder, data=ROWS, main_metrics="f1")
    with pytest.raises(ConfigError, match=r"unknown setting 'keep_colums'\. Did you mean 'keep_columns'"):
        predict(classifier.folder, input=ROWS, keep_colums=True)
    with pytest.raises(ConfigError, match=r"unknown setting 'metric'\. Did you mean 'metrics'"):
        finetune("text-classification", train=ROWS, output="run", metric=cost)


def test_messages_name_the_argument_and_what_python_accepts(
    classifier: FinetuningRun, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"with --text-column \(in Python text_column=\)"):
        predict(classifier.folder, input=[{"body": "the river"}])
    (tmp_path / "rows.dat").write_text("x")
    with pytest.raises(DataError, match=r"unknown kind of file.* in Python an iterable of examples"):
        predict(classifier.folder, input=tmp_path / "rows.dat")


class Lacking(TextClassification):
    name = "lacking"
    metrics = directions("exact")

    def main_metric(self, examples: Any) -> str:
        return "exact"


class Bare(Lacking):
    metrics = {}  # noqa: RUF012
    main_metric = Task.main_metric


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, labels)


class Unbound(TextClassification):
    name = "unbound"
    objective = loss_of


class WithoutLabels(TextClassification):
    name = "without-labels"
    objective = staticmethod(lambda logits: logits.sum())


class WithoutScores(TextClassification):
    name = "without-scores"
    architecture = "AlbertModel"


class OfSpans(TextClassification):
    name = "of-spans"
    architecture = "AlbertForQuestionAnswering"
    objective = staticmethod(loss_of)


class WithArguments(TextClassification):
    name = "with-arguments"

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind


def test_numbers_in_lists_are_described() -> None:
    labels = LabelSet(NUMBER, ("LABEL_0",))
    assert labels.notes([[0.5, 3.0], [1.0], 2.0]) == ["labels are numbers (regression): 0.5 to 3"]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Lacking(), "the scores of lacking lack 'exact', which `metrics` declares. They have 'accuracy'. "),
        (Bare(), "Bare declares no metrics. Expected an attribute"),
        (Unbound(), r"the objective of unbound cannot be called with logits and labels .* staticmethod\(fun"),
        (WithoutLabels(), "the objective of without-labels cannot be called with logits and labels"),
        (
            WithoutScores(),
            "the architecture of without-scores is 'AlbertModel', which .* Expected one of Albert",
        ),
        (OfSpans(), "the objective of of-spans is a function .* AlbertForQuestionAnswering has none under"),
        (WithArguments, "the task is the class WithArguments. Pass an instance .*'kind'"),
    ],
)
def test_what_is_wrong_with_a_task_of_your_own(model: Path, tmp_path: Path, task: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        finetune(task, train=ROWS, validation=ROWS, model=model, output=tmp_path / "run", steps=1, **FAST)


USES = [
    pytest.param(lambda task, model: evaluate(model, data=ROWS, task=task, device="cpu"), id="evaluate"),
    pytest.param(lambda task, model: predict(model, input=ROWS, task=task, device="cpu"), id="predict"),
    pytest.param(lambda task, model: pipeline(task, str(model)), id="pipeline"),
]


@pytest.mark.parametrize("use", USES)
def test_an_architecture_without_the_output_is_named_wherever_a_task_is_used(
    use: Callable[..., Any], classifier: FinetuningRun
) -> None:
    message = "the architecture of without-scores is 'AlbertModel', which computes no logits. Expected one of"
    with pytest.raises(ConfigError, match=message):
        use(WithoutScores(), classifier.folder)


@pytest.mark.parametrize("use", USES)
def test_a_model_without_the_head_of_the_task_is_named_with_the_head(
    use: Callable[..., Any], classifier: FinetuningRun
) -> None:
    """Of a task of your own as of `albertkit`'s."""
    folder = re.escape(str(classifier.folder))
    needed = "AlbertForQuestionAnswering"
    for task, name in ((OfSpans(), "of-spans"), ("question-answering", "question-answering")):
        with pytest.raises((DataError, CheckpointError), match=rf"{folder}\b.*\b{name}\b") as error:
            use(task, classifier.folder)
        assert "AlbertForSequenceClassification" in str(error.value)
        assert needed in str(error.value)


def test_without_validation_data_some_examples_are_held_out(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = {**FAST, "steps": 1, "model": model}
    run = finetune("text-classification", train=ROWS * 2, output=tmp_path / "run", **settings)
    assert run.report is not None
    counts = [run.report["data"][name]["examples"] for name in ("training", "validation")]
    assert counts == [18, 2]
    lines = [line for line in caplog.messages if line.startswith(("train:", "train ("))]
    assert lines == ["train: 18 examples", "train (held out): 2 examples"]
    with pytest.raises(DataError, match="too few to hold out"):
        finetune("text-classification", train=ROWS[3:8], output=tmp_path / "other", **settings)
    with pytest.raises(ConfigError, match=r"unknown setting 'epoch'\. Did you mean 'epochs'"):
        finetune("text-classification", train=ROWS, output=tmp_path / "other", epoch=1)


def test_results_are_good_to_read(classifier: FinetuningRun) -> None:
    assert repr(classifier).startswith("FinetuningRun")
    found = evaluate(classifier.folder, data=ROWS, device="cpu")
    assert repr(found).startswith("Evaluation")
    assert "accuracy" in repr(found)
    assert np.isclose(found.baseline["accuracy"], 0.5)
    assert [one["true"] for one in found.records] == [row["label"] for row in ROWS]
