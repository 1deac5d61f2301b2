"""Quantize weights to integers of at most eight bits.

The matrices of layers are multiplied as integers. Each output has its own scale, and its weights have seven
bits: processors without instructions for such products (VNNI) add pairs of products in 16 bits, and sums up
to 255 * 63 * 2 do not overflow. The word embeddings and the pooler are stored in eight bits and computed in
floating point.

Activations are quantized during the computation, with a scale for each token: a few tokens, such as [SEP],
have much larger values than all others, and the result for a text does not depend on its batch.
"""

import numpy as np

COMPUTED_LARGEST = 63
"""Largest value in a matrix that is multiplied as integers."""
STORED_LARGEST = 127
QUANTIZATION, INT8 = "quantization", "int8"
"""The key in config.json of a model whose weights were rounded, and its value."""
OLDEST_OPSET = 18
"""The first version of the operators in which reductions take their axes as an input."""


def is_computed(name: str, tensor: np.ndarray) -> bool:
    """Return whether a tensor is multiplied as integers, like the matrices of the layers."""
    return ".albert_layers." in name and tensor.ndim == 2


def is_stored(name: str) -> bool:
    """Return whether a tensor is stored in eight bits, but computed in floating point."""
    return name.endswith(("word_embeddings.weight", "pooler.weight"))


def quantize(matrix: np.ndarray, *, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Round a matrix to integers, with a scale for each row.

    Args:
        matrix: (outputs, inputs), or a table (pieces, width).
        largest: the largest absolute value of the integers.

    Returns:
        int8 of the same shape, and float32 scales (outputs, 1).
    """
    values = matrix.astype(np.float32)
    scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(largest)
    scales[scales == 0] = 1.0
    return np.rint(values / scales).astype(np.int8), scales
