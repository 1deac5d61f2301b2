"""The engine `torch`, which computes packed rows in PyTorch from the weights of a model.

The tokens of a batch are concatenated in a matrix (M, H) without padding. The last layer computes only the
read tokens. If a patience is set (`modeling/exits.py`), a row exits once several consecutive layers agree,
and later layers do not compute it.

Shapes: M tokens of a batch, B rows, T tokens of a row, R read tokens of a row, P read tokens of all rows, H
hidden, K scores of a token.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, groupby

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.early_exit import exits_of
from albertkit.engines.batches import Batch, Group, check_rows, length_of, plan
from albertkit.engines.engine import BatchScores, Engine, Job, Row
from albertkit.engines.fitting import Head, MadeFromWeights, encoder_of, fits, head_of, warn_of_call
from albertkit.engines.packed_layers import PackedLayer, RowAttention, can_reorder
from albertkit.engines.plain import PlainEngine, default_batch_tokens, evaluating
from albertkit.modeling.exits import agree
from albertkit.modeling.layers import AlbertLayer
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.task_heads import AlbertForSequenceClassification

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


def run_with_patience(
    model: AlbertForSequenceClassification, layers: Sequence[PackedLayer], states: Tensor, lengths: list[int]
) -> tuple[Tensor, Tensor]:
    """Return the scores (B, K) of rows, and the layers (B,), counted from 1, at which they exited.

    Args:
        model: A model with a patience.
        layers: The layer for each depth.
        states: Embeddings (M, H) of packed rows; extra states at the end are ignored.
        lengths: Number of tokens of each row; rows of equal length must be consecutive.
    """
    exits = exits_of(model.config)
    assert exits is not None
    assert model.patience is not None
    device = states.device
    scores = states.new_empty(len(lengths), model.config.num_labels)
    depths = torch.zeros(len(lengths), dtype=torch.long, device=device)
    remaining = torch.arange(len(lengths), device=device)  # (B,) indices of the rows that have not exited
    agreed = torch.zeros_like(remaining)
    previous = None
    for depth, layer in enumerate(layers, start=1):
        firsts = _index([0, *accumulate(lengths[:-1])], device)  # (B,) index of each [CLS]
        groups = [Group(len(list(same)), length, 1) for length, same in groupby(lengths)]
        is_last = depth == len(layers)
        if is_last:
            places = F.pad(firsts, (0, rounded(len(firsts)) - len(firsts)))
            read = layer(states, states.index_select(0, places), RowAttention(groups))[: len(firsts)]
        else:
            states = layer(states, states, RowAttention([group.full() for group in groups]))
            read = states.index_select(0, firsts)  # (B, H)
        current = model.classifier_at(depth)(model.albert.pool(read))
        if previous is not None:
            problem, tolerance = model.config.problem_type, exits.tolerance
            same = agree(previous, current, problem_type=problem, tolerance=tolerance)
            agreed = torch.where(same, agreed + 1, 0)
        leaving = torch.ones_like(remaining, dtype=torch.bool) if is_last else agreed >= model.patience
        scores[remaining[leaving]], depths[remaining[leaving]] = current[leaving], depth
        if bool(leaving.all()):
            break
        previous = current
        if bool(leaving.any()):
            staying = ~leaving
            remaining, agreed, previous = remaining[staying], agreed[staying], current[staying]
            states, lengths = _keep(states, lengths, staying.tolist())
    return scores, depths


def _keep(states: Tensor, lengths: list[int], staying: list[bool]) -> tuple[Tensor, list[int]]:
    """Return the packed states of the rows that have not exited, and their lengths."""
    places: list[int] = []
    for start, length, stays in zip(accumulate(lengths, initial=0), lengths, staying, strict=False):
        if stays:
            places += range(start, start + length)
    padded = places + [0] * (rounded(len(places)) - len(places))
    kept = [length for length, stays in zip(lengths, staying, strict=True) if stays]
    return states.index_select(0, _index(padded, states.device)), kept


def _index(places: list[int], device: torch.device) -> Tensor:
    return torch.tensor(places, dtype=torch.long, device=device)


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
        self.exit_depths: Counter[int] = Counter()
        """Number of rows that exited after each layer, for a model with a patience."""

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
        is_classifier = job.output == "logits" and isinstance(model, AlbertForSequenceClassification)
        exits_early = is_classifier and model.patience is not None
        score = self._score_early if exits_early else partial(self._score, head)
        budget = job.batch_tokens or default_batch_tokens(model.device)
        for batch in plan(rows, job.positions, budget, job.batch_size):
            with evaluating(model):
                scores = score(layers, batch)
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

    def _score_early(self, layers: list[PackedLayer], batch: Batch) -> Sequence[np.ndarray]:
        """Return the scores (1, K) of each row, and count the layers at which rows exit."""
        model = self.model
        assert isinstance(model, AlbertForSequenceClassification)
        lengths = [length_of(row) for row in batch.rows]
        scores, depths = run_with_patience(model, layers, self._embed(batch), lengths)
        self.exit_depths.update(depths.tolist())
        return list(scores.float().cpu().numpy()[:, None])

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
