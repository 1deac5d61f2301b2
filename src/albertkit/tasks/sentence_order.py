"""Sentence order: do two texts follow each other, or were they swapped? (Lan et al. 2020, section 3.1)

ALBERT is pretrained on it, so every pretrained model with its head can say so.

Shapes: B batch.
"""

from collections.abc import Sequence

import numpy as np

from albertkit.engines.engine import Row
from albertkit.errors import DataError
from albertkit.tasks.examples import TextExample
from albertkit.tasks.sequence_classification import SequenceClassification
from albertkit.tokenization.base import TokenizerBase

LABELS = ("in order", "swapped")  # in the order of the head's scores, as in `sentence_order_label`


class SentenceOrder(SequenceClassification):
    """The task for one tokenizer and one length of input.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens of a row, special tokens included.
        truncation: cut pairs that are longer (the longer text of each); the rows count what was cut.
    """

    name = "sentence-order"
    architecture = "AlbertForPreTraining"
    output = "order"

    def __init__(self, tokenizer: TokenizerBase, *, max_length: int, truncation: bool = False) -> None:
        super().__init__(tokenizer, max_length=max_length, labels=LABELS, truncation=truncation)

    def features(self, examples: Sequence[TextExample]) -> list[Row]:
        """Return one row for each example; `labels` is 0 for "in order" and 1 for "swapped"."""
        for example in examples:
            if example.text_pair is None:
                raise DataError(
                    f"there is no second text beside {example.text!r:.60}; expected two that may follow "
                    "each other"
                )
        return super().features(examples)

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return `sentence_order_label` (B,), and that no word is to be scored: that takes the most time."""
        labels = np.array([row.labels for row in rows], np.int64)
        return {"sentence_order_label": labels, "masked_positions": np.empty(0, np.int64)}
