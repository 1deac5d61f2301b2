"""Build an ONNX graph of nodes, constants and weights. Each weight is stored once.

The graph has standard operators, except for integer products, an operator of ONNX Runtime. For an older
opset, several older operators replace a newer one.

In int8, the matrices of layers are multiplied as integers. Each output has its own scale, and its weights
have seven bits: processors without instructions for such products (VNNI) add pairs of products in 16 bits,
and sums up to 255 * 63 * 2 do not overflow. The word embeddings and the pooler are stored in eight bits and
computed in floating point. Activations are quantized during the computation, with a scale for each token: a
few tokens, such as [SEP], have much larger values than all others, and the result for a text does not depend
on its batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from albertkit import __version__
from albertkit.checkpoints.folder import PRODUCER, SCALE
from albertkit.errors import CheckpointError
from albertkit.extras import optional

onnx = optional("onnx")

OLDEST_OPSET = 17
"""The first version of the operators with LayerNormalization."""
OPSET = 20
"""The default version, the first with Gelu. ONNX Runtime 1.17 and later support it."""

RUNTIME = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
_LARGE = 4096
"""Minimum number of bytes of an external weight; smaller ones cost less inside the graph."""

STORED_TYPES = {
    np.dtype(np.float32): "FLOAT",
    np.dtype(np.float16): "FLOAT16",
    np.dtype(ml_dtypes.bfloat16): "BFLOAT16",
}
"""Types of weights -> ONNX's names for them."""

COMPUTED_LARGEST = 63
"""Largest value in a matrix that is multiplied as integers."""
STORED_LARGEST = 127
QUANTIZATION, INT8 = "quantization", "int8"
"""The key in config.json of a model whose weights were rounded, and its value."""
OLDEST_INT8_OPSET = 18
"""The first version of the operators in which reductions take their axes as an input."""


def is_computed(name: str, tensor: np.ndarray) -> bool:
    """Return whether a tensor is multiplied as integers, like the matrices of the layers."""
    return ".albert_layers." in name and tensor.ndim == 2


def is_stored(name: str) -> bool:
    """Return whether a tensor is stored in eight bits, but computed in floating point."""
    return name.endswith(("word_embeddings.weight", "pooler.weight"))


