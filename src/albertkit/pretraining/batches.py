"""Batches for pretraining, drawn from token shards on the fly and reproducible.

An epoch is a permutation of all documents, taken in blocks. The chunks of a block are planned (cheap: only
ranges), shuffled and split into batches, so each is used exactly once. A batch is drawn as a whole, and its
random choices depend only on the seed and its position. So any process can draw any batch, and a run can
start at any batch without drawing those before it.

By rows, a batch has any chunks and is padded to its longest. By tokens, a batch has chunks of one length
bucket (a few long ones or many short ones) and is padded to the bucket's length: hardly any padding, equal
work in every step, and only as many matrix shapes as there are buckets.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from albertkit.config import IGNORED_LABEL
from albertkit.errors import ConfigError, DataError
from albertkit.pretraining import masking, original_quirks
from albertkit.pretraining.chunks import Chunks, plan
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.settings import LENGTH_MULTIPLE, ExampleSettings
from albertkit.pretraining.shards import ShardSet

BLOCK_DOCUMENTS = 256  # minimum; larger batches need more documents, so that a block fills several batches
_BLOCK_BATCHES = 16  # minimum number of batches per block, for batches by tokens
_BUCKETS = 8  # maximum number of bucket lengths
_ORDER, _PLAN, _SHUFFLE, _MASK = range(4)  # purposes of random streams; results depend on the numbers


def padded_length(tokens: int) -> int:
    return -(-tokens // LENGTH_MULTIPLE) * LENGTH_MULTIPLE


@dataclass(frozen=True, order=True)
class Position:
    """A position in the endless stream of batches."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


