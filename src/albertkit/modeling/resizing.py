"""Resize embeddings and decoders to another vocabulary size.

Shapes: V vocabulary, E embedding.
"""

from operator import index
from typing import Any

import torch
from torch import Tensor, nn

from albertkit.errors import ConfigError

NEW_ROW_VARIANCE = 1e-9
"""Variance of new rows around the mean of the old rows, relative to the variance of the old rows."""


def resize_vocabulary(
    model: Any, new_num_tokens: int | None, pad_to_multiple_of: int | None, *, around_mean: bool
) -> nn.Embedding:
    """Resize the word embeddings; see `AlbertPreTrainedModel.resize_token_embeddings`.

    `around_mean` is the argument `mean_resizing` of that method.
    """
    old, config = model.get_input_embeddings(), model.config
    if new_num_tokens is not None:
        try:
            new_num_tokens = index(new_num_tokens)  # also of NumPy and PyTorch
        except TypeError as error:
            raise ConfigError(f"new_num_tokens must be a whole number, got {new_num_tokens!r}") from error
    if pad_to_multiple_of is not None:
        if not isinstance(pad_to_multiple_of, int) or pad_to_multiple_of < 1:
            raise ConfigError(
                f"pad_to_multiple_of must be a whole number of at least 1, got {pad_to_multiple_of!r}"
            )
        wanted = old.num_embeddings if new_num_tokens is None else new_num_tokens
        new_num_tokens = -(-wanted // pad_to_multiple_of) * pad_to_multiple_of
    if new_num_tokens is None or new_num_tokens == old.num_embeddings:
        return old
    if new_num_tokens <= config.pad_token_id:
        raise ConfigError(
            f"new_num_tokens is {new_num_tokens}, but pad_token_id {config.pad_token_id} must stay"
        )
    std = config.initializer_range
    rows = resize_rows(old.weight, new_num_tokens, std=std, around_mean=around_mean)
    model.set_input_embeddings(
        nn.Embedding.from_pretrained(rows, freeze=not old.weight.requires_grad, padding_idx=old.padding_idx)
    )
    decoder = model.get_output_embeddings()
    if decoder is not None:
        decoder.weight = resize_rows(decoder.weight, new_num_tokens, std=std, around_mean=around_mean)
        decoder.bias = _resize_bias(
            decoder.bias, new_num_tokens, mean=around_mean and not config.tie_word_embeddings
        )
        decoder.out_features = new_num_tokens
        model.set_output_embeddings(decoder)
    config.vocab_size = new_num_tokens
    model.tie_weights()
    return model.get_input_embeddings()


@torch.no_grad()
def _resize_bias(old: Tensor, size: int, *, mean: bool) -> nn.Parameter:
    """Return `size` biases that begin with the old ones. New biases are 0, or the mean of the old biases."""
    bias = old.new_zeros(size)
    kept = min(size, len(old))
    bias[:kept] = old[:kept]
    if mean:
        bias[kept:] = old.mean(dtype=torch.float32)
    return nn.Parameter(bias, requires_grad=old.requires_grad)


@torch.no_grad()
def resize_rows(old: Tensor, size: int, *, std: float, around_mean: bool) -> nn.Parameter:
    """Return `size` rows that begin with the old rows.

    Args:
        old: The old rows, (V, E).
        size: Number of rows to return.
        std: Standard deviation of new rows that are drawn as at initialization.
        around_mean: Whether to draw new rows close to the mean of the old rows instead. A new token then has
            roughly the mean probability, which changes the other probabilities least.
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