def quantize(matrix: np.ndarray, *, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Round a matrix to int8 integers of absolute value <= `largest`, with a float32 scale for each row."""
    values = matrix.astype(np.float32)
    scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(largest)
    scales[scales == 0] = 1.0
    return np.rint(values / scales).astype(np.int8), scales


class Graph:
    """Collects the parts of a graph. Methods take and return the names of values.

    Weights keep their data type. If it is not `compute`, the graph casts them, which runtimes do once, when
    they load the file. With `int8`, large matrices are quantized.

    In a `flat` graph, all values that are multiplied by weights are matrices. Products are then Gemm, which
    takes weights in the checkpoints' layout (outputs x inputs). Large weights stay out of the graph, in
    `external`. With `int8`, only the layers' matrices are quantized.
    """

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        *,
        opset: int,
        compute: np.dtype,
        int8: bool = False,
        flat: bool = False,
    ) -> None:
        self.weights = weights
        self.flat = flat
        self.external: dict[str, np.ndarray] = {}
        """Weights that the graph names but does not contain."""
        self.int8 = int8
        self.rounds_tables = int8 and not flat
        self.opset = opset
        self.compute = compute
        self.compute_type: int = getattr(onnx.TensorProto, STORED_TYPES[compute])
        self.scope = ""
        """Prefix of the names of the following nodes; set it before you add them."""
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._nodes: list[Any] = []
        self._stored: dict[str, Any] = {}
        self._cast: dict[str, str] = {}
        self._rounded: dict[str, tuple[str, str]] = {}

    # --- values ---------------------------------------------------------------------------------

    def node(
        self, operator: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any
    ) -> str:
        """Append a node with one output, and return the name of the output."""
        name = f"{self.scope}{operator}_{len(self._nodes)}"
        output = output or name
        self._nodes.append(
            onnx.helper.make_node(operator, inputs, [output], name=name, domain=domain, **attributes)
        )
        return output

    def vector(self, *numbers: int) -> str:
        """Return a constant int64 vector."""
        return self.constant(f"constants/int64_{'_'.join(map(str, numbers))}", np.array(numbers, np.int64))

    def index(self, number: int) -> str:
        """Return a constant int64 scalar."""
        return self.constant(f"constants/int64_scalar_{number}", np.array(number, np.int64))

    def number(self, value: float) -> str:
        """Return a constant scalar of the data type of the computation."""
        return self.constant(f"constants/float_{value:.9g}", np.array(value, self.compute))

    def weight(self, name: str, *, transposed: bool = False) -> str:
        """Return a tensor of the model, stored under its own name, optionally transposed."""
        if name not in self._cast and self.rounds_tables and is_stored(name):
            self._cast[name] = self._restore(*self.round_rows(name, STORED_LARGEST, transposed=transposed))
        if name not in self._cast:
            tensor = self.tensor(name)
            if tensor.dtype not in STORED_TYPES:
                raise CheckpointError(f"{name} is in {tensor.dtype}. Choose the dtype 'float32'.")
            tensor = tensor.T if transposed else tensor
            stored = onnx.TensorProto(
                name=name,
                dims=tensor.shape,
                data_type=getattr(onnx.TensorProto, STORED_TYPES[tensor.dtype]),
            )
            if self.flat and tensor.nbytes >= _LARGE:
                stored.data_location = onnx.TensorProto.EXTERNAL
                stored.external_data.add(key="location", value="memory")
                self.external[name] = tensor
            else:
                stored.raw_data = tensor.tobytes()
            self._stored[name] = stored
            if tensor.dtype != self.compute:
                self._cast[name] = f"{name}/computed"
                self.node("Cast", name, output=self._cast[name], to=self.compute_type)
            else:
                self._cast[name] = name
        return self._cast[name]

    def rows(self, name: str, numbers: str) -> str:
        """Take rows of a table by their numbers: (...) -> (..., width)."""
        if not (self.rounds_tables and is_stored(name)):
            return self.node("Gather", self.weight(name), numbers)
        rounded = self.round_rows(name, STORED_LARGEST, transposed=False)
        return self._restore(*(self.node("Gather", part, numbers) for part in rounded))

    def tensor(self, name: str) -> np.ndarray:
        """Return a tensor of the model, without storing it."""
        if name not in self.weights:
            raise CheckpointError(
                f"The model has no tensor {name}, which this architecture needs. Choose another architecture."
            )
        return self.weights[name]

    def round_rows(self, name: str, largest: int, *, transposed: bool) -> tuple[str, str]:
        """Return a matrix in int8, with values up to `largest`, and the scales of its rows."""
        if name not in self._rounded:
            numbers, scales = quantize(self.tensor(name), largest=largest)
            if transposed:
                numbers, scales = np.ascontiguousarray(numbers.T), scales.reshape(-1)
            self._rounded[name] = self.constant(name, numbers), self.constant(f"{name}{SCALE}", scales)
        return self._rounded[name]

    def _restore(self, numbers: str, scales: str) -> str:
        return self.node("Mul", self.node("Cast", numbers, to=onnx.TensorProto.FLOAT), scales)

    def constant(self, name: str, value: np.ndarray) -> str:
        """Return a constant, stored under this name."""
        if name not in self._stored:
            self._stored[name] = onnx.numpy_helper.from_array(value, name)
        return name

    # --- inputs and outputs ---------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[str | int], *, kind: str = "INT64") -> str:
        """Declare a required input of the type `kind`, "INT64" or "FLOAT"."""
        kind_number = getattr(onnx.TensorProto, kind)
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind_number, shape))
        return name

    def optional_input(self, name: str, shape: Sequence[str], *, like: str, default: int) -> str:
        """Declare an optional int64 input, by default `default` everywhere, in the shape of `like`.

        Uses ONNX's optional type. An initializer for the input would work too, but runtimes then do not list
        it among the inputs, so programs that pass the listed inputs would silently omit it.
        """
        tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.INT64, shape)
        self.inputs.append(onnx.helper.make_value_info(name, onnx.helper.make_optional_type_proto(tensor)))
        value = onnx.numpy_helper.from_array(np.array([default], np.int64))
        given = [onnx.helper.make_node("OptionalGetElement", [name], [f"{name}/given"])]
        assumed = [
            onnx.helper.make_node("Shape", [like], [f"{name}/shape"]),
            onnx.helper.make_node("ConstantOfShape", [f"{name}/shape"], [f"{name}/assumed"], value=value),
        ]
        branches = {
            branch: onnx.helper.make_graph(
                nodes,
                f"{name}/{branch}",
                [],
                [onnx.helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.INT64, shape)],
            )
            for branch, nodes in (("then_branch", given), ("else_branch", assumed))
        }
        return self.node("If", self.node("OptionalHasElement", name), **branches)

    def output(self, name: str, value: str, shape: Sequence[str | int]) -> None:
        """Declare an output, in float32 whatever the data type of the computation."""
        self.node("Cast", value, output=name, to=onnx.TensorProto.FLOAT)
        self.outputs.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))

    def model(self, name: str) -> Any:
        """Return the finished `ModelProto`, in the oldest file version that has the operators."""
        graph = onnx.helper.make_graph(
            self._nodes, name, self.inputs, self.outputs, list(self._stored.values())
        )
        opsets = [onnx.helper.make_opsetid("", self.opset)]
        return onnx.helper.make_model(
            graph,
            opset_imports=opsets + ([onnx.helper.make_opsetid(RUNTIME, 1)] if self.int8 else []),
            ir_version=onnx.helper.find_min_ir_version_for(opsets),
            producer_name=PRODUCER,
            producer_version=__version__,
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights stored so far, each counted once, in their original data type."""
        return sum(self.weights[name].nbytes for name in self._cast.keys() | self._rounded)
