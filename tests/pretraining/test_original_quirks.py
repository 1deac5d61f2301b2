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

from albertkit.config import IGNORED_LABEL
from albertkit.pretraining import masking, original_quirks
from albertkit.pretraining.batches import ExampleStream
from albertkit.pretraining.chunks import IN_ORDER, SWAPPED, Chunks
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet


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
) -> tuple[np.ndarray, Chunks]:
    return original_quirks.plan(
        np.array([number]), documents, rng, max_tokens=max_tokens, short_probability=short
    )


def test_a_single_sentence_gets_its_b_from_another_document() -> None:
    documents = Documents([30], [10] * 20, [10] * 20)
    rng = np.random.default_rng(0)
    others: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for _ in range(2_000):
        ids, chunks = plan(documents, 0, rng, 100)
        assert (chunks.first.tolist(), chunks.order_labels.tolist()) == ([[0, 30]], [SWAPPED])
        ((begin, end),) = chunks.second.tolist()
        assert (begin, end) == (30, len(ids))
        assert len(set(ids[begin:].tolist())) == 1
        others[int(ids[begin])] += 1
        sizes[end - begin] += 1
    assert set(others) == {1, 2}
    assert others[1] / 2_000 == pytest.approx(0.5, abs=0.04)
    # As many sentences as fill up the 100 tokens, or up to the end of the document, from any of 20.
    assert set(sizes) == set(range(10, 80, 10))
    assert sizes[70] / 2_000 == pytest.approx(14 / 20, abs=0.04)
    # A sentence that is long enough alone still gets one, and loses its own tokens for it.
    ids, chunks = plan(Documents([200], [10]), 0, rng, 100)
    assert chunks.lengths().tolist() == [100]
    assert ids[slice(*chunks.second[0])].tolist() == [1] * 10
    ids, chunks = plan(Documents([3]), 0, rng, 100)
    assert ids.tolist() == [0] * 6
    assert chunks.second.tolist() == [[3, 6]]


def test_several_sentences_stay_in_their_document() -> None:
    rng = np.random.default_rng(0)
    documents = Documents([1] * 50_000, [5, 5])
    ids, chunks = plan(documents, 0, rng, 100)
    assert len(chunks) == 500
    assert not ids.any()
    assert np.mean(chunks.order_labels) == pytest.approx(0.5, abs=0.05)
    assert np.array_equal(chunks.first[:, 1] == chunks.second[:, 0], chunks.order_labels == IN_ORDER)
    assert np.array_equal(chunks.second[:, 1] == chunks.first[:, 0], chunks.order_labels == SWAPPED)
    # However short; `sentence_order` skips what has fewer than 8 tokens.
    assert plan(Documents([1, 1]), 0, rng, 100)[1].lengths().tolist() == [2]


def test_short_sequences_are_drawn_for_whole_documents() -> None:
    rng = np.random.default_rng(0)
    documents = Documents([1] * 1_000)
    short = []
    for _ in range(1_000):
        lengths = set(plan(documents, 0, rng, 125, short=0.1)[1].lengths()[:-1].tolist())
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
    repeats = 10_000
    masked = original_quirks.choose(
        np.tile(ids, repeats), np.full(repeats, len(ids)), vocabulary, ExampleSettings(), rng
    ).reshape(repeats, -1)
    assert set(masked.sum(axis=1).tolist()) == {18} == {round(0.15 * 123)}
    counts = masked.sum(axis=0)
    across = (masked[:, 56] & masked[:, 58]).sum()
    assert counts[[0, 57, 122]].tolist() == [0, 0, 0]
    # From the original's loop, 60,000 times over this row.
    expected = [0.112, 0.152, 0.152, 0.152, 0.164, 0.140, 0.140, 0.140]
    assert counts[1:9] / repeats == pytest.approx(expected, abs=0.015)
    assert counts[119:122] / repeats == pytest.approx([0.1416] * 3, abs=0.013)
    assert across / repeats > 0.05  # by chance alone, 0.15 ** 2


def test_a_replacement_may_be_any_piece(words: WordTable) -> None:
    rng = np.random.default_rng(0)
    ids = np.full(200_000, words.ordinary_ids[7])
    seen = masking.hide(ids, np.ones(len(ids), dtype=bool), words, rng, replace_with_any=True)
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
            for row, label in zip(rows, batch.order_labels.tolist(), strict=True):
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
        flat = batch.input_ids[batch.masked_labels != IGNORED_LABEL]
        special += int((words.is_special[flat] & (flat != words.mask)).sum())
        hidden, total = hidden + len(flat), total + batch.num_tokens
    assert hidden / total == pytest.approx(0.15, abs=0.01)
    assert special > 0
