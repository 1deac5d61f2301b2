"""The cost of a model, computed from its shapes: parameters, memory and operations per token.

ALBERT stores the weights of one layer and executes it many times. So it has few parameters, but needs as many
operations as a model without shared layers.

Shapes: T tokens, E embedding, H hidden, I intermediate, N heads, V vocabulary.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from albertkit.checkpoints.match import expected_shapes
from albertkit.checkpoints.names import executed_layers, shared_names, spec_of
from albertkit.config import AlbertConfig
from albertkit.heads import base_prefix

_HEAD = "predictions."

_Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each tensor, by its name in the state dict."""


@dataclass(frozen=True)
class Parameters:
    """The numbers of parameters of one part of a model."""

    distinct: int
    """Stored parameters. A matrix that several parts share counts only for the first part."""
    executed: int
    """Parameters of an equivalent model that shares nothing."""


@dataclass(frozen=True)
class Footprint:
    """The cost of one model; see `measure`."""

    parameters: dict[str, Parameters]
    """The parameters of each part, in the order of execution."""
    flops_per_token: int
    """Operations of the encoder per token, without attention: two for each weight of the mapping and of the
    executed layers."""
    attention_flops: int
    """Operations of attention per token and attended token; multiply by T for a text of T tokens."""
    head_flops: int
    """Operations of the masked language modeling head per predicted token; 0 without that head."""
    inference_floats: int
    """Peak number of values per token in inference, without weights."""
    training_floats: int
    """Number of values per token that training stores for the backward pass of the executed layers, with
    fused attention and without gradient checkpointing."""

    @property
    def total(self) -> Parameters:
        """The sums over all parts."""
        parts = self.parameters.values()
        return Parameters(sum(part.distinct for part in parts), sum(part.executed for part in parts))

    def weight_bytes(self, bytes_each: int) -> int:
        """Return the number of bytes of the weights."""
        return self.total.distinct * bytes_each

    def flops(self, tokens: int) -> int:
        """Return the operations of the encoder per token, in a text of `tokens` tokens."""
        return self.flops_per_token + self.attention_flops * tokens

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for `json.dumps`, with the totals."""
        return {**asdict(self), "total": asdict(self.total)}


def measure(architecture: str, config: AlbertConfig) -> Footprint:
    """Return the cost of a model. Pruned heads do not count.

    Args:
        architecture: The name of a model class, such as "AlbertForMaskedLM".
        config: The config of the model.

    Raises:
        ConfigError: The class does not exist, or the config prunes heads that do not exist.
    """
    shapes = expected_shapes(architecture, config)
    prefix = base_prefix(architecture)
    executed = executed_layers(config, prefix)
    mapping = shapes[f"{prefix}encoder.embedding_hidden_mapping_in.weight"]
    tied = shared_names(config)
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    kept = [shapes[f"{layer}.attention.query.bias"][0] for layer in executed]
    return Footprint(
        parameters=_parameters_by_part(shapes, executed, tied),
        flops_per_token=2 * (math.prod(mapping) + sum(_size(matrices, f"{layer}.") for layer in executed)),
        # Queries times keys, and probabilities times values: N*D multiplications and additions each.
        attention_flops=4 * sum(kept),
        head_flops=2 * _size(matrices, _HEAD),
        inference_floats=max(_peak_floats(config, width) for width in kept),
        training_floats=sum(_saved_floats(config, width) for width in kept),
    )


def _parameters_by_part(
    shapes: _Shapes, executed: Iterable[str], tied: Mapping[str, str]
) -> dict[str, Parameters]:
    distinct: dict[str, int] = {}
    within: dict[str, dict[str, int]] = {}  # part -> tensor -> size, each tensor once
    seen: set[str] = set()
    for name, shape in shapes.items():
        part = _part_of(name)
        stored, size = tied.get(name, name), math.prod(shape)
        within.setdefault(part, {})[stored] = size
        distinct[part] = distinct.get(part, 0) + (0 if stored in seen else size)
        seen.add(stored)
    sizes = {part: sum(tensors.values()) for part, tensors in within.items()}
    sizes["layers"] = sum(_size(shapes, f"{layer}.") for layer in executed)
    return {part: Parameters(distinct[part], sizes[part]) for part in distinct}


def _part_of(name: str) -> str:
    spec = spec_of(name)
    assert spec is not None
    if spec.part != "encoder":
        return spec.part
    return "mapping to hidden size" if "embedding_hidden_mapping_in" in name else "layers"


def _size(shapes: _Shapes, prefix: str) -> int:
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(prefix))


def _peak_floats(config: AlbertConfig, kept: int) -> int:
    """Return the larger peak: of input, sum, query, key, value, context; or of sum, FFN, GELU."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    return max(2 * hidden + 4 * kept, hidden + 2 * intermediate)


def _saved_floats(config: AlbertConfig, kept: int) -> int:
    """Count input, query, key, value, context, sums before and after LayerNorm, FFN before and after GELU.

    Also count one value per head (softmax), two per LayerNorm, and a mask for each dropout.
    """
    hidden, intermediate = config.hidden_size, config.intermediate_size
    dropouts = 2 * (config.hidden_dropout_prob > 0)
    numbers = kept // (hidden // config.num_attention_heads) + 4
    return 4 * hidden + 4 * kept + 2 * intermediate + numbers + dropouts * hidden
