"""Fixtures of the fine-tuning tests. Import PyTorch inside the fixtures: `make light` loads this file too."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(save_model: Callable[..., Path]) -> Path:
    """Return the folder of a random model with the pretraining heads."""
    from random_models import TWO_LAYERS

    from albertkit.modeling.heads import AlbertForPreTraining

    return save_model(AlbertForPreTraining, **TWO_LAYERS)


@pytest.fixture(scope="session")
def encoder(save_model: Callable[..., Path]) -> Path:
    """Return the folder of a random encoder."""
    from random_models import TWO_LAYERS

    from albertkit.modeling.model import AlbertModel

    return save_model(AlbertModel, **TWO_LAYERS, hidden_dropout_prob=0.1)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from finetuning_runs import texts
    from json_lines import write_json_lines

    folder = tmp_path_factory.mktemp("data")
    write_json_lines(folder / "train.jsonl", texts(64, 0))
    write_json_lines(folder / "validation.jsonl", texts(20, 1))
    return folder


@pytest.fixture(scope="session")
def classifier(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that learned its task."""
    from finetuning_runs import FAST, tune

    output = tmp_path_factory.mktemp("run") / "classifier"
    result = tune("text-classification", FAST, model, data, output)
    assert result.report is not None
    assert result.report["metrics"]["accuracy"] == 1.0
    return output
