"""Draw examples from documents and convert them to rows of ids, with all random choices.

Each choice has its own random stream, keyed with (seed, purpose, epoch, document, chunk). So an example does
not depend on the process that draws it or on earlier draws.
"""

from dataclasses import dataclass

import numpy as np

from albertkit.pretraining import chunks, original_quirks
from albertkit.pretraining.chunks import Chunk
from albertkit.pretraining.objectives import EXCERPT, ORDER, PLAN, SHUFFLE, Row, drawn_objectives
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable


@dataclass(frozen=True, slots=True)
class Example:
    """A chunk of a document that becomes one row of a batch."""

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
        words: word boundaries in the vocabulary that the shards were made with.
        settings: settings of the examples.
        seed: seed of every random choice.

    Raises:
        DataError: the vocabulary is not that of the shards.
    """

    def __init__(self, shards: ShardSet, words: WordTable, settings: ExampleSettings, *, seed: int) -> None:
        shards.check_tokenizer(words.model_file)
        self.shards, self.words, self.settings, self.seed = shards, words, settings, seed
        self.objectives = drawn_objectives(settings)
        self._order: tuple[int, np.ndarray] | None = None  # (epoch, its permutation)

    def block(self, epoch: int, block: int, num_blocks: int) -> tuple[list[Example], np.random.Generator]:
        """Return the examples of one of `num_blocks` blocks of an epoch, shuffled.

        Returns:
            The examples, and the random stream they were shuffled with, for further choices of their order.
        """
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._stream(ORDER, epoch).permutation(len(self.shards))
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
        rng = self._stream(SHUFFLE, epoch, block)
        return [examples[index] for index in rng.permutation(len(examples)).tolist()], rng

    def row(self, epoch: int, example: Example) -> Row:
        """Return the row of an example, with the labels of all objectives."""
        first, second, order_label = self._segments(epoch, example)
        words = self.words
        parts = [[words.cls], first, [words.sep]]
        if second is not None:
            parts += [second, [words.sep]]
        row = Row(np.concatenate(parts), len(first) + 2, order_label, {})

        def stream(purpose: int) -> np.random.Generator:
            return self._stream(purpose, epoch, example.document, example.number)

        for objective in self.objectives:
            row.ids, row.labels[objective.name] = objective.draw(row, words, stream)
        return row

    def _plan(self, epoch: int, document: int, max_tokens: int) -> list[Chunk]:
        rng = self._stream(PLAN, epoch, document)
        settings = self.settings
        short = settings.short_sequence_probability
        if settings.original_quirks:
            return original_quirks.plan(
                document, self.shards, rng, max_tokens=max_tokens, short_probability=short
            )
        return chunks.plan(
            *self.shards.tokens(document),
            self.words,
            rng,
            max_tokens=max_tokens,
            short_probability=short,
            sentence_order=settings.sentence_order,
        )

    def _segments(self, epoch: int, example: Example) -> tuple[np.ndarray, np.ndarray | None, int]:
        """Return the ids of segment A and, if there is one, of B, and the label of the order head."""
        chunk = example.chunk
        tokens, _ = self.shards.tokens(example.document)
        first = tokens[slice(*chunk.first)]
        if chunk.second is None:
            return first, None, chunk.label
        if share := self.settings.excerpt_probability:
            rng = self._stream(EXCERPT, epoch, example.document, example.number)
            if rng.random() < share:
                begin = min(chunk.first[0], chunk.second[0])
                pair = chunks.excerpt(tokens[begin : begin + len(chunk)], self.words, rng)
                if pair is not None:
                    return pair
        if chunk.second_document is not None:
            tokens, _ = self.shards.tokens(chunk.second_document)
        return first, tokens[slice(*chunk.second)], chunk.label

    def _stream(self, purpose: int, epoch: int, first: int = 0, second: int = 0) -> np.random.Generator:
        """Return the random stream for a purpose: Philox, with the arguments as its key and its counter."""
        key = np.array([self.seed, purpose << 32 | epoch], dtype=np.uint64)
        counter = np.array([0, 0, second, first], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))
