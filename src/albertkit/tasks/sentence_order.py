"""Sentence order: predict whether two texts follow each other or were swapped.

ALBERT is pretrained on this task (Lan et al. 2020, section 3.1), so every pretrained model that has the head
can predict it.

Shapes: B batch.
"""

from collections.abc import Sequence

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import TextExample
from albertkit.engines.engine import Row
from albertkit.errors import DataError, short
from albertkit.tasks.labels import CLASS, LabelSet
from albertkit.tasks.text_classification import TextClassification

LABELS = ("in order", "swapped")  # in the order of the head's scores, as in `sentence_order_label`


class SentenceOrder(TextClassification):
    """Predicts whether two texts are in order or swapped."""

    name = "sentence-order"
    architecture = "AlbertForPreTraining"
    output = "order"

    def use_config(self, config: AlbertConfig) -> None:
        """Use the two fixed labels, which are not in any config."""
        super().use_config(config)
        self.labels = LabelSet(CLASS, LABELS)

    def features(self, examples: Sequence[TextExample]) -> list[Row]:
        for example in examples:
            if example.text_pair is None:
                raise DataError(
                    f"there is no second text for {short(example.text)}. Expected two texts that may follow "
                    "each other."
                )
        return super().features(examples)

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return `sentence_order_label` (B,), and no labels of words, whose scores take the most time."""
        labels = np.array([row.labels for row in rows], np.int64)
        return {"sentence_order_label": labels, "masked_positions": np.empty(0, np.int64)}
