"""Token shards -> batches for pretraining, drawn on the fly and the same for everyone who asks.

An epoch is a permutation of all documents, taken in blocks. The examples of a block are planned (cheap: only
ranges), shuffled and dealt out in batches of nearly equal size, so each is seen exactly once. Every choice
comes from a random stream keyed with (seed, epoch, document, chunk), never from one shared by all: results
do not depend on the number of workers or processes, and a run can start at any batch without reading what
comes before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from albertkit.errors import ConfigError, DataError
from albertkit.pretraining import masking
from albertkit.pretraining.batches import Position, PretrainingBatch, padded_length
from albertkit.pretraining.masking import Masking
from albertkit.pretraining.sentence_order import Chunk, plan
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable

BLOCK_DOCUMENTS = 256  # at least; more for large batches, so that a block fills several

_ORDER, _PLAN, _SHUFFLE, _MASK = range(4)  # what a random stream is for


def masking_of(settings: ExampleSettings) -> Masking:
    """Return the masking that the settings describe; the cap is 20 predictions per 128 tokens, scaled."""
    most = settings.max_predictions
    if most is None:
        most = round(20 * settings.max_seq_length / 128)
    return Masking(
        probability=settings.masked_lm_probability, max_predictions=most, max_ngram=settings.max_ngram
    )


@dataclass(frozen=True, slots=True)
class _Example:
    document: int
    number: int  # of the chunk in its document
    chunk: Chunk


class ExampleStream(Iterator[PretrainingBatch]):
    """An endless iterator of batches, epoch after epoch.

    Args:
        shards: the documents.
        words: of the vocabulary the shards were made with.
        settings: how examples are drawn.
        batch_size: rows of the whole batch, over all processes; a batch has at most this many.
        seed: of every random choice.
        start: where to begin, for instance the `position` of the last batch that was used.
        rank: this process takes the rows rank, rank + world_size, ... of each batch.
        world_size: number of processes.

    Raises:
        DataError: the vocabulary does not fit the shards, or they give no example.
    """

    def __init__(
        self,
        shards: ShardSet,
        words: WordTable,
        settings: ExampleSettings,
        batch_size: int,
        *,
        seed: int = 0,
        start: Position | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < world_size or not 0 <= rank < world_size:
            raise ConfigError(
                f"batch_size {batch_size}, rank {rank} and world_size {world_size} do not fit together: "
                "every process needs a row of every batch"
            )
        shards.check_tokenizer(words.model_file)
        if not 0 <= seed < 1 << 64:
            raise ConfigError(f"seed must be between 0 and 2**64 - 1, not {seed}")
        self.shards, self.words, self.settings, self.seed = shards, words, settings, seed
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        # The last block takes the remainder, so none is too small to fill a batch.
        self.num_blocks = max(1, len(shards) // max(BLOCK_DOCUMENTS, batch_size))
        self.position = start or Position()
        if self.position.block >= self.num_blocks:
            raise self._no_such_position()
        self._order: tuple[int, np.ndarray] | None = None  # (epoch, its permutation)
        self._block: tuple[int, int, list[np.ndarray], list[_Example]] | None = None

    def __next__(self) -> PretrainingBatch:
        """Return the next batch."""
        empty_blocks = 0
        while True:
            epoch, block, batch = self.position.epoch, self.position.block, self.position.batch
            deals, examples = self._plan_block(epoch, block)
            if batch < len(deals):
                break
            if batch:
                raise self._no_such_position()
            empty_blocks += 1
            if empty_blocks > self.num_blocks:
                raise DataError(f"{self.shards.folder}: no document is long enough for an example")
            self.position = Position(epoch, block + 1) if block + 1 < self.num_blocks else Position(epoch + 1)
        if batch + 1 < len(deals):
            self.position = Position(epoch, block, batch + 1)
        elif block + 1 < self.num_blocks:
            self.position = Position(epoch, block + 1)
        else:
            self.position = Position(epoch + 1)
        rows = [examples[index] for index in deals[batch][self.rank :: self.world_size]]
        return self._collate(epoch, rows)

    def _plan_block(self, epoch: int, block: int) -> tuple[list[np.ndarray], list[_Example]]:
        """Return the batches of a block as lists of indices, and its examples."""
        if self._block is not None and self._block[:2] == (epoch, block):
            return self._block[2], self._block[3]
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._stream(_ORDER, epoch).permutation(len(self.shards))
        cuts = [len(self.shards) * index // self.num_blocks for index in (block, block + 1)]
        examples = [
            _Example(document, number, chunk)
            for document in self._order[1][cuts[0] : cuts[1]].tolist()
            for number, chunk in enumerate(self._plan_document(epoch, document))
        ]
        shuffled = self._stream(_SHUFFLE, epoch, block).permutation(len(examples))
        num_batches = -(-len(examples) // self.batch_size)
        if num_batches and len(examples) // num_batches < self.world_size:
            raise DataError(
                f"{self.shards.folder}: only {len(examples)} examples, "
                f"too few for {self.world_size} processes"
            )
        deals = np.array_split(shuffled, num_batches) if num_batches else []
        self._block = epoch, block, deals, examples
        return deals, examples

    def _no_such_position(self) -> DataError:
        return DataError(
            f"{self.shards.folder}: no batch at {self.position} with batch_size {self.batch_size}; "
            "a run continues only with the shards, settings and batch size it began with"
        )

    def _plan_document(self, epoch: int, document: int) -> list[Chunk]:
        ids, sentence_ends = self.shards.tokens(document)
        return plan(
            ids,
            sentence_ends,
            self.words,
            self._stream(_PLAN, epoch, document),
            max_tokens=self.settings.max_tokens,
            short_probability=self.settings.short_sequence_probability,
            sentence_order=self.settings.sentence_order,
        )

    def _collate(self, epoch: int, rows: list[_Example]) -> PretrainingBatch:
        special = self.settings.max_seq_length - self.settings.max_tokens
        length = padded_length(max(len(row.chunk) for row in rows) + special)
        input_ids = np.full((len(rows), length), self.words.pad, dtype=np.int64)
        attention_mask = np.zeros_like(input_ids)
        token_type_ids = np.zeros_like(input_ids)
        positions: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        masking_rule = masking_of(self.settings)
        for index, row in enumerate(rows):
            ids, second_begin = self._sequence(row)
            if self.settings.masked_lm:
                rng = self._stream(_MASK, epoch, row.document, row.number)
                hidden, _ = masking.choose(ids, self.words, masking_rule, rng)
                ids, originals = masking.hide(ids, hidden, self.words, rng)
                positions.append(hidden + index * length)
                labels.append(originals)
            input_ids[index, : len(ids)] = ids
            attention_mask[index, : len(ids)] = 1
            token_type_ids[index, second_begin : len(ids)] = 1
        nothing = np.zeros(0, dtype=np.int64)
        return PretrainingBatch(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            masked_positions=np.concatenate(positions) if positions else nothing,
            masked_labels=np.concatenate(labels) if labels else nothing,
            sentence_order_labels=np.array([row.chunk.label for row in rows], dtype=np.int64),
            num_tokens=int(attention_mask.sum()),
            position=self.position,
        )

    def _sequence(self, row: _Example) -> tuple[np.ndarray, int]:
        """Return [CLS] A [SEP] B [SEP] as int64, and where segment B begins."""
        tokens, _ = self.shards.tokens(row.document)
        words, chunk = self.words, row.chunk
        first = tokens[slice(*chunk.first)]
        if chunk.second is None:
            return np.concatenate(([words.cls], first, [words.sep])), len(first) + 2
        second = tokens[slice(*chunk.second)]
        ids = np.concatenate(([words.cls], first, [words.sep], second, [words.sep]))
        return ids, len(first) + 2

    def _stream(self, purpose: int, epoch: int, first: int = 0, second: int = 0) -> np.random.Generator:
        """Return the random stream for one purpose: Philox, keyed and countered with what it is for."""
        key = np.array([self.seed, purpose << 32 | epoch], dtype=np.uint64)
        counter = np.array([0, 0, second, first], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))


def fixed_batches(
    shards: ShardSet, words: WordTable, settings: ExampleSettings, batch_size: int, *, limit: int
) -> list[PretrainingBatch]:
    """Return about `limit` examples for held-out evaluation, the same ones with the same masks every time.

    They are the first of epoch 0, without short sequences; fewer where the shards have fewer.
    """
    full_length = replace(settings, short_sequence_probability=0.0)
    batches: list[PretrainingBatch] = []
    taken = 0
    for batch in ExampleStream(shards, words, full_length, batch_size):
        batches.append(batch)
        taken += len(batch.input_ids)
        if taken >= limit or batch.position.epoch > 0:
            break
    return batches
