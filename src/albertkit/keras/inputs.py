"""Read and check the inputs of a Keras model, which may be passed in three ways.

    model(input_ids=ids, attention_mask=mask)
    model([ids, mask])                              # in the order of `NAMES`
    model({"input_ids": ids, "attention_mask": mask})

Shapes: B batch, C choices, T tokens, E embedding.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.errors import short, suggestion
from albertkit.keras.layers import Tensor, keras, ops

NAMES = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "head_mask", "inputs_embeds")
"""The names of the inputs, in the documented order."""
OPTIONS = ("output_attentions", "output_hidden_states", "return_dict")
"""Options of the output, passed as keywords or in a mapping of inputs."""

_LIMITS = {
    "input_ids": ("vocab_size", "the tokenizer is of another model, or has added tokens"),
    "token_type_ids": ("type_vocab_size", "0 is the first text, 1 the second"),
    "position_ids": ("max_position_embeddings", "positions begin at 0"),
}


def take_options(first: Any, given: Mapping[str, bool | None]) -> tuple[Any, dict[str, bool | None]]:
    """Remove the options from a mapping of inputs; keyword arguments override them.

    Returns:
        The inputs without options, and the value of each of `OPTIONS`, None if it is not set.
    """
    within: dict[str, Any] = {}
    if isinstance(first, Mapping):
        within = {name: first[name] for name in OPTIONS if name in first}
        first = {name: value for name, value in first.items() if name not in OPTIONS}
    return first, {name: within.get(name) if given.get(name) is None else given.get(name) for name in OPTIONS}


def name_inputs(first: Any, more: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs by name, without those that are None.

    Args:
        first: A tensor of ids, or all inputs as a list or tuple in the documented order or as a mapping.
        more: Other positional arguments, in the documented order.
        named: Keyword arguments.

    Raises:
        ValueError: A name is unknown, there are too many inputs, or an input is passed twice.
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

    Raises:
        ValueError: Both or neither of `input_ids` and `inputs_embeds` are passed, a sequence is empty or
            longer than `max_position_embeddings`, or an input has the wrong shape or values.
        IndexError: A token id, segment or position has no embedding.
    """
    if ("input_ids" in inputs) == ("inputs_embeds" in inputs):
        raise ValueError("received both or neither of input_ids and inputs_embeds. Pass exactly one of them.")
    tensors = {name: _as_tensor(name, value, config) for name, value in inputs.items()}
    _check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, config, choices=choices)
    return tensors


def _as_tensor(name: str, value: Any, config: AlbertConfig) -> Tensor:
    if not (ops.is_tensor(value) or isinstance(value, keras.KerasTensor)):
        value = _as_array(name, value)
    values = _known_values(value)
    kind = keras.backend.standardize_dtype(value.dtype)
    if name in _LIMITS:
        if "int" not in kind:
            raise ValueError(
                f"{name} must be whole numbers, got {kind} (an Input of Keras needs dtype='int32')"
            )
        if values is not None and values.size:
            _check_range(name, values, config)
        return ops.cast(value, "int32")
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


def _check_range(name: str, values: np.ndarray, config: AlbertConfig) -> None:
    size, advice = _LIMITS[name]
    limit, least, most = getattr(config, size), int(values.min()), int(values.max())
    if not 0 <= least <= most < limit:
        raise IndexError(
            f"{name} has values from {least} to {most}, but {size} is {limit}. Expected 0 to {limit - 1} "
            f"({advice})."
        )


def _check_shapes(
    shapes: Mapping[str, tuple[int | None, ...]], config: AlbertConfig, *, choices: bool
) -> None:
    """Compare the known sizes (the others are None) with the config; raises the errors of `as_tensors`."""
    outer = ("B", "C") if choices else ("B",)
    name = "input_ids" if "input_ids" in shapes else "inputs_embeds"
    wanted = (*outer, "T") if name == "input_ids" else (*outer, "T", config.embedding_size)
    given = shapes[name]
    if len(given) != len(wanted) or (name == "inputs_embeds" and given[-1] not in (None, wanted[-1])):
        raise ValueError(f"{name} must have shape ({', '.join(map(str, wanted))}), got {given}")
    text = given[: len(outer) + 1]  # (B, T) or (B, C, T)
    batch, length = text[0], text[-1]
    if length == 0:
        raise ValueError(f"{name} must have at least one token (T > 0), got {given}")
    limit = config.max_position_embeddings
    if "position_ids" not in shapes and length is not None and length > limit:
        raise ValueError(
            f"the sequence has {length} tokens, more than max_position_embeddings ({limit}). "
            "Truncate it or split it into windows."
        )
    depth, heads = config.depth, config.num_attention_heads
    allowed: dict[str, list[tuple[int | None, ...]]] = {
        "attention_mask": [text],
        "token_type_ids": [text],
        "position_ids": [text],
        "head_mask": [(heads,), (depth, heads)],
    }
    if not choices:
        allowed["attention_mask"] += [(batch, length, length), (batch, 1, length, length)]
        for ids in ("token_type_ids", "position_ids"):
            allowed[ids] += [(1, length), (length,)]
    for other, possible in allowed.items():
        if other in shapes and not any(_fits(shapes[other], shape) for shape in possible):
            raise ValueError(f"{other} must have one of the shapes {possible}, got {shapes[other]}")


def _fits(given: tuple[int | None, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(given) == len(wanted) and all(
        one is None or other is None or one == other for one, other in zip(given, wanted, strict=True)
    )


def merge_choices(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Merge batch and choices of all inputs except the head mask: (B, C, ...) -> (B*C, ...)."""
    return {
        name: value if name == "head_mask" else ops.reshape(value, (-1, *ops.shape(value)[2:]))
        for name, value in inputs.items()
    }
