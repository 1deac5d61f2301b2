"""What a model sees in pretraining: words, masks, sentence order, batches. Rates over 100,000 tokens."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from albertkit.errors import ConfigError, DataError, TokenizerError
from albertkit.pretraining import batching, masking
from albertkit.pretraining.batches import Position, PretrainingBatch
from albertkit.pretraining.examples import ExampleStream, fixed_batches
from albertkit.pretraining.masking import Masking
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.sentence_order import IN_ORDER, MIN_TOKENS, SWAPPED, plan
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable

PLAIN = ExampleSettings(max_seq_length=64, masked_lm=False)  # ids as they stand in the text
WORD = "▁morning"  # a piece of the tiny vocabulary


@pytest.fixture(scope="module")
def words(tiny_vocabulary: Path) -> WordTable:
    return WordTable(tiny_vocabulary)


@pytest.fixture(scope="module")
def pieces(tiny_vocabulary: Path) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tiny_vocabulary))
    return [processor.id_to_piece(index) for index in range(processor.get_piece_size())]


@pytest.fixture(scope="module")
def shards(
    tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str], tiny_vocabulary: Path
) -> ShardSet:
    folder = tmp_path_factory.mktemp("shards")
    file = folder / "corpus.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in tiny_texts), encoding="utf-8")
    prepare([file], tiny_vocabulary, folder / "out", workers=1, unit_characters=30_000)
    return ShardSet(folder / "out/train")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "BLOCK_DOCUMENTS", 32)


def one_epoch(stream: ExampleStream) -> Iterator[PretrainingBatch]:
    epoch = stream.position.epoch
    while stream.position.epoch == epoch:
        yield next(stream)


def rows_of(batch: PretrainingBatch) -> list[bytes]:
    """Return all that the model gets of each row, without padding."""
    length = batch.input_ids.shape[1]
    rows = []
    for index, (ids, mask, types) in enumerate(
        zip(batch.input_ids, batch.attention_mask, batch.token_type_ids, strict=True)
    ):
        here = batch.masked_positions // length == index
        parts = (
            *(ids[mask == 1], types[mask == 1], batch.sentence_order_labels[index : index + 1]),
            *(batch.masked_positions[here] % length, batch.masked_labels[here]),
        )
        rows.append(b"|".join(part.tobytes() for part in parts))
    return rows


def segments(row: np.ndarray, types: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    real = int(mask.sum())
    second = int(np.argmax(types)) if types.any() else real
    return row[1 : second - 1], row[second : real - 1]


# Words


def cut(words: WordTable, pieces: list[str], row: list[str]) -> list[list[str]]:
    ids = np.array([pieces.index(piece) for piece in row])
    starts = np.flatnonzero(words.starts(ids))
    return [part.tolist() for part in np.split(np.array(row), starts[1:])]


def test_words_begin_at_marks_and_around_symbols(words: WordTable, pieces: list[str]) -> None:
    row = [WORD, "s", "▁", "(", "s", ")", "-", "s", "a", "▁", "s", "a", "[SEP]", "s", "▁", "<unk>", "a"]
    assert cut(words, pieces, row) == [
        *([WORD, "s"], ["▁", "("], ["s"], [")"], ["-"], ["s", "a"], ["▁", "s", "a"]),
        *(["[SEP]"], ["s"], ["▁"], ["<unk>"], ["a"]),
    ]
    assert cut(words, pieces, ["s", "a"]) == [["s", "a"]]


def test_unspaced_scripts_and_apostrophes(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("今天 天气 很好 don't it's слово слова ไทย\n" * 20, encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=35, pad_id=0, unk_id=1, bos_id=-1,
        eos_id=-1, pad_piece="<pad>", control_symbols=["[CLS]", "[SEP]", "[MASK]"], model_type="char",
        minloglevel=2,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    table = WordTable(tmp_path / "m.model")
    row = processor.encode("今天 don't слова ไทย", out_type=str)
    assert ["".join(word) for word in cut(table, pieces, row)] == [
        *("▁今", "天", "▁don't", "▁слова", "▁ไ", "ท", "ย")
    ]


def test_a_vocabulary_without_the_special_pieces_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three\n", encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=13, model_type="char", minloglevel=2
    )
    with pytest.raises(TokenizerError, match=r"no piece '\[CLS\]'"):
        WordTable(tmp_path / "m.model")


# Masking


def test_ngrams_are_whole_words_and_fill_the_budget(
    shards: ShardSet, words: WordTable, pieces: list[str]
) -> None:
    rng = np.random.default_rng(0)
    rule = Masking(probability=0.15, max_predictions=1000)
    lengths: Counter[int] = Counter()
    hidden = total = 0
    for repeat in range(3):
        for document in range(len(shards)):
            ids = shards.tokens(document)[0].astype(np.int64)
            positions, chosen = masking.choose(ids, words, rule, rng)
            lengths.update(chosen)
            hidden, total = hidden + len(positions), total + len(ids)
            assert abs(len(positions) - round(0.15 * len(ids))) <= 1
            assert np.all(np.diff(positions) > 0)
            if repeat == 0:
                # A word is hidden as a whole or not at all.
                word_of = np.cumsum(words.starts(ids))
                is_hidden = np.isin(np.arange(len(ids)), positions)
                for word in np.unique(word_of):
                    assert len(set(is_hidden[word_of == word].tolist())) == 1
    assert total > 100_000
    assert hidden / total == pytest.approx(0.15, abs=0.002)
    shares = np.array([lengths[n] for n in (1, 2, 3)]) / lengths.total()
    # The last n-gram of a row is cut to what is left of the budget, so short ones are a little ahead.
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)
    assert set(lengths) == {1, 2, 3}


def test_ngram_lengths_without_the_budgets_edge(words: WordTable, pieces: list[str]) -> None:
    ids = np.full(150_000, pieces.index(WORD))
    positions, chosen = masking.choose(ids, words, Masking(max_predictions=10**9), np.random.default_rng(1))
    assert len(positions) == 22_500 == sum(chosen)
    shares = np.bincount(chosen)[1:] / len(chosen)
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.012)  # three standard errors


def test_max_ngram_and_max_predictions(words: WordTable, pieces: list[str]) -> None:
    ids = np.full(400, pieces.index(WORD))
    rng = np.random.default_rng(0)
    positions, chosen = masking.choose(ids, words, Masking(max_predictions=20, max_ngram=1), rng)
    assert len(positions) == 20
    assert set(chosen) == {1}
    assert len(masking.choose(ids[:4], words, Masking(), rng)[0]) == 1
    # Words that are longer than the whole budget, or no words at all: nothing to hide.
    assert len(masking.choose(np.full(20, words.sep), words, Masking(), rng)[0]) == 0
    assert len(masking.choose(np.full(20, pieces.index("s")), words, Masking(), rng)[0]) == 0


def test_hidden_tokens_are_80_10_10(words: WordTable) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(words.ordinary_ids, size=200_000)
    positions = np.flatnonzero(rng.random(len(ids)) < 0.5)
    seen, labels = masking.hide(ids, positions, words, rng)
    assert np.array_equal(labels, ids[positions])
    untouched = np.setdiff1d(np.arange(len(ids)), positions)
    assert np.array_equal(seen[untouched], ids[untouched])
    masked, kept = seen[positions] == words.mask, seen[positions] == labels
    replaced = seen[positions][~masked & ~kept]
    assert masked.mean() == pytest.approx(0.8, abs=0.005)
    assert kept.mean() == pytest.approx(0.1, abs=0.005)
    assert len(replaced) / len(positions) == pytest.approx(0.1, abs=0.005)
    assert not words.is_special[replaced].any()
    # Uniform: every ordinary id comes up, none more than noise allows.
    counts = np.bincount(replaced, minlength=words.size)[words.ordinary_ids]
    assert counts.min() > 0
    assert np.abs(counts - counts.mean()).max() < 6 * np.sqrt(counts.mean())


# Sentence order


def test_both_segments_come_from_one_document_in_the_labelled_order(
    shards: ShardSet, words: WordTable
) -> None:
    texts = ["".join(map(chr, shards.tokens(index)[0])) for index in range(len(shards))]
    labels: list[int] = []
    adjacent = ambiguous = 0
    for batch in islice(ExampleStream(shards, words, PLAIN, 16), 40):
        rows = zip(batch.input_ids, batch.token_type_ids, batch.attention_mask, strict=True)
        for row, label in zip(rows, batch.sentence_order_labels.tolist(), strict=True):
            first, second = ("".join(map(chr, segment)) for segment in segments(*row))
            earlier, later = (second, first) if label == SWAPPED else (first, second)
            assert any(follows(text, earlier, later) for text in texts)
            # Only where a segment is a word or two does the text also hold them the other way round.
            ambiguous += any(follows(text, later, earlier) for text in texts)
            adjacent += any(earlier + later in text for text in texts)
            labels.append(label)
    assert len(labels) > 500
    assert ambiguous / len(labels) < 0.1
    assert adjacent / len(labels) > 0.2  # the others were cut at their inner ends
    assert np.mean(labels) == pytest.approx(0.5, abs=0.06)


def follows(text: str, earlier: str, later: str) -> bool:
    begin = text.find(earlier)
    return begin >= 0 and text.find(later, begin + len(earlier)) >= 0


def random_document(
    rng: np.random.Generator, words: WordTable, sentences: int
) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum(rng.integers(1, 40, size=sentences)).astype(np.int32)
    return rng.choice(words.ordinary_ids, size=ends[-1]).astype(np.uint16), ends


def test_chunks_tile_the_document(words: WordTable) -> None:
    rng = np.random.default_rng(3)
    labels: list[int] = []
    lengths: list[int] = []
    for _ in range(300):
        ids, ends = random_document(rng, words, 60)
        chunks = plan(ids, ends, words, rng, max_tokens=125, short_probability=0.1)
        before = 0
        for chunk in chunks:
            assert chunk.second is not None
            earlier, later = sorted((chunk.first, chunk.second))
            assert before <= earlier[0] < earlier[1] <= later[0] < later[1] <= len(ids)
            assert chunk.label == (SWAPPED if chunk.first == later else IN_ORDER)
            assert MIN_TOKENS <= len(chunk) <= 125
            before = later[1]
            labels.append(chunk.label)
            lengths.append(len(chunk))
    assert np.mean(labels) == pytest.approx(0.5, abs=0.03)
    assert np.mean(np.array(lengths) < 105) == pytest.approx(0.1, abs=0.05)


def test_too_long_pairs_lose_the_longer_one_first(words: WordTable) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(words.ordinary_ids, size=150).astype(np.uint16)
    fronts = []
    for _ in range(400):
        (chunk,) = plan(ids, np.array([110, 150]), words, rng, max_tokens=125, short_probability=0.0)
        assert chunk.second is not None
        earlier, later = sorted((chunk.first, chunk.second))
        assert later == (110, 150)
        assert earlier[1] - earlier[0] == 85
        fronts.append(earlier[0])
    assert np.mean(fronts) == pytest.approx(12.5, abs=0.4)  # 25 coins: front or back
    (chunk,) = plan(ids, np.array([80, 150]), words, rng, max_tokens=125, short_probability=0.0)
    assert chunk.second is not None
    assert sorted([chunk.first[1] - chunk.first[0], chunk.second[1] - chunk.second[0]]) == [62, 63]


def test_a_single_sentence_is_cut_at_a_word_or_skipped(words: WordTable, pieces: list[str]) -> None:
    rng = np.random.default_rng(0)
    the, s = pieces.index(WORD), pieces.index("s")
    ids = np.array([the, s, s] * 5, dtype=np.uint16)
    cuts = set()
    for _ in range(200):
        (chunk,) = plan(ids, np.array([15]), words, rng, max_tokens=125, short_probability=0.0)
        assert chunk.second is not None
        earlier, later = sorted((chunk.first, chunk.second))
        assert (earlier[0], later[1]) == (0, 15)
        assert earlier[1] == later[0]
        cuts.add(later[0])
    assert cuts == {3, 6, 9, 12}
    one_word = np.array([the] + [s] * 14, dtype=np.uint16)
    assert plan(one_word, np.array([15]), words, rng, max_tokens=125, short_probability=0.0) == []
    assert plan(ids[:7], np.array([3, 7]), words, rng, max_tokens=125, short_probability=0.0) == []


# Batches


def test_masked_batches_restore_the_plain_ones(shards: ShardSet, words: WordTable) -> None:
    settings = replace(PLAIN, masked_lm=True)
    hidden = total = 0
    both = zip(
        ExampleStream(shards, words, settings, 16), ExampleStream(shards, words, PLAIN, 16), strict=True
    )
    for masked, plain in islice(both, 150):
        assert masked.input_ids.shape == plain.input_ids.shape
        flat = masked.input_ids.reshape(-1).copy()
        flat[masked.masked_positions] = masked.masked_labels
        assert np.array_equal(flat, plain.input_ids.reshape(-1))
        assert np.array_equal(masked.token_type_ids, plain.token_type_ids)
        assert not words.is_special[masked.masked_labels].any()
        assert np.all(np.diff(masked.masked_positions) > 0)
        assert len(plain.masked_positions) == 0
        per_row = np.bincount(masked.masked_positions // masked.input_ids.shape[1], minlength=16)
        assert per_row.max() <= 10  # 20 per 128
        hidden, total = hidden + len(masked.masked_labels), total + masked.num_tokens
    assert total > 100_000
    assert hidden / total == pytest.approx(0.15, abs=0.005)


def test_layout_of_a_batch(shards: ShardSet, words: WordTable) -> None:
    batch = next(ExampleStream(shards, words, PLAIN, 16))
    assert batch.input_ids.dtype == batch.masked_positions.dtype == np.int64
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
    batch = next(ExampleStream(shards, words, settings, 10))
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
    with pytest.raises(ConfigError, match="1 part or more, not 0"):
        batch.split(0)


def test_without_sentence_order_there_is_one_segment(shards: ShardSet, words: WordTable) -> None:
    settings = replace(PLAIN, masked_lm=True, sentence_order=False)
    batch = next(ExampleStream(shards, words, settings, 16))
    assert not batch.token_type_ids.any()
    assert not batch.sentence_order_labels.any()
    assert np.array_equal((batch.input_ids == words.sep).sum(1), np.ones(16))
    assert batch.attention_mask.sum(1).max() == 64


@pytest.mark.usefixtures("small_blocks")
def test_every_document_is_seen_once_per_epoch(shards: ShardSet, words: WordTable) -> None:
    whole = replace(PLAIN, max_seq_length=2048, short_sequence_probability=0.0)
    stream = ExampleStream(shards, words, whole, 16)
    expected = sorted(sorted(shards.tokens(index)[0].tolist()) for index in range(len(shards)))
    orders = []
    for _ in range(2):
        found = [
            sorted(np.concatenate(segments(*row)).tolist())
            for batch in one_epoch(stream)
            for row in zip(batch.input_ids, batch.token_type_ids, batch.attention_mask, strict=True)
        ]
        assert sorted(found) == expected
        orders.append(found)
    assert orders[0] != orders[1]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("world_size", "batch_size"), [(1, 7), (2, 16), (3, 16), (5, 32)])
def test_every_example_once_whatever_the_world(
    shards: ShardSet, words: WordTable, world_size: int, batch_size: int
) -> None:
    settings = replace(PLAIN, masked_lm=True)
    expected = [
        row for batch in one_epoch(ExampleStream(shards, words, settings, 16)) for row in rows_of(batch)
    ]
    ranks = [
        list(one_epoch(ExampleStream(shards, words, settings, batch_size, rank=rank, world_size=world_size)))
        for rank in range(world_size)
    ]
    found = [row for batches in ranks for batch in batches for row in rows_of(batch)]
    assert Counter(found) == Counter(expected)
    single = list(one_epoch(ExampleStream(shards, words, settings, batch_size)))
    for whole, *parts in zip(single, *ranks, strict=True):
        assert len(whole.input_ids) <= batch_size
        assert all(part.position == whole.position for part in parts)
        assert all(len(part.input_ids) > 0 for part in parts)
        for rank, part in enumerate(parts):
            assert rows_of(part) == rows_of(whole)[rank::world_size]


@pytest.mark.usefixtures("small_blocks")
def test_a_stream_continues_from_any_position(shards: ShardSet, words: WordTable) -> None:
    settings = replace(PLAIN, masked_lm=True)
    stream = ExampleStream(shards, words, settings, 16)
    batches = [next(stream)]
    while batches[-1].position < Position(epoch=1, block=2):
        batches.append(next(stream))
    assert any(batch.position == Position(epoch=1) for batch in batches)
    for index in (0, 1, len(batches) // 3, len(batches) - 5):
        resumed = ExampleStream(shards, words, settings, 16, start=batches[index].position)
        for batch in batches[index + 1 : index + 5]:
            again = next(resumed)
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
    assert 100 <= sum(len(batch.input_ids) for batch in one) < 116
    assert np.mean(np.concatenate([batch.attention_mask.sum(1) for batch in one]) > 56) > 0.8  # none short
    every = fixed_batches(shards, words, settings, 16, limit=10**9)
    assert {batch.position.epoch for batch in every[:-1]} == {0}


def test_settings_and_positions_that_make_no_sense(shards: ShardSet, words: WordTable) -> None:
    for wrong in (
        {"max_seq_length": 100}, {"masked_lm_probability": 1.5}, {"max_ngram": 0},
        {"masked_lm": False, "sentence_order": False},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            ExampleSettings(**wrong)
    with pytest.raises(ConfigError, match="every process needs a row"):
        ExampleStream(shards, words, PLAIN, 2, world_size=3)
    with pytest.raises(DataError, match="no batch at Position"):
        ExampleStream(shards, words, PLAIN, 16, start=Position(block=7))
    with pytest.raises(DataError, match="no batch at Position"):
        next(ExampleStream(shards, words, PLAIN, 16, start=Position(batch=10_000)))


def test_shards_with_too_little_text(tmp_path: Path, words: WordTable, tiny_vocabulary: Path) -> None:
    def stream_of(text: str, **world: int) -> ExampleStream:
        file = tmp_path / f"{len(text)}.txt"
        file.write_text(text, encoding="utf-8")
        prepare([file], tiny_vocabulary, tmp_path / file.stem, workers=1, sentence_per_line=True)
        return ExampleStream(ShardSet(tmp_path / file.stem / "train"), words, PLAIN, 16, **world)

    with pytest.raises(DataError, match="no document is long enough"):
        next(stream_of("a\nb\n"))
    with pytest.raises(DataError, match="only 1 examples, too few for 2 processes"):
        next(stream_of("The sister found the river.\nThe child lost the key.\n", rank=1, world_size=2))


def test_rates_on_real_text(shared: Path, tmp_path: Path) -> None:
    """The statistics that count: the published vocabulary, English prose, length 128."""
    file = tmp_path / "xquad.jsonl"
    articles = json.loads((shared / "data/xquad/xquad.en.json").read_text(encoding="utf-8"))["data"]
    contexts = ["\n".join(p["context"] for p in article["paragraphs"]) for article in articles]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in contexts), encoding="utf-8")
    vocabulary = shared / "data/spiece.model"
    prepare([file], vocabulary, tmp_path / "out", workers=1)
    words, shards = WordTable(vocabulary), ShardSet(tmp_path / "out/train")
    hidden = total = masked = 0
    labels: list[int] = []
    for batch in ExampleStream(shards, words, ExampleSettings(), 32):
        flat = batch.input_ids.reshape(-1)
        hidden, total = hidden + len(batch.masked_labels), total + batch.num_tokens
        masked += int((flat == words.mask).sum())
        labels += batch.sentence_order_labels.tolist()
        if total > 200_000:
            break
    assert hidden / total == pytest.approx(0.15, abs=0.004)
    assert masked / hidden == pytest.approx(0.8, abs=0.008)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.05)
