"""Fixtures of the tests of pipelines: random models in folders, and their pipelines."""

from pathlib import Path

import pytest
import transformers
from pipeline_answers import LABELS, LIMIT
from random_models import random_model

from albertkit.modeling.heads import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.pipelines import Pipeline, pipeline
from albertkit.tokenization.tokenizer import AlbertTokenizer


@pytest.fixture(scope="session")
def save(save_model):
    """Return a function that saves a random model of a class, and returns its folder."""

    def save(model_class: type[AlbertPreTrainedModel], **settings) -> Path:
        sizes = {"max_position_embeddings": LIMIT, "hidden_dropout_prob": 0.1}
        return save_model(model_class, **sizes | settings)

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


@pytest.fixture(scope="session")
def made(tokenizer: AlbertTokenizer) -> dict[str, Pipeline]:
    """Return a pipeline with a random model for each task."""
    pretrained = random_model(AlbertForPreTraining, tokenizer, num_hidden_layers=2)
    config = pretrained.config.replace(num_labels=3)
    models = {
        "fill-mask": pretrained,
        "feature-extraction": pretrained,
        "sentence-order": pretrained,
        "text-classification": AlbertForSequenceClassification(config),
        "token-classification": AlbertForTokenClassification(config),
        "question-answering": AlbertForQuestionAnswering(config),
        "multiple-choice": AlbertForMultipleChoice(config),
    }
    return {task: pipeline(task, model, tokenizer, device="cpu") for task, model in models.items()}


@pytest.fixture(scope="session")
def classify(made) -> Pipeline:
    return made["text-classification"]


@pytest.fixture(scope="session")
def folder(save) -> Path:
    """Return the folder of a random model with both pretraining heads and a maximum length of 40 tokens."""
    return save(AlbertForPreTraining, max_position_embeddings=40)


@pytest.fixture(scope="module")
def fill(engine_of_pipelines: str, folder: Path) -> Pipeline:
    return pipeline("fill-mask", folder)


@pytest.fixture(scope="module")
def encode(engine_of_pipelines: str, folder: Path) -> Pipeline:
    return pipeline("feature-extraction", folder)


@pytest.fixture(scope="session")
def their_tokenizer(folder: Path) -> transformers.PreTrainedTokenizerBase:
    return transformers.AutoTokenizer.from_pretrained(folder)
