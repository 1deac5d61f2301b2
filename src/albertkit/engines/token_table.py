"""Look up the hidden states of a network that mixes no tokens, such as that of `bundled-sentences`.

If the attention of each layer adds the same vector to all tokens, and all positions and all segments have the
same embedding, the last hidden state of a token depends only on its id. So each id is computed once, as a
row of one token.

Shapes: R read tokens of a row, B rows, V vocabulary, H hidden.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

import numpy as np

from albertkit.checkpoints.names import executed_layers
from albertkit.config import AlbertConfig
from albertkit.engines.engine import BATCH_TOKENS, Job, Row, check_rows


def mixes_no_tokens(config: AlbertConfig, weights: Mapping[str, Any], prefix: str) -> bool:
    """Return whether hidden states depend on nothing but the id of their token.

    The probabilities of attention sum to 1. So if the values of all tokens are their bias, or if the output
    projection is 0, attention adds the same vector to all tokens. All other parts of a layer compute each
    token alone. `weights` are NumPy arrays or PyTorch tensors; `prefix` is that of the encoder's tensors.
    """

    def is_zero(name: str) -> bool:
        return not weights[name][0].any() and not weights[name].any()  # the first row is usually enough

    def is_constant(name: str) -> bool:
        table = weights[f"{prefix}embeddings.{name}_embeddings.weight"]
        return bool((table[0] == table[-1]).all() and (table == table[0]).all())

    return all(
        is_zero(f"{layer}.attention.dense.weight") or is_zero(f"{layer}.attention.value.weight")
        for layer in {*executed_layers(config, prefix)}
    ) and all(map(is_constant, ("token_type", "position")))


class TokenTable:
    """The hidden states of all ids that were read so far."""

    def __init__(self, config: AlbertConfig) -> None:
        self._config = config
        self.depth = config.depth
        self._known = np.zeros(config.vocab_size, bool)
        self._states = np.empty((config.vocab_size, config.hidden_size), np.float32)  # (V, H)

    def compute(
        self,
        rows: Sequence[Row],
        job: Job,
        then: Callable[[np.ndarray], Any],
        compute: Callable[[Sequence[Row], Job, Callable[[np.ndarray], Any]], list[Any]],
    ) -> list[Any]:
        """Return `then(states)` of each row. `compute` computes new ids, as rows of one token."""
        check_rows(rows, self._config)
        read: list[list[int]] = []
        for row in rows:
            positions, ids = job.positions(row), row.input_ids
            reads_all = positions == range(len(ids))  # usual, and needs no copy
            read.append(ids if reads_all else [ids[position] for position in positions])
        ids = np.unique(np.fromiter(chain.from_iterable(read), np.int64))
        if len(missing := ids[~self._known[ids]]):
            alone = [Row(input_ids=[one], token_type_ids=[0], example=0) for one in missing.tolist()]
            states = compute(alone, Job("hidden_states"), lambda states: states)
            self._states[missing] = np.concatenate(states)
            self._known[missing] = True
        answers: dict[int, Any] = {}
        lengths = [len(some) for some in read]
        for length, same in groupby(sorted(range(len(rows)), key=lengths.__getitem__), lengths.__getitem__):
            numbers, size = list(same), max(1, BATCH_TOKENS // max(length, 1))
            for start in range(0, len(numbers), size):
                some = numbers[start : start + size]
                # (B, R) -> (B, R, H); an empty index must have the type of an index
                states = self._states[np.array([read[number] for number in some], np.int64)]
                answers.update(zip(some, then(states) if job.stacks else map(then, states), strict=True))
        return [answers[number] for number in range(len(rows))]
