"""Tests that the pipelines without PyTorch give the outputs of the NumPy reference.

The models are created without PyTorch too: random weights of the shapes that a config implies.
"""

from pathlib import Path

import numpy as np
import pytest
from light_models import (  # make_fixture is a fixture
    CHOICES,
    MASKED,
    PAIR,
    QUESTION,
    SHAPES,
    TEXT,
    Make,
    close,
    make_fixture,  # noqa: F401
    same,
)

from albertkit import pipeline
from albertkit.conversion import convert
from albertkit.reference import softmax

pytestmark = pytest.mark.light


class TestPipelines:
    """Pipelines of models with one group of layers, and with several groups and another activation."""

    pytestmark = pytest.mark.parametrize("shape", SHAPES)

    def test_fill_mask(self, make: Make, shape: str) -> None:
        model = make("AlbertForMaskedLM", shape)
        position = model.tokenizer(MASKED).input_ids.index(model.tokenizer.mask_token_id)
        expected = softmax(model.outputs(MASKED)["logits"][0, position])
        answers = pipeline("fill-mask", model.folder)(MASKED, top_k=len(expected))
        assert len(answers) == len(expected)
        close([answer["score"] for answer in answers], expected[[answer["token"] for answer in answers]])

    def test_feature_extraction(self, make: Make, shape: str) -> None:
        model = make("AlbertModel", shape)
        close(pipeline("feature-extraction", model.folder)(TEXT), model.outputs(TEXT)["last_hidden_state"])

    def test_text_classification(self, make: Make, shape: str) -> None:
        model = make("AlbertForSequenceClassification", shape)
        answers = pipeline(None, model.folder)({"text": TEXT, "text_pair": PAIR}, top_k=None)
        expected = softmax(model.outputs(TEXT, PAIR)["logits"][0])
        scores = {answer["label"]: answer["score"] for answer in answers}
        close([scores[f"LABEL_{number}"] for number in range(3)], expected)

    def test_token_classification(self, make: Make, shape: str) -> None:
        model = make("AlbertForTokenClassification", shape)
        text = TEXT.rstrip(".")  # the task treats it as a separate word
        answers = pipeline(None, model.folder)(text)
        expected = softmax(model.outputs(text)["logits"][0])[1:-1]  # without [CLS] and [SEP]
        assert [answer["entity"] for answer in answers] == [f"LABEL_{row.argmax()}" for row in expected]
        close([answer["score"] for answer in answers], expected.max(-1))

    def test_question_answering(self, make: Make, shape: str) -> None:
        model = make("AlbertForQuestionAnswering", shape)
        outputs = model.outputs(QUESTION, PAIR)
        first, last = len(model.tokenizer(QUESTION).input_ids), outputs["start_logits"].shape[1] - 1
        start, end = (
            softmax(outputs[f"{name}_logits"][0, [0, *range(first, last)]])[1:] for name in ("start", "end")
        )
        answer = pipeline(None, model.folder)(question=QUESTION, context=PAIR, max_answer_len=99)
        close(answer["score"], np.triu(np.outer(start, end)).max())
        assert answer["answer"] == PAIR[answer["start"] : answer["end"]] != ""

    def test_multiple_choice(self, make: Make, shape: str) -> None:
        model = make("AlbertForMultipleChoice", shape)
        logits = [model.outputs(PAIR, f"{QUESTION} {choice}")["logits"][0, 0] for choice in CHOICES]
        answer = pipeline(None, model.folder)(context=PAIR, question=QUESTION, choices=CHOICES)
        close(answer["scores"], softmax(np.array(logits)))
        assert answer["choice"] == CHOICES[int(np.argmax(logits))]

    def test_sentence_order(self, make: Make, shape: str) -> None:
        model = make("AlbertForPreTraining", shape)
        expected = softmax(model.outputs(TEXT, PAIR)["sop_logits"][0])
        answer = pipeline("sentence-order", model.folder)((TEXT, PAIR))
        close(answer["score"], expected.max())
        assert answer["label"] == ("in order", "swapped")[expected.argmax()]


@pytest.mark.parametrize("task", ["fill-mask", "feature-extraction"])
def test_long_and_short_texts_in_one_call(make: Make, task: str) -> None:
    model = make("AlbertForPreTraining")
    texts = [MASKED, *(f"{TEXT} {MASKED}" for _ in range(20)), MASKED + TEXT]
    pipe = pipeline(task, model.folder)
    together = pipe(texts, batch_size=4)
    for text, answer in zip(texts, together, strict=True):
        same(answer, pipe(text))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_half_the_size(make: Make, dtype: str, tmp_path: Path) -> None:
    model = make("AlbertForMaskedLM")
    convert(model.folder, tmp_path / "half", dtype=dtype)
    stored = pipeline("fill-mask", tmp_path / "half")
    scores = [answer["score"] for answer in stored(MASKED)]
    expected = [answer["score"] for answer in pipeline("fill-mask", model.folder)(MASKED)]
    np.testing.assert_allclose(scores, expected, rtol=0.1)
    assert scores != expected
