"""Tests of the default learning rate of pretraining, and of warnings about learning rates."""

from dataclasses import replace

import pytest
from pretraining_runs import SETTINGS, SIZES
from quick_runs import quick_runs  # noqa: F401  # a fixture

from albertkit.pretraining.settings import ExampleSettings, PretrainingSettings
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
