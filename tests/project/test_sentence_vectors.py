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
    for name, size in {"DIMENSIONS": 10, "DOCUMENTS": 4, "FROM_DOCUMENT": 3, "QUESTIONS": 8}.items():
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
    assert "tokens, 0 questions\n" in printed
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


def test_pairs_of_each_kind(small: ModuleType, books: Path, tmp_path: Path) -> None:
    answer = " ".join(["bread and music in the garden"] * 6)
    asked = f"Is there a market?\n{answer}\nWhere?\nWhere is the old captain?\nbread"
    pq.write_table(pa.table({"text": [asked, asked, asked]}), tmp_path / "modern.parquet")
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    corpus = small.read_corpus([books, tmp_path / "modern.parquet"], tokenizer)
    assert len(corpus) == len(corpus.documents) == 8 * 24  # the answers are too short for passages
    assert len(np.unique(corpus.documents)) == 8
    neighbors = corpus.with_next()
    assert len(neighbors) == 8 * 23
    assert not np.isin(np.flatnonzero(corpus.places == 23), neighbors).any()
    texts = [tokenizer.decode(ids) for ids in (*corpus.questions, *corpus.answers)]
    found = f"{answer} where? where is the old captain? bread"
    assert texts == ["is there a market?"] * 2 + [found] * 2
    batches = small.Batches(corpus, np.random.default_rng(0))
    passages = {ids.tobytes(): number for number, ids in enumerate(corpus.passages(np.arange(len(corpus))))}
    kinds = set()
    for _ in range(40):
        texts, others, same = batches.draw()
        assert not same.diagonal().any()
        if len(texts) == 2:  # two equal questions: no wrong answers
            kinds.add("question")
            np.testing.assert_array_equal(same, [[False, True], [True, False]])
        elif all(text.tobytes() in passages for text in texts):
            kinds.add("next")
            first, second = ([passages[text.tobytes()] for text in side] for side in (texts, others))
            assert second == [number + 1 for number in first]
        else:
            kinds.add("part")
            assert len(texts) == 12
            assert max(map(len, texts)) <= 24
            assert not same.any()
    assert kinds == {"question", "next", "part"}


def test_the_first_vectors_are_longer_for_rare_pieces(small: ModuleType, books: Path) -> None:
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    corpus = small.read_corpus([books], tokenizer)
    seen = np.zeros(len(tokenizer))
    for row in np.split(corpus.ids, corpus.ends[:-1]):
        seen[np.unique(row)] += 1
    weights = np.log((1 + len(corpus)) / (1 + seen)) + 1
    vectors = small.first_vectors(corpus, len(tokenizer), np.random.default_rng(0))
    assert vectors.shape == (len(tokenizer), 10)
    expected = small.SCALE * weights
    for kind in (seen == 0, seen > 0):
        lengths = np.sqrt(np.square(vectors[kind]).sum(1).mean())
        assert lengths == pytest.approx(np.sqrt(np.square(expected[kind]).mean()), rel=0.2)


def test_too_few_books_are_an_error(
    small: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"text": [book(1, 24), book(2, 24)]}), tmp_path / "few.parquet")
    with pytest.raises(SystemExit, match="1 documents have over 3 passages of 60 to 100 words"):
        run(small, monkeypatch, "--texts", tmp_path / "few.parquet", "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("texts", [[], ["too short"] * 3])
def test_a_corpus_without_passages_is_an_error(
    small: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(SystemExit, match="0 documents have over 3 passages"):
        run(small, monkeypatch, "--texts", tmp_path / "empty.parquet", "--output", tmp_path / "out")


def test_a_missing_file_is_an_error_of_one_line(
    small: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(small, monkeypatch, "--texts", tmp_path / "none.parquet", "--output", tmp_path / "out")
    assert exit_.value.code == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith("Expected a Parquet file with one document per row.")
    )
