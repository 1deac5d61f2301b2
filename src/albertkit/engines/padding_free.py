"""Rows without padding: the tokens of a batch in one matrix, attention among those of each row.

Everything in a layer but attention is done for each token alone, so the rows of a batch stand one after the
other in a matrix (M, H), with nothing between them. Rows of equal length attend together, without any mask.
The last layer is computed for the tokens that are read (`modeling/reading.py`).

Shapes: M tokens of a batch, B rows of one length, T their tokens, R tokens read of each, P read of all,
H hidden, N heads, D head width, K scores of a token.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.engines.early_exit import leaves_early, run_until_sure
from albertkit.engines.fitting import Head, encoder_of, fits, head_of
from albertkit.engines.packing import fingerprint, unchanged
from albertkit.engines.plain import PlainEngine, default_batch_tokens, evaluating
from albertkit.engines.plan import Batch, length_of, plan
from albertkit.engines.torch_layers import TorchLayers, rounded
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.tasks.engine import Engine, Output, Read
from albertkit.tasks.rows import Row

_MADE: WeakKeyDictionary[AlbertPreTrainedModel, tuple[Any, TorchLayers]] = WeakKeyDictionary()
"""The packed layers of each model that is still there, with the fingerprint of what they were made from."""


class PaddingFreeEngine(Engine):
    """Computes a model of this package from its weights; any other model as `PlainEngine` does.

    It asks the model before every run whether its weights are still those that were packed.

    Args:
        model: computed without dropout and gradients, whatever its mode.
    """

    def __init__(self, model: AlbertPreTrainedModel) -> None:
        self.model = model
        self.exit_depths: Counter[int] = Counter()
        """At which depths so many rows left, of a model with a patience."""

    def batches(
        self,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        batch_tokens: int | None,
        batch_size: int | None,
    ) -> Iterator[tuple[Sequence[int], Sequence[np.ndarray]]]:
        """As `Engine.batches`, the longest rows first."""
        model = self.model
        head = head_of(model, output)
        limit = model.config.max_position_embeddings
        if head is None or not fits(model) or any(not 0 < length_of(row) <= limit for row in rows):
            yield from PlainEngine(model).batches(
                rows, output=output, read=read, batch_tokens=batch_tokens, batch_size=batch_size
            )
            return
        with evaluating(model):
            layers = self._prepare()
        score = self._score_early if leaves_early(model, output) else partial(self._score, head)
        budget = batch_tokens or default_batch_tokens(model.device)
        for batch in plan(rows, read, budget, batch_size):
            with evaluating(model):
                try:
                    scores = score(layers, batch)
                except IndexError:  # an id that the model does not have; it says so itself
                    next(PlainEngine(model).batches(batch.rows, output=output, read=read,
                                                    batch_tokens=None, batch_size=None))  # fmt: skip
                    raise
            yield batch.numbers, scores

    def _prepare(self) -> TorchLayers:
        """Return the layers, packed anew where they have changed since they were packed."""
        model = self.model
        current = fingerprint(list(dict.fromkeys(encoder_of(model).encoder.executed_layers())))
        if model not in _MADE or not unchanged(_MADE[model][0], current):
            _MADE.pop(model, None)  # its memory, before more is taken
            _MADE[model] = current, TorchLayers(model)
        return _MADE[model][1]

    def _score(self, head: Head, layers: TorchLayers, batch: Batch) -> Sequence[np.ndarray]:
        """Return the scores of each row, (R, K)."""
        embedded = self._embed(batch)
        places = torch.tensor(batch.places(), dtype=torch.long, device=embedded.device)
        scores = head(_of_few_numbers(layers(embedded, batch.groups(), places)))[: len(places)]
        return batch.split(scores.float().cpu().numpy())

    def _score_early(self, layers: TorchLayers, batch: Batch) -> Sequence[np.ndarray]:
        """Return the scores of each row, (1, K), and count the depths at which rows left."""
        model = self.model
        assert isinstance(model, AlbertForSequenceClassification)
        lengths = [length_of(row) for row in batch.rows]
        scores, depths = run_until_sure(model, layers.layers, self._embed(batch), lengths)
        self.exit_depths.update(depths.tolist())
        return list(scores.float().cpu().numpy()[:, None])

    def _embed(self, batch: Batch) -> Tensor:
        """Return the mapped embeddings of a batch's tokens, (M, H); M is rounded up with any tokens."""
        device = self.model.device
        ids, segments, places = batch.inputs()
        extra = [0] * (rounded(len(ids)) - len(ids))
        inputs = torch.tensor([ids + extra, segments + extra, places + extra], device=device)
        encoder = encoder_of(self.model)
        embedded = encoder.embeddings(*inputs[:, None])[0]  # (3, M) -> (1, M, E) -> (M, E)
        return encoder.encoder.embedding_hidden_mapping_in(embedded)


def _of_few_numbers(states: Tensor) -> Tensor:
    """(P, H) -> at least P: in half precision torch keeps half a MB for each number of rows of a product."""
    if states.device.type != "cpu" or states.dtype == torch.float32:
        return states
    return F.pad(states, (0, 0, 0, rounded(len(states)) - len(states)))
