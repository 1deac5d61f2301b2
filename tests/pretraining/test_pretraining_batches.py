"""Tests of batches of pretraining examples: their layout and size, resumption and processes."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from pretraining_rows import PLAIN, one_epoch, rows_of, segments

from albertkit.config import IGNORED_LABEL
from albertkit.errors import ConfigError, DataError
from albertkit.pretraining import batches as batches_module
from albertkit.pretraining.batches import Batching, ExampleStream, Position, PretrainingBatch, fixed_batches
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "BLOCK_DOCUMENTS", 32)


def test_masked_batches_restore_the_plain_ones(shards: ShardSet, words: WordTable) -> None:
    settings = replace(PLAIN, masked_lm=True)
    hidden = total = 0
    both = zip(
        ExampleStream(shards, words, settings, 16), ExampleStream(shards, words, PLAIN, 16), strict=True
    )
    for masked, plain in islice(both, 150):
        assert masked.input_ids.shape == plain.input_ids.shape
        labels = masked.masked_labels
        is_masked = labels != IGNORED_LABEL
        assert np.array_equal(np.where(is_masked, labels, masked.input_ids), plain.input_ids)
        assert np.array_equal(masked.token_type_ids, plain.token_type_ids)
        assert not words.is_special[labels[is_masked]].any()
        assert (plain.masked_labels == IGNORED_LABEL).all()
        assert np.array_equal(masked.order_labels, plain.order_labels)
        assert is_masked.sum(axis=1).max() <= 10  # 20 per 128
        hidden, total = hidden + is_masked.sum(), total + masked.num_tokens
    assert total > 100_000
    assert hidden / total == pytest.approx(0.15, abs=0.005)


def test_layout_of_a_batch(shards: ShardSet, words: WordTable) -> None:
    batch = next(iter(ExampleStream(shards, words, PLAIN, 16)))
    assert batch.input_ids.dtype == batch.masked_labels.dtype == batch.order_labels.dtype == np.int32
    assert np.isin(batch.order_labels, (0, 1)).all()
    assert batch.input_ids.shape[1] % 8 == 0
    assert batch.input_ids.shape[1] <= 64
    assert batch.num_tokens == batch.attention_mask.sum()
    for row, types, mask in zip(batch.input_ids, batch.token_type_ids, batch.attention_mask, strict=True):
        real = int(mask.sum())
        first, second = segments(row, types, mask)
        expected = [words.cls, *first, words.sep, *second, words.sep, *[words.pad] * (len(row) - real)]
        assert row.tolist() == expected
        assert types.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1) + [0] * (len(row) - real)
        assert mask.tolist() == [1] * real + [0] * (len(row) - real)


def test_a_batch_splits_into_parts_that_hold_the_same_rows(shards: ShardSet, words: WordTable) -> None:
    settings = replace(PLAIN, masked_lm=True, short_sequence_probability=0.5)
    batch = next(iter(ExampleStream(shards, words, settings, 10)))
    assert [len(part.input_ids) for part in batch.split(3)] == [3, 3, 4]
    assert [len(part.input_ids) for part in batch.split(99)] == [1] * 10
    for parts in (batch.split(1), batch.split(3), batch.split(99)):
        assert [row for part in parts for row in rows_of(part)] == rows_of(batch)
        assert sum(part.num_tokens for part in parts) == batch.num_tokens
        for part in parts:
            longest = part.attention_mask.sum(axis=1).max()
            assert longest <= part.input_ids.shape[1] < longest + 8
            assert part.input_ids.shape[1] % 8 == 0
            assert part.num_tokens == part.attention_mask.sum()
            assert part.position == batch.position
            assert part.input_ids.shape == part.attention_mask.shape == part.token_type_ids.shape
    assert len({part.input_ids.shape[1] for part in batch.split(99)}) > 1


def test_without_sentence_order_there_is_one_segment(shards: ShardSet, words: WordTable) -> None:
    settings = replace(PLAIN, masked_lm=True, sentence_order=False)
    batch = next(iter(ExampleStream(shards, words, settings, 16)))
    assert not batch.token_type_ids.any()
    assert not batch.order_labels.any()
    assert np.array_equal((batch.input_ids == words.sep).sum(1), np.ones(16))
    assert batch.attention_mask.sum(1).max() == 64


@pytest.mark.usefixtures("small_blocks")
def test_every_document_is_seen_once_per_epoch(shards: ShardSet, words: WordTable) -> None:
    whole = replace(PLAIN, max_seq_length=2048, short_sequence_probability=0.0)
    expected = sorted(sorted(shards.tokens(index)[0].tolist()) for index in range(len(shards)))
    orders = []
    for epoch in range(2):
        stream = ExampleStream(shards, words, whole, 16, start=Position(epoch))
        found = [
            sorted(np.concatenate(segments(*row)).tolist())
            for batch in one_epoch(stream)
            for row in zip(batch.input_ids, batch.token_type_ids, batch.attention_mask, strict=True)
        ]
        assert sorted(found) == expected
        orders.append(found)
    assert orders[0] != orders[1]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("world_size", "size"),
    [
        *[(1, {"batch_size": 7}), (2, {"batch_size": 16}), (3, {"batch_size": 5}), (5, {"batch_size": 32})],
        *[(1, {"batch_tokens": 64}), (2, {"batch_tokens": 192}), (3, {"batch_tokens": 1000})],
    ],
)
def test_the_processes_of_a_run_draw_the_rows_of_one(
    shards: ShardSet, words: WordTable, world_size: int, size: dict[str, int]
) -> None:
    settings = replace(PLAIN, masked_lm=True, short_sequence_probability=0.3)
    ranks = [
        list(one_epoch(ExampleStream(shards, words, settings, rank=rank, world_size=world_size, **size)))
        for rank in range(world_size)
    ]
    single = list(one_epoch(ExampleStream(shards, words, settings, **size)))
    for whole, *parts in zip(single, *ranks, strict=True):
        assert len(whole.input_ids) <= size.get("batch_size", 10**9)
        assert whole.input_ids.size <= size.get("batch_tokens", 10**9)
        assert all(part.position == whole.position for part in parts)
        assert all(len(part.input_ids) > 0 for part in parts)
        for rank, part in enumerate(parts):
            assert rows_of(part) == rows_of(whole)[rank::world_size]


def test_a_token_budget_is_used_up(shards: ShardSet, words: WordTable) -> None:
    settings = ExampleSettings(max_seq_length=64, short_sequence_probability=0.5)
    by_rows = list(one_epoch(ExampleStream(shards, words, settings, 16)))
    by_tokens = list(one_epoch(ExampleStream(shards, words, settings, batch_tokens=1024)))

    def real_share(batches: list[PretrainingBatch]) -> float:
        return sum(batch.num_tokens for batch in batches) / sum(batch.input_ids.size for batch in batches)

    assert real_share(by_rows) < 0.84
    assert real_share(by_tokens) > 0.93
    slots = [batch.input_ids.size for batch in by_tokens]
    assert max(slots) <= 1024
    assert np.mean([slot > 900 for slot in slots]) > 0.9
    assert {40, 56, 64} <= {batch.input_ids.shape[1] for batch in by_tokens} <= set(range(8, 65, 8))
    # Long and short batches come in any order.
    lengths = [batch.input_ids.shape[1] for batch in by_tokens]
    assert lengths != sorted(lengths)
    assert lengths != sorted(lengths, reverse=True)


def test_cutting_by_tokens() -> None:
    rng = np.random.default_rng(0)
    rule = Batching(None, 4096, 512)
    for count in (0, 1, 5, 9, 100, 3000):
        lengths = rng.integers(11, 513, size=count)
        batches = rule.cut(lengths, rng)
        assert sorted(index for batch in batches for index in batch.tolist()) == list(range(count))
        for batch in batches:
            padded = rule.padded_length(int(lengths[batch].max()))
            assert padded in range(64, 513, 64)
            assert lengths[batch].max() <= padded
            assert len(batch) * padded <= 4096
            # Half of 8 rows at least, where there are so many: enough for 4 processes.
            assert len(batch) >= min(count, 4)
    # No length beyond the model's positions, where the buckets do not divide it.
    assert Batching(None, 4096, 120).padded_length(117) == 120


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("start", [None, Position(0, 1, 2)])
def test_workers_that_take_turns_draw_the_same_batches(
    shards: ShardSet, words: WordTable, start: Position | None
) -> None:
    settings = replace(PLAIN, masked_lm=True)

    def stream() -> ExampleStream:
        return ExampleStream(shards, words, settings, batch_tokens=640, start=start)

    workers = [stream().every(3, number) for number in range(3)]
    for number, batch in enumerate(islice(stream(), 200)):
        again = next(workers[number % 3])
        assert (rows_of(again), again.position) == (rows_of(batch), batch.position)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [{"batch_size": 16}, {"batch_tokens": 640}])
def test_a_stream_continues_from_any_position(
    shards: ShardSet, words: WordTable, size: dict[str, int]
) -> None:
    settings = replace(PLAIN, masked_lm=True)
    stream = iter(ExampleStream(shards, words, settings, **size))
    batches = [next(stream)]
    while batches[-1].position < Position(epoch=1, block=2):
        batches.append(next(stream))
    assert any(batch.position == Position(epoch=1) for batch in batches)
    for index in (0, 1, len(batches) // 3, len(batches) - 5):
        resumed = ExampleStream(shards, words, settings, start=batches[index].position, **size)
        for batch, again in zip(batches[index + 1 : index + 5], islice(resumed, 4), strict=True):
            assert again.position == batch.position
            assert rows_of(again) == rows_of(batch)


def test_seed_and_epoch_change_the_masks(shards: ShardSet, words: WordTable) -> None:
    settings = replace(PLAIN, masked_lm=True)

    def rows(seed: int, epoch: int) -> set[bytes]:
        stream = ExampleStream(shards, words, settings, 64, seed=seed, start=Position(epoch=epoch))
        return {row for batch in one_epoch(stream) for row in rows_of(batch)}

    first = rows(0, 0)
    assert first == rows(0, 0)
    # Two rows of a few words can be hidden alike by chance.
    assert len(first & rows(1, 0)) < 0.05 * len(first)
    assert len(first & rows(0, 1)) < 0.05 * len(first)


def test_held_out_batches_are_fixed(shards: ShardSet, words: WordTable) -> None:
    settings = replace(PLAIN, masked_lm=True, short_sequence_probability=0.9)
    one = fixed_batches(shards, words, settings, 16, limit=100)
    two = fixed_batches(shards, words, settings, 16, limit=100)
    assert [rows_of(batch) for batch in one] == [rows_of(batch) for batch in two]
    assert sum(len(batch.input_ids) for batch in one) == 100
    assert np.mean(np.concatenate([batch.attention_mask.sum(1) for batch in one]) > 56) > 0.8  # none short
    rows = Counter(row for batch in one for row in rows_of(batch))
    for other in ({"batch_size": 7}, {"batch_size": 300}, {"batch_tokens": 512}):
        batches = fixed_batches(shards, words, settings, limit=100, **other)
        assert Counter(row for batch in batches for row in rows_of(batch)) == rows
    assert all(batch.input_ids.size <= 512 for batch in batches)
    # At most, they are all examples of an epoch.
    plain = replace(PLAIN, short_sequence_probability=0.0)
    every = fixed_batches(shards, words, plain, 16, limit=10**9)
    epoch = list(one_epoch(ExampleStream(shards, words, plain, 16)))
    assert sum(batch.num_tokens for batch in every) == sum(batch.num_tokens for batch in epoch)


def test_invalid_settings_are_an_error(shards: ShardSet, words: WordTable) -> None:
    for wrong in (
        {"max_seq_length": 100}, {"masked_lm_probability": 1.5}, {"max_ngram": 0},
        {"masked_lm": False, "sentence_order": False},
        {"original_quirks": True, "sentence_order": False},
        {"max_seq_length": 32, "warmup_seq_length": 64, "warmup_documents": 5},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            ExampleSettings(**wrong)
    with pytest.raises(ConfigError, match="batches of 2 rows are too small: 3 processes need at least 5"):
        ExampleStream(shards, words, PLAIN, 2, world_size=3)
    with pytest.raises(ConfigError, match="batches of 1 rows"):
        ExampleStream(shards, words, PLAIN, batch_tokens=100, world_size=2)


def test_shards_with_too_little_text(tmp_path: Path, words: WordTable, tiny_vocabulary: Path) -> None:
    def stream_of(text: str, **world: int) -> ExampleStream:
        file = tmp_path / f"{len(text)}.txt"
        file.write_text(text, encoding="utf-8")
        prepare([file], tiny_vocabulary, tmp_path / file.stem, workers=1, sentence_per_line=True)
        return ExampleStream(ShardSet(tmp_path / file.stem / "train"), words, PLAIN, 16, **world)

    with pytest.raises(DataError, match="no document is long enough"):
        next(iter(stream_of("a\nb\n")))
    with pytest.raises(DataError, match="too few examples for 2 processes"):
        next(iter(stream_of("The sister found the river.\nThe child lost the key.\n", rank=1, world_size=2)))


def test_a_warm_up_of_length_is_the_beginning_of_the_first_epoch(
    shards: ShardSet, words: WordTable, small_blocks: None
) -> None:
    settings = replace(PLAIN, warmup_seq_length=24, warmup_documents=64)
    stream = ExampleStream(shards, words, settings, batch_tokens=1024)
    lengths: dict[bool, set[int]] = {True: set(), False: set()}
    block = 0
    for batch in one_epoch(stream):
        first_document = len(shards) * block // stream.num_blocks
        lengths[first_document < 64].add(int(batch.attention_mask.sum(1).max()))
        block = batch.position.block
    assert stream.num_blocks == 3
    assert max(lengths[True]) == 24
    assert max(lengths[False]) == PLAIN.max_seq_length
    stream = ExampleStream(shards, words, settings, batch_tokens=1024, start=Position(epoch=1))
    second_epoch = list(islice(stream, 4))
    assert second_epoch[0].position.epoch == 1
    assert all(batch.attention_mask.sum(1).max() > 24 for batch in second_epoch)
    # Anywhere in it, a resumed stream goes on alike; held-out examples have their full length at once.
    start = Position(0, 1, 1)
    whole = ExampleStream(shards, words, settings, batch_tokens=1024)
    expected = next(batch for batch in whole if batch.position > start)
    resumed = next(iter(ExampleStream(shards, words, settings, batch_tokens=1024, start=start)))
    assert np.array_equal(resumed.input_ids, expected.input_ids)
    held_out = fixed_batches(shards, words, settings, 16, limit=32)
    assert max(int(batch.attention_mask.sum(1).max()) for batch in held_out) == PLAIN.max_seq_length
