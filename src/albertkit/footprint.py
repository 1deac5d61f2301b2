"""The cost of a model, computed from its shapes: parameters, memory and operations per token.

ALBERT stores the weights of one layer and executes it many times. So it has few parameters, but needs as many
operations as a model without shared layers.

Shapes: T tokens, E embedding, H hidden, I intermediate, N heads, V vocabulary.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


def measure(architecture: str, config: AlbertConfig) -> Footprint:
    """Return the cost of a model.

    Args:
        architecture: The name of a model class, such as "AlbertForMaskedLM".
        config: The config of the model.

    Raises:
        ConfigError: The class does not exist.
    """
    shapes = expected_shapes(architecture, config)
    prefix = base_prefix(architecture)
    executed = executed_layers(config, prefix)
    mapping = shapes[f"{prefix}encoder.embedding_hidden_mapping_in.weight"]
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    hidden, intermediate = config.hidden_size, config.intermediate_size
    # Per layer: input, query, key, value, context, the sums before and after both LayerNorms, and the FFN
    # before and after GELU; one value per head (softmax), two per LayerNorm, and a mask for each dropout.
    saved = 8 * hidden + 2 * intermediate + config.num_attention_heads + 4
    saved += 2 * hidden * (config.hidden_dropout_prob > 0)
    return Footprint(
        parameters=_parameters_by_part(shapes, executed, shared_names(config)),
        flops_per_token=2 * (math.prod(mapping) + sum(_size(matrices, f"{layer}.") for layer in executed)),
        # Queries times keys, and probabilities times values: H multiplications and additions each.
        attention_flops=4 * hidden * len(executed),
        head_flops=2 * _size(matrices, _HEAD),
        # The larger of: input, sum, query, key, value, context; or sum, FFN, GELU.
        inference_floats=max(6 * hidden, hidden + 2 * intermediate),
        training_floats=saved * len(executed),
    )


def _parameters_by_part(
    shapes: _Shapes, executed: Iterable[str], tied: Mapping[str, str]
) -> dict[str, Parameters]:
    parts: dict[str, dict[str, int]] = {}  # part -> stored tensor -> size
    for name, shape in shapes.items():
        spec = spec_of(name)
        assert spec is not None
        part = spec.part
        if part == "encoder":
            part = "mapping to hidden size" if "embedding_hidden_mapping_in" in name else "layers"
        parts.setdefault(part, {})[tied.get(name, name)] = math.prod(shape)
    result: dict[str, Parameters] = {}
    counted: set[str] = set()
    for part, sizes in parts.items():
        distinct = sum(size for name, size in sizes.items() if name not in counted)
        counted |= sizes.keys()
        result[part] = Parameters(distinct, sum(sizes.values()))
    layers = sum(_size(shapes, f"{layer}.") for layer in executed)
    result["layers"] = Parameters(result["layers"].distinct, layers)
    return result


def _size(shapes: _Shapes, prefix: str) -> int:
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(prefix))
