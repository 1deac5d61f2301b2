"""Embeddings and decoders with another number of pieces.

Shapes: V vocabulary, E embedding.
"""

import torch
from torch import Tensor, nn

NEW_ROW_VARIANCE = 1e-9
"""Variance of new rows around the mean of the old ones, as a share of the variance of the old ones."""


def resize_embedding(old: nn.Embedding, size: int, *, std: float, around_mean: bool) -> nn.Embedding:
    """Return a table (size, E) that begins with the rows of the old one; arguments as in `resize_rows`."""
    rows = resize_rows(old.weight, size, std=std, around_mean=around_mean)
    return nn.Embedding.from_pretrained(
        rows, freeze=not old.weight.requires_grad, padding_idx=old.padding_idx
    )


def resize_decoder(old: nn.Linear, size: int, *, std: float, around_mean: bool, mean_bias: bool) -> nn.Linear:
    """Return a decoder to `size` pieces.

    Args:
        old: the decoder, E -> V.
        size: number of pieces.
        std, around_mean: as in `resize_rows`.
        mean_bias: give new pieces the mean of the old biases, else 0.
    """
    new = nn.Linear(old.in_features, size, device="meta")
    new.weight = resize_rows(old.weight, size, std=std, around_mean=around_mean)
    bias = old.bias.detach().new_zeros(size)
    kept = min(size, old.out_features)
    bias[:kept] = old.bias.detach()[:kept]
    if mean_bias:
        bias[kept:] = old.bias.detach().mean(dtype=torch.float32)
    new.bias = nn.Parameter(bias, requires_grad=old.bias.requires_grad)
    return new


@torch.no_grad()
def resize_rows(old: Tensor, size: int, *, std: float, around_mean: bool) -> nn.Parameter:
    """Return `size` rows that begin with the old ones.

    Args:
        old: (V, E).
        size: number of rows.
        std: standard deviation of new rows that are drawn as at initialization.
        around_mean: draw new rows close to the mean of the old ones instead. A new piece then takes about the
            mean probability, which changes the probabilities of the others least.
    """
    new = old.new_empty((size, *old.shape[1:]))
    kept = min(size, len(old))
    if around_mean and size > kept:
        rows = old.float()
        mean = rows.mean(dim=0)
        covariance = (rows - mean).T @ (rows - mean) / len(rows)  # (E, E)
        values, vectors = torch.linalg.eigh(NEW_ROW_VARIANCE * covariance)
        normal = torch.randn(size - kept, len(mean), device=old.device)
        new[kept:] = mean + (normal * values.clamp(min=0).sqrt()) @ vectors.T
    else:
        nn.init.trunc_normal_(new[kept:], std=std, a=-2 * std, b=2 * std)
    new[:kept] = old[:kept]
    return nn.Parameter(new, requires_grad=old.requires_grad)
