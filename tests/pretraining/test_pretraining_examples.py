"""Tests of pretraining examples: words, masks and sentence order, with rates over 100,000 tokens."""

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from json_lines import write_json_lines
from pretraining_rows import PLAIN, one_epoch, rows_of, segments

from albertkit.errors import ConfigError, TokenizerError
from albertkit.pretraining import masking
from albertkit.pretraining.batches import ExampleStream, fixed_batches
from albertkit.pretraining.chunks import ALTERED, IN_ORDER, MIN_TOKENS, SWAPPED, TRUE, excerpt, plan
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable

WORD = "▁morning"  # a piece of the tiny vocabulary


@pytest.fixture(scope="module")
def pieces(tiny_vocabulary: Path) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tiny_vocabulary))
    return [processor.id_to_piece(index) for index in range(processor.get_piece_size())]


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


def test_a_vocabulary_without_special_pieces_is_an_error(tmp_path: Path) -> None:
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
    rule = ExampleSettings(max_predictions=1000)
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
    positions, chosen = masking.choose(
        ids, words, ExampleSettings(max_predictions=10**9), np.random.default_rng(1)
    )
    assert len(positions) == 22_500 == sum(chosen)
    shares = np.bincount(chosen)[1:] / len(chosen)
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.012)  # three standard errors


def test_max_ngram_and_max_predictions(words: WordTable, pieces: list[str]) -> None:
    ids = np.full(400, pieces.index(WORD))
    rng = np.random.default_rng(0)
    positions, chosen = masking.choose(ids, words, ExampleSettings(max_predictions=20, max_ngram=1), rng)
    assert len(positions) == 20
    assert set(chosen) == {1}
    assert len(masking.choose(ids[:4], words, ExampleSettings(), rng)[0]) == 1
    assert masking.budget(20, ExampleSettings(masked_lm_probability=0.0)) == 1  # as in the original
    # Words that are longer than the whole budget, or no words at all: nothing to hide.
    assert len(masking.choose(np.full(20, words.sep), words, ExampleSettings(), rng)[0]) == 0
    assert len(masking.choose(np.full(20, pieces.index("s")), words, ExampleSettings(), rng)[0]) == 0


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


def test_both_segments_come_from_one_document_in_the_labeled_order(
    shards: ShardSet, words: WordTable
) -> None:
    texts = ["".join(map(chr, shards.tokens(index)[0])) for index in range(len(shards))]
    labels: list[int] = []
    adjacent = ambiguous = 0
    for batch in islice(ExampleStream(shards, words, PLAIN, 16), 40):
        rows = zip(batch.input_ids, batch.token_type_ids, batch.attention_mask, strict=True)
        for row, label in zip(rows, batch.labels["order"][:, 0].tolist(), strict=True):
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


def test_one_chunk_in_ten_is_short(words: WordTable) -> None:
    # With sentences of one token a chunk has exactly the length that was drawn for it.
    ids = np.full(400_000, words.ordinary_ids[0], dtype=np.uint16)
    ends = np.arange(1, len(ids) + 1)
    rng = np.random.default_rng(0)
    chunks = plan(ids, ends, words, rng, max_tokens=125, short_probability=0.1)
    lengths = np.array([len(chunk) for chunk in chunks[:-1]])
    short = lengths[lengths < 125]
    drawn_too_short = 6 / 124  # 2 ... 7 of 2 ... 125: skipped
    assert len(short) / len(lengths) == pytest.approx(0.1 * (1 - drawn_too_short), abs=0.015)
    assert short.min() == MIN_TOKENS
    assert short.mean() == pytest.approx((MIN_TOKENS + 124) / 2, abs=5)
    assert np.mean([chunk.label for chunk in chunks]) == pytest.approx(0.5, abs=0.025)
    assert len(plan(ids, ends, words, rng, max_tokens=125, short_probability=0.0)) == 3_200


