"""Tests of the script that trains the bundled sentence vectors, with a few generated books."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from albertkit import AlbertTokenizer, pipeline

WORDS = [
    *("captain", "harbor", "letter", "garden", "winter", "doctor"),
    *("music", "window", "river", "market", "soldier", "bread"),
]


@pytest.fixture
def small(script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script with sizes for a few books."""
    vectors = script("sentence_vectors")
    sizes = {"CORRELATED": 6, "RANDOM": 4, "CORRELATED_PAIRS": 60, "BOOKS": 4, "FROM_BOOK": 3}
    for name, size in (sizes | {"MIN_PASSAGES": 5}).items():
        monkeypatch.setattr(vectors, name, size)
    return vectors


def book(number: int, passages: int) -> str:
    """Return a book in which each pair of neighboring passages repeats one word."""
    rng = np.random.default_rng(number)
    lines = []
    for passage in range(passages):
        repeated = WORDS[(number + passage // 2) % len(WORDS)]
        words = [repeated if position % 5 == 0 else str(rng.choice(WORDS)) for position in range(70)]
        lines.append(" ".join(words) + ".")
    return "\n".join(lines)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    texts = [book(number, 24) for number in range(9)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "books.parquet")
    return tmp_path / "books.parquet"


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["sentence_vectors.py", *map(str, arguments)])
    script.main()


def test_the_model_is_the_mean_of_its_tokens_vectors(small: ModuleType) -> None:
    rng = np.random.default_rng(0)
    vectors = (rng.standard_normal((50, 12)) * rng.random((50, 1))).astype(np.float32)
    vectors[0] = 0
    model = small.as_albert(vectors).eval()
    ids = torch.tensor([[7, 0, 21, 7, 49]])
    with torch.no_grad():
        states = model(input_ids=ids, token_type_ids=torch.tensor([[0, 0, 1, 1, 1]])).last_hidden_state[0]
    expected = (vectors - vectors.mean(1, keepdims=True))[ids[0]]
    factor = float(np.linalg.norm(states) / np.linalg.norm(expected))
    np.testing.assert_allclose(states[:, :12], factor * expected, atol=1e-5)
    assert not states[:, 12:].any()
    assert not states[1].any()


def test_writes_a_model_that_finds_the_next_passage(
    small: ModuleType,
    books: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    folder = tmp_path / "sentences"
    run(small, monkeypatch, "--texts", books, "--output", folder, "--steps", 60)
    printed = capsys.readouterr().out
    assert printed.startswith("192 passages, ")  # from 8 of 9 books: the first book is held out
    assert "step 60/60: loss " in printed
    embed = pipeline("feature-extraction", str(folder))
    passages = [passage for _, passage in small.passages(book(0, 24))]
    vectors = np.array(embed(passages))
    assert vectors.shape == (24, 12)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    similarity = vectors[::2] @ vectors[1::2].T  # the two passages of a pair share a word
    assert (similarity.argmax(1) == np.arange(12)).mean() >= 0.75
    special_tokens, other = np.array(embed(["", "bread and music"]))
    assert np.linalg.norm(special_tokens) == pytest.approx(1, abs=1e-3)
    # [CLS] and [SEP] contribute less than a hundredth, even to the vector of the shortest text.
    assert np.array(embed("music")) @ np.array(embed("music music music")) > 0.9999
    assert abs(special_tokens @ other) < 0.99
    # The vector does not depend on the order of the tokens.
    vector, reversed_order = np.array(embed(["bread and music", "music and bread"]))
    np.testing.assert_allclose(vector, reversed_order, atol=1e-3)


def test_the_initial_vectors_use_neighbors_and_weights_of_rare_pieces(small: ModuleType, books: Path) -> None:
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    passages = small.read_passages(books, tokenizer)
    assert set(passages.books) == set(range(1, 9))
    neighbors = passages.with_next()
    assert len(neighbors) == 8 * 23
    assert not np.isin(np.flatnonzero(passages.places == 23), neighbors).any()
    counts, weights = small.weighted_counts(passages, len(tokenizer))
    np.testing.assert_allclose(np.sqrt(counts.multiply(counts).sum(1)), 1, atol=1e-5)
    seen = np.zeros(len(tokenizer))
    for row in np.split(passages.ids, passages.ends[:-1]):
        seen[np.unique(row)] += 1
    np.testing.assert_allclose(weights, np.log((1 + len(passages)) / (1 + seen)) + 1, rtol=1e-6)
    vectors = small.first_vectors(passages, len(tokenizer), np.random.default_rng(0))
    assert vectors.shape == (len(tokenizer), 10)
    for part in (vectors[:, :6], vectors[:, 6:]):
        assert np.square(part).sum(1).mean() == pytest.approx(1, rel=1e-5)


def test_too_few_books_are_an_error(
    small: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"text": [book(1, 24), book(2, 24)]}), tmp_path / "few.parquet")
    with pytest.raises(SystemExit, match="1 books have at least 5 passages of 60 to 100 words"):
        run(small, monkeypatch, "--texts", tmp_path / "few.parquet", "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("texts", [[], ["too short"] * 3])
def test_a_corpus_without_passages_is_an_error(
    small: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(SystemExit, match="0 books have at least 5 passages"):
        run(small, monkeypatch, "--texts", tmp_path / "empty.parquet", "--output", tmp_path / "out")


def test_a_missing_file_is_an_error_of_one_line(
    small: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(small, monkeypatch, "--texts", tmp_path / "none.parquet", "--output", tmp_path / "out")
    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("Expected a Parquet file with one book per row.")
