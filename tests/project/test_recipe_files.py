"""Tests of the recipes: each is valid, starts with its command, and trains for two steps.

The recipes of the paper must have the settings of the paper.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pretraining_runs import write_pretraining_data
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file

from albertkit.cli.verbs import COMMANDS
from albertkit.config import AlbertConfig
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.pretraining import masking
from albertkit.pretraining.run import run_pretraining
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.recipe import build, read_recipe, recipes
from albertkit.training.checkpoints import checkpoint_folder
from albertkit.training.progress import read_metrics

PRETRAINING = [name for name, path in recipes().items() if path.parent.name != "finetuning"]
PAPER = [f"albert-{size}-{version}" for version in ("v1", "v2")
         for size in ("base", "large", "xlarge", "xxlarge")]  # fmt: skip


def settings_of(recipe: str) -> PretrainingSettings:
    return build(PretrainingSettings, read_recipe(Path(recipe)), where=recipe)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str], tiny_vocabulary: Path) -> Path:
    """Return a folder with shards in `shards/` and no held-out data. Other tests check evaluations."""
    folder = tmp_path_factory.mktemp("recipes")
    return write_pretraining_data(folder, tiny_texts, tiny_vocabulary)


def test_the_recipes_exist() -> None:
    others = {"smoke", "mini", "base-1gpu", "bundled"}
    assert {*PRETRAINING} == {*PAPER} | others


@pytest.mark.parametrize("recipe", PRETRAINING)
def test_the_recipe_trains_for_two_steps(recipe: str, data: Path, tmp_path: Path) -> None:
    settings = settings_of(recipe)
    model = dict(settings.model)
    AlbertConfig(**model)  # the original sizes must be valid too
    if model["hidden_size"] > 256:  # shrink the width, but keep the number of layers
        model |= {"hidden_size": 2 * model["num_attention_heads"], "intermediate_size": 64}
    one_row = {"batch_size": 1} if settings.batch_size else {"batch_tokens": settings.examples.max_seq_length}
    in_steps = {"tokens": None, "warmup_tokens": 0, "decay_tokens": 0, "steps": 2, "warmup_steps": 1}
    # bf16 takes minutes on CPUs that do not support it.
    in_steps |= {"decay_steps": 0, "compile": False}  # compiling takes a minute
    training = replace(settings.training, **in_steps, log_every=1, precision="fp32")
    small = replace(settings, **one_row, model=model, training=training)
    result = run_pretraining(small, str(data / "shards"), str(data / "tokenizer"), str(tmp_path))
    assert result.finished
    assert result.step == 2
    masked_lm = settings.examples.masked_lm
    name, low, high = ("masked_loss", 3, 10) if masked_lm else ("order_loss", 0, 2)
    losses = [line[f"train/{name}"] for line in read_metrics(tmp_path)]
    assert len(losses) == 2
    assert all(low < loss < high for loss in losses)  # untrained: about ln(500) = 6.2 and ln(2)
    trained = AlbertForPreTraining.from_pretrained(tmp_path)
    assert trained.config.hidden_size == model["hidden_size"]
    before, after = (
        load_file(folder / "model.safetensors") for folder in (checkpoint_folder(tmp_path, 0), tmp_path)
    )
    assert all(torch.isfinite(values).all() for values in after.values())
    unused = "decoder.bias" if masked_lm else "predictions"
    assert all(not torch.equal(before[name], after[name]) for name in before if unused not in name)


@pytest.mark.parametrize("recipe", PRETRAINING)
def test_the_recipe_causes_no_warnings(recipe: str) -> None:
    assert settings_of(recipe).with_learning_rate().warnings() == []


@pytest.mark.parametrize("recipe", PRETRAINING)
def test_the_commands_of_the_header_exist(recipe: str) -> None:
    """Check the flags of every command in the header, and that the last command starts this recipe."""
    text = recipes()[recipe].read_text().replace("\\\n#", "")
    commands = [line.split() for line in re.findall(r"^#   ((?:albertkit|torchrun) .*)$", text, re.MULTILINE)]
    for command in commands:
        verb, *arguments = command[command.index("albertkit") + 1 :]
        known = {flag.option for flag in COMMANDS[verb].flags()}
        assert {argument for argument in arguments if argument.startswith("-")} <= known
    assert commands[-1][commands[-1].index("--recipe") + 1] == recipe
    assert ("torchrun" in commands[-1]) == (recipe in PAPER)


@pytest.mark.parametrize("recipe", PAPER)
def test_the_recipes_of_the_paper_have_its_settings(recipe: str) -> None:
    _, size, version = Path(recipe).stem.split("-")
    settings = settings_of(recipe)
    preset = AlbertConfig.preset(size, version=version)  # type: ignore[arg-type]
    assert AlbertConfig(**settings.model).to_dict() == preset.to_dict()
    # Sources: Lan et al. 2019, section 4.1, and for version 2 the README of the original code.
    steps = {"v1": 125_000, "v2": 10_000_000 if size == "base" else 3_000_000}[version]
    training = settings.training
    assert (training.steps, training.warmup_steps, training.schedule) == (steps, 3125, "linear")
    assert (training.optimizer, training.learning_rate) == ("lamb", 1.76e-3)
    assert (training.weight_decay, training.max_grad_norm) == (0.01, 1.0)
    assert (settings.batch_size, settings.order_weight, settings.frequency_bias) == (4096, 1.0, False)
    examples = settings.examples
    assert (examples.max_seq_length, examples.short_sequence_probability) == (512, 0.1)
    assert (examples.masked_lm_probability, examples.max_ngram) == (0.15, 3)
    assert [masking.budget(tokens, examples) for tokens in (100, 512, 9999)] == [15, 77, 80]
