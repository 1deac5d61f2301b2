"""Requests, heads and settings for tests of the server, and a comparison of answers."""

import math
from typing import Any

from serving_server import WatchedEngine

from albertkit.modeling.heads import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.modeling.model import AlbertModel
from albertkit.serving.models import ServedModel
from albertkit.serving.settings import ServingSettings

HEADS = {
    "pretrained": AlbertForPreTraining,
    "classifier": AlbertForSequenceClassification,
    "tagger": AlbertForTokenClassification,
    "reader": AlbertForQuestionAnswering,
    "chooser": AlbertForMultipleChoice,
    "encoder": AlbertModel,
    "nli": AlbertForSequenceClassification,
}
CONTEXT = "The captain opened a silver key in the morning. My sister followed the river before dinner. " * 3
MASKED = ["the captain opened [MASK] in the [MASK]", "[MASK] followed the river", CONTEXT + "[MASK]"]
PAIRS = [
    {"text": "my sister", "text_pair": "lost a well-kept secret"},
    {"text": "a fox", "text_pair": "sold"},
]
CHOICES = [{"context": "the child", "question": "a _ key", "choices": ["silver", "gold", "empty house"]}]


def settings_for(folders: dict[str, str], **changes: Any) -> ServingSettings:
    return ServingSettings(**({"models": folders, "port": 0, "device": "cpu"} | changes))


def engine_of(model: ServedModel) -> WatchedEngine:
    assert isinstance(model.engine, WatchedEngine)
    return model.engine


def close_to(answer: Any, expected: Any) -> bool:
    """Compare answers. Numbers may differ in their last digits, because batches contain different rows."""
    if isinstance(expected, dict):
        return answer.keys() == expected.keys() and all(
            close_to(answer[key], expected[key]) for key in expected
        )
    if isinstance(expected, list | tuple):
        return len(answer) == len(expected) and all(map(close_to, answer, expected))
    if isinstance(expected, float):
        return math.isclose(answer, expected, rel_tol=1e-4, abs_tol=1e-6)
    return answer == expected
