"""What a model costs: parameters by part, memory, operations per token. Worked out from shapes alone.

ALBERT shares its layers: it stores one and executes it many times. So its parameters are few, and its
operations are those of a model that shares nothing.

Shapes: T tokens, E embedding, H hidden, I intermediate, N heads, V vocabulary.
"""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from albertkit.modeling.layers import AlbertLayer
from albertkit.modeling.pretrained import AlbertPreTrainedModel

_PARTS = {
    "embeddings.": "embeddings",
    "encoder.embedding_hidden_mapping_in.": "mapping to hidden size",
    "encoder.albert_layer_groups.": "layers",
    "pooler.": "pooler",
    "predictions.": "masked-word head",
    "sop_classifier.": "sentence-order head",
}
_OTHER = "task head"

BYTES_FP32 = 4


@dataclass(frozen=True)
class Parameters:
    """Parameters of one part."""

    distinct: int
    """Those that are stored; a matrix shared with an earlier part counts there."""
    executed: int
    """Those of a model that computes the same and shares nothing."""


@dataclass(frozen=True)
class Footprint:
    """The costs of one model; see `measure`."""

    parameters: dict[str, Parameters]
    """Part -> its parameters, in the order of execution."""
    flops_per_token: int
    """Operations of the encoder for one token, attention apart: two for each weight of a matrix, mapping
    and executed layers."""
    attention_flops: int
    """Operations of attention for one token and one token that it sees; times T for T tokens."""
    head_flops: int
    """Operations of the masked-word head for each word that is scored; 0 without that head."""
    inference_floats: int
    """Numbers that inference holds at its peak for each token, weights apart."""
    training_floats: int
    """Numbers that training keeps for the backward pass for each token, in the executed layers, with fused
    attention and without gradient checkpointing."""

    @property
    def total(self) -> Parameters:
        """The sum over all parts."""
        parts = self.parameters.values()
        return Parameters(sum(part.distinct for part in parts), sum(part.executed for part in parts))

    def weight_bytes(self, bytes_each: int = BYTES_FP32) -> int:
        """Memory of the weights."""
        return self.total.distinct * bytes_each

    def flops(self, tokens: int) -> int:
        """Operations of the encoder for one token in a text of that many."""
        return self.flops_per_token + self.attention_flops * tokens

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain values for `json.dumps`, with the totals."""
        return {**asdict(self), "total": asdict(self.total)}


def measure(model: AlbertPreTrainedModel) -> Footprint:
    """Return the costs of a model, which may be on the meta device; pruned heads count as gone."""
    encoder = model.base_model.encoder
    executed: list[AlbertLayer] = encoder.executed_layers()  # type: ignore[union-attr, operator]
    predictions = getattr(model, "predictions", None)
    mapping: nn.Linear = encoder.embedding_hidden_mapping_in  # type: ignore[union-attr, assignment]
    return Footprint(
        parameters=_parameters_by_part(model, executed),
        flops_per_token=2 * (mapping.weight.numel() + sum(map(_matrix_weights, executed))),
        # Query times key and weights times values, each N*D multiplications and additions.
        attention_flops=sum(4 * layer.attention.query.out_features for layer in executed),
        head_flops=0 if predictions is None else 2 * _matrix_weights(predictions),
        inference_floats=max(map(_peak_floats, executed)),
        training_floats=sum(map(_saved_floats, executed)),
    )


def _parameters_by_part(model: AlbertPreTrainedModel, executed: list[AlbertLayer]) -> dict[str, Parameters]:
    distinct: dict[str, int] = {}
    within: dict[str, dict[int, int]] = {}  # part -> parameter -> size, each parameter once
    seen: set[int] = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        part = _part_of(name.removeprefix(f"{model.base_model_prefix}."))
        within.setdefault(part, {})[id(parameter)] = parameter.numel()
        distinct[part] = distinct.get(part, 0) + (0 if id(parameter) in seen else parameter.numel())
        seen.add(id(parameter))
    sizes = {part: sum(parameters.values()) for part, parameters in within.items()}
    sizes["layers"] = sum(parameter.numel() for layer in executed for parameter in layer.parameters())
    return {part: Parameters(distinct[part], sizes[part]) for part in distinct}


def _part_of(name: str) -> str:
    return next((part for prefix, part in _PARTS.items() if name.startswith(prefix)), _OTHER)


def _matrix_weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.dim() == 2)


def _peak_floats(layer: AlbertLayer) -> int:
    """The larger of two moments: input, sum, query, key, value, context; or sum, FFN before, after GELU."""
    hidden, intermediate = layer.ffn.in_features, layer.ffn.out_features
    return max(2 * hidden + 4 * layer.attention.query.out_features, hidden + 2 * intermediate)


def _saved_floats(layer: AlbertLayer) -> int:
    """Input, query, key, value, context, both sums before and after LayerNorm, FFN before and after GELU.

    To these come one number per head (of the softmax), two for each LayerNorm, and a mask for each dropout.
    """
    hidden, intermediate = layer.ffn.in_features, layer.ffn.out_features
    kept = layer.attention.query.out_features
    dropouts = (layer.attention.output_dropout.p > 0) + (layer.dropout.p > 0)
    numbers = len(layer.attention.kept_heads) + 4
    return 4 * hidden + 4 * kept + 2 * intermediate + numbers + dropouts * hidden
