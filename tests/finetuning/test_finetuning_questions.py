"""Question answering learns answers and the no-answer threshold, and counts unusable questions."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bound_tasks import unread
from finetuning_runs import CPU, FAST, texts, tune
from json_lines import read_json_lines, write_json_lines
from random_models import random_model

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import QuestionExample
from albertkit.datasets.options import DataOptions
from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.evaluate import Evaluation
from albertkit.finetuning.losses import HeadObjective, training_inputs
from albertkit.finetuning.predict import predict
from albertkit.finetuning.prepared import prepare
from albertkit.modeling.heads import AlbertForQuestionAnswering
from albertkit.tasks.question_answering import THRESHOLD_KEY, Answer, Answered
from albertkit.tasks.registry import TASKS
from albertkit.tasks.settings import TaskSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.distributed import World

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_training_on_answers_and_questions_without_an_answer(model: Path, tmp_path: Path) -> None:
    """The answer is the word painted or lost. A text without these words has no answer."""
    for name, seed, count in (("train", 0, 96), ("validation", 1, 20)):
        asked = []
        for number, row in enumerate(texts(count, seed)):
            mark = {"good": "painted", "bad": "lost"}[row["label"]]
            text = row["text"].replace("lost", "word") if number % 2 == 0 else row["text"]
            given = [] if number % 2 == 0 else [mark]
            answers = {"text": given, "answer_start": [text.index(one) for one in given]}
            asked.append({"question": "what happened?", "context": text, "answers": answers})
        write_json_lines(tmp_path / f"{name}.jsonl", asked)
    report = tune("question-answering", replace(FAST, epochs=8), model, tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["main_metric"] == "best_f1"
    assert report["metrics"]["best_f1"] > 0.9
    assert report["metrics"]["f1"] == report["metrics"]["best_f1"]
    assert AlbertConfig.from_pretrained(tmp_path / "run").null_score_diff_threshold == pytest.approx(
        _middle_of_the_gap(tmp_path / "run" / "predictions.jsonl", report["metrics"]["best_f1_threshold"])
    )


def test_a_threshold_is_not_inherited(model: Path, tmp_path: Path) -> None:
    """A model of SQuAD 2 that is fine-tuned on SQuAD 1.1 answers every question."""
    shutil.copytree(model, tmp_path / "model")
    config = AlbertConfig.from_pretrained(model)
    config.extra[THRESHOLD_KEY] = -3.0
    config.save_pretrained(tmp_path / "model")
    row = {"question": "what?", "context": "the key was lost"}
    answered = row | {"answers": {"text": ["key"], "answer_start": [4]}}
    unanswered = row | {"answers": {"text": [], "answer_start": []}}
    for rows, metric in (([answered] * 2, "f1"), ([answered, unanswered], "best_f1")):
        prepared = prepare(
            TASKS["question-answering"](),
            FAST,
            model=tmp_path / "model",
            train=write_json_lines(tmp_path / "train.jsonl", rows),
            validation=write_json_lines(tmp_path / "validation.jsonl", rows),
            options=DataOptions(),
        )
        assert THRESHOLD_KEY not in prepared.task.config.extra
        assert prepared.validation.main_metric == metric


def test_a_context_without_a_token_is_answered_in_json(model: Path, tmp_path: Path) -> None:
    """One combining mark is a text, and nothing is left of it when it is normalized."""
    torch.manual_seed(0)
    loaded = AlbertForQuestionAnswering(AlbertConfig.from_pretrained(model))
    AlbertTokenizer.from_pretrained(model).save_pretrained(tmp_path / "model")
    rows = [{"question": "what?", "context": text} for text in ("\u0301", "the key")]
    for threshold in (None, 0.0):
        loaded.config.extra[THRESHOLD_KEY] = threshold
        loaded.save_pretrained(tmp_path / "model")
        output = tmp_path / f"{threshold}.jsonl"
        predict(tmp_path / "model", task="question-answering", input=rows, output=output)
        first, second = read_json_lines(output)
        assert "Infinity" not in output.read_text()
        assert (first["answer"], first["no_answer_difference"]) == ("", None)
        assert isinstance(second["no_answer_difference"], float)


def test_unusable_answers_are_counted(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An answer exceeds every window, another exceeds the maximum, and a question is truncated."""
    filler = "river house letters " * 20
    asked = [
        {"question": "what?", "context": filler + "the key was lost", "answers": "the key"},
        {"question": "what?", "context": filler, "answers": filler.strip()},
        {"question": "what?", "context": "the key was lost in the river", "answers": "the key was lost in"},
        {"question": "what was lost " * 9, "context": "the key was lost", "answers": "key"},
    ]
    write_json_lines(tmp_path / "train.jsonl", asked)
    write_json_lines(tmp_path / "validation.jsonl", asked[:2])
    caplog.set_level("INFO")
    settings = replace(FAST, steps=1, task=TaskSettings(max_answer_length=9, max_question_length=10))
    report = tune("question-answering", settings, model, tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["data"]["training"]["examples_cut"] == 1
    unseen = "questions have an answer that no window of 48 tokens contains"
    assert report["data"]["training"]["warnings"] == {
        unseen: 1,
        "questions have an answer longer than 9 tokens, which cannot be predicted": 1,
    }
    assert report["data"]["validation"]["warnings"] == report["warnings"] == {unseen: 1}
    assert f"* 1 {unseen}" in (tmp_path / "run" / "report.md").read_text()
    for line in (
        "training: 1 of 4 questions are longer than 10 tokens and are truncated",
        f"training: 1 of 4 {unseen}",
        f"validation: 1 of 2 {unseen}",
    ):
        assert line in caplog.text


def test_questions_without_answer_are_counted() -> None:
    task = unread("question-answering")
    examples = [QuestionExample(str(n), "q", "a key", (), is_impossible=n > 0) for n in range(3)]

    def said(training: list[QuestionExample]) -> str | None:
        return task.check(training, [], 8)

    assert said(examples) == "2 of 3 training questions have no answer"
    assert said(examples[:1]) is None


def test_where_silence_is_best_nothing_is_answered() -> None:
    task = unread("question-answering")
    examples = [QuestionExample(str(n), "q", "a key", (), True) for n in range(3)]
    examples.append(QuestionExample("3", "q", "a key", (("key", 2),)))
    predictions = [
        Answered([Answer("a", 0, 1, 0.5, logit)], Answer("", 0, 0, 0.5, 0.0))
        for logit in (2.1, 1.7, 0.3, 1.9)
    ]
    task.config.extra |= task.tuned(examples, predictions)
    assert task.threshold == pytest.approx(-2.11)
    scores = task.scores(examples, predictions)
    assert scores["f1"] == scores["best_f1"] == 0.75


@pytest.mark.parametrize(("threshold", "silent"), [(None, False), (0.0, False), (-1.0, True)])
def test_the_report_has_the_measured_metrics(threshold: float | None, silent: bool) -> None:
    """If a model has no threshold, metrics and records use 0 for questions without an answer."""
    given = unread("question-answering")
    examples = [
        QuestionExample("same id", "q", "a key", (("key", 2),)),
        QuestionExample("same id", "q", "a key", (), True),
    ]
    sure = Answered([Answer("key", 2, 5, 0.7, 2.0)], Answer("", 0, 0, 0.2, 1.5))
    unsure = Answered([Answer("key", 2, 5, 0.1, 0.5)], Answer("", 0, 0, 0.6, 1.5))
    if threshold is not None:
        given.config.extra["null_score_diff_threshold"] = threshold
    task = given.for_examples(examples)
    assert given.threshold == threshold
    said = [task.record(*pair)["answer"] for pair in zip(examples, (sure, unsure), strict=True)]
    assert said == ["" if silent else "key", ""]
    judged = [task.decisions(*pair)[0] for pair in zip(examples, (sure, unsure), strict=True)]
    assert [one.predicted for one in judged] == said
    scores = task.scores(examples, [sure, unsure])
    assert scores["exact"] == sum(one.is_right for one in judged) / 2 == (0.5 if silent else 1.0)
    assert (scores["total"], scores["no_answer_exact"], scores["best_exact"]) == (2, 1.0, 1.0)
    for name in ("best_exact", "best_f1"):  # parts of the data are measured at the model's threshold
        found = Evaluation(task, examples, [sure, unsure], scores, name, [8, 8], 0, Counter())
        assert found.score_of([0]) == (0.0 if silent else 1.0)
    # Where every question has an answer, and the model was not tuned for more, it always answers.
    alone = unread("question-answering").for_examples(examples[:1])
    assert alone.record(examples[0], unsure)["answer"] == "key"
    assert alone.scores(examples[:1], [unsure])["exact"] == 1.0


def _middle_of_the_gap(predictions: Path, threshold: float) -> float:
    lines = read_json_lines(predictions)
    above = [line["no_answer_difference"] for line in lines if line["no_answer_difference"] > threshold]
    assert all((line["answer"] == "") == (line["no_answer_difference"] > threshold) for line in lines)
    return (threshold + min(above)) / 2


class OtherProcess(World):
    """The first of two processes. The other one has a row of 40 tokens."""

    def gather(self, values: torch.Tensor) -> list[torch.Tensor]:
        return [values, torch.tensor([40])]


def test_parts_and_processes_have_the_loss_of_the_batch(model: Path) -> None:
    """The loss treats padding as a possible position, so all parts of a batch have the same length."""
    contexts = ["the river", "a house near the river " * 2, "my sister lost the river"]
    rows = [
        {"question": "what?", "context": text, "answers": {"text": ["r"], "answer_start": [text.index("r")]}}
        for text in contexts
    ]
    settings = replace(FAST, batch_size=3)
    ready = prepare(
        TASKS["question-answering"](),
        settings,
        model=model,
        train=rows,
        validation=rows,
        options=DataOptions(),
    )
    network = random_model(AlbertForQuestionAnswering, ready.task.tokenizer).eval()
    batch = UnitBatch(ready.units)
    assert len({len(row.input_ids) for row in batch.rows}) == 3

    def losses(parts: list[UnitBatch], world: World) -> list[float]:
        objective = HeadObjective(ready.task, world)
        return [objective(network, part, {"items": 3}).loss.item() for part in parts]

    (whole,) = losses([batch], World(CPU))
    for count in (2, 3):
        parts = losses(batch.split(count), World(CPU))
        assert len(parts) == count
        assert sum(parts) == pytest.approx(whole, abs=1e-6)
    inputs = training_inputs(ready.task, batch.rows, CPU, length=40)
    (shared,) = losses([batch], OtherProcess(CPU, size=2))
    assert shared == pytest.approx(network(**inputs).loss.item(), abs=1e-6)
    assert abs(shared - whole) > 1e-4
