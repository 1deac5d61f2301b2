"""Batches for pretraining, drawn from token shards on the fly and reproducible.

An epoch is a permutation of all documents, taken in blocks. The examples of a block are planned (cheap: only
ranges), shuffled and split into batches, so each is used exactly once. Results do not depend on the number of
workers or processes, and a run can start at any batch without reading the data before it.

By rows, a batch has any examples and is padded to its longest. By tokens, a batch has examples of one length
bucket (a few long ones or many short ones) and is padded to the bucket's length: hardly any padding, equal
work in every step, and only as many matrix shapes as there are buckets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from albertkit.errors import ConfigError, DataError
from albertkit.pretraining.examples import Drawing, Example
from albertkit.pretraining.objectives import IGNORED, Row
from albertkit.pretraining.settings import LENGTH_MULTIPLE, ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable

BLOCK_DOCUMENTS = 256  # minimum; larger batches need more documents, so that a block fills several batches
_BLOCK_BATCHES = 16  # minimum number of batches per block, for batches by tokens
_BUCKETS = 8  # maximum number of bucket lengths


def padded_length(tokens: int) -> int:
    """Return the padded length of a batch whose longest row has this number of tokens."""
    return -(-tokens // LENGTH_MULTIPLE) * LENGTH_MULTIPLE


@dataclass(frozen=True, order=True)
class Position:
    """A position in the endless stream of batches."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


