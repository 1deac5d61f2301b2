"""Fixtures of the tests of pipelines: a folder with a random model for each task."""

from pathlib import Path

import pytest
import torch
from pipeline_answers import LABELS, LIMIT

from albertkit.config import AlbertConfig
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.tokenization.tokenizer import AlbertTokenizer


@pytest.fixture(scope="session")
def tokenizer(tiny_vocabulary: Path) -> AlbertTokenizer:
    return AlbertTokenizer(tiny_vocabulary)


@pytest.fixture(scope="session")
def save(tokenizer, tmp_path_factory):
    """Save a random model of a class; large weights, so that its answers differ."""

    def save(model_class: type[AlbertPreTrainedModel], **settings) -> Path:
        config = AlbertConfig(
            vocab_size=len(tokenizer),
            embedding_size=16,
            hidden_size=32,
            num_attention_heads=4,
            intermediate_size=64,
            num_hidden_layers=3,
            max_position_embeddings=LIMIT,
            initializer_range=0.3,
            hidden_dropout_prob=0.1,
            **settings,
        )
        torch.manual_seed(0)
        folder = tmp_path_factory.mktemp("model")
        model_class(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def classes(save) -> Path:
    return save(AlbertForSequenceClassification, id2label={0: "bad", 1: "fair", 2: "good"})


@pytest.fixture(scope="session")
def tags(save) -> Path:
    return save(AlbertForTokenClassification, id2label=dict(enumerate(LABELS)))


@pytest.fixture(scope="session")
def questions(save) -> Path:
    return save(AlbertForQuestionAnswering)


@pytest.fixture(scope="session")
def choices(save) -> Path:
    return save(AlbertForMultipleChoice)


@pytest.fixture(scope="session")
def order(save) -> Path:
    return save(AlbertForPreTraining)
