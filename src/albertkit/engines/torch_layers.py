"""All layers of a model by torch, from packed matrices.

Shapes: M tokens of a batch, P of them that are read, H hidden.
"""

import torch.nn.functional as F
from torch import Tensor

from albertkit.engines.attention import RowAttention
from albertkit.engines.fitting import encoder_of
from albertkit.engines.packing import PackedLayer, can_pack
from albertkit.engines.plan import Group
from albertkit.modeling.pretrained import AlbertPreTrainedModel

_SHAPES_AN_OCTAVE = 16  # of numbers of tokens: oneDNN keeps 2 MB of code for each one it has seen
_SMALLEST_STEP = 4
_WORTH_SELECTING = 0.75  # where more of the tokens are read, the last layer is computed for all of them


class TorchLayers:
    """The layers of a model that fits, packed once."""

    def __init__(self, model: AlbertPreTrainedModel) -> None:
        packed = model.device.type == "cpu" and can_pack(model.dtype)
        layers = encoder_of(model).encoder.executed_layers()
        made = {id(layer): PackedLayer(layer, packed=packed) for layer in dict.fromkeys(layers)}
        self.layers = [made[id(layer)] for layer in layers]

    def __call__(self, states: Tensor, groups: list[Group], places: Tensor) -> Tensor:
        """(M, H) and (P,) -> (P, H): the last states of the tokens read."""
        whole = RowAttention([one.whole() for one in groups])
        for layer in self.layers[:-1]:
            states = layer(states, states, whole)
        last = self.layers[-1]
        if len(places) > _WORTH_SELECTING * len(states):
            return last(states, states, whole).index_select(0, places)
        padded = F.pad(places, (0, rounded(len(places)) - len(places)))
        return last(states, states.index_select(0, padded), RowAttention(groups))[: len(places)]


def rounded(tokens: int) -> int:
    """Return the next of some numbers of tokens, so that few different ones occur."""
    tokens = max(tokens, 1)
    step = max(_SMALLEST_STEP, 2 ** (tokens.bit_length() - 1) // _SHAPES_AN_OCTAVE)
    return tokens + -tokens % step