def test_the_longer_segment_is_truncated_first(words: WordTable) -> None:
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


# Excerpts


def test_an_excerpt_is_of_the_first_segment_or_altered(words: WordTable, shards: ShardSet) -> None:
    rng = np.random.default_rng(0)
    tokens, _ = shards.tokens(0)
    lengths, foreign = [], {TRUE: [], ALTERED: []}
    for _ in range(400):
        begin = int(rng.integers(len(tokens) - 60))
        text = tokens[begin : begin + 60]
        pair = excerpt(text, words, rng)
        assert pair is not None
        first, second, label = pair
        assert first.tolist() == text[: len(first)].tolist()
        assert 1 <= len(second) <= len(text) - len(first)
        lengths.append(len(second))
        if label == TRUE:  # its words in their order
            rest = iter(first.tolist())
            assert all(piece in rest for piece in second.tolist())
        foreign[label].append(np.isin(second, first, invert=True).mean())
    assert len(foreign[ALTERED]) / 400 == pytest.approx(0.5, abs=0.08)
    assert max(foreign[TRUE]) == 0
    assert np.mean(foreign[ALTERED]) > 0.15
    assert min(lengths) < 6
    assert max(lengths) > 25


def test_a_text_of_one_word_gives_no_excerpt(words: WordTable, pieces: list[str]) -> None:
    word = np.array([pieces.index(piece) for piece in (WORD, "s", "s")])
    assert excerpt(word, words, np.random.default_rng(0)) is None


def test_a_share_of_the_pairs_are_excerpts_and_none_is_held_out(words: WordTable, shards: ShardSet) -> None:
    def rows(settings: ExampleSettings) -> list[bytes]:
        stream = ExampleStream(shards, words, settings, 8)
        return [row for batch in one_epoch(stream) for row in rows_of(batch)]

    plain, some = rows(PLAIN), rows(replace(PLAIN, excerpt_probability=0.25))
    assert len(plain) == len(some)
    changed = np.mean([one != other for one, other in zip(plain, some, strict=True)])
    assert changed == pytest.approx(0.25, abs=0.05)
    held_out = [
        [row for one in fixed_batches(shards, words, settings, 8, limit=50) for row in rows_of(one)]
        for settings in (PLAIN, replace(PLAIN, excerpt_probability=0.25))
    ]
    assert held_out[0] == held_out[1]


def test_excerpts_need_the_order_head() -> None:
    for settings in ({"sentence_order": False}, {"original_quirks": True}):
        with pytest.raises(ConfigError, match="excerpt_probability needs sentence_order"):
            ExampleSettings(excerpt_probability=0.1, **settings)


# Rates


def test_rates_on_real_text(shared: Path, tmp_path: Path) -> None:
    """The statistics that count: the published vocabulary, English prose, length 128."""
    file = tmp_path / "xquad.jsonl"
    articles = json.loads((shared / "data/xquad/xquad.en.json").read_text(encoding="utf-8"))["data"]
    contexts = ["\n".join(p["context"] for p in article["paragraphs"]) for article in articles]
    write_json_lines(file, ({"text": text} for text in contexts))
    vocabulary = shared / "data/spiece.model"
    prepare([file], vocabulary, tmp_path / "out", workers=1)
    words, shards = WordTable(vocabulary), ShardSet(tmp_path / "out/train")
    hidden = total = masked = 0
    labels: list[int] = []
    for batch in ExampleStream(shards, words, ExampleSettings(), 32):
        flat = batch.input_ids.reshape(-1)
        hidden, total = hidden + batch.count("masked"), total + batch.num_tokens
        masked += int((flat == words.mask).sum())
        labels += batch.labels["order"][:, 0].tolist()
        if total > 200_000:
            break
    assert hidden / total == pytest.approx(0.15, abs=0.004)
    assert masked / hidden == pytest.approx(0.8, abs=0.008)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.05)
