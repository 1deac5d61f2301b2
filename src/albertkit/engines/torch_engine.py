"""The engine `torch`, which computes packed rows in PyTorch from the weights of a model.

The tokens of a batch are concatenated in a matrix (M, H) without padding. The last layer computes only the
read tokens.

Shapes: M tokens of a batch, B rows, T tokens of a row, R read tokens of a row, P read tokens of all rows, H
hidden, K scores of a token.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.engines.batches import Batch, Group, check_rows, length_of, plan
from albertkit.engines.engine import BatchScores, Engine, Job, Row
from albertkit.engines.fitting import Head, MadeFromWeights, encoder_of, fits, head_of, warn_of_call
from albertkit.engines.packed_layers import PackedLayer, RowAttention, can_reorder
from albertkit.engines.plain import PlainEngine, default_batch_tokens, evaluating
from albertkit.modeling.layers import AlbertLayer
from albertkit.modeling.pretrained import AlbertPreTrainedModel

_SHAPES_AN_OCTAVE = 16  # numbers of tokens per power of 2; oneDNN keeps 2 MB of code for each number
_SMALLEST_STEP = 4
_WORTH_SELECTING = 0.75  # if a larger share of tokens is read, the last layer computes all tokens


def run_layers(layers: Sequence[PackedLayer], states: Tensor, groups: list[Group], places: Tensor) -> Tensor:
    """Return the last hidden states (P, H) of the tokens at `places` (P,), from embeddings (M, H)."""
    everything = RowAttention([group.full() for group in groups])
    *others, last = layers
    for layer in others:
        states = layer(states, states, everything)
    if len(places) > _WORTH_SELECTING * len(states):
        return last(states, states, everything).index_select(0, places)
    padded = F.pad(places, (0, rounded(len(places)) - len(places)))
    return last(states, states.index_select(0, padded), RowAttention(groups))[: len(places)]


def rounded(tokens: int) -> int:
    """Round a number of tokens up to one of few numbers, so that few different shapes occur."""
    tokens = max(tokens, 1)
    step = max(_SMALLEST_STEP, 2 ** (tokens.bit_length() - 1) // _SHAPES_AN_OCTAVE)
    return tokens + -tokens % step


_LAYERS: MadeFromWeights[dict[AlbertLayer, PackedLayer]] = MadeFromWeights()


class TorchEngine(Engine):
    """Computes a model of this package from its weights; calls any other model as `PlainEngine` does.

    Before every run, it checks whether the weights have changed.

    Args:
        model: The model. It is computed without dropout and gradients, also in training mode.
        chosen: The name by which the user chose this engine, for a warning if the model must be called; None
            for no warning.
    """

    def __init__(self, model: AlbertPreTrainedModel, *, chosen: str | None = None) -> None:
        self.model = model
        self.chosen = chosen

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of batches as `Engine.batches` does, the longest rows first."""
        model = self.model
        head = head_of(model, job.output)
        if head is None or not fits(model):
            if self.chosen is not None:
                warn_of_call(self.chosen)
            yield from PlainEngine(model).batches(rows, job)
            return
        check_rows(rows, model.config)
        with evaluating(model):
            layers = self._prepare()
        budget = job.batch_tokens or default_batch_tokens(model.device)
        for batch in plan(rows, job.positions, budget, job.batch_size):
            with evaluating(model):
                scores = self._score(head, layers, batch)
            yield batch.numbers, scores

    def _prepare(self) -> list[PackedLayer]:
        """Return the layers in the order of execution."""
        model = self.model
        executed = encoder_of(model).encoder.executed_layers()
        layers = list(dict.fromkeys(executed))
        device = model.device.type
        # Autocast does not convert reordered matrices.
        reorder = device == "cpu" and not torch.is_autocast_enabled(device) and can_reorder(model.dtype)

        def make() -> dict[AlbertLayer, PackedLayer]:
            return {layer: PackedLayer(layer, reorder=reorder) for layer in layers}

        def is_current(packed: dict[AlbertLayer, PackedLayer]) -> bool:
            return packed.keys() == set(layers)  # another layer may have the same parameters

        packed = _LAYERS.get(model, layers, make, key=reorder, is_current=is_current)
        return [packed[layer] for layer in executed]

    def _score(self, head: Head, layers: list[PackedLayer], batch: Batch) -> Sequence[np.ndarray]:
        embedded = self._embed(batch)
        places = torch.from_numpy(batch.read_tokens()).to(embedded.device)
        states = run_layers(layers, embedded, batch.groups(), places)
        scores = head(_of_few_numbers(states))[: len(places)]
        return batch.split(scores.float().cpu().numpy())

    def _embed(self, batch: Batch) -> Tensor:
        """Return the mapped embeddings (M, H) of a batch's tokens; M is rounded up with extra tokens."""
        tokens = rounded(sum(map(length_of, batch.rows)))
        inputs = torch.from_numpy(batch.inputs(tokens)).to(self.model.device)
        encoder = encoder_of(self.model)
        embedded = encoder.embeddings(*inputs[:, None])[0]  # (3, M) -> (1, M, E) -> (M, E)
        return encoder.encoder.embedding_hidden_mapping_in(embedded)


def _of_few_numbers(states: Tensor) -> Tensor:
    """Pad states (P, H) so that few different P occur: in half precision PyTorch keeps 0.5 MB for each P."""
    if states.device.type != "cpu" or states.dtype == torch.float32:
        return states
    return F.pad(states, (0, 0, 0, rounded(len(states)) - len(states)))
