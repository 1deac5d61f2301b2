"""Tests of the losses and the ranks of sentence embedding, with values computed by hand."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bound_tasks import bound
from sentence_pairs import text_pairs
from training_losses import embedding_loss_of

from albertkit.datasets.examples import PairExample
from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.losses import EmbeddingObjective, contrastive_loss, embedding_loss, ranking_loss
from albertkit.metrics import retrieval_scores, retrieve
from albertkit.modeling.model import AlbertModel
from albertkit.tasks.sentence_embedding import Embedded, SentenceEmbedding
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.distributed import World

CPU = torch.device("cpu")


def unit_vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    vectors = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return vectors / vectors.norm(dim=-1, keepdim=True)


def by_hand(vectors: torch.Tensor, candidates: list[list[tuple[int, int]]], temperature: float) -> float:
    """Return the loss for the candidates (example, place) of each first text. The positive comes first."""
    losses = []
    for number, listed in enumerate(candidates):
        terms = [math.exp(float(vectors[number, 0] @ vectors[one]) / temperature) for one in listed]
        losses.append(-math.log(terms[0] / sum(terms)))
    return sum(losses) / len(losses)


def test_contrastive_loss_by_hand() -> None:
    vectors = unit_vectors(3, 3, 8)
    texts = torch.arange(9).reshape(3, 3)
    everything = [(number, place) for number in range(3) for place in (1, 2)]
    listed = [[(own, 1), *(one for one in everything if one != (own, 1))] for own in range(3)]
    assert float(contrastive_loss(vectors, texts, temperature=0.3)) == pytest.approx(
        by_hand(vectors, listed, 0.3), abs=1e-5
    )


def test_other_positives_are_not_negatives() -> None:
    """Check the examples (a, p), (a, q), (b, p), (c, a). Both p and q are positives of a."""
    a, b, c, p, q = range(5)
    vectors = unit_vectors(4, 2, 8)
    listed = [
        [(0, 1)],  # q and the other p are positives of a, and a is the text itself
        [(1, 1)],
        [(2, 1), (1, 1), (3, 1)],  # a and b have the same p
        [(3, 1), (0, 1), (1, 1), (2, 1)],
    ]
    texts = torch.tensor([[a, p], [a, q], [b, p], [c, a]])
    assert float(contrastive_loss(vectors, texts, temperature=0.2)) == pytest.approx(
        by_hand(vectors, listed, 0.2), abs=1e-5
    )


def test_ranking_loss_by_hand() -> None:
    cosines, scores = torch.tensor([0.9, 0.1, 0.4, 0.2]), torch.tensor([1.0, 2.0, 3.5, 2.0])
    below = [(0, 1), (0, 2), (0, 3), (1, 2), (3, 2)]
    expected = math.log(1 + sum(math.exp(float(cosines[i] - cosines[j]) / 0.05) for i, j in below))
    assert float(ranking_loss(cosines, scores, temperature=0.05)) == pytest.approx(expected, rel=1e-5)
    assert float(ranking_loss(cosines, torch.ones(4), temperature=0.05)) == 0.0


def test_the_loss_ignores_the_length_of_vectors() -> None:
    """The loss depends on cosines, which are computed in fp32 under autocast."""
    vectors, scores = unit_vectors(6, 2, 16), torch.tensor([0.0, 1, 2, 3, 4, 5])
    texts = torch.arange(12).reshape(6, 2)
    for given in (scores, torch.full_like(scores, math.nan)):
        plain = embedding_loss(vectors, texts, given, temperature=0.05)
        with torch.autocast("cpu", torch.bfloat16):
            scaled = embedding_loss(vectors * 7, texts, given, temperature=0.05)
        assert float(scaled) == pytest.approx(float(plain), rel=1e-5)


@pytest.mark.parametrize("kind", ["together", "scored", "alone", "negatives"])
@pytest.mark.parametrize("bf16", [False, True])
def test_the_parts_of_a_batch_have_its_loss_and_gradients(encoder: Path, kind: str, bf16: bool) -> None:
    """Check bf16 too: autocast keeps the weights that it cast in the first pass, which has no gradients."""
    task = bound(SentenceEmbedding(), AlbertTokenizer.from_pretrained(encoder), max_length=32)
    given = text_pairs(7, 0)
    if kind == "scored":
        given = [replace(one, score=float(number % 3)) for number, one in enumerate(given)]
    if kind == "alone":
        given = [PairExample(one.text) for one in given]
    if kind == "negatives":
        given = [replace(one, negative=f"lost {number}") for number, one in enumerate(given)]
    batch = UnitBatch(task.units(task.features(given)))
    network = AlbertModel.from_pretrained(encoder, hidden_dropout_prob=0.0).train()
    plain = embedding_loss_of(task, network, batch.rows[:: 2 if kind == "alone" else 1])
    results = {}
    for parts in (1, 3):
        objective = EmbeddingObjective(task, World(CPU), temperature=0.05)
        network.zero_grad()
        pieces = batch.split(parts)
        counts = {"items": 7, "tokens": 1}
        assert sum(objective.counts(one)["items"] for one in pieces) == 7
        outputs = []
        for piece in pieces:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                outputs.append(objective(network, piece, counts))
            outputs[-1].loss.backward()
        gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        loss = sum(float(one.loss.detach()) for one in outputs)
        assert sum(float(one.sums["loss"][0]) for one in outputs) / 7 == pytest.approx(loss, rel=1e-5)
        results[parts] = loss, torch.cat([one.flatten() for one in gradients])
    assert results[1][0] == pytest.approx(float(plain.detach()), abs=0.3 if bf16 else 1e-5)
    assert results[3][0] == pytest.approx(results[1][0], abs=0.05 if bf16 else 1e-5)
    difference = (results[3][1] - results[1][1]).norm() / results[1][1].norm()
    assert difference < (0.1 if bf16 else 1e-4)


def test_both_passes_have_the_same_dropout(encoder: Path) -> None:
    task = bound(SentenceEmbedding(), AlbertTokenizer.from_pretrained(encoder), max_length=32)
    network = AlbertModel.from_pretrained(encoder).train()
    seen: list[torch.Tensor] = []
    original = EmbeddingObjective._vectors

    class Watched(EmbeddingObjective):
        def _vectors(self, model: Any, batch: UnitBatch) -> torch.Tensor:
            seen.append(original(self, model, batch))
            return seen[-1]

    objective = Watched(task, World(CPU), temperature=0.05)
    for part in UnitBatch(task.units(task.features(text_pairs(4, 0)))).split(2):
        objective(network, part, {"items": 4, "tokens": 1})
    first, second, first_again, second_again = seen
    assert torch.equal(first, first_again)
    assert torch.equal(second, second_again)


def test_ranks_by_hand() -> None:
    angles = np.radians([0, 10, 30, 90])
    candidates = 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    queries = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    right, left_out = [{0}, {2, 3}, {0}, {2}], [set[int](), set(), set(), {0}]
    ranks, nearest = retrieve(queries, candidates, right, left_out=left_out)
    assert (ranks, nearest) == ([1, 3, 4, 2], [0, 0, 3, 1])
    assert retrieval_scores(ranks) == {
        "accuracy_at_1": 0.25, "accuracy_at_10": 1.0, "mrr": pytest.approx((1 + 1 / 3 + 1 / 4 + 1 / 2) / 4),
    }  # fmt: skip


def test_equal_vectors_have_the_last_rank() -> None:
    same = np.random.default_rng(0).normal(size=(1, 64)).repeat(30, axis=0)
    ranks, _ = retrieve(same, same * 2, [{number} for number in range(30)])
    assert {*ranks} == {30}


def test_equal_texts_are_one_candidate() -> None:
    """Check the examples (a, p), (b, p), (p, a), with the negative n."""
    x = [torch.tensor([math.cos(angle), math.sin(angle)]) for angle in (0.0, 0.2, 0.5, 0.9)]
    a, p, b, n = x
    given = [PairExample("a", "p", "n"), PairExample("b", "p"), PairExample("p", "a")]
    predictions = [Embedded([a, p, n], 0.0), Embedded([b, p], 0.0), Embedded([p, a], 0.0)]
    found = SentenceEmbedding().compared(given, predictions)
    # The candidates are p, n and a. A text is no candidate for itself.
    assert [(one.rank, one.nearest) for one in found] == [(1, "p"), (1, "p"), (1, "a")]
    moved = [Embedded([a, n, p], 0.0), Embedded([b, n], 0.0), Embedded([p, a], 0.0)]
    assert [one.rank for one in SentenceEmbedding().compared(given, moved)] == [2, 2, 2]


def test_equal_vectors_are_a_collapse() -> None:
    """High cosines of all pairs are no collapse, because all pairs may be positives."""
    labeled, given = SentenceEmbedding(), text_pairs(20, 0)
    vectors = unit_vectors(20, 16)
    fine = [Embedded([one, one], 1.0) for one in vectors]
    assert labeled.constant_answer(given, fine) is None
    same = [Embedded([vectors[0] + 1e-4 * one] * 2, 1.0) for one in vectors]
    assert labeled.constant_answer(given, same) == "one vector"
