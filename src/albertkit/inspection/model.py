"""The shape, cost and tokenizer of a model: `inspect_model`."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import is_floating
from albertkit.checkpoints.formats import locate, read
from albertkit.checkpoints.match import architecture_of
from albertkit.config import AlbertConfig
from albertkit.errors import ModelNotFoundError
from albertkit.footprint import measure
from albertkit.heads import HEADS
from albertkit.published import warn_of_contradictions
from albertkit.vocabularies import load_tokenizer

_SHAPE = (
    "hidden_size",
    "embedding_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "inner_group_num",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "vocab_size",
    "hidden_act",
)
TOKENS = 128
"""Length of the text for the memory estimate."""
LENGTHS = (128, 512)
"""Lengths of the texts for the operation counts, if the model has so many positions."""


def inspect_model(model: str | Path) -> dict[str, Any]:
    """Return a model's shape, parameters, memory in bytes, operations per token, and tokenizer.

    Args:
        model: folder or file in any format, hub name, "bundled", or a shape such as "base-v2".
    """
    name = str(model)
    preset: Any = re.fullmatch(r"(base|large|xlarge|xxlarge)(?:-(v1|v2))?", name)
    if preset and not Path(name).exists():
        return {"model": name, **_of_config(AlbertConfig.preset(preset[1], version=preset[2] or "v2"))}
    checkpoint = read(locate(name))
    config = AlbertConfig.from_dict(checkpoint.config)
    warn_of_contradictions(name, vars(config))
    report = {"model": name, **_of_config(config, checkpoint.tensors)}
    try:
        tokenizer = load_tokenizer(name)
    except ModelNotFoundError:
        return {**report, "tokenizer": None}  # a folder with only weights is a model folder too
    settings = {
        "class": type(tokenizer).__name__,
        "pieces": len(tokenizer),
        **tokenizer.normalization,
        "model_max_length": tokenizer.model_max_length,
        "special_tokens": {
            token: tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens
        },
    }
    return {**report, "tokenizer": settings}


def _of_config(config: AlbertConfig, tensors: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
    architecture = (config.architectures or [""])[0]
    if architecture not in HEADS:
        architecture = architecture_of(config, tensors) if tensors else "AlbertForPreTraining"
    footprint = measure(architecture, config)
    longest = config.max_position_embeddings
    lengths = [length for length in LENGTHS if length <= longest] or [longest]
    report = {
        "class": architecture,
        "shape": {name: getattr(config, name) for name in _SHAPE} | {"hidden_act": str(config.hidden_act)},
        "parameters": {part: vars(one) for part, one in footprint.parameters.items()}
        | {"total": vars(footprint.total)},
        # Bytes. The activations are estimates for one text of TOKENS tokens in fp32.
        "memory": {
            "weights_fp32": footprint.weight_bytes(4),
            "weights_fp16": footprint.weight_bytes(2),
            f"inference_per_{TOKENS}_tokens": footprint.inference_floats * 4 * TOKENS,
            f"training_per_{TOKENS}_tokens": footprint.training_floats * 4 * TOKENS,
        },
        "flops": {
            "per_token": footprint.flops_per_token,
            **{f"per_token_at_{length}": footprint.flops(length) for length in lengths},
            "per_masked_word": footprint.head_flops,
        },
    }
    if tensors is not None:
        floating = [tensor for tensor in tensors.values() if is_floating(tensor)]
        report["weights"] = {
            "dtype": ", ".join(sorted({tensor.dtype.name for tensor in floating})),
            "bytes": sum(tensor.nbytes for tensor in tensors.values()),
            "tensors": len(tensors),
        }
    return report
