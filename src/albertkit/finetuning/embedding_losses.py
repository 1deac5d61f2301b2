"""The losses of sentence embedding, over all examples of a batch.

Shapes: B examples, W texts of an example (2, or 3 with a negative), H hidden size.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def embedding_loss(vectors: Tensor, texts: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Return the loss of a batch: `ranking_loss` if it has scores, else `contrastive_loss`.

    Args:
        vectors: (B, W, H), the vectors of the texts, of any length.
        texts: (B, W), numbers that are equal for equal texts.
        scores: (B,), the similarity scores, NaN for texts that belong together.
        temperature: number that divides the cosines. A smaller value emphasizes the nearest wrong texts.
    """
    with torch.autocast(vectors.device.type, enabled=False):  # a cosine in bfloat16 has only two digits
        vectors = F.normalize(vectors.float(), dim=-1)
        if scores.isnan().any():
            return contrastive_loss(vectors, texts, temperature=temperature)
        cosines = (vectors[:, 0] * vectors[:, 1]).sum(dim=-1)  # (B,)
        return ranking_loss(cosines, scores, temperature=temperature)


def contrastive_loss(vectors: Tensor, texts: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross-entropy of finding the second text of each first text among all candidates.

    This is multiple negatives ranking (Henderson et al. 2017), with the cosine divided by a temperature and
    negatives as in Gao et al. 2021, equation 5. Candidates are the second texts and the negatives of all
    examples. Candidates that are not wrong are excluded: the second texts of equal first texts, equal second
    texts, and the first text itself.

    Args:
        vectors: (B, W, H), of length 1.
        texts: (B, W), numbers that are equal for equal texts.
        temperature: see `embedding_loss`.
    """
    first = vectors[:, 0]  # (B, H)
    candidates = vectors[:, 1:].transpose(0, 1).flatten(0, 1)  # (B, W - 1, H) -> ((W - 1) B, H), second first
    logits = first @ candidates.T / temperature  # (B, (W - 1) B)
    right = torch.arange(len(first), device=logits.device)
    excluded = _not_wrong(texts)
    excluded[right, right] = False
    return F.cross_entropy(logits.masked_fill(excluded, -math.inf), right)


def _not_wrong(texts: Tensor) -> Tensor:
    """Return whether each candidate is right for each first text or equals it: (B, W) -> (B, (W - 1) B)."""
    first, second, candidates = texts[:, 0], texts[:, 1], texts[:, 1:].T.flatten()
    same_first = first[:, None] == first  # (B, B)
    same_as_second = second[:, None] == candidates  # (B, (W - 1) B)
    right = same_first.float() @ same_as_second.float() > 0  # right for this first text or an equal one
    return right | (first[:, None] == candidates)


def ranking_loss(cosines: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Return log(1 + sum of exp((cosine of i - cosine of j) / temperature)) over all i scored below j.

    This is CoSENT (Su 2022, https://kexue.fm/archives/8847; the cosine objective of Li and Li 2023, AnglE).
    Like Spearman's correlation, it depends only on the order of the scores, so they may have any scale.

    Args:
        cosines: (B,), the cosine similarities of the pairs.
        scores: (B,), the similarity scores of the pairs.
        temperature: see `embedding_loss`.
    """
    differences = (cosines[:, None] - cosines) / temperature  # (B, B)
    below = scores[:, None] < scores
    return torch.cat([differences[below], differences.new_zeros(1)]).logsumexp(dim=0)
