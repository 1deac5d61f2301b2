"""Read and check the inputs of a Keras model, which may be passed in three ways.

    model(input_ids=ids, attention_mask=mask)
    model([ids, mask])                              # in the order of `model_inputs.NAMES`
    model({"input_ids": ids, "attention_mask": mask})

Shapes: B batch, C choices, T tokens, E embedding.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.errors import short, suggestion
from albertkit.keras.layers import Tensor, keras, ops
from albertkit.model_inputs import LIMITS, NAMES, check_range, check_shapes


def take_options(first: Any, **given: bool | None) -> tuple[Any, dict[str, bool | None]]:
    """Return the inputs without options, and the options; keyword arguments override those in the inputs."""
    if not isinstance(first, Mapping):
        return first, given
    options = {name: first.get(name) if value is None else value for name, value in given.items()}
    return {name: value for name, value in first.items() if name not in given}, options


def name_inputs(first: Any, more: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs by name, without those that are None.

    Args:
        first: A tensor of ids, or all inputs as a list or tuple in the documented order or as a mapping.
        more: Other positional arguments, in the documented order.
        named: Keyword arguments.
    """
    if isinstance(first, Mapping):
        given, positional = dict(first), [None, *more]
    elif isinstance(first, list | tuple):
        given, positional = {}, [*first, *more]
    else:
        given, positional = {}, [first, *more]
    if len(positional) > len(NAMES):
        raise ValueError(f"got {len(positional)} inputs. Expected at most {len(NAMES)}: {', '.join(NAMES)}.")
    parts = (given, dict(zip(NAMES, positional, strict=False)), dict(named))
    inputs: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name not in NAMES:
                raise ValueError(f"there is no input {name!r}. {suggestion(str(name), NAMES)}")
            if value is None:
                continue
            if name in inputs:
                raise ValueError(f"{name} is passed twice. Pass it once.")
            inputs[name] = value
    return inputs


def as_tensors(inputs: Mapping[str, Any], config: AlbertConfig, *, choices: bool) -> dict[str, Tensor]:
    """Convert the inputs to tensors of the backend (integers to int32), and check their shapes and values.

    While a function is compiled, values are not known and not checked: an id without an embedding then gives
    NaN.

    Args:
        inputs: Arrays, tensors or nested lists by input name. For their shapes see
            `TFAlbertPreTrainedModel.__call__`.
        config: The config of the model, whose sizes the inputs must match.
        choices: Whether each input has a dimension of choices after the batch.
    """
    tensors = {name: _as_tensor(name, value, config) for name, value in inputs.items()}
    check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, config, choices=choices)
    return tensors


def _as_tensor(name: str, value: Any, config: AlbertConfig) -> Tensor:
    if not (ops.is_tensor(value) or isinstance(value, keras.KerasTensor)):
        value = _as_array(name, value)
    values = _known_values(value)
    kind = keras.backend.standardize_dtype(value.dtype)
    if name in LIMITS:
        if "int" not in kind:
            raise ValueError(
                f"{name} must be whole numbers, got {kind} (an Input of Keras needs dtype='int32')"
            )
        if values is not None and values.size:
            check_range(name, int(values.min()), int(values.max()), config)
        # A cast would be a layer of a functional model, and `.h5` files cannot contain this layer.
        return value if isinstance(value, keras.KerasTensor) else ops.cast(value, "int32")
    if name == "attention_mask" and values is not None:
        strange = values[(values < 0) | ((values != 0) != values) & ("float" in kind)]
        if strange.size:
            # Read as 0 and 1, a mask that is meant to be added to scores would show padding and hide text.
            raise ValueError(
                f"attention_mask contains {strange[0]}. Expected 1 for keys to attend to, 0 for others."
            )
    return ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value


def _as_array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"the rows of {name} have different lengths. Pass padding=True to the tokenizer."
        ) from error
    if array.dtype.kind in "OU":  # objects and text
        raise ValueError(
            f"{name} contains {short(array.item(0))}. Expected numbers. Encode texts with a tokenizer, and "
            "pass its output."
        )
    return array


def _known_values(value: Any) -> np.ndarray | None:
    """Return the values of a tensor as an array, or None while a function is compiled."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, keras.KerasTensor):
        return None
    try:
        return ops.convert_to_numpy(value)
    except (TypeError, NotImplementedError, RuntimeError):  # raised while a function is traced
        return None


def merge_choices(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Merge batch and choices: (B, C, ...) -> (B*C, ...). Values for all rows stay as they are."""
    whole = {"head_mask"} | {name for name, value in inputs.items() if len(value.shape) == 1}
    return {
        name: value if name in whole else ops.reshape(value, (-1, *ops.shape(value)[2:]))
        for name, value in inputs.items()
    }
