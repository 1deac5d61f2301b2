"""Compute rows without padding in ONNX Runtime, from the config and weights of a model, without PyTorch.

The encoder is one graph and each head another, so that all outputs of a model share the encoder.

Shapes: M tokens of a batch, Q read tokens of a batch, B rows, T tokens of the longest row, R maximum number
of read tokens of a row, H hidden, K scores of a token.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import place_in_file
from albertkit.cores import compute_threads
from albertkit.engines.engine import (
    Batch,
    BatchScores,
    Engine,
    Job,
    Row,
    check_output,
    check_rows,
    plan,
)
from albertkit.engines.light_model import LightModel, is_int8
from albertkit.engines.token_table import TokenTable, mixes_no_tokens
from albertkit.extras import optional
from albertkit.heads import HEADS, Output, base_prefix
from albertkit.onnx.network import UNSEEN, build_head, build_rows, word_table

onnxruntime = optional("onnxruntime")

_ERRORS_ONLY = 3  # log level; errors are raised as well
_MOST_PADDING = 2  # maximum number of positions, with padding, for each token in attention
_MAX_PREPACKED = 512 << 20
"""Maximum number of bytes of weights that ONNX Runtime copies into its fastest layout for products. While it
copies, it needs twice the memory. Without the copy, ALBERT-xxlarge takes 1.6 times as long for 18 tokens and
1.2 times as long for 64."""


class OnnxNetwork:
    """Computes the outputs of one model. The graph of each head is built on first use.

    The network uses the memory of weights in float32, so do not change them. ONNX Runtime also keeps a copy
    of the matrices in its own layout.

    Args:
        model: The model.
        int8: Whether to multiply the layers' matrices in int8.
        inside: Whether `run` also returns the hidden states and attentions of all layers. Such a network is
            used for one text, so ONNX Runtime keeps no copies of the matrices.
    """

    def __init__(self, model: LightModel, *, int8: bool, inside: bool = False) -> None:
        # ONNX Runtime takes only contiguous arrays. Matrices of a pytorch_model.bin can be transposed.
        weights = {
            name: array.astype(np.float32, order="C", copy=False) for name, array in model.weights.items()
        }
        self._weights = weights  # sessions may use their memory
        self._words = weights[word_table(model.architecture)]  # (V, E); looked up in NumPy, without a copy
        self._build_head = partial(build_head, model.architecture, model.config, weights)
        written = build_rows(model.architecture, model.config, weights, int8=int8, inside=inside)
        self._encoder = _session(*written, prepack=not inside)
        self._heads: dict[Output, Any] = {}
        self._width = model.config.hidden_size
        self.depth = model.config.depth

    def __call__(self, batch: Batch, output: Output) -> np.ndarray:
        """Return an output (Q, K) of the read tokens of a batch, in the order of the rows."""
        parts = [outputs[0] for outputs in self.run(batch)]
        states = np.concatenate(parts) if parts else np.empty((0, self._width), np.float32)
        if output == "hidden_states":
            return states
        if output not in self._heads:
            self._heads[output] = _session(*self._build_head(output), prepack=True)
        return self._heads[output].run(None, {"states": states})[0]

    def run(self, batch: Batch) -> Iterator[list[np.ndarray]]:
        """Yield all outputs of the encoder (see `build_rows`), for rows of similar length at a time."""
        lengths, reads = batch.sizes()
        token_ends, read_ends = (np.cumsum([0, *sizes]) for sizes in (lengths, reads))
        ids, segments, positions = batch.inputs(lengths.sum()).astype(np.int64)
        read_tokens = batch.read_tokens()
        cuts = similar_rows(lengths)
        for start, stop in pairwise(cuts):
            tokens, read = (slice(ends[start], ends[stop]) for ends in (token_ends, read_ends))
            if read.start == read.stop:
                continue
            row_tokens, token_places, present = _places(lengths[start:stop])
            row_reads, read_places, _ = _places(reads[start:stop])
            inputs = {
                "words": self._words[ids[tokens]],
                "token_type_ids": segments[tokens],
                "position_ids": positions[tokens],
                "bias": np.where(present, 0.0, UNSEEN).astype(np.float32)[:, None, None],  # (B, 1, 1, T)
                "row_tokens": row_tokens,
                "token_places": token_places,
                "read_tokens": read_tokens[read] - tokens.start,
                "row_reads": row_reads,
                "read_places": read_places,
            }
            yield self._encoder.run(None, inputs)


def similar_rows(lengths: Sequence[int] | np.ndarray) -> list[int]:
    """Return where to cut a list of rows, the longest first, so that attention needs little padding."""
    cuts, tokens = [0], 0
    for number, length in enumerate(lengths):
        tokens += length
        if (number + 1 - cuts[-1]) * lengths[cuts[-1]] > _MOST_PADDING * tokens:
            cuts.append(number)
            tokens = length
    return [*cuts, len(lengths)]


def _places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the indices for padding rows of these lengths; see `onnx.network.build_rows`.

    Returns:
        The index of the item at each padded position (B, T), 0 for padding; the position in B * T of each
        item; and whether each padded position (B, T) has an item.
    """
    columns = np.arange(lengths.max())
    present = columns < lengths[:, None]
    items = np.where(present, (np.cumsum(lengths) - lengths)[:, None] + columns, 0)
    return items, np.flatnonzero(present), present


