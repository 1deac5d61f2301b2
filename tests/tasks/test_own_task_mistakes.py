"""Tests of the errors about a task of your own: its declaration, its model and its runs."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_task import FAST, ROWS, Small, changed, train

from albertkit.config import SETTINGS_KEY
from albertkit.errors import CheckpointError, ConfigError, DataError, TrainingError
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.predict import predict
from albertkit.finetuning.run import FinetuningRun
from albertkit.finetuning.train import finetune
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.pipelines import pipeline
from albertkit.tasks.measuring import directions
from albertkit.tasks.registry import task_of
from albertkit.tasks.task import Task
from albertkit.tasks.text_classification import TextClassification
from albertkit.tokenization.auto import AutoTokenizer

pytestmark = pytest.mark.usefixtures("blank_pictures")


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


class WithArray(Small):
    def labels_of(self, rows: Any) -> Any:
        return super().labels_of(rows)["labels"]


class WithArguments(TextClassification):
    name = "with-arguments"

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Lacking(), "the scores of lacking lack 'exact', which `metrics` declares. They have 'accuracy'. "),
        (Bare(), r"the metrics of lacking are \{\}\. Expected .* at least one metric"),
        (Unbound(), r"the objective of unbound cannot be called with logits and labels .* staticmethod\(fun"),
        (WithoutLabels(), "the objective of without-labels cannot be called with logits and labels"),
        (
            WithoutScores(),
            "the architecture of without-scores is 'AlbertModel', which .* Expected one of Albert",
        ),
        (OfSpans(), "the objective of of-spans is a function .* AlbertForQuestionAnswering has none under"),
        (WithArray(), "`labels_of` of small returned an object of the type ndarray. Expected a dict"),
        (WithArguments, "the task is the class WithArguments. Pass an instance .*'kind'"),
        (
            ["text-classification"],
            r"the task is \['text-classification'\].* Expected one of text-classification",
        ),
    ],
)
def test_finetune_names_the_mistake_in_a_task(model: Path, tmp_path: Path, task: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        finetune(task, train=ROWS, validation=ROWS, model=model, output=tmp_path / "run", steps=1, **FAST)


USES: list[Callable[[Path, Any], Any]] = [
    lambda folder, task: evaluate(folder, data=ROWS, task=task, device="cpu"),
    lambda folder, task: predict(folder, input=ROWS, task=task, device="cpu"),
    lambda folder, task: pipeline(task, folder, device="cpu"),
]


@pytest.mark.parametrize("use", USES)
def test_the_architecture_must_have_the_output_of_the_task(
    use: Callable[[Path, Any], Any], classifier: FinetuningRun
) -> None:
    message = "the architecture of without-scores is 'AlbertModel', which computes no logits. Expected one of"
    with pytest.raises(ConfigError, match=message):
        use(classifier.folder, WithoutScores())


@pytest.mark.parametrize("use", USES)
def test_a_model_with_another_head_is_an_error(
    use: Callable[[Path, Any], Any], classifier: FinetuningRun
) -> None:
    """Check a task of your own, and a task of albertkit."""
    folder = re.escape(str(classifier.folder))
    needed = "AlbertForQuestionAnswering"
    for task, name in ((OfSpans(), "of-spans"), ("question-answering", "question-answering")):
        with pytest.raises((DataError, CheckpointError), match=rf"{folder}\b.*\b{name}\b") as error:
            use(classifier.folder, task)
        assert "AlbertForSequenceClassification" in str(error.value)
        assert needed in str(error.value)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"metrics": {"error": "min"}}, r"the metrics of small are \{'error': 'min'\}.*'higher' or 'lower'"),
        ({"metrics": {"error": False}}, r"the metrics of small are \{'error': False\}. Expected a mapping"),
        ({"metrics": ["error"]}, r"the metrics of small are \['error'\].*directions\("),
        ({"metrics": "error"}, "the metrics of small are 'error'. Expected a mapping"),
        ({"metrics": {}}, r"the metrics of small are \{\}\. Expected .* at least one metric"),
        ({"name": ""}, "Changed has no name"),
        ({"name": "question-answering"}, "the name of Changed is 'question-answering', .* of albertkit"),
        ({"architecture": None}, "Changed has no architecture. Expected"),
        ({"architecture": "AlbertForQuestions"}, "the architecture of small is 'AlbertForQuestions'"),
        ({"architecture": "AlbertForMaskedLM"}, "architecture of small is 'AlbertForMaskedLM'.*vocabulary"),
    ],
)  # fmt: skip
def test_invalid_declarations_are_an_error(attributes: dict[str, Any], message: str) -> None:
    for task in (changed(**attributes)(), changed(**attributes)):
        with pytest.raises(ConfigError, match=message):
            task_of(task)
    with pytest.raises(ConfigError, match=message):
        pipeline(changed(**attributes)(), "no-model")


def test_a_task_needs_a_name_and_an_architecture() -> None:
    for missing in ("name", "architecture"):
        body = {name: value for name, value in vars(Small).items() if name != missing}
        with pytest.raises(ConfigError, match=f"Nameless has no {missing}. Expected"):
            task_of(type("Nameless", (Task,), body)())


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("task", [None, "small", "text-classification"])
def test_a_folder_of_your_task_needs_its_class(
    small_run: FinetuningRun, use: Callable[[Path, Any], Any], task: Any
) -> None:
    with pytest.raises(ConfigError, match=r"was fine-tuned for 'small', a task of your own") as error:
        use(small_run.folder, task)
    assert "did you mean" not in str(error.value).lower()
    assert "In Python" in str(error.value)


@pytest.mark.parametrize("use", USES)
def test_a_class_may_be_passed_instead_of_an_instance(
    small_run: FinetuningRun, use: Callable[[Path, Any], Any]
) -> None:
    use(small_run.folder, Small)


def test_pipelines_of_your_task_name_mistakes(small_run: FinetuningRun) -> None:
    answer = pipeline(Small, small_run.folder, device="cpu")
    assert answer({"text": "the river"})["label"] in ("bad", "good")
    with pytest.raises(DataError, match=r"small cannot read \{'txt': 'the river'\}: no 'text'"):
        answer({"txt": "the river"})
    with pytest.raises(DataError, match=r"input 1 \(counted from 0\): .*no 'text'"):
        answer([{"text": "the river"}, {"txt": "the river"}])
    with pytest.raises(ConfigError, match="unknown argument 'top_k'"):
        answer("the river", top_k=2)
    with pytest.raises(ConfigError, match="unknown argument 'top_k'"):
        pipeline(Small, small_run.folder, device="cpu", top_k=2)


def test_a_pipeline_rejects_unknown_settings_in_the_config(small_run: FinetuningRun) -> None:
    model = AlbertForSequenceClassification.from_pretrained(small_run.folder)
    model.config.extra[SETTINGS_KEY]["maximum_length"] = 16
    with pytest.raises(
        ConfigError, match=r"task_settings in the config: unknown setting 'maximum_length'\. Did"
    ):
        pipeline(Small(), model, AutoTokenizer.from_pretrained(small_run.folder))


@pytest.mark.parametrize("seeds", [0, -1, [1, 2], 1.5, True, "2"])
def test_seeds_must_be_a_number_of_runs(tmp_path: Path, seeds: Any) -> None:
    with pytest.raises(ConfigError, match=r"seeds is .*Expected .* number of runs.*seed="):
        finetune("text-classification", train=ROWS, output=tmp_path / "run", seeds=seeds)


def test_a_run_cannot_be_resumed_with_another_task_or_loss(model: Path, tmp_path: Path) -> None:
    assert not train(Small(), model, tmp_path / "run", max_minutes=1e-9).loop.finished
    for task, message in (
        (changed(name="other"), "task_name: saved 'small', now 'other'"),
        (changed(objective=staticmethod(F.cross_entropy)), "objective: saved 'head', now 'cross_entropy'"),
    ):
        with pytest.raises(TrainingError, match=f"cannot be resumed with these settings .*{message}"):
            train(task(), model, tmp_path / "run")
    assert train(Small(), model, tmp_path / "run").loop.finished
