"""Layers in which rows leave the batch once several depths agree on what they are (`modeling/early_exit.py`).

Shapes: M tokens of the rows that are left, B rows that are left, L depths, H hidden, K labels.
"""

from collections.abc import Sequence
from itertools import accumulate, groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.early_exit import exits_of
from albertkit.engines.attention import RowAttention
from albertkit.engines.packing import PackedLayer
from albertkit.engines.plan import Group
from albertkit.engines.torch_layers import rounded
from albertkit.modeling.early_exit import agree
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.tasks.engine import Output


def leaves_early(model: AlbertPreTrainedModel, output: Output) -> bool:
    """Tell whether this output of a model is to be computed with early exit."""
    if output != "logits" or not isinstance(model, AlbertForSequenceClassification):
        return False
    return model.patience is not None


def run_until_sure(
    model: AlbertForSequenceClassification, layers: Sequence[PackedLayer], states: Tensor, lengths: list[int]
) -> tuple[Tensor, Tensor]:
    """Return the scores (B, K) of rows, and the depths (B,), from 1, at which they were sure of them.

    Args:
        model: with a patience.
        layers: one for each depth.
        states: (M, H) of rows one after the other; there may be more states than tokens.
        lengths: tokens of each row; equal ones next to each other.
    """
    exits = exits_of(model.config)
    assert exits is not None
    assert model.patience is not None
    assert model.albert.pooler is not None
    device = states.device
    scores = states.new_empty(len(lengths), model.config.num_labels)
    depths = torch.zeros(len(lengths), dtype=torch.long, device=device)
    left = torch.arange(len(lengths), device=device)  # the numbers of the rows that are left, (B,)
    agreed = torch.zeros_like(left)
    before = None
    for depth, layer in enumerate(layers, start=1):
        firsts = _index([0, *accumulate(lengths[:-1])], device)  # where each [CLS] is, (B,)
        groups = [Group(len(list(some)), length, 1) for length, some in groupby(lengths)]
        is_last = depth == len(layers)
        if is_last:
            asking = F.pad(firsts, (0, rounded(len(firsts)) - len(firsts)))
            read = layer(states, states.index_select(0, asking), RowAttention(groups))[: len(firsts)]
        else:
            states = layer(states, states, RowAttention([one.whole() for one in groups]))
            read = states.index_select(0, firsts)  # (B, H)
        now = model.classifier_at(depth)(torch.tanh(model.albert.pooler(read)))
        if before is not None:
            problem, tolerance = model.config.problem_type, exits.tolerance
            same = agree(before, now, problem_type=problem, tolerance=tolerance)
            agreed = torch.where(same, agreed + 1, 0)
        leaving = torch.ones_like(left, dtype=torch.bool) if is_last else agreed >= model.patience
        scores[left[leaving]], depths[left[leaving]] = now[leaving], depth
        if bool(leaving.all()):
            break
        before = now
        if bool(leaving.any()):
            staying = ~leaving
            left, agreed, before = left[staying], agreed[staying], now[staying]
            states, lengths = _keep(states, lengths, staying.tolist())
    return scores, depths


def _keep(states: Tensor, lengths: list[int], staying: list[bool]) -> tuple[Tensor, list[int]]:
    """Return the states of the rows that stay, one after the other again, and their lengths."""
    places: list[int] = []
    for start, length, stays in zip(accumulate(lengths, initial=0), lengths, staying, strict=False):
        if stays:
            places += range(start, start + length)
    padded = places + [0] * (rounded(len(places)) - len(places))
    kept = [length for length, stays in zip(lengths, staying, strict=True) if stays]
    return states.index_select(0, _index(padded, states.device)), kept


def _index(places: list[int], device: torch.device) -> Tensor:
    return torch.tensor(places, dtype=torch.long, device=device)
