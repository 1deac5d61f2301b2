"""All layers of a model by ONNX Runtime, in float32 or with matrices in int8.

Embeddings and heads, which are little work, stay with torch and with the model, so nothing is stored twice
but the layers.

Shapes: M tokens of a batch, P of them that are read, B rows, T tokens of the longest, R most that are read of
one, H hidden.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from albertkit.engines.attention import Group
from albertkit.engines.fitting import encoder_of
from albertkit.extras import optional
from albertkit.graphs.graph import onnx
from albertkit.graphs.layers import UNSEEN
from albertkit.graphs.packed import build_layers
from albertkit.modeling.arrays import to_numpy
from albertkit.modeling.pretrained import AlbertPreTrainedModel

onnxruntime = optional("onnxruntime", extra="onnx")

_ERRORS_ONLY = 3  # they are raised as well
_MOST_PADDING = 2  # places of attention for each token


def require_runtime() -> None:
    """Import what the layers need.

    Raises:
        MissingExtraError: the extra `onnx` is not installed.
    """
    _ = onnx.ModelProto, onnxruntime.InferenceSession


class OnnxLayers:
    """The layers of a model that fits and is as configured, copied once.

    Raises:
        MissingExtraError: the extra `onnx` is not installed.
    """

    def __init__(self, model: AlbertPreTrainedModel, *, int8: bool) -> None:
        weights = {
            name: to_numpy(tensor.float())
            for name, tensor in encoder_of(model).state_dict().items()
            if ".albert_layers." in name
        }
        graph = build_layers(model.config, weights, int8=int8)
        self._session = onnxruntime.InferenceSession(
            graph.SerializeToString(), _options(), providers=["CPUExecutionProvider"]
        )

    def __call__(self, states: Tensor, groups: list[Group], places: Tensor) -> Tensor:
        """(M, H) and (P,) -> (P, H): see `padding_free.Layers`."""
        found = [np.empty((0, states.shape[1]), np.float32)]
        token = read = 0
        given, asked = states.float().contiguous().numpy(), places.numpy()
        for some in _alike(groups):
            tokens = sum(group.rows * group.length for group in some)
            reads = sum(group.rows * group.asking for group in some)
            if reads:
                inputs = _inputs(some, tokens=tokens)
                inputs["states"] = given[token : token + tokens]
                inputs["read_tokens"] = asked[read : read + reads] - token
                found += self._session.run(None, inputs)
            token, read = token + tokens, read + reads
        return torch.from_numpy(np.concatenate(found)).to(states.dtype)


def _alike(groups: list[Group]) -> Iterator[list[Group]]:
    """Yield groups, the longest first, in runs of about one length: attention pads their rows."""
    some: list[Group] = []
    rows = tokens = 0
    for group in groups:
        rows, tokens = rows + group.rows, tokens + group.rows * group.length
        if some and rows * some[0].length > _MOST_PADDING * tokens:
            yield some
            some, rows, tokens = [], group.rows, group.rows * group.length
        some.append(group)
    if some:
        yield some


def _options() -> Any:
    """Return options for inputs of any shape: nothing is kept for shapes that were seen.

    The runtime's own pool of memory stays: it grows to what the largest batch needs, and with memory from
    the system, which comes as new pages each time, int8 takes 1.7 times as long.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that wait for the next run would take cores from torch and the tokenizer.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.enable_mem_pattern = False
    return options


def _inputs(groups: list[Group], *, tokens: int) -> dict[str, np.ndarray]:
    """Return where the tokens of rows stand; see `graphs.packed.build_layers`."""
    lengths, reads = (
        np.repeat([getattr(group, name) for group in groups], [group.rows for group in groups])
        for name in ("length", "asking")
    )
    row_tokens, token_places, present = _places(lengths, tokens)
    row_reads, read_places, _ = _places(reads, int(reads.sum()))
    bias = np.where(present, 0.0, UNSEEN).astype(np.float32)[:, None, None]
    return {
        "bias": bias,  # (B, 1, 1, T)
        "row_tokens": row_tokens,
        "token_places": token_places,
        "row_reads": row_reads,
        "read_places": read_places,
    }


def _places(lengths: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what stands where when rows of these lengths are padded.

    Returns:
        The number (B, T) of what stands at each place, 0 where nothing does; the place in B * T of each of
        `count` things, 0 for those of no row; whether something stands at each place (B, T).
    """
    columns = np.arange(lengths.max())
    present = columns < lengths[:, None]
    numbers = np.where(present, (np.cumsum(lengths) - lengths)[:, None] + columns, 0)
    places = np.zeros(count, np.int64)
    places[: lengths.sum()] = np.flatnonzero(present)
    return numbers, places, present
