"""Fixtures of the tests of inspection: a small random model and its attention."""

from collections.abc import Callable
from pathlib import Path

import pytest
from inspected_model import SECOND, TEXT

from albertkit.inspection.attention import AttentionReport, compute_attention
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.modeling.model import AlbertModel
from albertkit.tokenization.tokenizer import AlbertTokenizer


@pytest.fixture(scope="module")
def folder(save_model: Callable[..., Path]) -> Path:
    """Return a random model with two groups. Its weights are large, so that its heads differ."""
    sizes = {"num_hidden_layers": 4, "num_hidden_groups": 2, "max_position_embeddings": 64}
    return save_model(AlbertForPreTraining, **sizes)


@pytest.fixture(scope="module")
def model(folder: Path) -> AlbertModel:
    return AlbertModel.from_pretrained(folder)


@pytest.fixture(scope="module")
def report(model: AlbertModel, tokenizer: AlbertTokenizer) -> AttentionReport:
    return compute_attention(model, tokenizer, TEXT, SECOND)
