"""Fixtures of the fine-tuning tests. Import PyTorch inside the fixtures: `make light` loads this file too."""

from pathlib import Path

import pytest

from albertkit.config import AlbertConfig
from albertkit.tokenization.tokenizer import AlbertTokenizer


@pytest.fixture(scope="session")
def model(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a random model with the pretraining heads."""
    import torch

    from albertkit.modeling.pretraining_heads import AlbertForPreTraining

    tokenizer = AlbertTokenizer(tiny_vocabulary)
    config = AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        num_hidden_layers=2,
        max_position_embeddings=48,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    AlbertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from finetuning_runs import texts, write

    folder = tmp_path_factory.mktemp("data")
    write(folder / "train.jsonl", texts(64, 0))
    write(folder / "validation.jsonl", texts(20, 1))
    return folder


@pytest.fixture(scope="session")
def classifier(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a task that is easily learnt."""
    from finetuning_runs import FAST, tune

    output = tmp_path_factory.mktemp("run") / "classifier"
    result = tune("text-classification", FAST, model, data, output)
    assert result.report is not None
    assert result.report["metrics"]["accuracy"] == 1.0
    return output
