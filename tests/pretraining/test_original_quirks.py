"""Tests of `original_quirks`: examples with and without the quirks of the original code."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sentencepiece
from pretraining_rows import PLAIN, segments

from albertkit.pretraining import masking, original_quirks
from albertkit.pretraining.batches import ExampleStream
from albertkit.pretraining.chunks import IN_ORDER, SWAPPED, Chunk
from albertkit.pretraining.objectives import IGNORED
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable


class Documents(list[tuple[np.ndarray, np.ndarray]]):
    """Stands in for a ShardSet: lists of sentence lengths, ids that say which document they are of."""

    def __init__(self, *lengths: list[int]) -> None:
        super().__init__(
            (np.full(sum(row), number, dtype=np.uint16), np.cumsum(row)) for number, row in enumerate(lengths)
        )

    def tokens(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self[index]


def plan(
    documents: Any, number: int, rng: np.random.Generator, max_tokens: int, short: float = 0
) -> list[Chunk]:
    return original_quirks.plan(number, documents, rng, max_tokens=max_tokens, short_probability=short)


def test_a_single_sentence_gets_its_b_from_another_document() -> None:
    documents = Documents([30], [10] * 20, [10] * 20)
    rng = np.random.default_rng(0)
    others: Counter[int] = Counter()
    begins: Counter[int] = Counter()
    for _ in range(2_000):
        (chunk,) = plan(documents, 0, rng, 100)
        assert (chunk.first, chunk.label) == ((0, 30), SWAPPED)
        assert chunk.second is not None
        assert chunk.second_document is not None
        begin, end = chunk.second
        # As many sentences as fill up the 100 tokens, or up to the end of the document.
        assert end == min(begin + 70, 200)
        others[chunk.second_document] += 1
        begins[begin] += 1
    assert set(others) == {1, 2}
    assert others[1] / 2_000 == pytest.approx(0.5, abs=0.04)
    assert set(begins) == set(range(0, 200, 10))
    assert max(begins.values()) < 2 * min(begins.values())
    # A sentence that is long enough alone still gets one, and loses its own tokens for it.
    (chunk,) = plan(Documents([200], [10]), 0, rng, 100)
    assert (len(chunk), chunk.second, chunk.second_document) == (100, (0, 10), 1)
    (chunk,) = plan(Documents([3]), 0, rng, 100)
    assert (chunk.second_document, chunk.second) == (0, (0, 3))


def test_several_sentences_stay_in_their_document() -> None:
    rng = np.random.default_rng(0)
    documents = Documents([1] * 100_000, [5, 5])
    chunks = plan(documents, 0, rng, 100)
    assert len(chunks) == 1_000
    assert {chunk.second_document for chunk in chunks} == {None}
    assert np.mean([chunk.label for chunk in chunks]) == pytest.approx(0.5, abs=0.05)
    for chunk in chunks:
        assert chunk.second is not None
        assert (chunk.first[1] == chunk.second[0]) == (chunk.label == IN_ORDER)
        assert (chunk.second[1] == chunk.first[0]) == (chunk.label == SWAPPED)
    # However short; `sentence_order` skips what has fewer than 8 tokens.
    (chunk,) = plan(Documents([1, 1]), 0, rng, 100)
    assert len(chunk) == 2


def test_short_sequences_are_drawn_for_whole_documents() -> None:
    rng = np.random.default_rng(0)
    documents = Documents([1] * 1_000)
    short = []
    for _ in range(1_000):
        lengths = {len(chunk) for chunk in plan(documents, 0, rng, 125, short=0.1)[:-1]}
        assert len(lengths) == 1
        short += [length for length in lengths if length < 125]
    assert len(short) / 1_000 == pytest.approx(0.1, abs=0.03)
    assert np.mean(short) == pytest.approx(63.5, abs=11)


def test_words_begin_as_in_the_original_code(words: WordTable, tiny_vocabulary: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tiny_vocabulary))
    pieces = [processor.id_to_piece(index) for index in range(len(processor))]
    starts = dict(zip(pieces, words.original_starts(np.arange(len(pieces))).tolist(), strict=True))
    assert {piece: starts[piece] for piece in ("▁", "▁morning", "s", "(", ".", "-", "<unk>", "1")} == {
        "▁": True, "▁morning": True, "s": False, "(": True, ".": True, "-": True, "<unk>": True, "1": True,
    }  # fmt: skip
    # After a symbol the word goes on, where `starts` begins a new one.
    row = np.array([pieces.index(piece) for piece in ("▁", "(", "s", "a")])
    assert words.original_starts(row).tolist() == [True, True, False, False]
    assert words.starts(row).tolist() == [True, False, True, False]


def toy_row() -> tuple[np.ndarray, Any]:
    """Return a row of 123 tokens, words of 1, 1, 2, 1 and 3; and its vocabulary: 10 begins a word, 11 not."""
    pattern = [10, 10, 10, 11, 10, 10, 11, 11]
    ids = np.array([1, *pattern * 7, 2, *pattern * 8, 2])
    return ids, SimpleNamespace(cls=1, sep=2, original_starts=lambda row: row == 10)


def test_ngrams_are_chosen_as_in_the_original() -> None:
    ids, vocabulary = toy_row()
    rng = np.random.default_rng(0)
    counts = np.zeros(len(ids))
    lengths: Counter[int] = Counter()
    across = 0
    repeats = 10_000
    for _ in range(repeats):
        positions, chosen = original_quirks.choose(ids, vocabulary, ExampleSettings(), rng)
        assert len(positions) == 18 == round(0.15 * 123)
        assert np.all(np.diff(positions) > 0)
        counts[positions] += 1
        lengths.update(chosen)
        across += {56, 58} <= set(positions.tolist())
    assert counts[[0, 57, 122]].tolist() == [0, 0, 0]
    # From the original's loop, 60,000 times over this row.
    shares = np.array([lengths[n] for n in (1, 2, 3)]) / lengths.total()
    assert shares == pytest.approx([0.6245, 0.2441, 0.1314], abs=0.005)
    expected = [0.112, 0.152, 0.152, 0.152, 0.164, 0.140, 0.140, 0.140]
    assert counts[1:9] / repeats == pytest.approx(expected, abs=0.015)
    assert counts[119:122] / repeats == pytest.approx([0.1416] * 3, abs=0.013)
    assert across / repeats > 0.05  # by chance alone, 0.15 ** 2


def test_a_replacement_may_be_any_piece(words: WordTable) -> None:
    rng = np.random.default_rng(0)
    ids = np.full(200_000, words.ordinary_ids[7])
    seen, _ = masking.hide(ids, np.arange(len(ids)), words, rng, replace_with_any=True)
    counts = np.bincount(seen, minlength=words.size)
    expected = len(ids) * 0.1 / words.size
    others = np.delete(counts, [words.mask, ids[0]])
    assert np.abs(others - expected).max() < 6 * np.sqrt(expected)
    assert counts[[words.pad, words.cls, words.sep]].min() > 0
    assert counts[words.mask] / len(ids) == pytest.approx(0.8, abs=0.005)
    assert counts[ids[0]] / len(ids) == pytest.approx(0.1, abs=0.005)


def test_the_switch_reaches_the_batches(shards: ShardSet, words: WordTable) -> None:
    texts = ["".join(map(chr, shards.tokens(index)[0])) for index in range(len(shards))]
    settings = replace(PLAIN, max_seq_length=32)  # a sentence or two

    def leaks(quirks: bool) -> tuple[int, int]:
        """Return the number of rows with segments of two documents, and the number with the label swapped."""
        found = swapped = 0
        for batch in islice(ExampleStream(shards, words, replace(settings, original_quirks=quirks), 16), 15):
            rows = zip(batch.input_ids, batch.token_type_ids, batch.attention_mask, strict=True)
            for row, label in zip(rows, batch.labels["order"][:, 0].tolist(), strict=True):
                first, second = ("".join(map(chr, segment)) for segment in segments(*row))
                if not any(first in text and second in text for text in texts):
                    found, swapped = found + 1, swapped + (label == SWAPPED)
        return found, swapped

    assert leaks(quirks=False) == (0, 0)
    found, swapped = leaks(quirks=True)
    assert found == swapped > 20

    masked = replace(settings, masked_lm=True, original_quirks=True)
    hidden = total = special = 0
    for batch in islice(ExampleStream(shards, words, masked, 16), 200):
        flat = batch.input_ids[batch.labels["masked"] != IGNORED]
        special += int((words.is_special[flat] & (flat != words.mask)).sum())
        hidden, total = hidden + len(flat), total + batch.num_tokens
    assert hidden / total == pytest.approx(0.15, abs=0.01)
    assert special > 0
