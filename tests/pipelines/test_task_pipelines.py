"""Pipelines of every task: batches give the same answers as single inputs, and models fit only their task."""

import random

import hypothesis
import pytest
from answers import assert_close
from hypothesis import strategies as st
from json_lines import write_json_lines
from pipeline_answers import WORDS

from albertkit.errors import CheckpointError, DataError
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import core, pipeline

pytestmark = pytest.mark.usefixtures("engine_of_pipelines")

TASKS = (
    "text-classification",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "sentence-order",
    "feature-extraction",
    "fill-mask",
)


@pytest.fixture(scope="module")
def made(engine_of_pipelines, classes, tags, questions, choices, order):
    """For each task the pipeline on each of the two engines."""
    folders = dict(zip(TASKS, (classes, tags, questions, choices, order, order, order), strict=True))
    options = {
        "text-classification": {"top_k": None},
        "feature-extraction": {"pooling": "mean"},
        "multiple-choice": {"truncation": True},
    }
    return {
        task: {
            engine: pipeline(task, folder, engine=engine, **options.get(task, {}))
            for engine in ("auto", "plain")
        }
        for task, folder in folders.items()
    }


class TestAnyBatch:
    """Whatever the lengths, the batch and the way in: the answers of the plain model to each input alone."""

    @staticmethod
    def example(task: str, length: int, rng: random.Random):
        """An input with a text of so many words; of text classification sometimes a pair."""
        first, second, *others = (" ".join(rng.choices(WORDS, k=n)) for n in (length, 1 + length // 3, 1, 2))
        return {
            "question-answering": {"question": second, "context": first},
            "multiple-choice": {"context": first, "question": second, "choices": others},
            "text-classification": rng.choice([first, (first, second)]),
            "sentence-order": (first, second),
            "fill-mask": f"{first} [MASK] {second}",
        }.get(task, first)

    @pytest.mark.parametrize("task", TASKS)
    @hypothesis.given(
        lengths=st.lists(st.integers(1, 20), min_size=1, max_size=7),
        batch_size=st.none() | st.integers(1, 5),
        batch_tokens=st.none() | st.integers(1, 200),
        ahead=st.integers(1, 8),
        way=st.sampled_from(["list", "generator", "file"]),
        engine=st.sampled_from(["auto", "auto", "plain"]),  # which is the same in both runs of this file
        seed=st.integers(0, 2**16),
    )
    @hypothesis.settings(
        max_examples=20, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
    )
    def test_answers_and_their_order(
        self, task, made, tmp_path, lengths, batch_size, batch_tokens, ahead, way, engine, seed
    ):
        rng = random.Random(seed)
        inputs = [self.example(task, length, rng) for length in lengths]
        asked = made[task][engine]
        # one-element lists: of a single text some tasks answer in another shape
        alone = [made[task]["plain"]([one], batch_size=1)[0] for one in inputs]
        asked.batch_tokens = batch_tokens
        given = inputs
        if way == "generator":
            given = iter(inputs)
        elif way == "file":
            given = tmp_path / "inputs.jsonl"
            names = ("text", "text_pair")
            rows = [dict(zip(names, one, strict=True)) if isinstance(one, tuple) else one for one in inputs]
            write_json_lines(given, rows)
        with pytest.MonkeyPatch.context() as patch:  # so few inputs are several blocks all the same
            patch.setattr(core, "INPUTS_AHEAD", ahead)
            patch.setattr(core, "BATCHES_AHEAD", 1 + ahead // 4)
            found = asked(given, batch_size=batch_size)
            assert isinstance(found, list) == (way == "list")
            assert_close(list(found), alone)

    def test_a_file_that_is_not_there(self, classes, tmp_path):
        with pytest.raises(DataError, match=r"none\.txt: no such file"):
            pipeline("text-classification", classes)(tmp_path / "none.txt")


class TestLoading:
    @pytest.mark.parametrize(
        ("task", "name"),
        [
            ("text-classification", "AlbertForSequenceClassification"),
            ("ner", "AlbertForTokenClassification"),
            ("question-answering", "AlbertForQuestionAnswering"),
            ("multiple-choice", "AlbertForMultipleChoice"),
        ],
    )
    def test_bundled_model_must_be_fine_tuned_first(self, task, name):
        with pytest.raises(CheckpointError, match=rf"'bundled' was not trained for .*Fine-tune it .*{name}"):
            pipeline(task)

    def test_task_of_the_model(self, classes, tags, questions, choices):
        for folder, task in (
            (classes, "text-classification"),
            (tags, "token-classification"),
            (questions, "question-answering"),
            (choices, "multiple-choice"),
        ):
            assert pipeline(model=folder).task == task

    def test_head_of_another_task(self, classes, tags, tokenizer, tmp_path):
        with pytest.raises(CheckpointError, match=r"trained for token-classification .*, not for text-class"):
            pipeline("text-classification", tags)
        with pytest.raises(CheckpointError, match=r"trained for text-classification .*, not for multiple-ch"):
            pipeline("multiple-choice", classes)  # whose head has one output: its sizes would differ as well
        with pytest.raises(CheckpointError, match=r"trained for text-classification .*, not for token-class"):
            pipeline("ner", classes)
        AlbertModel.from_pretrained(classes).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        with pytest.raises(CheckpointError, match=r"not trained for sentence-order.*sop_classifier"):
            pipeline("sentence-order", tmp_path)
