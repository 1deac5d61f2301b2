"""Build an ONNX graph of nodes, constants and weights. Each weight is stored once.

The graph has standard operators, except for integer products, an operator of ONNX Runtime. For an older
opset, several older operators replace a newer one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from albertkit import __version__
from albertkit.checkpoints.onnx_file import PRODUCER, SCALE
from albertkit.errors import CheckpointError
from albertkit.extras import optional
from albertkit.onnx.int8 import COMPUTED_LARGEST, STORED_LARGEST, is_computed, is_stored, quantize

onnx = optional("onnx")

OLDEST_OPSET = 17
"""The first version of the operators with LayerNormalization."""
OPSET = 20
"""The default version, the first with Gelu. ONNX Runtime 1.17 and later support it."""

_RUNTIME = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
_ZERO_POINT = 128  # represents 0 in a rounded activation, because these bytes have no sign
_TINY = 1e-30
_LARGE = 4096
"""Minimum number of bytes of an external weight; smaller ones cost less inside the graph."""

STORED_TYPES = {
    np.dtype(np.float32): "FLOAT",
    np.dtype(np.float16): "FLOAT16",
    np.dtype(ml_dtypes.bfloat16): "BFLOAT16",
}
"""Types of weights -> ONNX's names for them."""


class Graph:
    """Collects the parts of a graph. Methods take and return the names of values.

    Weights keep their data type. If it is not `compute`, the graph casts them, which runtimes do once, when
    they load the file. With `int8`, large matrices are quantized (`int8.py`).

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
        self._activations: dict[str, tuple[str, str]] = {}

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
        return self._constant(f"constants/int64_{'_'.join(map(str, numbers))}", np.array(numbers, np.int64))

    def index(self, number: int) -> str:
        """Return a constant int64 scalar."""
        return self._constant(f"constants/int64_scalar_{number}", np.array(number, np.int64))

    def number(self, value: float) -> str:
        """Return a constant scalar of the data type of the computation."""
        return self._constant(f"constants/float_{value:.9g}", np.array(value, self.compute))

    def weight(self, name: str, *, transposed: bool = False) -> str:
        """Return a tensor of the model, stored under its own name, optionally transposed.

        Raises:
            CheckpointError: the source has no such tensor, or it has an unsupported data type.
        """
        if name not in self._cast and self.rounds_tables and is_stored(name):
            self._cast[name] = self._restore(*self._round(name, STORED_LARGEST, transposed=transposed))
        if name not in self._cast:
            tensor = self._tensor(name)
            self._store(name, tensor.T if transposed else tensor)
            if tensor.dtype != self.compute:
                self._cast[name] = f"{name}/computed"
                self.node("Cast", name, output=self._cast[name], to=self.compute_type)
            else:
                self._cast[name] = name
        return self._cast[name]

    def _tensor(self, name: str) -> np.ndarray:
        if name not in self.weights:
            raise CheckpointError(
                f"The model has no tensor {name}, which this architecture needs. Choose another architecture."
            )
        return self.weights[name]

    def _round(self, name: str, largest: int, *, transposed: bool) -> tuple[str, str]:
        """Return a matrix in int8 and its scales."""
        if name not in self._rounded:
            numbers, scales = quantize(self._tensor(name), largest=largest)
            if transposed:
                numbers, scales = np.ascontiguousarray(numbers.T), scales.reshape(-1)
            self._rounded[name] = (
                self._constant(name, numbers),
                self._constant(f"{name}{SCALE}", scales),
            )
        return self._rounded[name]

    def _restore(self, numbers: str, scales: str) -> str:
        return self.node("Mul", self.node("Cast", numbers, to=onnx.TensorProto.FLOAT), scales)

    def _constant(self, name: str, value: np.ndarray) -> str:
        if name not in self._stored:
            self._stored[name] = onnx.numpy_helper.from_array(value, name)
        return name

    def _store(self, name: str, tensor: np.ndarray) -> None:
        if tensor.dtype not in STORED_TYPES:
            raise CheckpointError(f"{name} is in {tensor.dtype}. Choose the dtype 'float32'.")
        stored = onnx.TensorProto(
            name=name, dims=tensor.shape, data_type=getattr(onnx.TensorProto, STORED_TYPES[tensor.dtype])
        )
        if self.flat and tensor.nbytes >= _LARGE:
            stored.data_location = onnx.TensorProto.EXTERNAL
            stored.external_data.add(key="location", value="memory")
            self.external[name] = tensor
        else:
            stored.raw_data = tensor.tobytes()
        self._stored[name] = stored

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
            opset_imports=opsets + ([onnx.helper.make_opsetid(_RUNTIME, 1)] if self.int8 else []),
            ir_version=onnx.helper.find_min_ir_version_for(opsets),
            producer_name=PRODUCER,
            producer_version=__version__,
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights stored so far, each counted once, in their original data type."""
        return sum(self.weights[name].nbytes for name in self._cast.keys() | self._rounded)

    # --- what networks are made of --------------------------------------------------------------

    def linear(self, values: str, name: str) -> str:
        """Add a linear map (..., inputs) -> (..., outputs) with the matrix and bias of that name."""
        matrix, bias = f"{name}.weight", self.weight(f"{name}.bias")
        if self.int8 and is_computed(matrix, self._tensor(matrix)):
            return self.node("Add", self._integer_product(values, matrix), bias)
        if self.flat:
            return self.node("Gemm", values, self.weight(matrix), bias, transB=1)
        return self.node("Add", self.node("MatMul", values, self.weight(matrix, transposed=True)), bias)

    def product_with_rows(self, values: str, table: str, *, bias: str) -> str:
        """Multiply by the rows of a table, and add a bias: (..., width) -> (..., rows)."""
        if self.flat:
            return self.node("Gemm", values, self.weight(table), self.weight(bias), transB=1)
        columns = self.node("Transpose", self.weight(table), perm=[1, 0])
        return self.node("Add", self.node("MatMul", values, columns), self.weight(bias))

    def rows(self, name: str, numbers: str) -> str:
        """Take rows of a table by their numbers: (...) -> (..., width)."""
        if not (self.rounds_tables and is_stored(name)):
            return self.node("Gather", self.weight(name), numbers)
        rounded = self._round(name, STORED_LARGEST, transposed=False)
        return self._restore(*(self.node("Gather", part, numbers) for part in rounded))

    def _integer_product(self, values: str, name: str) -> str:
        """Multiply as integers: (..., inputs) -> (..., outputs)."""
        matrix, scales = self._round(name, COMPUTED_LARGEST, transposed=True)
        if values not in self._activations:
            self._activations[values] = self._round_activation(values, width=self._tensor(name).shape[1])
        rounded, token_scales = self._activations[values]
        product = self.node(
            "MatMulIntegerToFloat", rounded, matrix, self.number(1.0), scales, self._zero(), domain=_RUNTIME
        )
        return self.node("Mul", product, token_scales)

    def _round_activation(self, values: str, *, width: int) -> tuple[str, str]:
        """Round values (..., width) to bytes, and return them with the scale of each token, (..., 1)."""
        least = self.node("Neg", self.node("ReduceMin", values, self.vector(-1)))
        most = self.node("Max", self.node("ReduceMax", values, self.vector(-1)), least, self.number(_TINY))
        scales = self.node("Mul", most, self.number(1 / STORED_LARGEST))
        flat_scales = self.node("Reshape", scales, self.vector(-1))
        zeros = self.node("Expand", self._zero(), self.node("Shape", flat_scales))
        flat = self.node("Reshape", values, self.vector(-1, width))
        rounded = self.node("QuantizeLinear", flat, flat_scales, zeros, axis=0)
        return self.node("Reshape", rounded, self.node("Shape", values)), scales

    def _zero(self) -> str:
        return self._constant("constants/uint8_zero", np.array(_ZERO_POINT, np.uint8))

    def layer_norm(self, values: str, name: str, *, epsilon: float) -> str:
        """Normalize the last dimension."""
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", values, scale, shift, epsilon=epsilon)

    def activation(self, values: str, name: str) -> str:
        """Apply the function that `hidden_act` names."""
        if name == "relu":
            return self.node("Relu", values)
        if name in ("silu", "swish"):
            return self.node("Mul", values, self.node("Sigmoid", values))
        tanh = name in ("gelu_new", "gelu_pytorch_tanh")
        if self.opset >= OPSET:
            return self.node("Gelu", values, approximate="tanh" if tanh else "none")
        if tanh:
            cube = self.node("Mul", values, self.node("Mul", values, values))
            inner = self.node("Add", values, self.node("Mul", cube, self.number(0.044715)))
            bend = self.node("Tanh", self.node("Mul", inner, self.number(math.sqrt(2 / math.pi))))
        else:
            bend = self.node("Erf", self.node("Mul", values, self.number(math.sqrt(0.5))))
        share = self.node("Mul", self.node("Add", bend, self.number(1.0)), self.number(0.5))
        return self.node("Mul", values, share)
