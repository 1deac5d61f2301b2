"""Weights in eight bits and less: which, and how.

Matrices of layers are multiplied in whole numbers. Each column, which is one output, has a scale of its own,
and seven bits: processors without instructions for such products (VNNI) add pairs of products in 16 bits, and
with 255 * 63 * 2 none of these sums overflows. The table of words and the pooler are stored in eight bits and
computed in floats.

Activations are rounded when they are there, each token with a scale of its own: a few tokens, such as [SEP],
have values far above all others', and what is said of a text does not depend on its batch.
"""

import numpy as np

COMPUTED_LARGEST = 63
"""Of a matrix that is multiplied in whole numbers."""
STORED_LARGEST = 127
QUANTIZATION, INT8 = "quantization", "int8"
"""The key in config.json of a model whose weights were rounded, and its value."""
OLDEST_OPSET = 18
"""The first that reduces as later ones do."""


def is_computed(name: str, tensor: np.ndarray) -> bool:
    """Tell whether a tensor is a matrix that is multiplied in whole numbers: those of the layers."""
    return ".albert_layers." in name and tensor.ndim == 2


def is_stored(name: str) -> bool:
    """Tell whether a tensor is only stored in eight bits."""
    return name.endswith(("word_embeddings.weight", "pooler.weight"))


def quantize(matrix: np.ndarray, *, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Round a matrix to whole numbers, each row with a scale of its own.

    Args:
        matrix: (outputs, inputs), or a table (pieces, width).
        largest: most that a number may be, and its negative least.

    Returns:
        int8 of the same shape, and float32 scales (outputs, 1).
    """
    values = matrix.astype(np.float32)
    scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(largest)
    scales[scales == 0] = 1.0
    return np.rint(values / scales).astype(np.int8), scales
