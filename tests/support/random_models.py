"""Small models with random weights, in memory or in a folder with their tokenizer."""

from pathlib import Path
from typing import Any, TypeVar

import torch

from albertkit.config import AlbertConfig
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tokenization.base import TokenizerBase

ModelT = TypeVar("ModelT", bound=AlbertPreTrainedModel)

SIZES: dict[str, Any] = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "max_position_embeddings": 48,
    # Larger than the usual 0.02, so that the answers of a model differ.
    "initializer_range": 0.3,
}
TWO_LAYERS: dict[str, Any] = {"num_attention_heads": 2, "num_hidden_layers": 2, "initializer_range": 0.2}
"""The sizes of models that tests fine-tune."""


def random_model(
    model_class: type[ModelT], tokenizer: TokenizerBase, *, seed: int | None = 0, **settings: Any
) -> ModelT:
    """Return a random model with the vocabulary of a tokenizer.

    Args:
        model_class: The class of the model.
        tokenizer: The tokenizer.
        seed: The seed of the weights, or `None` to continue the random numbers of the model before.
        settings: Values of the config, which override SIZES.
    """
    if seed is not None:
        torch.manual_seed(seed)
    return model_class(AlbertConfig(vocab_size=len(tokenizer), **SIZES | settings))


def save_random_model(
    model_class: type[AlbertPreTrainedModel],
    tokenizer: TokenizerBase,
    folder: Path,
    *,
    seed: int | None = 0,
    **settings: Any,
) -> Path:
    """Save a random model and its tokenizer, and return their folder."""
    random_model(model_class, tokenizer, seed=seed, **settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
