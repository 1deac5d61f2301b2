"""A small checkpoint of TensorFlow 1, for fuzz tests of its reader."""

import json
from pathlib import Path

import torch
from conversion_models import SIZES
from torch_files import write_bundle

CONFIG = SIZES | {
    "hidden_act": "gelu",
    "id2label": {"0": "no", "1": "yes"},
    "label2id": {"no": 0, "yes": 1},
    "architectures": ["AlbertForMaskedLM"],
    "dtype": "float32",
    "classifier_dropout_prob": 0.1,
}
TENSORS = {
    "bert/embeddings/word_embeddings": torch.arange(320.0).reshape(40, 8),
    "bert/embeddings/word_embeddings/adam_m": torch.ones(40, 8),
    "bert/encoder/embedding_hidden_mapping_in/kernel": torch.ones(8, 12).half(),
    "bert/encoder/embedding_hidden_mapping_in/bias": torch.ones(12).bfloat16(),
    "bert/pooler/dense/bias": torch.empty(0),
    "output_bias": torch.zeros(3),
    "global_step": torch.tensor(7),
}


def write_checkpoint(folder: Path) -> None:
    """Write the checkpoint and its config."""
    write_bundle(folder / "model.ckpt", TENSORS)
    (folder / "albert_config.json").write_text(json.dumps(CONFIG))
