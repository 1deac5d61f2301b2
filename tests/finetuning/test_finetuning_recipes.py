"""Tests that the recipes for fine-tuning have the settings of Lan et al. 2019, appendix A.4, table 14."""

import re
from pathlib import Path

import pytest

from albertkit.cli.verbs import COMMANDS
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.recipe import build, read_recipe, recipes
from albertkit.tasks.registry import TASKS as LABELED_TASKS

pytestmark = pytest.mark.light

# learning rate, batch, dropout, steps, warm-up steps, length; dropout before the classifier is 0.1 everywhere
TABLE = {
    "glue_cola": (1e-5, 16, 0.0, 5336, 320, 512),
    "glue_stsb": (2e-5, 16, 0.0, 3598, 214, 512),
    "glue_sst2": (1e-5, 32, 0.0, 20935, 1256, 512),
    "glue_mnli": (3e-5, 128, 0.0, 10000, 1000, 512),
    "glue_qnli": (1e-5, 32, 0.0, 33112, 1986, 512),
    "glue_qqp": (5e-5, 128, 0.1, 14000, 1000, 512),
    "glue_rte": (3e-5, 32, 0.1, 800, 200, 512),
    "glue_mrpc": (2e-5, 32, 0.0, 800, 200, 512),
    "glue_wnli": (2e-5, 16, 0.1, 2000, 250, 512),
    "squad1": (5e-5, 48, 0.0, 3649, 365, 384),
    "squad2": (3e-5, 48, 0.0, 8144, 814, 512),
    "race": (2e-5, 32, 0.1, 12000, 1000, 512),
}


def test_each_task_has_a_recipe() -> None:
    assert {name for name, path in recipes().items() if path.parent.name == "finetuning"} == {*TABLE}


@pytest.mark.parametrize("name", TABLE)
def test_is_the_papers(name: str) -> None:
    settings = build(FinetuningSettings, read_recipe(Path(name)), where=name)
    rate, batch, dropout, steps, warmup, length = TABLE[name]
    training = settings.completed(steps_per_epoch=100, hidden_size=4096).training(steps_per_epoch=100)
    assert (training.learning_rate, training.steps, training.warmup_steps) == (rate, steps, warmup)
    assert (training.optimizer, training.schedule) == ("adamw", "linear")
    assert (settings.batch_size, settings.task.max_length) == (batch, length)
    assert settings.dropouts == {
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "classifier_dropout_prob": 0.1,
    }


@pytest.mark.parametrize("name", TABLE)
def test_the_recipe_starts_with_its_command(name: str) -> None:
    text = recipes()[name].read_text().replace("\\\n#", "")
    (command,) = re.findall(r"^#   albertkit (.*)$", text, re.MULTILINE)
    verb, task, *arguments = command.split()
    known = {flag.option for flag in COMMANDS[verb].flags()}
    assert task in LABELED_TASKS
    assert {argument for argument in arguments if argument.startswith("-")} <= known
    assert arguments[arguments.index("--recipe") + 1] == name
