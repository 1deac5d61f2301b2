"""The losses of sentence embeddings: every pair of a batch counts for every other.

Shapes: B examples, W texts of each (2, or 3 with a negative), H hidden.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.engines.engine import Row

TEMPERATURE = 0.05
"""Divides the cosines, as in Gao et al. 2021 and in sentence-transformers."""


def embedding_loss(vectors: Tensor, texts: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Return the loss of a batch: `ranking_loss` if it has scores, else `contrastive_loss`.

    Args:
        vectors: (B, W, H), of any length.
        texts: (B, W), equal for equal texts.
        scores: (B,), NaN for texts that belong together.
        temperature: divides the cosines; the smaller, the more the nearest wrong text counts.
    """
    with torch.autocast(vectors.device.type, enabled=False):  # a cosine in bfloat16 has two digits
        vectors = F.normalize(vectors.float(), dim=-1)
        if scores.isnan().any():
            return contrastive_loss(vectors, texts, temperature=temperature)
        cosines = (vectors[:, 0] * vectors[:, 1]).sum(dim=-1)  # (B,)
        return ranking_loss(cosines, scores, temperature=temperature)


def contrastive_loss(vectors: Tensor, texts: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross-entropy of finding each first text's second one among all of the batch.

    Multiple negatives ranking (Henderson et al. 2017), with the cosine over a temperature and negatives as in
    Gao et al. 2021, equation 5. Candidates are the second texts and the negatives of all examples. A
    candidate that is no wrong answer is left out: the second text of an equal first one, an equal second
    text, the first text itself.

    Args:
        vectors: (B, W, H) of length 1.
        texts: (B, W), equal for equal texts.
        temperature: as in `embedding_loss`.
    """
    first = vectors[:, 0]  # (B, H)
    candidates = vectors[:, 1:].transpose(0, 1).flatten(0, 1)  # (B, W - 1, H) -> ((W - 1) B, H), second first
    logits = first @ candidates.T / temperature  # (B, (W - 1) B)
    right = torch.arange(len(first), device=logits.device)
    excluded = _not_wrong(texts)
    excluded[right, right] = False
    return F.cross_entropy(logits.masked_fill(excluded, -math.inf), right)


def _not_wrong(texts: Tensor) -> Tensor:
    """(B, W) -> (B, (W - 1) B), true where a candidate is right for a first text, or that text itself."""
    first, second, candidates = texts[:, 0], texts[:, 1], texts[:, 1:].T.flatten()
    same_first = first[:, None] == first  # (B, B)
    same_as_second = second[:, None] == candidates  # (B, (W - 1) B)
    right = same_first.float() @ same_as_second.float() > 0  # as right for each equal first text
    return right | (first[:, None] == candidates)


def ranking_loss(cosines: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Return log(1 + sum of exp((cosine of i - cosine of j) / temperature)) over all i scored below j.

    CoSENT (Su 2022, https://kexue.fm/archives/8847; the cosine objective of Li and Li 2023, AnglE). It asks
    for the order of the cosines only, as Spearman's correlation does, so scores may be of any scale.

    Args:
        cosines: (B,).
        scores: (B,).
        temperature: as in `embedding_loss`.
    """
    differences = (cosines[:, None] - cosines) / temperature  # (B, B)
    below = scores[:, None] < scores
    return torch.cat([differences[below], differences.new_zeros(1)]).logsumexp(dim=0)


def text_numbers(units: Sequence[Sequence[Row]], device: torch.device) -> Tensor:
    """Return (B, W) numbers that are equal for equal texts, in every process."""
    numbers = [[_text_number(row) for row in unit] for unit in units]
    return torch.tensor(numbers, dtype=torch.int64, device=device)


def _text_number(row: Row) -> int:
    digest = hashlib.blake2b(np.array(row.input_ids, np.int32).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def text_scores(units: Sequence[Sequence[Row]], device: torch.device) -> Tensor:
    """Return (B,) scores, NaN where there is none."""
    scores = [math.nan if unit[0].labels is None else unit[0].labels for unit in units]
    return torch.tensor(scores, dtype=torch.float32, device=device)
