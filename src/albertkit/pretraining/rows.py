"""Rows of ids and their labels, which `objectives` draws and `batches` collates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of one objective (legend: N labels): what the model should predict, and at which tokens."""

    positions: np.ndarray  # [N] int64, ascending: into a row, or into the flattened [B * T] of a batch
    values: np.ndarray  # [N] int64

    @classmethod
    def collate(cls, rows: Sequence["Labels"], length: int) -> "Labels":
        """Return the labels of a batch, whose rows are padded to `length`."""
        offsets = np.repeat(np.arange(len(rows)) * length, [len(row.positions) for row in rows])
        positions = np.concatenate([row.positions for row in rows])
        return cls(positions + offsets, np.concatenate([row.values for row in rows]))

    def of_rows(self, begin: int, stop: int, old_length: int, length: int) -> "Labels":
        """Return the labels of some rows of a batch, padded to `length` instead of `old_length`."""
        some = slice(*np.searchsorted(self.positions, [begin * old_length, stop * old_length]))
        row, column = np.divmod(self.positions[some], old_length)
        return Labels((row - begin) * length + column, self.values[some])


@dataclass(slots=True)
class Row:
    """An example as ids, without padding (legend: T tokens)."""

    ids: np.ndarray  # [T] int64, as the model sees them: [CLS] A [SEP] B [SEP]
    second_begin: int  # where segment B begins; T if there is none
    order_label: int  # the label of the order head for these segments
    labels: dict[str, Labels]  # by the name of the objective
