"""A batch of pretraining examples as arrays, and its place in the endless stream of batches."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from albertkit.errors import ConfigError
from albertkit.pretraining.settings import LENGTH_MULTIPLE


def padded_length(tokens: int) -> int:
    """Return the length that a row of so many tokens is padded to when it is the longest of its batch."""
    return -(-tokens // LENGTH_MULTIPLE) * LENGTH_MULTIPLE


@dataclass(frozen=True, order=True)
class Position:
    """A place in the endless stream of batches."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


@dataclass(frozen=True, kw_only=True)
class PretrainingBatch:
    """One batch (legend: B rows, T tokens, P masked tokens in all rows)."""

    input_ids: np.ndarray  # [B, T] int64
    attention_mask: np.ndarray  # [B, T] int64, 1 for real tokens
    token_type_ids: np.ndarray  # [B, T] int64, 1 in segment B
    masked_positions: np.ndarray  # [P] int64, ascending, into the flattened [B * T]
    masked_labels: np.ndarray  # [P] int64, the original ids there
    sentence_order_labels: np.ndarray  # [B] int64, 0 in order, 1 swapped (all 0 where the objective is off)
    num_tokens: int  # real tokens, special ones included
    position: Position  # where the stream goes on after this batch

    def split(self, parts: int) -> list["PretrainingBatch"]:
        """Cut the batch into consecutive rows for gradient accumulation.

        Args:
            parts: how many; fewer where there are fewer rows.

        Returns:
            Batches of nearly equally many rows, each padded to its own longest row only. Together they have
            the rows, masked tokens and real tokens of this one; each has its position.

        Raises:
            ConfigError: `parts` is less than 1.
        """
        if parts < 1:
            raise ConfigError(f"a batch is split into 1 part or more, not {parts}")
        rows, parts = len(self.input_ids), min(parts, len(self.input_ids))
        cuts = [rows * index // parts for index in range(parts + 1)]
        return [self._rows(begin, stop) for begin, stop in pairwise(cuts)]

    def _rows(self, begin: int, stop: int) -> "PretrainingBatch":
        rows, old_length = slice(begin, stop), self.input_ids.shape[1]
        lengths = self.attention_mask[rows].sum(axis=1)
        length = padded_length(int(lengths.max()))
        masked = slice(*np.searchsorted(self.masked_positions, [begin * old_length, stop * old_length]))
        row, column = np.divmod(self.masked_positions[masked], old_length)
        return PretrainingBatch(
            input_ids=self.input_ids[rows, :length],
            attention_mask=self.attention_mask[rows, :length],
            token_type_ids=self.token_type_ids[rows, :length],
            masked_positions=(row - begin) * length + column,
            masked_labels=self.masked_labels[masked],
            sentence_order_labels=self.sentence_order_labels[rows],
            num_tokens=int(lengths.sum()),
            position=self.position,
        )
