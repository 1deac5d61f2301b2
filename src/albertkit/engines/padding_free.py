"""Rows without padding: the tokens of a batch in one matrix, attention among those of each row.

Everything in a layer but attention is done for each token alone, so the rows of a batch stand one after the
other in a matrix (M, H), with nothing between them. Rows of equal length attend together, without any mask.
The last layer is computed for the tokens that are read (`modeling/reading.py`).

Shapes: M tokens of a batch, B rows of one length, T their tokens, R tokens read of each, P read of all,
H hidden, N heads, D head width, K scores of a token.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.engines.attention import Group
from albertkit.engines.early_exit import leaves_early, run_until_sure
from albertkit.engines.fitting import Head, as_configured, encoder_of, fits, head_of
from albertkit.engines.onnx_layers import OnnxLayers
from albertkit.engines.packing import fingerprint, unchanged
from albertkit.engines.torch_layers import TorchLayers, rounded
from albertkit.errors import ConfigError
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.tasks.engine import Engine, Output, PlainEngine, Read, default_batch_tokens
from albertkit.tasks.rows import Row, evaluating

Kind = Literal["torch", "onnx", "onnx-int8"]
Layers = Callable[[Tensor, list[Group], Tensor], Tensor]
"""States (M, H) of the tokens of groups of rows, and places (P,) of those that are read -> their last
states (P, H). There may be more states than tokens."""

_MAKERS: dict[Kind, Callable[[AlbertPreTrainedModel], Layers]] = {
    "torch": TorchLayers,
    "onnx": partial(OnnxLayers, int8=False),
    "onnx-int8": partial(OnnxLayers, int8=True),
}
_MADE: WeakKeyDictionary[AlbertPreTrainedModel, dict[Kind, tuple[Any, Layers]]] = WeakKeyDictionary()
"""The layers of each model that is still there, with what they were made from."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows one after the other, the longest first."""

    numbers: list[int]
    rows: list[Row]
    positions: list[Sequence[int]]

    def groups(self) -> list[Group]:
        """Return the rows of equal length, and of equally many tokens read."""
        sizes = zip(map(_length, self.rows), map(len, self.positions), strict=True)
        return [Group(len(list(some)), *size) for size, some in groupby(sizes)]

    def places(self) -> list[int]:
        """Return where the tokens that are read stand in the batch, (P,)."""
        found, start = [], 0
        for row, positions in zip(self.rows, self.positions, strict=True):
            found += [start + position for position in positions]
            start += _length(row)
        return found


