"""Tests of pretraining examples: words, masks and sentence order, with rates over 100,000 tokens."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from json_lines import write_json_lines
from pretraining_rows import PLAIN, segments

from albertkit.config import IGNORED_LABEL
from albertkit.errors import TokenizerError
from albertkit.pretraining import masking
from albertkit.pretraining.batches import ExampleStream
from albertkit.pretraining.chunks import MIN_TOKENS, SWAPPED, Chunks, plan
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet

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
    with pytest.raises(TokenizerError, match=r"lacks \[CLS\], \[SEP\]"):
        WordTable(tmp_path / "m.model")


# Masking


def one_row(words: WordTable, text: np.ndarray) -> np.ndarray:
    return np.concatenate([[words.cls], text, [words.sep]])


def choose_one_by_one(
    ids: np.ndarray, lengths: np.ndarray, words: WordTable, settings: ExampleSettings, seed: int
) -> list[bool]:
    """Choose tokens as `masking.choose` does, row by row and word by word: the plain reference."""
    rng = np.random.default_rng(seed)
    starts = np.flatnonzero(words.starts(ids)).tolist()
    ends = [*starts[1:], len(ids)]
    drawn = masking.ngram_lengths(len(starts), settings.max_ngram, rng).tolist()
    ngrams: list[
        tuple[list[int], bool]
    ] = []  # the words of each n-gram, and whether it is shorter than drawn
    word = 0
    for length in drawn:
        parts: list[list[int]] = [[]]
        for index in range(word, min(word + length, len(starts))):
            if words.is_special[ids[starts[index]]]:
                parts += [[index], []]
            else:
                parts[-1].append(index)
        ngrams += [(part, len(part) < length) for part in parts if part]
        word += length
    keys = rng.random(len(ngrams))
    masked = [False] * len(ids)
    stops = np.cumsum(lengths)
    for row, stop in enumerate(stops.tolist()):
        remaining = int(masking.budget(lengths[row : row + 1], settings)[0])
        own = [
            (key + is_cut, ngram)
            for key, (ngram, is_cut) in zip(keys, ngrams, strict=True)
            if stop - lengths[row] <= starts[ngram[0]] < stop and not words.is_special[ids[starts[ngram[0]]]]
        ]
        left: list[int] = []
        for _, ngram in sorted(own):
            size = ends[ngram[-1]] - starts[ngram[0]]
            if size <= remaining and not left:
                masked[starts[ngram[0]] : ends[ngram[-1]]] = [True] * size
                remaining -= size
            else:
                left += ngram
        for index in left:
            size = ends[index] - starts[index]
            if size <= remaining:
                masked[starts[index] : ends[index]] = [True] * size
                remaining -= size
    return masked


@pytest.mark.parametrize("max_ngram", [1, 3])
@pytest.mark.parametrize("share", [0.15, 0.4])
def test_rows_are_masked_as_by_the_plain_reference(
    shards: ShardSet, words: WordTable, max_ngram: int, share: float
) -> None:
    rule = ExampleSettings(masked_lm_probability=share, max_ngram=max_ngram, max_predictions=60)
    texts = [shards.tokens(index)[0][:cut] for index, cut in enumerate((126, 1, 30, 400, 7, 90))]
    rows = [one_row(words, text.astype(np.int64)) for text in texts]
    rows.append(np.array([words.cls, words.sep]))
    ids, lengths = np.concatenate(rows), np.array([len(row) for row in rows])
    for seed in range(20):
        chosen = masking.choose(ids, lengths, words, rule, np.random.default_rng(seed))
        assert chosen.tolist() == choose_one_by_one(ids, lengths, words, rule, seed)


def test_whole_words_fill_the_budget(shards: ShardSet, words: WordTable) -> None:
    rng = np.random.default_rng(0)
    rule = ExampleSettings(max_predictions=1000)
    rows = [one_row(words, shards.tokens(index)[0].astype(np.int64)) for index in range(len(shards))]
    ids, lengths = np.concatenate(rows), np.array([len(row) for row in rows])
    hidden = 0
    for _ in range(3):
        masked = masking.choose(ids, lengths, words, rule, rng)
        for row, mask in zip(rows, np.split(masked, np.cumsum(lengths)[:-1]), strict=True):
            assert abs(mask.sum() - round(0.15 * len(row))) <= 1
            assert not mask[words.is_special[row]].any()
            # A word is hidden as a whole or not at all.
            word_of = np.cumsum(words.starts(row))
            assert len({*zip(word_of.tolist(), mask.tolist(), strict=True)}) == word_of[-1]
        hidden += masked.sum()
    assert 3 * len(ids) > 100_000
    assert hidden / (3 * len(ids)) == pytest.approx(0.15, abs=0.002)


def test_ngrams_and_positions_have_their_rates(words: WordTable, pieces: list[str]) -> None:
    """The figures of the drawing one by one that came before, over the same rows."""
    row = one_row(words, np.full(126, pieces.index(WORD)))
    lengths = np.full(4000, len(row))
    ids = np.tile(row, 4000)
    masked = masking.choose(ids, lengths, words, ExampleSettings(), np.random.default_rng(1))
    rates = masked.reshape(4000, -1).mean(axis=0)
    assert rates[[0, -1]].tolist() == [0, 0]
    # Fewer n-grams have room at the ends of a row.
    assert rates[[1, -2]] == pytest.approx([0.101, 0.101], abs=0.025)
    assert rates[[2, -3]] == pytest.approx([0.136, 0.136], abs=0.025)
    assert rates[5:-5].mean() == pytest.approx(0.152, abs=0.003)
    assert rates[5:-5].std() < 0.01
    # In long rows with few masked words, hardly any n-grams touch, and hardly any are cut for the budget.
    sparse = ExampleSettings(masked_lm_probability=0.02, max_predictions=10**6)
    long = one_row(words, np.full(400_000, pieces.index(WORD)))
    masked = masking.choose(long, np.array([len(long)]), words, sparse, np.random.default_rng(2))
    edges = np.diff(np.pad(masked.astype(int), 1))
    runs = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    shares = np.bincount(runs, minlength=4)[1:4] / len(runs)
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.025)
    drawn = masking.ngram_lengths(100_000, 3, np.random.default_rng(0))
    assert np.bincount(drawn)[1:] / 100_000 == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.005)


def test_max_ngram_and_max_predictions(words: WordTable, pieces: list[str]) -> None:
    rng = np.random.default_rng(0)

    def masked(row: np.ndarray, settings: ExampleSettings) -> np.ndarray:
        return np.flatnonzero(masking.choose(row, np.array([len(row)]), words, settings, rng))

    row = one_row(words, np.full(400, pieces.index(WORD)))
    single = ExampleSettings(max_predictions=20, max_ngram=1)
    assert len(masked(row, single)) == 20
    assert len(masked(row[:4], ExampleSettings())) == 1
    # As in the original, at least one.
    assert masking.budget(np.array([20]), ExampleSettings(masked_lm_probability=0.0)).tolist() == [1]
    # Words that are longer than the whole budget, or no words at all: nothing to hide.
    assert len(masked(np.full(20, words.sep), ExampleSettings())) == 0
    assert len(masked(np.full(20, pieces.index("s")), ExampleSettings())) == 0


def test_hidden_tokens_are_80_10_10(words: WordTable) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(words.ordinary_ids, size=200_000)
    is_chosen = rng.random(len(ids)) < 0.5
    seen = masking.hide(ids, is_chosen, words, rng)
    assert np.array_equal(seen[~is_chosen], ids[~is_chosen])
    masked, kept = (seen == words.mask)[is_chosen], (seen == ids)[is_chosen]
    replaced = seen[is_chosen][~masked & ~kept]
    assert masked.mean() == pytest.approx(0.8, abs=0.005)
    assert kept.mean() == pytest.approx(0.1, abs=0.005)
    assert len(replaced) / is_chosen.sum() == pytest.approx(0.1, abs=0.005)
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
        for row, label in zip(rows, batch.order_labels.tolist(), strict=True):
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


def plan_of(
    documents: list[tuple[np.ndarray, np.ndarray]],
    words: WordTable,
    rng: np.random.Generator,
    short: float = 0.0,
) -> Chunks:
    """Plan documents, each of ids and ends of sentences, for 125 tokens of text."""
    ids = np.concatenate([ids for ids, _ in documents])
    starts = np.cumsum([0, *(len(ids) for ids, _ in documents[:-1])])
    ends = np.concatenate([ends + start for (_, ends), start in zip(documents, starts, strict=True)])
    document_ends = np.cumsum([len(ends) for _, ends in documents])
    return plan(ids, ends, document_ends, words, rng, max_tokens=125, short_probability=short)


def ranges_of(chunks: Chunks) -> list[list[tuple[int, int]]]:
    """Return the ranges of the two segments of each chunk, in the order of the text."""
    pairs = zip(chunks.first.tolist(), chunks.second.tolist(), strict=True)
    return sorted(sorted([tuple(first), tuple(second)]) for first, second in pairs)


def random_document(
    rng: np.random.Generator, words: WordTable, sentences: int
) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum(rng.integers(1, 40, size=sentences)).astype(np.int32)
    return rng.choice(words.ordinary_ids, size=ends[-1]).astype(np.uint16), ends


def test_chunks_tile_the_documents(words: WordTable) -> None:
    rng = np.random.default_rng(3)
    documents = [random_document(rng, words, 60) for _ in range(300)]
    chunks = plan_of(documents, words, rng, short=0.1)
    stops = np.cumsum([len(ids) for ids, _ in documents])
    before = 0
    for earlier, later in ranges_of(chunks):
        assert before <= earlier[0] < earlier[1] <= later[0] < later[1]
        # Both segments are of one document.
        assert np.searchsorted(stops, earlier[0], side="right") == np.searchsorted(stops, later[1])
        before = later[1]
    assert np.array_equal(chunks.order_labels == SWAPPED, chunks.first[:, 0] > chunks.second[:, 0])
    lengths = chunks.lengths()
    assert lengths.min() >= MIN_TOKENS
    assert lengths.max() == 125
    assert chunks.order_labels.mean() == pytest.approx(0.5, abs=0.03)
    assert np.mean(lengths < 105) == pytest.approx(0.1, abs=0.05)
    assert lengths.sum() / stops[-1] > 0.8  # little is trimmed


def test_one_chunk_in_ten_is_short(words: WordTable) -> None:
    # With sentences of one token a chunk has exactly the length that was drawn for it.
    ids = np.full(400_000, words.ordinary_ids[0], dtype=np.uint16)
    document = ids, np.arange(1, len(ids) + 1)
    rng = np.random.default_rng(0)
    chunks = plan_of([document], words, rng, short=0.1)
    lengths = chunks.lengths()[:-1]
    short = lengths[lengths < 125]
    drawn_too_short = 6 / 124  # 2 ... 7 of 2 ... 125: skipped
    assert len(short) / len(lengths) == pytest.approx(0.1 * (1 - drawn_too_short), abs=0.015)
    assert short.min() == MIN_TOKENS
    assert short.mean() == pytest.approx((MIN_TOKENS + 124) / 2, abs=5)
    assert chunks.order_labels.mean() == pytest.approx(0.5, abs=0.025)
    assert len(plan_of([document], words, rng)) == 3_200


def test_the_longer_segment_is_truncated_first(words: WordTable) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(words.ordinary_ids, size=150).astype(np.uint16)
    fronts = []
    for number, (earlier, later) in enumerate(
        ranges_of(plan_of([(ids, np.array([110, 150]))] * 400, words, rng))
    ):
        assert later == (150 * number + 110, 150 * number + 150)
        assert earlier[1] - earlier[0] == 85
        fronts.append(earlier[0] - 150 * number)
    assert np.mean(fronts) == pytest.approx(12.5, abs=0.4)  # 25 coins: front or back
    ((earlier, later),) = ranges_of(plan_of([(ids, np.array([80, 150]))], words, rng))
    assert sorted([earlier[1] - earlier[0], later[1] - later[0]]) == [62, 63]


def test_a_single_sentence_is_cut_at_a_word_or_skipped(words: WordTable, pieces: list[str]) -> None:
    rng = np.random.default_rng(0)
    the, s = pieces.index(WORD), pieces.index("s")
    ids = np.array([the, s, s] * 5, dtype=np.uint16)
    cuts = set()
    for number, (earlier, later) in enumerate(ranges_of(plan_of([(ids, np.array([15]))] * 200, words, rng))):
        assert (earlier[0], later[1]) == (15 * number, 15 * number + 15)
        assert earlier[1] == later[0]
        cuts.add(later[0] - 15 * number)
    assert cuts == {3, 6, 9, 12}
    one_word = np.array([the] + [s] * 14, dtype=np.uint16)
    assert len(plan_of([(one_word, np.array([15]))], words, rng)) == 0
    assert len(plan_of([(ids[:7], np.array([3, 7]))], words, rng)) == 0


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
        hidden, total = hidden + int((batch.masked_labels != IGNORED_LABEL).sum()), total + batch.num_tokens
        masked += int((flat == words.mask).sum())
        labels += batch.order_labels.tolist()
        if total > 200_000:
            break
    assert hidden / total == pytest.approx(0.15, abs=0.004)
    assert masked / hidden == pytest.approx(0.8, abs=0.008)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.05)
