"""Documents -> examples -> the arrays of a batch: every random choice of what a model sees.

Each comes from a random stream keyed with (seed, purpose, epoch, document, chunk), never from one shared by
all, so an example is the same whoever draws it and whatever was drawn before.
"""

from dataclasses import dataclass

import numpy as np

from albertkit.errors import ConfigError
from albertkit.pretraining import masking, original_quirks, sentence_order
from albertkit.pretraining.batches import Position, PretrainingBatch
from albertkit.pretraining.excerpts import excerpt
from albertkit.pretraining.masking import Masking
from albertkit.pretraining.sentence_order import Chunk
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable

_ORDER, _PLAN, _SHUFFLE, _MASK, _EXCERPT = range(5)  # what a random stream is for


def masking_of(settings: ExampleSettings) -> Masking:
    """Return the masking that the settings describe; the cap is 20 predictions per 128 tokens, scaled."""
    most = settings.max_predictions
    if most is None:
        most = round(20 * settings.max_seq_length / 128)
    return Masking(
        probability=settings.masked_lm_probability, max_predictions=most, max_ngram=settings.max_ngram
    )


@dataclass(frozen=True, slots=True)
class Example:
    """What becomes one row of a batch."""

    document: int
    number: int  # of the chunk in its document
    chunk: Chunk

    @property
    def num_tokens(self) -> int:
        """Number of tokens, special ones included."""
        return len(self.chunk) + (2 if self.chunk.second is None else 3)


class Drawing:
    """Draws examples from shards.

    Args:
        shards: the documents.
        words: of the vocabulary the shards were made with.
        settings: how examples are drawn.
        seed: of every random choice.

    Raises:
        ConfigError: the seed is out of range.
        DataError: the vocabulary is not that of the shards.
    """

    def __init__(self, shards: ShardSet, words: WordTable, settings: ExampleSettings, *, seed: int) -> None:
        shards.check_tokenizer(words.model_file)
        if not 0 <= seed < 1 << 64:
            raise ConfigError(f"seed must be between 0 and 2**64 - 1, not {seed}")
        self.shards, self.words, self.settings, self.seed = shards, words, settings, seed
        self._masking = masking_of(settings)
        self._order: tuple[int, np.ndarray] | None = None  # (epoch, its permutation)

    def block(self, epoch: int, block: int, num_blocks: int) -> tuple[list[Example], np.random.Generator]:
        """Return the examples of one of `num_blocks` blocks of an epoch, shuffled.

        Returns:
            The examples, and the random stream they were shuffled with, for further choices of their order.
        """
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._stream(_ORDER, epoch).permutation(len(self.shards))
        # The last block takes the remainder, so none is too small to fill a batch.
        cuts = [len(self.shards) * index // num_blocks for index in (block, block + 1)]
        max_tokens = self.settings.max_tokens
        if epoch == 0 and cuts[0] < self.settings.warmup_documents:
            max_tokens -= self.settings.max_seq_length - self.settings.warmup_seq_length
        examples = [
            Example(document, number, chunk)
            for document in self._order[1][cuts[0] : cuts[1]].tolist()
            for number, chunk in enumerate(self._plan(epoch, document, max_tokens))
        ]
        rng = self._stream(_SHUFFLE, epoch, block)
        return [examples[index] for index in rng.permutation(len(examples)).tolist()], rng

    def batch(self, epoch: int, rows: list[Example], length: int, position: Position) -> PretrainingBatch:
        """Return the arrays of a batch of these rows, each padded to `length`."""
        input_ids = np.full((len(rows), length), self.words.pad, dtype=np.int64)
        attention_mask = np.zeros_like(input_ids)
        token_type_ids = np.zeros_like(input_ids)
        positions: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        order_labels: list[int] = []
        for index, row in enumerate(rows):
            first, second, order_label = self._segments(epoch, row)
            order_labels.append(order_label)
            ids, second_begin = self._sequence(first, second)
            if self.settings.masked_lm:
                ids, hidden, originals = self._mask(epoch, row, ids)
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
            sentence_order_labels=np.array(order_labels, dtype=np.int64),
            num_tokens=int(attention_mask.sum()),
            position=position,
        )

    def _plan(self, epoch: int, document: int, max_tokens: int) -> list[Chunk]:
        rng = self._stream(_PLAN, epoch, document)
        settings = self.settings
        short = settings.short_sequence_probability
        if settings.original_quirks:
            return original_quirks.plan(
                document, self.shards, rng, max_tokens=max_tokens, short_probability=short
            )
        return sentence_order.plan(
            *self.shards.tokens(document),
            self.words,
            rng,
            max_tokens=max_tokens,
            short_probability=short,
            sentence_order=settings.sentence_order,
        )

    def _segments(self, epoch: int, row: Example) -> tuple[np.ndarray, np.ndarray | None, int]:
        """Return the ids of segment A and, if there is one, of B, and the label of the order head."""
        chunk = row.chunk
        tokens, _ = self.shards.tokens(row.document)
        first = tokens[slice(*chunk.first)]
        if chunk.second is None:
            return first, None, chunk.label
        share = self.settings.excerpt_probability
        if share and (rng := self._stream(_EXCERPT, epoch, row.document, row.number)).random() < share:
            begin = min(chunk.first[0], chunk.second[0])
            pair = excerpt(tokens[begin : begin + len(chunk)], self.words, rng)
            if pair is not None:
                return pair
        if chunk.second_document is not None:
            tokens, _ = self.shards.tokens(chunk.second_document)
        return first, tokens[slice(*chunk.second)], chunk.label

    def _sequence(self, first: np.ndarray, second: np.ndarray | None) -> tuple[np.ndarray, int]:
        """Return [CLS] A [SEP] B [SEP] as int64, and where segment B begins."""
        words = self.words
        parts = [[words.cls], first, [words.sep]]
        if second is not None:
            parts += [second, [words.sep]]
        return np.concatenate(parts), len(first) + 2

    def _mask(self, epoch: int, row: Example, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row [T] as the model sees it, the hidden positions [P] and what was there [P]."""
        rng = self._stream(_MASK, epoch, row.document, row.number)
        quirks = self.settings.original_quirks
        choose = original_quirks.choose if quirks else masking.choose
        hidden, _ = choose(ids, self.words, self._masking, rng)
        seen, labels = masking.hide(ids, hidden, self.words, rng, replace_with_any=quirks)
        return seen, hidden, labels

    def _stream(self, purpose: int, epoch: int, first: int = 0, second: int = 0) -> np.random.Generator:
        """Return the random stream for one purpose: Philox, keyed and countered with what it is for."""
        key = np.array([self.seed, purpose << 32 | epoch], dtype=np.uint64)
        counter = np.array([0, 0, second, first], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))
