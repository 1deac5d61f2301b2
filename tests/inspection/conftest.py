"""Fixtures of the tests of inspection: a small random model and its attention."""

from pathlib import Path

import pytest
import torch
from inspected_model import SECOND, TEXT

from albertkit.config import AlbertConfig
from albertkit.inspection.attention import AttentionReport, compute_attention
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.tokenization.tokenizer import AlbertTokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary: Path) -> AlbertTokenizer:
    return AlbertTokenizer(tiny_vocabulary)


@pytest.fixture(scope="module")
def folder(tokenizer: AlbertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a random model with two groups. Its weights are large, so that its heads differ."""
    config = AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        num_hidden_layers=4,
        num_hidden_groups=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    AlbertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> AlbertModel:
    return AlbertModel.from_pretrained(folder)


@pytest.fixture(scope="module")
def report(model: AlbertModel, tokenizer: AlbertTokenizer) -> AttentionReport:
    return compute_attention(model, tokenizer, TEXT, SECOND)
