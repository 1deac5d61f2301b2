"""Requests, models and settings that several test modules of the server use, and a comparison of answers."""

import math
from typing import Any

from serving_server import WatchedEngine

from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
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


def close_to(found: Any, expected: Any) -> bool:
    """Compare answers; batches are of other rows, so numbers may differ in their last digits."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            close_to(found[key], expected[key]) for key in expected
        )
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(close_to, found, expected))
    if isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-4, abs_tol=1e-6)
    return found == expected
