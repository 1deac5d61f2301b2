"""Random models and constants for the tests of conversion."""

from typing import Any

import torch

from albertkit.config import AlbertConfig

TOLERANCE = 1e-5
WORDS = "bert/embeddings/word_embeddings"


SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "max_position_embeddings": 16,
}


def random_model(model_class: type, seed: int = 0, **changes: object) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = model_class(AlbertConfig(**SIZES | changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model
