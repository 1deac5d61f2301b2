"""The interface of engines: rows of ids in, the scores that a task reads out.

A task asks an engine for one output of a model, and for each row at which of its tokens it reads that output.
The engine need not compute anything else. The room `engines` has the engines.

Shapes: R tokens read of a row, H hidden, V vocabulary, K scores of a token: labels, pieces of the vocabulary
(V), start and end (2), or hidden states (H).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from albertkit.tasks.rows import Row

BATCH_TOKENS = 1024
"""Tokens computed at once on a CPU where nobody says how many: more leave its caches."""

Output = Literal["logits", "order", "hidden_states"]
"""What is computed: the scores of the model's own head (of a pretraining model those of masked words), its
scores of sentence order, or what the encoder says."""

Read = Callable[[Any], Sequence[int]]
"""Which tokens of a row are read; heads for whole texts read [CLS], token 0."""


def first_token(row: Row) -> Sequence[int]:
    """Read nothing but [CLS]."""
    del row
    return (0,)


def every_token(row: Row) -> Sequence[int]:
    """Read all tokens of a row."""
    return range(len(row.input_ids))


class Engine(ABC):
    """Computes rows for one model."""

    def run(
        self,
        rows: Sequence[Row],
        *,
        output: Output = "logits",
        read: Read = first_token,
        then: Callable[[np.ndarray], Any] = lambda scores: scores,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> list[Any]:
        """Return what is made of the scores of each row, computed without dropout and gradients.

        Args:
            rows: of any lengths.
            output: what is computed.
            read: which tokens of a row are read.
            then: is given the scores (R, K) of a row, float32, and returns what to keep of them.
            batch_tokens: most tokens computed at once; None for what suits the device. A longer row is a
                batch of its own.
            batch_size: most rows computed at once; None for as many as `batch_tokens` allows.
        """
        answers: dict[int, Any] = {}
        for numbers, scores in self.batches(
            rows, output=output, read=read, batch_tokens=batch_tokens, batch_size=batch_size
        ):
            answers.update(zip(numbers, map(then, scores), strict=True))
        return [answers[number] for number in range(len(rows))]

    @abstractmethod
    def batches(
        self,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        batch_tokens: int | None,
        batch_size: int | None,
    ) -> Iterator[tuple[Sequence[int], Sequence[np.ndarray]]]:
        """Yield the numbers of each batch's rows, in any order, and their scores, (R, K) each, float32."""
