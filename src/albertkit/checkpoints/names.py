"""The one table of tensor names: ours, which are Hugging Face's, and what other writers called them.

Our name of a tensor is its path in the module tree, so a state dict needs no translation. The table gives
the encoder's names without a prefix; a model with a head holds the encoder under `albert.` and the head
beside it. Other formats are further columns of the same rows.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

BASE_PREFIX = "albert."

Part = Literal[
    "embeddings",
    "encoder",
    "pooler",
    "masked word head",
    "sentence order head",
    "classifier",
    "answer span head",
]

REQUIRED: tuple[Part, ...] = ("embeddings", "encoder")
"""Parts without which a checkpoint is none; the others are task heads that fine-tuning may begin anew."""


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor of the network."""

    ours: str
    """Name, with {group} and {layer} where the network repeats."""
    part: Part


_LAYER = "encoder.albert_layer_groups.{group}.albert_layers.{layer}."

TABLE: tuple[Row, ...] = (
    Row("embeddings.word_embeddings.weight", "embeddings"),
    Row("embeddings.position_embeddings.weight", "embeddings"),
    Row("embeddings.token_type_embeddings.weight", "embeddings"),
    Row("embeddings.LayerNorm.weight", "embeddings"),
    Row("embeddings.LayerNorm.bias", "embeddings"),
    Row("encoder.embedding_hidden_mapping_in.weight", "encoder"),
    Row("encoder.embedding_hidden_mapping_in.bias", "encoder"),
    Row(_LAYER + "attention.query.weight", "encoder"),
    Row(_LAYER + "attention.query.bias", "encoder"),
    Row(_LAYER + "attention.key.weight", "encoder"),
    Row(_LAYER + "attention.key.bias", "encoder"),
    Row(_LAYER + "attention.value.weight", "encoder"),
    Row(_LAYER + "attention.value.bias", "encoder"),
    Row(_LAYER + "attention.dense.weight", "encoder"),
    Row(_LAYER + "attention.dense.bias", "encoder"),
    Row(_LAYER + "attention.LayerNorm.weight", "encoder"),
    Row(_LAYER + "attention.LayerNorm.bias", "encoder"),
    Row(_LAYER + "ffn.weight", "encoder"),
    Row(_LAYER + "ffn.bias", "encoder"),
    Row(_LAYER + "ffn_output.weight", "encoder"),
    Row(_LAYER + "ffn_output.bias", "encoder"),
    Row(_LAYER + "full_layer_layer_norm.weight", "encoder"),
    Row(_LAYER + "full_layer_layer_norm.bias", "encoder"),
    Row("pooler.weight", "pooler"),
    Row("pooler.bias", "pooler"),
    Row("predictions.dense.weight", "masked word head"),
    Row("predictions.dense.bias", "masked word head"),
    Row("predictions.LayerNorm.weight", "masked word head"),
    Row("predictions.LayerNorm.bias", "masked word head"),
    Row("predictions.decoder.weight", "masked word head"),
    Row("predictions.decoder.bias", "masked word head"),
    Row("predictions.bias", "masked word head"),
    Row("sop_classifier.classifier.weight", "sentence order head"),
    Row("sop_classifier.classifier.bias", "sentence order head"),
    Row("classifier.weight", "classifier"),
    Row("classifier.bias", "classifier"),
    Row("qa_outputs.weight", "answer span head"),
    Row("qa_outputs.bias", "answer span head"),
)

TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
"""Second name of a shared tensor -> the name it is stored under, in our files and in those of others."""

UNTIED = {"predictions.bias": "predictions.decoder.bias"}
"""The same for a model that does not tie its word embeddings: `transformers` then reads the decoder's own
bias alone, so that one counts where a file holds both, and files hold both."""

WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes of models saved from inside torch's DataParallel or `torch.compile`."""

OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}
"""LayerNorm as TensorFlow names it, kept by the first converters to PyTorch."""

NOT_WEIGHTS = {
    "embeddings.position_ids": "the positions 0, 1, 2, ...: a constant that older versions stored",
    "embeddings.token_type_ids": "the segment 0: a constant that older versions stored",
}
"""Buffers in older files that hold nothing learned, each with the reason it is left out."""

_ROWS = {
    re.compile(re.escape(row.ours).replace(r"\{group\}", r"\d+").replace(r"\{layer\}", r"\d+")): row
    for row in TABLE
}


def canonical(name: str) -> str:
    """The name found in a file, without wrappers and with today's endings; `albert.` stays as found."""
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    for old, new in OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def row_of(name: str, *, base_prefix: str = BASE_PREFIX) -> Row | None:
    """The row of the table that a name, with or without the prefix, belongs to; None for a foreign name."""
    bare = canonical(name).removeprefix(base_prefix)
    return next((row for pattern, row in _ROWS.items() if pattern.fullmatch(bare)), None)


def in_model(name: str, expected: Container[str], *, base_prefix: str = BASE_PREFIX) -> str | None:
    """What the model that has the names `expected` calls the tensor `name` of a file; None if it has no such.

    Covers an encoder's file in a model with a head, and the reverse.
    """
    name = canonical(name)
    forms = (name, base_prefix + name, name.removeprefix(base_prefix))
    return next((form for form in forms if form in expected), None)