def _session(graph: Any, external: dict[str, np.ndarray], *, prepack: bool) -> Any:
    """Open a graph for inputs of any shape, so that nothing is cached for a shape.

    Prepacking is done once; for ALBERT-base it takes three times as long as the rest of the start. The
    runtime's memory pool stays enabled. It grows to the size of the largest batch. Without it, every batch
    gets new pages from the system, and int8 takes 1.7 times as long.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = compute_threads()
    # Waiting threads must not spin, because they would take cores from the tokenizer.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.enable_mem_pattern = False
    if not prepack or sum(one.nbytes for one in external.values()) > _MAX_PREPACKED:
        options.add_session_config_entry("session.disable_prepacking", "1")
    in_memory = _leave_in_file(graph, external, options)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(one) for one in in_memory.values()]
    options.add_external_initializers(list(in_memory), values)
    return onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _leave_in_file(graph: Any, external: dict[str, np.ndarray], options: Any) -> dict[str, np.ndarray]:
    """Let the graph read weights from the file that they are mapped from; return the other weights.

    The runtime then maps the file itself, and frees weights that it has copied into its own layout.
    """
    places = {name: place for name, values in external.items() if (place := place_in_file(values))}
    folders = {path.resolve().parent for path, _ in places.values()}
    if len(folders) != 1:
        return external
    for tensor in graph.graph.initializer:
        if tensor.name in places:
            path, offset = places[tensor.name]
            entries = {
                "location": path.resolve().name,
                "offset": offset,
                "length": external[tensor.name].nbytes,
            }
            del tensor.external_data[:]
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folders.pop())
    )
    return {name: values for name, values in external.items() if name not in places}


class LightEngine(Engine):
    """Computes a light model in ONNX Runtime, or its PyTorch model once the light model has become one.

    Its graphs are built on first use. Do not change the weights of the model.
    """

    def __init__(self, model: LightModel, name: str) -> None:
        self.model = model
        self.name = name
        self._network: OnnxNetwork | None = None
        self._table: TokenTable | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_network": None}  # sessions can be neither copied nor pickled

    def compute(self, rows: Sequence[Row], job: Job, then: Callable[[np.ndarray], Any]) -> list[Any]:
        model = self.model
        if model.module is not None:
            from albertkit.engines.torch import module_engine

            self._network = self._table = None  # frees their memory
            return module_engine(model.module, self.name).compute(rows, job, then)
        return super().compute(rows, job, then)

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of batches as `Engine.batches` does, the longest rows first."""
        model = self.model
        check_output(job.output, HEADS[model.architecture], model=model.architecture)
        check_rows(rows, model.config)
        if rows and (self._network is None or self._network.depth != model.config.depth):
            self._network = OnnxNetwork(model, int8=self.name == "onnx-int8" or is_int8(model))
        network = self._network  # `compute` may drop it meanwhile
        for batch in plan(rows, job.positions, job.batch_tokens or self.batch_tokens, job.batch_size):
            assert network is not None
            yield batch.numbers, batch.split(network(batch, job.output))

    def token_table(self) -> TokenTable | None:
        model = self.model
        if self._table is None or self._table.depth != model.config.depth:
            is_alone = mixes_no_tokens(model.config, model.weights, base_prefix(model.architecture))
            self._table = TokenTable(model.config) if is_alone else None
        return self._table