@dataclass(frozen=True, kw_only=True)
class PretrainingBatch:
    """One batch (legend: B rows, T tokens). A row is [CLS] A [SEP] B [SEP], or [CLS] A [SEP]."""

    input_ids: np.ndarray  # [B, T] int32, as the model sees them
    masked_labels: np.ndarray  # [B, T] int32, the original ids of the masked tokens, elsewhere IGNORED_LABEL
    order_labels: np.ndarray  # [B] int32, 1 where the segments are swapped
    lengths: np.ndarray  # [B] int32, number of tokens
    second_begins: np.ndarray  # [B] int32, where segment B begins; the row's length if it has none
    position: Position  # where the stream continues after this batch

    @property
    def num_tokens(self) -> int:
        """Number of tokens without padding, including special tokens."""
        return int(self.lengths.sum())

    @property
    def attention_mask(self) -> np.ndarray:
        """Whether a token is no padding, bool [B, T]."""
        return np.arange(self.input_ids.shape[1]) < self.lengths[:, None]

    @property
    def token_type_ids(self) -> np.ndarray:
        """1 in the second segment, int32 [B, T]."""
        is_second = np.arange(self.input_ids.shape[1]) >= self.second_begins[:, None]
        return (is_second & self.attention_mask).astype(np.int32)

    def rows(self, rows: slice | np.ndarray, length: int | None = None) -> "PretrainingBatch":
        """Return some of the rows, cut to `length` or to the padded length of their longest."""
        lengths = self.lengths[rows]
        length = padded_length(int(lengths.max())) if length is None else length
        return replace(
            self,
            input_ids=self.input_ids[rows, :length],
            masked_labels=self.masked_labels[rows, :length],
            order_labels=self.order_labels[rows],
            lengths=lengths,
            second_begins=self.second_begins[rows],
        )

    def split(self, parts: int) -> list["PretrainingBatch"]:
        """Split the batch into `parts` parts for gradient accumulation, or fewer if there are fewer rows.

        The parts have nearly equal numbers of consecutive rows, each padded to its own longest row.
        """
        num_rows = len(self.input_ids)
        parts = min(parts, num_rows)
        if parts == 1:
            return [self]
        cuts = [num_rows * index // parts for index in range(parts + 1)]
        return [self.rows(slice(begin, stop)) for begin, stop in pairwise(cuts)]


@dataclass(frozen=True)
class Batching:
    """How the chunks of a block are split into batches: by rows or by tokens (rows x padded length)."""

    batch_size: int | None
    batch_tokens: int | None
    max_seq_length: int
    world_size: int = 1

    def __post_init__(self) -> None:
        rows = self.batch_size or (self.batch_tokens or 0) // self.max_seq_length
        # The last two batches may be split evenly. Then half of their rows must be enough for all processes.
        needed = 2 * self.world_size - 1
        if rows < needed:
            raise ConfigError(
                f"batches of {rows} rows are too small: {self.world_size} processes need at least {needed}. "
                "Increase the batch size, or use fewer processes."
            )

    def num_blocks(self, shards: ShardSet) -> int:
        if self.batch_size:
            return max(1, len(shards) // max(BLOCK_DOCUMENTS, self.batch_size))
        by_tokens = shards.manifest.tokens // (_BLOCK_BATCHES * (self.batch_tokens or 1))
        return max(1, min(len(shards) // BLOCK_DOCUMENTS, by_tokens))

    def padded_length(self, longest: int) -> int:
        return padded_length(longest) if self.batch_size else int(self._bucket_lengths(np.array(longest)))

    def cut(self, lengths: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        """Return batches as arrays of indices into `lengths` [chunks].

        By rows they are in the given order, by tokens in random order. The remainder of a bucket is filled up
        with rows of the next shorter one, so all batches except the last use all their tokens.
        """
        if self.batch_size:
            num_batches = -(-len(lengths) // self.batch_size)
            return np.array_split(np.arange(len(lengths)), num_batches) if num_batches else []
        buckets = self._bucket_lengths(lengths)
        longest_first = np.argsort(-buckets, kind="stable")
        batches: list[np.ndarray] = []
        begin = 0
        while begin < len(lengths):
            rows = (self.batch_tokens or 0) // int(buckets[longest_first[begin]])
            batches.append(longest_first[begin : begin + rows])
            begin += rows
        if len(batches) > 1 and len(batches[-1]) < len(batches[-2]):
            # Avoid batches of one or two rows, so that every process gets its share.
            batches[-2:] = np.array_split(np.concatenate(batches[-2:]), 2)
        return [batches[index] for index in rng.permutation(len(batches))]

    def _bucket_lengths(self, lengths: np.ndarray) -> np.ndarray:
        width = padded_length(-(-self.max_seq_length // _BUCKETS))
        return np.minimum(-(-lengths // width) * width, self.max_seq_length)


class ExampleStream:
    """An endless stream of batches, epoch after epoch, from the position `start` on.

    `batch_size` and `batch_tokens` are those of all processes. A process takes the rows rank,
    rank + world_size, ... of each batch.
    """

    def __init__(
        self,
        shards: ShardSet,
        words: WordTable,
        settings: ExampleSettings,
        batch_size: int | None = None,
        *,
        batch_tokens: int | None = None,
        seed: int = 0,
        start: Position | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        shards.check_tokenizer(words.model_file)
        self.batching = Batching(batch_size, batch_tokens, settings.max_seq_length, world_size)
        self.shards, self.words, self.settings, self.seed = shards, words, settings, seed
        self.rank, self.world_size = rank, world_size
        self.num_blocks = self.batching.num_blocks(shards)
        self.start = start or Position()

    def __iter__(self) -> Iterator[PretrainingBatch]:
        return self.every(1)

    def every(self, step: int, first: int = 0) -> Iterator[PretrainingBatch]:
        """Yield the batches `first`, `first + step`, ... from `start` on: the share of one worker."""
        epoch, block, begin = self.start.epoch, self.start.block, self.start.batch
        number = 0  # of the next batch, from `start` on
        order = epoch, self._documents(epoch)
        empty_blocks = 0
        while empty_blocks <= self.num_blocks:
            if order[0] != epoch:
                order = epoch, self._documents(epoch)
            ids, chunks = self._block(order[1], epoch, block)
            batches = self.batching.cut(self._lengths(chunks), self._stream(_SHUFFLE, epoch, block, 1))
            if any(len(batch) < self.world_size for batch in batches):
                what = f"too few examples for {self.world_size} processes"
                raise DataError(f"{self.shards.folder}: {what}. Add text, or use fewer processes.")
            empty_blocks = 0 if batches else empty_blocks + 1
            following = Position(epoch, block + 1) if block + 1 < self.num_blocks else Position(epoch + 1)
            for index in range(begin, len(batches)):
                if number % step == first:
                    is_last = index + 1 == len(batches)
                    position = following if is_last else Position(epoch, block, index + 1)
                    rng = self._stream(_MASK, epoch, block, index)
                    batch = self._draw(ids, chunks.take(batches[index]), rng, position)
                    yield batch.rows(slice(self.rank, None, self.world_size), batch.input_ids.shape[1])
                number += 1
            epoch, block, begin = following.epoch, following.block, 0
        raise DataError(f"{self.shards.folder}: no document is long enough for an example")

    def _documents(self, epoch: int) -> np.ndarray:
        return self._stream(_ORDER, epoch).permutation(len(self.shards))

    def _block(self, order: np.ndarray, epoch: int, block: int) -> tuple[np.ndarray, Chunks]:
        """Return the token ids [M] and the shuffled chunks of a block of an epoch with this order."""
        # The last block takes the remainder, so none is too small to fill a batch.
        begin, stop = [len(self.shards) * index // self.num_blocks for index in (block, block + 1)]
        settings = self.settings
        max_tokens = settings.max_tokens
        if epoch == 0 and begin < settings.warmup_documents:
            max_tokens -= settings.max_seq_length - settings.warmup_seq_length
        rng = self._stream(_PLAN, epoch, block)
        short = settings.short_sequence_probability
        if settings.original_quirks:
            ids, planned = original_quirks.plan(
                order[begin:stop], self.shards, rng, max_tokens=max_tokens, short_probability=short
            )
        else:
            ids, sentence_ends, document_ends = self.shards.documents(order[begin:stop])
            planned = plan(
                *(ids, sentence_ends, document_ends, self.words, rng),
                max_tokens=max_tokens,
                short_probability=short,
                sentence_order=settings.sentence_order,
            )
        return ids, planned.take(self._stream(_SHUFFLE, epoch, block).permutation(len(planned)))

    def _lengths(self, chunks: Chunks) -> np.ndarray:
        """Return the number of tokens of the row of each chunk, special tokens included."""
        return chunks.lengths() + (3 if self.settings.sentence_order else 2)

    def _draw(
        self, block_ids: np.ndarray, chunks: Chunks, rng: np.random.Generator, position: Position
    ) -> PretrainingBatch:
        words, settings = self.words, self.settings
        first, second, lengths = chunks.first, chunks.second, self._lengths(chunks)
        begins = np.cumsum(lengths) - lengths  # [B] where each row begins among the tokens of all rows
        first_lengths, second_lengths = np.diff(first)[:, 0], np.diff(second)[:, 0]
        ids = np.full(lengths.sum(), words.sep, dtype=np.int32)
        ids[begins] = words.cls
        for segment, starts, sizes in (
            (first, begins + 1, first_lengths),
            (second, begins + first_lengths + 2, second_lengths),
        ):
            ids[masking.spread(starts, sizes)] = block_ids[masking.spread(segment[:, 0], sizes)]
        length = self.batching.padded_length(int(lengths.max()))
        is_real = np.arange(length) < lengths[:, None]  # [B, T]
        labels = np.full(is_real.shape, IGNORED_LABEL, dtype=np.int32)
        if settings.masked_lm:
            choose = original_quirks.choose if settings.original_quirks else masking.choose
            masked = choose(ids, lengths, words, settings, rng)
            labels[is_real] = np.where(masked, ids, IGNORED_LABEL)
            ids = masking.hide(ids, masked, words, rng, replace_with_any=settings.original_quirks)
        input_ids = np.full(is_real.shape, words.pad, dtype=np.int32)
        input_ids[is_real] = ids
        return PretrainingBatch(
            input_ids=input_ids,
            masked_labels=labels,
            order_labels=chunks.order_labels.astype(np.int32),
            lengths=lengths.astype(np.int32),
            second_begins=(first_lengths + 2).astype(np.int32),
            position=position,
        )

    def _stream(self, *key: int) -> np.random.Generator:
        """Return the random stream of a purpose, epoch, block and batch."""
        return np.random.default_rng((self.seed, *key))


def fixed_batches(
    shards: ShardSet,
    words: WordTable,
    settings: ExampleSettings,
    batch_size: int | None = None,
    *,
    batch_tokens: int | None = None,
    limit: int,
) -> list[PretrainingBatch]:
    """Return `limit` examples for held-out evaluation, with the same masks every time.

    They are the first examples of epoch 0, never shortened, whatever the batch size; fewer if the shards have
    fewer.
    """
    batching = Batching(batch_size, batch_tokens, settings.max_seq_length)
    full_length = replace(settings, short_sequence_probability=0.0, warmup_documents=0)
    # Each batch of this stream is a block of documents, and is drawn before it is cut into batches.
    stream = ExampleStream(shards, words, full_length, batch_size=BLOCK_DOCUMENTS)
    order, batches, left = stream._documents(0), [], limit
    for block in range(stream.num_blocks):
        ids, chunks = stream._block(order, 0, block)
        chunks = chunks.take(np.arange(min(left, len(chunks))))
        if len(chunks):
            rows = stream._draw(ids, chunks, stream._stream(_MASK, 0, block), Position())
            cuts = batching.cut(rows.lengths, np.random.default_rng(0))
            batches += [rows.rows(cut, batching.padded_length(int(rows.lengths[cut].max()))) for cut in cuts]
        left -= len(chunks)
        if not left:
            break
    if not batches:
        raise DataError(f"{shards.folder}: no document is long enough for an example")
    return batches
