"""How the examples of a block are cut into batches: by rows, or by tokens from length buckets.

By rows, a batch holds any examples and is padded to its longest. By tokens, a batch holds examples of one
length bucket (a few long ones or many short ones) and is padded to the bucket's length: hardly any padding,
the same work in every step, and as few matrix shapes as there are buckets.
"""

from dataclasses import dataclass

import numpy as np

from albertkit.errors import ConfigError
from albertkit.pretraining.batches import padded_length
from albertkit.pretraining.shards import ShardSet

BLOCK_DOCUMENTS = 256  # at least; more for large batches, so that a block fills several
_BLOCK_BATCHES = 16  # batches of a block, at least, where they are cut by tokens
_BUCKETS = 8  # at most


@dataclass(frozen=True)
class ByRows:
    """Batches of at most `batch_size` rows, nearly equally many in each."""

    batch_size: int

    def __str__(self) -> str:
        """Return the setting."""
        return f"batch_size {self.batch_size}"

    @property
    def rows(self) -> int:
        """The most rows of a batch."""
        return self.batch_size

    def num_blocks(self, shards: ShardSet) -> int:
        """Return how many blocks an epoch has."""
        return max(1, len(shards) // max(BLOCK_DOCUMENTS, self.batch_size))

    def padded_length(self, longest: int) -> int:
        """Return the length of the rows of a batch whose longest has so many tokens."""
        return padded_length(longest)

    def cut(self, lengths: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:  # noqa: ARG002
        """Return batches as arrays of indices into `lengths` [examples], in the order given."""
        num_batches = -(-len(lengths) // self.batch_size)
        return np.array_split(np.arange(len(lengths)), num_batches) if num_batches else []


@dataclass(frozen=True)
class ByTokens:
    """Batches of at most `batch_tokens` slots (rows x padded length), from length buckets."""

    batch_tokens: int
    max_seq_length: int

    def __str__(self) -> str:
        """Return the setting."""
        return f"batch_tokens {self.batch_tokens}"

    @property
    def rows(self) -> int:
        """The most rows of a batch of the longest sequences."""
        return self.batch_tokens // self.max_seq_length

    def num_blocks(self, shards: ShardSet) -> int:
        """Return how many blocks an epoch has."""
        by_tokens = shards.manifest.tokens // (_BLOCK_BATCHES * self.batch_tokens)
        return max(1, min(len(shards) // BLOCK_DOCUMENTS, by_tokens))

    def padded_length(self, longest: int) -> int:
        """Return the length of the bucket for so many tokens."""
        return int(self._bucket_lengths(np.array(longest)))

    def cut(self, lengths: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        """Return batches as arrays of indices into `lengths` [examples], in random order.

        What is left of a bucket is filled up with rows of the next shorter one, so all batches but the last
        use up their tokens.
        """
        buckets = self._bucket_lengths(lengths)
        longest_first = np.argsort(-buckets, kind="stable")
        batches: list[np.ndarray] = []
        begin = 0
        while begin < len(lengths):
            rows = self.batch_tokens // int(buckets[longest_first[begin]])
            batches.append(longest_first[begin : begin + rows])
            begin += rows
        if len(batches) > 1 and len(batches[-1]) < len(batches[-2]):
            # So that no batch is a row or two, and every process gets its share of it.
            batches[-2:] = np.array_split(np.concatenate(batches[-2:]), 2)
        return [batches[index] for index in rng.permutation(len(batches))]

    def _bucket_lengths(self, lengths: np.ndarray) -> np.ndarray:
        width = padded_length(-(-self.max_seq_length // _BUCKETS))
        return np.minimum(-(-lengths // width) * width, self.max_seq_length)


Batching = ByRows | ByTokens


def batching_of(
    batch_size: int | None, batch_tokens: int | None, *, max_seq_length: int, world_size: int
) -> Batching:
    """Return the way to cut batches that the arguments ask for.

    Raises:
        ConfigError: both or neither is given, or a batch cannot give every process a row.
    """
    if (batch_size is None) == (batch_tokens is None):
        raise ConfigError(
            f"give either batch_size or batch_tokens, not batch_size={batch_size} and "
            f"batch_tokens={batch_tokens}"
        )
    if batch_tokens is not None:
        batching = ByTokens(batch_tokens, max_seq_length)
    else:
        assert batch_size is not None
        batching = ByRows(batch_size)
    # A remainder is shared between two batches, and half of both must still be a row for everyone.
    needed = 2 * world_size - 1
    if batching.rows < needed:
        raise ConfigError(
            f"{batching} gives {batching.rows} rows of {max_seq_length} tokens: every process needs a row "
            f"of every batch, so {world_size} need at least {needed}"
        )
    return batching
