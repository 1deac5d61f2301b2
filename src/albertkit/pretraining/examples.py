"""Token shards -> batches for pretraining, drawn on the fly and the same for everyone who asks.

An epoch is a permutation of all documents, taken in blocks. The examples of a block are planned (cheap: only
ranges), shuffled and cut into batches, so each is seen exactly once. Results do not depend on the number of
workers or processes, and a run can start at any batch without reading what comes before it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from albertkit.errors import ConfigError, DataError
from albertkit.pretraining.batches import Position, PretrainingBatch
from albertkit.pretraining.batching import BLOCK_DOCUMENTS, Batching, batching_of
from albertkit.pretraining.drawing import Drawing, Example
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable


class ExampleStream(Iterator[PretrainingBatch]):
    """An endless iterator of batches, epoch after epoch.

    Args:
        shards: the documents.
        words: of the vocabulary the shards were made with.
        settings: how examples are drawn.
        batch_size: rows of the whole batch, over all processes; a batch has at most this many.
        batch_tokens: instead, slots of the whole batch (rows x padded length); a batch has at most this many,
            and its rows are of about the same length.
        seed: of every random choice.
        start: where to begin, for instance the `position` of the last batch that was used.
        rank: this process takes the rows rank, rank + world_size, ... of each batch.
        world_size: number of processes.

    Raises:
        ConfigError: not exactly one of `batch_size` and `batch_tokens` is given, or they are too small for
            every process to have a row of every batch.
        DataError: the vocabulary does not fit the shards, or they give no example.
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
            raise ConfigError(f"rank must be between 0 and world_size {world_size} - 1, not {rank}")
        self.batching = batching_of(
            batch_size, batch_tokens, max_seq_length=settings.max_seq_length, world_size=world_size
        )
        self.shards, self.rank, self.world_size = shards, rank, world_size
        self.num_blocks = self.batching.num_blocks(shards)
        self.position = start or Position()
        if self.position.block >= self.num_blocks:
            raise self._no_such_position()
        self._drawing = Drawing(shards, words, settings, seed=seed)
        self._block: tuple[int, int, list[list[Example]]] | None = None  # (epoch, block, its batches)

    def __next__(self) -> PretrainingBatch:
        """Return the next batch."""
        empty_blocks = 0
        while True:
            epoch, block, batch = self.position.epoch, self.position.block, self.position.batch
            batches = self._batches_of(epoch, block)
            if batch < len(batches):
                break
            if batch:
                raise self._no_such_position()
            empty_blocks += 1
            if empty_blocks > self.num_blocks:
                raise DataError(f"{self.shards.folder}: no document is long enough for an example")
            self.position = self._next_block()
        if batch + 1 < len(batches):
            self.position = Position(epoch, block, batch + 1)
        else:
            self.position = self._next_block()
        whole = batches[batch]
        rows = whole[self.rank :: self.world_size]
        return self._drawing.batch(epoch, rows, _padded_length(whole, self.batching), self.position)

    def _next_block(self) -> Position:
        epoch, block = self.position.epoch, self.position.block
        return Position(epoch, block + 1) if block + 1 < self.num_blocks else Position(epoch + 1)

    def _batches_of(self, epoch: int, block: int) -> list[list[Example]]:
        if self._block is None or self._block[:2] != (epoch, block):
            examples, rng = self._drawing.block(epoch, block, self.num_blocks)
            batches = _cut(examples, self.batching, rng)
            if any(len(batch) < self.world_size for batch in batches):
                raise DataError(
                    f"{self.shards.folder}: only {len(examples)} examples, "
                    f"too few for {self.world_size} processes"
                )
            self._block = epoch, block, batches
        return self._block[2]

    def _no_such_position(self) -> DataError:
        return DataError(
            f"{self.shards.folder}: no batch at {self.position} with {self.batching}; "
            "a run continues only with the shards, settings and batch size it began with"
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
    """Return `limit` examples for held-out evaluation, the same ones with the same masks every time.

    They are the first of epoch 0, none of them short and none an excerpt, whatever the size of the batches;
    fewer where the shards have fewer.

    Raises:
        ConfigError: not exactly one of `batch_size` and `batch_tokens` is given, or it is too small.
        DataError: the vocabulary does not fit the shards, or they give no example.
    """
    batching = batching_of(batch_size, batch_tokens, max_seq_length=settings.max_seq_length, world_size=1)
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
    return [
        drawing.batch(0, rows, _padded_length(rows, batching), Position())
        for rows in _cut(examples[:limit], batching, np.random.default_rng(0))
    ]


def _cut(examples: list[Example], batching: Batching, rng: np.random.Generator) -> list[list[Example]]:
    lengths = np.array([example.num_tokens for example in examples])
    return [[examples[index] for index in batch.tolist()] for batch in batching.cut(lengths, rng)]


def _padded_length(rows: list[Example], batching: Batching) -> int:
    return batching.padded_length(max(row.num_tokens for row in rows))
