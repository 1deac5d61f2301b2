"""Compute rows without padding in ONNX Runtime, from the config and weights of a model, without PyTorch.

The encoder is one graph and each head another, so that all outputs of a model share the encoder.

Shapes: M tokens of a batch, Q read tokens of a batch, B rows, T tokens of the longest row, R maximum number
of read tokens of a row, H hidden, K scores of a token.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import place_in_file
from albertkit.cores import compute_threads
from albertkit.engines.engine import (
    BATCH_TOKENS,
    Batch,
    BatchScores,
    Engine,
    Group,
    Job,
    Row,
    check_output,
    check_rows,
    length_of,
    plan,
)
from albertkit.engines.light_model import LightModel
from albertkit.extras import optional
from albertkit.heads import HEADS, Output
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

    Args:
        model: The model. The network uses the memory of weights in float32, so do not change them. ONNX
            Runtime also keeps a copy of the matrices in its own layout.
        int8: Whether to multiply the layers' matrices in int8.
        threads: Number of threads that compute.
        inside: Whether `run` also returns the hidden states and attentions of all layers. Such a network is
            used for one text, so ONNX Runtime keeps no copies of the matrices.
    """

    def __init__(self, model: LightModel, *, int8: bool, threads: int, inside: bool = False) -> None:
        # ONNX Runtime takes only contiguous arrays. Matrices of a pytorch_model.bin can be transposed.
        weights = {
            name: array.astype(np.float32, order="C", copy=False) for name, array in model.weights.items()
        }
        self._weights = weights  # sessions may use their memory
        self._words = weights[word_table(model.architecture)]  # (V, E); looked up in NumPy, without a copy
        self._build_head = partial(build_head, model.architecture, model.config, weights)
        self._threads = threads
        written = build_rows(model.architecture, model.config, weights, int8=int8, inside=inside)
        self._encoder = _session(*written, threads=threads, prepack=not inside)
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
            self._heads[output] = _session(*self._build_head(output), threads=self._threads, prepack=True)
        return self._heads[output].run(None, {"states": states})[0]

    def run(self, batch: Batch) -> Iterator[list[np.ndarray]]:
        """Yield all outputs of the encoder (see `build_rows`), for rows of similar length at a time."""
        ids, segments, positions = batch.inputs(sum(map(length_of, batch.rows))).astype(np.int64)
        reads = batch.read_tokens()
        token = read = 0
        for similar in _alike(batch.groups()):
            tokens = sum(group.rows * group.length for group in similar)
            count = sum(group.rows * group.queries for group in similar)
            stop = token + tokens
            if count:
                inputs = _places_of(similar, tokens=tokens)
                inputs["words"], inputs["token_type_ids"] = self._words[ids[token:stop]], segments[token:stop]
                inputs["position_ids"] = positions[token:stop]
                inputs["read_tokens"] = reads[read : read + count] - token
                yield self._encoder.run(None, inputs)
            token, read = stop, read + count


def _alike(groups: list[Group]) -> Iterator[list[Group]]:
    """Yield groups of similar length together, the longest first; attention pads their rows."""
    similar: list[Group] = []
    rows = tokens = 0
    for group in groups:
        rows, tokens = rows + group.rows, tokens + group.rows * group.length
        if similar and rows * similar[0].length > _MOST_PADDING * tokens:
            yield similar
            similar, rows, tokens = [], group.rows, group.rows * group.length
        similar.append(group)
    if similar:
        yield similar


def _session(graph: Any, external: dict[str, np.ndarray], *, threads: int, prepack: bool) -> Any:
    """Open a graph for inputs of any shape, so that nothing is cached for a shape.

    Prepacking is done once; for ALBERT-base it takes three times as long as the rest of the start. The
    runtime's memory pool stays enabled. It grows to the size of the largest batch. Without it, every batch
    gets new pages from the system, and int8 takes 1.7 times as long.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads
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


def _places_of(groups: list[Group], *, tokens: int) -> dict[str, np.ndarray]:
    """Return the indices of the tokens of padded rows; see `onnx.network.build_rows`."""
    lengths, reads = (
        np.repeat([getattr(group, name) for group in groups], [group.rows for group in groups])
        for name in ("length", "queries")
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
    """Return the indices for padding rows of these lengths.

    Returns:
        The index of the item at each padded position (B, T), 0 for padding; the position in B * T of each of
        the `count` items, 0 for items of no row; and whether each padded position (B, T) has an item.
    """
    columns = np.arange(lengths.max())
    present = columns < lengths[:, None]
    numbers = np.where(present, (np.cumsum(lengths) - lengths)[:, None] + columns, 0)
    places = np.zeros(count, np.int64)
    places[: lengths.sum()] = np.flatnonzero(present)
    return numbers, places, present


class OnnxEngine(Engine):
    """Computes the outputs of a light model. Its graphs are built on first use.

    Args:
        model: The model. Do not change its weights.
        int8: Whether to multiply the layers' matrices in int8.
        threads: Number of threads that compute; None for one for each core that this process may use.
    """

    def __init__(self, model: LightModel, *, int8: bool = False, threads: int | None = None) -> None:
        self.model = model
        self.int8 = int8
        self.threads = threads or compute_threads()
        self._network: OnnxNetwork | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_network": None}  # sessions can be neither copied nor pickled

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of batches as `Engine.batches` does, the longest rows first."""
        architecture = self.model.architecture
        check_output(job.output, HEADS[architecture], model=architecture)
        check_rows(rows, self.model.config)
        for batch in plan(rows, job.positions, job.batch_tokens or BATCH_TOKENS, job.batch_size):
            yield batch.numbers, batch.split(self._computing()(batch, job.output))

    def _computing(self) -> OnnxNetwork:
        if self._network is None or self._network.depth != self.model.config.depth:
            self._network = OnnxNetwork(self.model, int8=self.int8, threads=self.threads)
        return self._network
