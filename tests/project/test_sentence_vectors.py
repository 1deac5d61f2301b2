"""The script that trains the bundled sentence vectors, on a few books that Python makes."""

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
    """Return a book in which two neighboring passages have a word of their own."""
    rng = np.random.default_rng(number)
    lines = []
    for place in range(passages):
        own = WORDS[(number + place // 2) % len(WORDS)]
        words = [own if one % 5 == 0 else str(rng.choice(WORDS)) for one in range(70)]
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
    assert printed.startswith("192 passages, ")  # of 8 books: the first one is held out
    assert "step 60/60: loss " in printed
    embed = pipeline("feature-extraction", str(folder))
    passages = [passage for _, passage in small.passages(book(0, 24))]
    found = np.array(embed(passages))
    assert found.shape == (24, 12)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-3)
    similarity = found[::2] @ found[1::2].T  # the two passages of a pair share a word
    assert (similarity.argmax(1) == np.arange(12)).mean() >= 0.75
    ends, other = np.array(embed(["", "bread and music"]))
    assert np.linalg.norm(ends) == pytest.approx(1, abs=1e-3)
    # The ends add less than a hundredth to the shortest text; its only token decides.
    assert np.array(embed("music")) @ np.array(embed("music music music")) > 0.9999
    assert abs(ends @ other) < 0.99
    # Nothing but the tokens of a text counts, not even their order.
    once, turned = np.array(embed(["bread and music", "music and bread"]))
    np.testing.assert_allclose(once, turned, atol=1e-3)


def test_the_first_vectors_are_of_neighbors_and_of_rare_pieces(small: ModuleType, books: Path) -> None:
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    found = small.read_passages(books, tokenizer)
    assert set(found.books) == set(range(1, 9))
    neighbors = found.with_next()
    assert len(neighbors) == 8 * 23
    assert not np.isin(np.flatnonzero(found.places == 23), neighbors).any()
    counts, weights = small.weighted_counts(found, len(tokenizer))
    np.testing.assert_allclose(np.sqrt(counts.multiply(counts).sum(1)), 1, atol=1e-5)
    seen = np.zeros(len(tokenizer))
    for row in np.split(found.ids, found.ends[:-1]):
        seen[np.unique(row)] += 1
    np.testing.assert_allclose(weights, np.log((1 + len(found)) / (1 + seen)) + 1, rtol=1e-6)
    vectors = small.first_vectors(found, len(tokenizer), np.random.default_rng(0))
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