class PaddingFreeEngine(Engine):
    """Computes a model of this package from its weights; any other model as `PlainEngine` does.

    It asks the model before every run whether its weights are still those that were packed.

    Args:
        model: computed without dropout and gradients, whatever its mode.
        kind: what computes its layers.
    """

    def __init__(self, model: AlbertPreTrainedModel, kind: Kind = "torch") -> None:
        self.model = model
        self.kind: Kind = kind
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
    ) -> Iterator[tuple[Sequence[int], Sequence[Tensor]]]:
        """As `Engine.batches`, the longest rows first."""
        model = self.model
        head = head_of(model, output)
        limit = model.config.max_position_embeddings
        kind = self.suitable_kind()
        if head is None or kind is None or any(not 0 < _length(row) <= limit for row in rows):
            yield from PlainEngine(model).batches(
                rows, output=output, read=read, batch_tokens=batch_tokens, batch_size=batch_size
            )
            return
        early = leaves_early(model, output)
        if early and kind != "torch":
            raise ConfigError(
                f"the engine {kind!r} computes all depths, and the model has a patience of "
                f"{model.patience}: choose the engine 'torch', or set_patience(None)"
            )
        with evaluating(model):
            layers = self._prepare(kind)
        score = self._score_early if early else partial(self._score, head)
        budget = batch_tokens or default_batch_tokens(model.device)
        for batch in _plan(rows, read, budget, batch_size):
            with evaluating(model):
                try:
                    scores = score(layers, batch)
                except IndexError:  # an id that the model does not have; it says so itself
                    next(PlainEngine(model).batches(batch.rows, output=output, read=read,
                                                    batch_tokens=None, batch_size=None))  # fmt: skip
                    raise
            yield batch.numbers, scores

    def suitable_kind(self) -> Kind | None:
        """Return what is to compute the layers of the model as it is now; None where it is to be called."""
        suits = fits(self.model) and (self.kind == "torch" or as_configured(self.model))
        return self.kind if suits else None

    def _prepare(self, kind: Kind) -> Layers:
        """Return the layers, made anew where they have changed since they were made."""
        model = self.model
        current = fingerprint(list(dict.fromkeys(encoder_of(model).encoder.executed_layers())))
        made = _MADE.setdefault(model, {})
        if kind not in made or not unchanged(made[kind][0], current):
            made.pop(kind, None)  # its memory, before more is taken
            made[kind] = current, _MAKERS[kind](model)
        return made[kind][1]

    def _score(self, head: Head, layers: Layers, batch: _Batch) -> Sequence[Tensor]:
        """Return the scores of each row, (R, K)."""
        embedded = self._embed(batch)
        places = torch.tensor(batch.places(), dtype=torch.long, device=embedded.device)
        scores = head(_of_few_numbers(layers(embedded, batch.groups(), places)))[: len(places)]
        return scores.cpu().split([len(own) for own in batch.positions])

    def _score_early(self, layers: Layers, batch: _Batch) -> Sequence[Tensor]:
        """Return the scores of each row, (1, K), and count the depths at which rows left."""
        model = self.model
        assert isinstance(layers, TorchLayers)
        assert isinstance(model, AlbertForSequenceClassification)
        lengths = [_length(row) for row in batch.rows]
        scores, depths = run_until_sure(model, layers.layers, self._embed(batch), lengths)
        self.exit_depths.update(depths.tolist())
        return list(scores.cpu()[:, None])

    def _embed(self, batch: _Batch) -> Tensor:
        """Return the mapped embeddings of a batch's tokens, (M, H); M is rounded up with any tokens."""
        device = self.model.device
        ids, segments, places = [], [], []
        for row in batch.rows:
            ids += row.input_ids
            segments += row.token_type_ids
            places += range(_length(row))
        extra = [0] * (rounded(len(ids)) - len(ids))
        inputs = torch.tensor([ids + extra, segments + extra, places + extra], device=device)
        encoder = encoder_of(self.model)
        embedded = encoder.embeddings(*inputs[:, None])[0]  # (3, M) -> (1, M, E) -> (M, E)
        return encoder.encoder.embedding_hidden_mapping_in(embedded)


def forget_layers(model: AlbertPreTrainedModel, kind: Kind) -> None:
    """Give back the memory of a model's layers; they are made anew when they are needed."""
    _MADE.get(model, {}).pop(kind, None)


def _plan(rows: Sequence[Row], read: Read, budget: int, most_rows: int | None) -> Iterator[_Batch]:
    """Yield batches of at most so many tokens and rows, the longest rows first."""
    positions = [read(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda number: (-_length(rows[number]), len(positions[number])))
    some: list[int] = []
    tokens = 0
    for number in order:
        tokens += _length(rows[number])
        if some and (tokens > budget or len(some) == most_rows):
            yield _batch(some, rows, positions)
            some, tokens = [], _length(rows[number])
        some.append(number)
    if some:
        yield _batch(some, rows, positions)


def _batch(numbers: list[int], rows: Sequence[Row], positions: list[Sequence[int]]) -> _Batch:
    return _Batch(numbers, [rows[number] for number in numbers], [positions[number] for number in numbers])


def _of_few_numbers(states: Tensor) -> Tensor:
    """(P, H) -> at least P: in half precision torch keeps half a MB for each number of rows of a product."""
    if states.device.type != "cpu" or states.dtype == torch.float32:
        return states
    return F.pad(states, (0, 0, 0, rounded(len(states)) - len(states)))


def _length(row: Row) -> int:
    return len(row.input_ids)