@dataclass(frozen=True, kw_only=True)
class PretrainingBatch:
    """One batch (legend: B rows, T tokens)."""

    input_ids: np.ndarray  # [B, T] int64
    attention_mask: np.ndarray  # [B, T] int64, 1 for real tokens
    token_type_ids: np.ndarray  # [B, T] int64, 1 in the second segment
    labels: dict[str, np.ndarray]  # name of the objective -> [B, T] int64, see `Row`
    num_tokens: int  # tokens without padding, including special tokens
    position: Position  # where the stream continues after this batch

    @classmethod
    def of(cls, rows: Sequence[Row], length: int, pad: int, position: Position) -> "PretrainingBatch":
        """Return the batch of these rows, each padded to `length` with the id `pad`."""
        input_ids = np.full((len(rows), length), pad, dtype=np.int64)
        attention_mask, token_type_ids = np.zeros_like(input_ids), np.zeros_like(input_ids)
        labels = {name: np.full_like(input_ids, IGNORED) for name in rows[0].labels}
        for index, row in enumerate(rows):
            input_ids[index, : len(row.ids)] = row.ids
            attention_mask[index, : len(row.ids)] = 1
            token_type_ids[index, row.second_begin : len(row.ids)] = 1
            for name, values in row.labels.items():
                labels[name][index, : len(values)] = values
        return cls(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            labels=labels,
            num_tokens=int(attention_mask.sum()),
            position=position,
        )

    def count(self, objective: str) -> int:
        """Return the number of labels of an objective."""
        return int((self.labels[objective] != IGNORED).sum())

    def split(self, parts: int) -> list["PretrainingBatch"]:
        """Split the batch into consecutive rows for gradient accumulation.

        Args:
            parts: number of parts; fewer if there are fewer rows.

        Returns:
            Batches of nearly equal numbers of rows, each padded to its own longest row. Together they have
            the rows, labels and tokens of this batch; each has its position.
        """
        rows, parts = len(self.input_ids), min(parts, len(self.input_ids))
        cuts = [rows * index // parts for index in range(parts + 1)]
        return [self._rows(slice(begin, stop)) for begin, stop in pairwise(cuts)]

    def _rows(self, rows: slice) -> "PretrainingBatch":
        lengths = self.attention_mask[rows].sum(axis=1)
        length = padded_length(int(lengths.max()))
        return PretrainingBatch(
            input_ids=self.input_ids[rows, :length],
            attention_mask=self.attention_mask[rows, :length],
            token_type_ids=self.token_type_ids[rows, :length],
            labels={name: labels[rows, :length] for name, labels in self.labels.items()},
            num_tokens=int(lengths.sum()),
            position=self.position,
        )


@dataclass(frozen=True)
class Batching:
    """How the examples of a block are split into batches: by rows or by tokens.

    Args:
        batch_size: maximum number of rows in a batch; all batches of a block have nearly as many.
        batch_tokens: instead, maximum number of tokens with padding in a batch (rows x padded length).
        max_seq_length: maximum number of tokens of a row.
        world_size: number of processes; each needs a row of every batch.

    Raises:
        ConfigError: the batch is too small for every process to have a row of it.
    """

    batch_size: int | None
    batch_tokens: int | None
    max_seq_length: int
    world_size: int = 1

    def __post_init__(self) -> None:
        if (self.batch_size is None) == (self.batch_tokens is None):
            raise ConfigError(
                f"batch_size is {self.batch_size} and batch_tokens is {self.batch_tokens}. Set either "
                "batch_size or batch_tokens."
            )
        rows = self.batch_size or (self.batch_tokens or 0) // self.max_seq_length
        # The last two batches may be split evenly. Then half of their rows must be enough for all processes.
        needed = 2 * self.world_size - 1
        if rows < needed:
            raise ConfigError(
                f"{self} gives {rows} rows of {self.max_seq_length} tokens, but {self.world_size} processes "
                f"need at least {needed}, so that each has a row of every batch. Increase the batch size, or "
                "start fewer processes."
            )

    def __str__(self) -> str:
        """Return the setting."""
        name = "batch_size" if self.batch_tokens is None else "batch_tokens"
        return f"{name} {getattr(self, name)}"

    def num_blocks(self, shards: ShardSet) -> int:
        """Return the number of blocks per epoch."""
        if self.batch_size:
            return max(1, len(shards) // max(BLOCK_DOCUMENTS, self.batch_size))
        by_tokens = shards.manifest.tokens // (_BLOCK_BATCHES * (self.batch_tokens or 1))
        return max(1, min(len(shards) // BLOCK_DOCUMENTS, by_tokens))

    def padded_length(self, longest: int) -> int:
        """Return the length of the rows of a batch whose longest row has `longest` tokens."""
        return padded_length(longest) if self.batch_size else int(self._bucket_lengths(np.array(longest)))

    def cut(self, lengths: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        """Return batches as arrays of indices into `lengths` [examples].

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
    """An endless stream of batches, epoch after epoch.

    Args:
        shards: the documents.
        words: word boundaries in the vocabulary that the shards were made with.
        settings: settings of the examples.
        batch_size: maximum number of rows in the whole batch, over all processes.
        batch_tokens: instead, maximum number of tokens with padding in the whole batch (rows x padded
            length); its rows have similar lengths.
        seed: seed of every random choice.
        start: where to begin, such as the `position` of the last used batch.
        rank: this process takes the rows rank, rank + world_size, ... of each batch.
        world_size: number of processes.

    Raises:
        ConfigError: the batches are too small for every process to have a row of each.
        DataError: the vocabulary does not match the shards, or they contain no example.
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
        if not 0 <= rank < world_size:
            raise ConfigError(
                f"rank is {rank}. Expected 0 to {world_size - 1}, because world_size is {world_size}."
            )
        self.batching = Batching(batch_size, batch_tokens, settings.max_seq_length, world_size)
        self.shards, self.rank, self.world_size = shards, rank, world_size
        self.num_blocks = self.batching.num_blocks(shards)
        self.start = start or Position()
        if self.start.block >= self.num_blocks:
            raise self._no_such_position()
        self._drawing = Drawing(shards, words, settings, seed=seed)

    def __iter__(self) -> Iterator[PretrainingBatch]:
        """Yield batches from `start` on."""
        epoch, block, first = self.start.epoch, self.start.block, self.start.batch
        empty_blocks = 0
        while empty_blocks <= self.num_blocks:
            examples, rng = self._drawing.block(epoch, block, self.num_blocks)
            batches = _cut(examples, self.batching, rng)
            if first and first >= len(batches):
                raise self._no_such_position()
            if any(len(batch) < self.world_size for batch in batches):
                raise DataError(
                    f"{self.shards.folder}: only {len(examples)} examples, "
                    f"too few for {self.world_size} processes"
                )
            empty_blocks = 0 if batches else empty_blocks + 1
            following = Position(epoch, block + 1) if block + 1 < self.num_blocks else Position(epoch + 1)
            for number in range(first, len(batches)):
                is_last = number + 1 == len(batches)
                position = following if is_last else Position(epoch, block, number + 1)
                rows = batches[number]
                length = self.batching.padded_length(max(row.num_tokens for row in rows))
                own = [self._drawing.row(epoch, row) for row in rows[self.rank :: self.world_size]]
                yield PretrainingBatch.of(own, length, self._drawing.words.pad, position)
            epoch, block, first = following.epoch, following.block, 0
        raise DataError(f"{self.shards.folder}: no document is long enough for an example")

    def _no_such_position(self) -> DataError:
        return DataError(
            f"{self.shards.folder}: no batch at {self.start} with {self.batching}. "
            "A run can only be resumed with the shards, settings and batch size that it started with."
        )


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

    They are the first examples of epoch 0, never shortened or excerpts, whatever the batch size; fewer if the
    shards have fewer.

    Raises:
        DataError: the vocabulary does not match the shards, or they contain no example.
    """
    batching = Batching(batch_size, batch_tokens, settings.max_seq_length)
    full_length = replace(
        settings, short_sequence_probability=0.0, warmup_documents=0, excerpt_probability=0.0
    )
    drawing = Drawing(shards, words, full_length, seed=0)
    num_blocks = max(1, len(shards) // BLOCK_DOCUMENTS)
    examples: list[Example] = []
    for block in range(num_blocks):
        examples += drawing.block(0, block, num_blocks)[0]
        if len(examples) >= limit:
            break
    if not examples:
        raise DataError(f"{shards.folder}: no document is long enough for an example")
    batches: list[PretrainingBatch] = []
    for cut in _cut(examples[:limit], batching, np.random.default_rng(0)):
        length = batching.padded_length(max(example.num_tokens for example in cut))
        rows = [drawing.row(0, example) for example in cut]
        batches.append(PretrainingBatch.of(rows, length, words.pad, Position()))
    return batches


def _cut(examples: list[Example], batching: Batching, rng: np.random.Generator) -> list[list[Example]]:
    lengths = np.array([example.num_tokens for example in examples])
    return [[examples[index] for index in batch.tolist()] for batch in batching.cut(lengths, rng)]
