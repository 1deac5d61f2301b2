"""Tests of settings in recipes and flags: types, defaults, mistakes and former names."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from albertkit.errors import ConfigError
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.pretraining.settings import ExampleSettings, PretrainingSettings
from albertkit.recipe import (
    build,
    field_docs,
    merge,
    read_recipe,
    scalar_fields,
    settings_from,
)
from albertkit.training.settings import TrainingSettings

pytestmark = pytest.mark.light

SHAPE = {"hidden_size": 32}


def test_tables_become_dataclasses_and_flags_override_them() -> None:
    recipe = {
        "batch_size": 8,
        "model": SHAPE,
        "training": {"steps": 10, "learning_rate": 1},
        "examples": {"max_ngram": 2},
    }
    flags = {"steps": 20, "max_seq_length": 64, "batch_size": 4}
    settings = build(PretrainingSettings, merge(recipe, flags, PretrainingSettings), where="test")
    assert settings == PretrainingSettings(
        batch_size=4,
        model=SHAPE,
        training=TrainingSettings(steps=20, learning_rate=1.0),
        examples=ExampleSettings(max_ngram=2, max_seq_length=64),
    )
    assert recipe["training"] == {"steps": 10, "learning_rate": 1}  # merge does not change its argument
    assert isinstance(settings.training.learning_rate, float)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"batch_sise": 8}, "unknown setting 'batch_sise'. Did you mean 'batch_size'"),
        (
            {"batch_size": 8, "training": {"stepz": 3}},
            r"r \[training\]: unknown setting 'stepz'\. Did you mean 'steps'",
        ),
        (
            {"batch_size": 8, "model": SHAPE},
            "steps is None and tokens is None. Set exactly one of them",
        ),
        (
            {"batch_size": "8", "model": SHAPE, "training": {"steps": 1}},
            r"batch_size is '8'. Expected int \| None",
        ),
        (
            {"batch_size": 8, "training": {"steps": 1, "optimizer": "sgd"}},
            "optimizer is 'sgd'. Expected Literal\\['lamb'",
        ),
        ({"batch_size": 8, "model": SHAPE, "training": 3}, "training is 3. Expected TrainingSettings"),
        ({"batch_size": 0, "model": SHAPE, "training": {"steps": 1}}, "batch_size must be 1 or more"),
        (
            {"batch_size": 1, "model": {"hiden_size": 32}, "training": {"steps": 1}},
            r"\[model\]: unknown setting 'hiden_size'\. Did you mean 'hidden_size'",
        ),
        ({"training": {"steps": 1, "learning_rate": -1.0}}, "learning_rate must be more than 0, not -1"),
        ({"training": {"steps": 1, "weight_decay": math.nan}}, "weight_decay must be 0 or more, not nan"),
        ({"examples": {"masked_lm_probability": 1.5}}, "masked_lm_probability must be between 0 and 1"),
        ({"training": {"steps": 1, "learning_rate": math.nan}}, "learning_rate must be more than 0, not nan"),
        ({"training": {"steps": 1, "learning_rate": math.inf}}, "learning_rate must be finite, not inf"),
        ({"training": {"steps": 1, "seed": 2**64}}, r"seed must be between 0 and 2\*\*64 - 1, not 18446"),
    ],
)
def test_mistakes_are_an_error(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(PretrainingSettings, table, where="r")


SETTINGS = PretrainingSettings(
    batch_size=8, model=SHAPE, training=TrainingSettings(steps=1000, warmup_steps=100)
)


@pytest.mark.parametrize(
    ("recipe", "given"),
    [
        (SETTINGS, {}),
        (vars(SETTINGS), {}),
        ({"batch_size": 8, "model": SHAPE}, {"training": SETTINGS.training}),
    ],
)
def test_settings_are_overridden_together(recipe: Any, given: dict[str, Any]) -> None:
    """Neither value alone fits the other settings."""
    found = settings_from(PretrainingSettings, recipe, given | {"steps": 50, "warmup_steps": 5})
    assert (found.training.steps, found.training.warmup_steps) == (50, 5)
    assert found.examples == SETTINGS.examples
    assert SETTINGS.training.steps == 1000


def test_none_overrides_a_recipe(tmp_path: Path) -> None:
    """`evaluate` overrides the settings of the fine-tuning with None in the same way."""
    recipe = tmp_path / "a.toml"
    recipe.write_text("evaluate_every = 5\nsteps = 9\n[task]\nmax_length = 12\n")
    given = {"evaluate_every": None, "max_length": None}
    found = settings_from(FinetuningSettings, recipe, given)
    assert (found.evaluate_every, found.steps, found.task.max_length) == (None, 9, None)
    assert settings_from(FinetuningSettings, found, {"steps": None, "max_minutes": math.inf}).steps is None
    with pytest.raises(ConfigError, match=r"settings: warmup is None\. Expected float\."):
        settings_from(FinetuningSettings, None, {"warmup": None})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": "50"}, r"settings \[training\]: steps is '50'\. Expected int \| None"),
        ({"masked_lm": "no"}, r"settings \[examples\]: masked_lm is 'no'\. Expected bool\."),
        ({"evaluation_sequences": 10**400, "max_minutes": 10**400}, "is too large: it has 401 digits"),
    ],
)
def test_values_that_override_settings_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from(PretrainingSettings, SETTINGS, given)


@pytest.mark.parametrize("recipe", [5, ["epochs"], [("epochs", 1)]])
def test_a_recipe_of_another_type_is_an_error(recipe: Any) -> None:
    with pytest.raises(ConfigError, match=r"recipe is .*\. Expected a file, a mapping or FinetuningSettings"):
        settings_from(FinetuningSettings, recipe, {})


def test_unreadable_recipes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no recipe"):
        read_recipe(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("steps = = 3")
    with pytest.raises(ConfigError, match=r"bad\.toml.*line 1"):
        read_recipe(tmp_path / "bad.toml")


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "bom.toml").write_text("steps = 3", encoding="utf-8-sig")
    assert read_recipe(tmp_path / "bom.toml") == {"steps": 3}


def test_every_setting_has_a_docstring_and_a_unique_name() -> None:
    names = [field.name for _, field in scalar_fields(PretrainingSettings)]
    assert len(names) == len(set(names))
    assert set(names) <= field_docs(PretrainingSettings).keys()
    owners = dict.fromkeys(owner for owner, _ in scalar_fields(PretrainingSettings))
    assert list(owners) == ["", "examples", "training"]


def test_the_fingerprint_has_the_settings_that_change_results() -> None:
    settings = TrainingSettings(steps=5)
    fingerprint = settings.fingerprint()
    assert {"steps", "learning_rate", "seed", "optimizer", "precision"} <= fingerprint.keys()
    assert not {"max_minutes", "log_every", "save_every", "keep_checkpoints"} & fingerprint.keys()
    trapezoid = dataclasses.replace(settings, schedule="trapezoid").fingerprint()
    assert fingerprint.keys() - trapezoid.keys() == {"steps", "decay_steps"}
    assert math.isinf(settings.max_minutes)
