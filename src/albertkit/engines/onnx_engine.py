"""A light model computed by ONNX Runtime on a CPU."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.cores import compute_threads
from albertkit.engines.light_model import LightModel
from albertkit.engines.onnx_network import OnnxNetwork
from albertkit.engines.plan import length_of, plan
from albertkit.errors import DataError
from albertkit.tasks.engine import BATCH_TOKENS, Engine, Output, Read
from albertkit.tasks.rows import Row


class OnnxEngine(Engine):
    """Computes the outputs of a light model; its graphs are made when they are first needed.

    Args:
        model: its weights must not change.
        int8: multiply the layers' matrices in whole numbers.
        threads: how many compute; None for one for each core that this process may use.
    """

    def __init__(self, model: LightModel, *, int8: bool = False, threads: int | None = None) -> None:
        self.model = model
        self.int8 = int8
        self.threads = threads or compute_threads()
        self._network: OnnxNetwork | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_network": None}  # sessions can be neither copied nor pickled

    def batches(
        self,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        batch_tokens: int | None,
        batch_size: int | None,
    ) -> Iterator[tuple[Sequence[int], Sequence[np.ndarray]]]:
        """As `Engine.batches`, the longest rows first.

        Raises:
            DataError: a row is empty or too long, or has an id that the model does not have.
        """
        check_rows(rows, self.model.config)
        for batch in plan(rows, read, batch_tokens or BATCH_TOKENS, batch_size):
            yield batch.numbers, batch.split(self._computing()(batch, output))

    def _computing(self) -> OnnxNetwork:
        if self._network is None:
            model = self.model
            self._network = OnnxNetwork(
                model.architecture,
                model.config,
                {name: array.astype(np.float32, copy=False) for name, array in model.weights.items()},
                int8=self.int8,
                threads=self.threads,
            )
        return self._network


def check_rows(rows: Sequence[Row], config: AlbertConfig) -> None:
    """Check that a model has embeddings for all tokens of all rows.

    Raises:
        DataError: a row is empty or too long, or has an id that the model does not have.
    """
    for number, row in enumerate(rows):
        if not 0 < length_of(row) <= config.max_position_embeddings:
            raise DataError(
                f"row {number} has {length_of(row)} tokens; expected 1 to {config.max_position_embeddings}, "
                "max_position_embeddings of the model: truncate it or split it into windows"
            )
        for name, ids, size in (
            ("input_ids", row.input_ids, config.vocab_size),
            ("token_type_ids", row.token_type_ids, config.type_vocab_size),
        ):
            if min(ids) < 0 or max(ids) >= size:
                wrong = next(one for one in ids if not 0 <= one < size)
                raise DataError(f"row {number} has {wrong} among its {name}; expected 0 to {size - 1}")
