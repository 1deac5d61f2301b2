"""Texts and labels for task pipelines, and the pipelines of `transformers`."""

import functools
import random
from pathlib import Path

import pytest
import transformers

LIMIT = 96
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WORDS = ["harbour", "opened", "word", "the", "silver", "code", "dinner", "letters", "sister", "remembered"]
MASKED_TEXTS = [
    "the harbour opened the [MASK] in the morning",
    "[MASK]",
    "my [MASK] sister found the word [MASK] a word",
    "the child lost a silver [MASK]",
    "The doctor remembered [MASK] house   before dinner",
]
"""Texts that both tokenizers split into the same tokens. transformers starts a word after punctuation."""
TEXT = "the captain opened the harbour in the morning"


@functools.cache
def theirs(task: str, model_class: str, folder: Path, **options) -> transformers.Pipeline:
    model = getattr(transformers, model_class).from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device=-1, **options)


def assert_same_answers(ours: list, theirs: list) -> None:
    """Compare the tokens and the scores of answers of `fill-mask`."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, list):
            assert_same_answers(one, other)
        else:
            assert one["token"] == other["token"]
            assert one["score"] == pytest.approx(other["score"], abs=1e-5)


def random_texts(count: int, *, words: tuple[int, int] = (1, 30), seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(*words))) for _ in range(count)]


def plain(value):
    """Convert NumPy numbers in a value to Python numbers."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
