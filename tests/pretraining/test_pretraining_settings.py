"""Tests of the default learning rate of pretraining, and of errors and warnings about settings."""

from dataclasses import replace

import pytest
from pretraining_runs import SETTINGS, SIZES
from quick_runs import quick_runs  # noqa: F401  # a fixture

from albertkit.errors import ConfigError
from albertkit.pretraining.settings import ExampleSettings, PretrainingSettings, TokenizerSettings
from albertkit.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("optimizer", "batch", "expected"),
    [
        ("lamb", {"batch_size": 4096}, 1.76e-3),
        ("lamb", {"batch_size": 1024}, 0.88e-3),
        ("lamb", {"batch_tokens": 4096 * 128}, 0.88e-3),
        ("adamw", {"batch_size": 256}, 1e-4),
        ("adamw-corrected", {"batch_size": 1024}, 2e-4),
    ],
)
def test_the_learning_rate_grows_with_the_root_of_the_batch_size(
    optimizer: str, batch: dict, expected: float
) -> None:
    settings = PretrainingSettings(
        **batch,
        model=SIZES,
        examples=ExampleSettings(max_seq_length=512),
        training=TrainingSettings(steps=1, optimizer=optimizer),  # type: ignore[arg-type]
    )
    assert settings.with_learning_rate().training.learning_rate == pytest.approx(expected)
    given = replace(settings, training=replace(settings.training, learning_rate=5e-4))
    assert given.with_learning_rate() is given


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"optimizer": "lamb", "learning_rate": 1e-2}, "too high for LAMB"),
        ({"optimizer": "adamw", "learning_rate": 1e-3}, "high for AdamW with initializer_range 0.02"),
        ({"optimizer": "adamw", "learning_rate": 4e-4}, None),
        ({"optimizer": "adamw", "learning_rate": 4e-4, "warmup_steps": 0}, "there is no warm-up"),
    ],
)
def test_unsuitable_learning_rates_cause_a_warning(changes: dict, warning: str | None) -> None:
    settings = replace(SETTINGS, training=replace(SETTINGS.training, **changes))
    found = settings.warnings()
    assert len(found) == (warning is not None)
    assert warning is None or warning in found[0]


@pytest.mark.parametrize(
    ("changes", "is_warned"),
    [
        ({"masked_lm_probability": 0.3}, True),
        ({"masked_lm_probability": 0.3, "max_predictions": 39}, False),
        ({"masked_lm_probability": 0.3, "max_predictions": 20}, False),
        ({"masked_lm_probability": 0.15}, False),
        ({"masked_lm_probability": 0.3, "masked_lm": False}, False),
    ],
)
def test_masking_more_than_max_predictions_causes_a_warning(changes: dict, is_warned: bool) -> None:
    settings = replace(SETTINGS, examples=ExampleSettings(max_seq_length=128, **changes))
    warning = "masked_lm_probability is 0.3, but max_predictions limits it to 20 of 128 tokens"
    assert [one.startswith(warning) for one in settings.warnings()] == [True] * is_warned


def test_a_length_warmup_without_documents_causes_a_warning() -> None:
    examples = replace(SETTINGS.examples, warmup_seq_length=24)
    (warning,) = replace(SETTINGS, examples=examples).warnings()
    assert warning.startswith("warmup_seq_length is 24, but warmup_documents is 0")
    assert not replace(SETTINGS, examples=replace(examples, warmup_documents=64)).warnings()


@pytest.mark.parametrize("name", ["vocab_size", "threads"])
def test_a_vocabulary_needs_pieces_and_a_thread(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be 1 or more, not 0"):
        TokenizerSettings(**{name: 0})
