"""The rows of ids, and the pretraining objectives, which draw their labels (Lan et al. 2019, section 3.1).

A new objective is a class in this file and its settings in `settings.py`. Rows, batches and the training loss
treat all objectives alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from albertkit.pretraining import masking, original_quirks
from albertkit.pretraining.settings import ExampleSettings, PretrainingSettings
from albertkit.pretraining.words import WordTable

Tensor = Any  # torch.Tensor; only the losses need PyTorch

ORDER, PLAN, SHUFFLE, MASK, EXCERPT = range(5)
"""What a random stream is for. Results depend on the numbers, so a new purpose takes the next one."""
IGNORED = -100
"""Label of a token for which there is nothing to predict."""
Stream = Callable[[int], np.random.Generator]
"""Returns the random stream of a row for a purpose."""


@dataclass(slots=True)
class Row:
    """An example as ids, without padding (legend: T tokens)."""

    ids: np.ndarray  # [T] int64, as the model sees them: [CLS] A [SEP] B [SEP]
    second_begin: int  # where segment B begins; T if there is none
    order_label: int  # the label of the order head for these segments
    labels: dict[str, np.ndarray]  # name of the objective -> [T] int64, `IGNORED` where it predicts nothing


class Objective(ABC):
    """One objective.

    Args:
        settings: settings of the examples.
    """

    name: ClassVar[str]
    """Key of the labels in rows and batches, and prefix of the metrics."""
    setting: ClassVar[str]
    """Name of the setting of the examples that turns the objective on."""
    scores: ClassVar[Literal["prediction_logits", "sop_logits"]] = "prediction_logits"
    """The output of the model that the loss uses: the logits of the vocabulary at the positions of the
    labels, or the logits of the order head, which has one label for each row."""

    def __init__(self, settings: ExampleSettings) -> None:
        self.settings = settings

    def weight(self, settings: PretrainingSettings) -> float:
        """Return the weight of the loss; 0 turns the loss off, but not the drawing."""
        return 1.0

    @abstractmethod
    def draw(self, row: Row, words: WordTable, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
        """Draw the labels of a row.

        Args:
            row: the ids, with the labels of the objectives before this one.
            words: word boundaries in the vocabulary.
            stream: random streams. Objectives whose streams have different purposes do not affect each other.

        Returns:
            The ids as the model sees them (the same array, or a changed copy), and the labels [T].
        """

    def loss(self, logits: Tensor, labels: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses of all labels, and the number of correct predictions.

        By default, these are the cross-entropy and the number of labels with the largest logit.

        Args:
            logits: scores (N, K).
            labels: values of the labels (N,). The last values can be padding, `IGNORED`.
            ids: the tokens (N,) that the model sees at the positions of the labels.
        """
        from albertkit.modeling.losses import vocabulary_loss

        return vocabulary_loss(logits, labels, ignored=IGNORED)


class MaskedLanguageModeling(Objective):
    """Predict masked tokens; `masking` chooses them."""

    name, setting = "masked", "masked_lm"

    def draw(self, row: Row, words: WordTable, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
        """Mask tokens. The labels are the original ids."""
        rng, quirks = stream(MASK), self.settings.original_quirks
        choose = original_quirks.choose if quirks else masking.choose
        positions, _ = choose(row.ids, words, self.settings, rng)
        ids, originals = masking.hide(row.ids, positions, words, rng, replace_with_any=quirks)
        labels = np.full_like(ids, IGNORED)
        labels[positions] = originals
        return ids, labels


class SentenceOrder(Objective):
    """Predict whether the two segments were swapped; `chunks` chooses the segments."""

    name, setting, scores = "order", "sentence_order", "sop_logits"

    def weight(self, settings: PretrainingSettings) -> float:
        """Return `order_weight`."""
        return settings.order_weight

    def draw(self, row: Row, words: WordTable, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
        """Return the label of the segments, at [CLS]."""
        labels = np.full_like(row.ids, IGNORED)
        labels[0] = row.order_label
        return row.ids, labels


OBJECTIVES: tuple[type[Objective], ...] = (MaskedLanguageModeling, SentenceOrder)
"""All objectives, in the order in which they change the ids of a row."""


def drawn_objectives(settings: ExampleSettings) -> list[Objective]:
    """Return the objectives that the settings turn on."""
    return [objective(settings) for objective in OBJECTIVES if getattr(settings, objective.setting)]
