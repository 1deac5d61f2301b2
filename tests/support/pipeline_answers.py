"""Texts and labels for task pipelines, the pipelines of `transformers`, and a comparison of answers."""

import functools
import random
from pathlib import Path

import pytest
import transformers

LIMIT = 96
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WORDS = ["harbour", "opened", "word", "the", "silver", "code", "dinner", "letters", "sister", "remembered"]
TEXT = "the captain opened the harbour in the morning"


@functools.cache
def theirs(task: str, model_class: str, folder: Path, **options) -> transformers.Pipeline:
    model = getattr(transformers, model_class).from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device=-1, **options)


def random_texts(count: int, *, words: tuple[int, int] = (1, 30), seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(*words))) for _ in range(count)]


def assert_close(ours, theirs, *, tolerance: float = 1e-5) -> None:
    """Assert that two answers are equal, with a tolerance for numbers."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert_close(ours[name], theirs[name], tolerance=tolerance)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our_value, their_value in zip(ours, theirs, strict=True):
            assert_close(our_value, their_value, tolerance=tolerance)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=tolerance)
    else:
        assert ours == theirs


def plain(value):
    """Convert NumPy numbers in a value to Python numbers."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
