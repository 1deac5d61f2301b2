"""A PyTorch model computed by ONNX Runtime on a CPU, as long as its weights alone say what it computes."""

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from albertkit.checkpoints.arrays import to_numpy
from albertkit.engines.fitting import as_configured, fits, head_as_configured, head_of
from albertkit.engines.onnx_network import OnnxNetwork
from albertkit.engines.packing import fingerprint, unchanged
from albertkit.engines.plan import length_of, plan
from albertkit.errors import ConfigError
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.engine import Engine, Output, PlainEngine, Read, default_batch_tokens
from albertkit.tasks.rows import Row

_MADE: WeakKeyDictionary[AlbertPreTrainedModel, dict[tuple[Output, bool], tuple[Any, OnnxNetwork]]] = (
    WeakKeyDictionary()
)
"""The networks of each model that is still there, with the fingerprint of the weights they were made from."""


class OnnxEngine(Engine):
    """Computes a model of this package in ONNX Runtime; any other model as `PlainEngine` does.

    Args:
        model: computed without dropout and gradients, whatever its mode.
        int8: multiply the layers' matrices in whole numbers.
    """

    def __init__(self, model: AlbertPreTrainedModel, *, int8: bool = False) -> None:
        self.model = model
        self.int8 = int8

    def batches(
        self,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        batch_tokens: int | None,
        batch_size: int | None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Tensor]]]:
        """As `Engine.batches`, the longest rows first."""
        model = self.model
        if not (self._suits(output) and _are_valid(rows, model)):
            yield from PlainEngine(model).batches(
                rows, output=output, read=read, batch_tokens=batch_tokens, batch_size=batch_size
            )
            return
        if output == "logits" and getattr(model, "patience", None) is not None:
            raise ConfigError(
                "this engine computes all depths in ONNX Runtime, and the model has a patience of "
                f"{model.patience}: choose the engine 'torch', or set_patience(None)"
            )
        network = self._network(output)
        for batch in plan(rows, read, batch_tokens or default_batch_tokens(model.device), batch_size):
            scores = torch.from_numpy(network(batch)).to(model.dtype)
            yield batch.numbers, scores.split([len(positions) for positions in batch.positions])

    def _suits(self, output: Output) -> bool:
        model = self.model
        return (
            fits(model)
            and as_configured(model)
            and head_of(model, output) is not None
            and (output == "hidden_states" or head_as_configured(model))
        )

    def _network(self, output: Output) -> OnnxNetwork:
        """Return the network, made anew where the weights have changed since it was made."""
        model = self.model
        key: tuple[Output, bool] = (output, self.int8)
        with torch.inference_mode():
            current = fingerprint([model])
        made = _MADE.setdefault(model, {})
        if key not in made or not unchanged(made[key][0], current):
            made.pop(key, None)  # its memory, before more is taken
            weights = {name: to_numpy(tensor.float()) for name, tensor in model.state_dict().items()}
            made[key] = (
                current,
                OnnxNetwork(
                    type(model).__name__,
                    model.config,
                    weights,
                    output=output,
                    int8=self.int8,
                    threads=torch.get_num_threads(),
                ),
            )
        return made[key][1]


def _are_valid(rows: Sequence[Row], model: AlbertPreTrainedModel) -> bool:
    """Tell whether the model has embeddings for all tokens; where not, it says itself what is wrong."""
    config = model.config
    return all(
        0 < length_of(row) <= config.max_position_embeddings
        and min(row.input_ids) >= 0
        and max(row.input_ids) < config.vocab_size
        and min(row.token_type_ids) >= 0
        and max(row.token_type_ids) < config.type_vocab_size
        for row in rows
    )
