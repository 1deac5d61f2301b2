"""Helpers that declare and read the fields of AlbertConfig: checks, conversions, argument names, labels."""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from numbers import Integral
from typing import Any, Literal

from albertkit.errors import ConfigError, did_you_mean, warn_caller

ACTIVATION_ALIASES = {
    **dict.fromkeys(("gelu_accurate", "gelu_fast", "gelu_python_tanh", "gelu_pytorch_tanh"), "gelu_new"),
    **{"gelu_python": "gelu", "swish": "silu"},
}
"""Other names of activation functions, as in `transformers`."""
ACTIVATION_NAMES = (
    *("gelu", "gelu_new", "relu", "silu", "leaky_relu", "linear", "mish", "quick_gelu", "tanh"),
    *ACTIVATION_ALIASES,
)
"""The names of `hidden_act`. PyTorch, NumPy, ONNX and Keras define the functions without the aliases."""
_MOST_LABELS = 1_000_000
TASK_KEY = "finetuning_task"
"""The config key for the task name of a fine-tuned model."""
SETTINGS_KEY = "task_settings"
"""The config key for the settings with which the rows of a fine-tuned model were made."""
_Check = tuple[Callable[[Any], bool], str]
"""A condition on a value, and its description for messages."""


# --- checks and conversions of fields -------------------------------------------------------------


def any_of(*choices: str | None) -> _Check:
    """Return the check that a value is one of `choices`."""
    names = ", ".join(choice for choice in choices if choice is not None)
    return (lambda value: value in choices, f"one of {names}")


POSITIVE: _Check = (
    lambda value: isinstance(value, int | float) and 0 < value < math.inf,
    "a positive number",
)
ACTIVATION: _Check = (
    lambda value: callable(value) or value in ACTIVATION_NAMES,
    f"a function or one of {', '.join(ACTIVATION_NAMES)}",
)
FLAG: _Check = (lambda value: isinstance(value, bool), "True or False")
CLASS_NAMES: _Check = (
    lambda value: value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value)),
    "a list of class names",
)


def _mapped(
    name: str, expected: str, values: Any, read: Callable[[Any, Any], tuple[Any, Any]]
) -> dict[Any, Any]:
    """Return the mapping of the pairs that `read` returns for the keys and values of a mapping."""
    try:
        return dict(read(key, value) for key, value in values.items())
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name} must map {expected}, got {values!r} ({error})") from error


def read_labels(values: Any) -> dict[int, str]:
    """Return a mapping from integer ids to labels; JSON has only string keys."""
    return _mapped("id2label", "whole numbers to labels", values, lambda index, label: (int(index), label))


def refuse_pruned_heads(values: Any) -> dict[int, list[int]]:
    """Return an empty mapping; models with pruned heads cannot be computed."""
    if values:
        raise ConfigError("the config has pruned_heads, which albertkit does not support.")
    return {}


def ids_of_labels(id2label: Mapping[int, str]) -> dict[str, int]:
    """Return the inverse of `id2label`."""
    return _mapped("id2label", "whole numbers to labels", id2label, lambda index, label: (label, index))


def read_dtype(dtype: Any) -> str | None:
    """Return the name of a data type: "float32" for "float32", "torch.float32" or torch.float32."""
    return None if dtype is None else str(dtype).removeprefix("torch.")


def setting(
    default: Any,
    check: _Check | None = None,
    *,
    convert: Callable[[Any], Any] | None = None,
    written: Literal["always", "if changed", "never"] = "if changed",
    unit: str = "",
) -> Any:
    """Declare a field of the config.

    Args:
        default: The default value.
        check: The condition that a value must meet, with its description.
        convert: Function that converts a value in the constructor and when the attribute is set.
        written: Whether `config.json` contains the field.
        unit: The unit of a number, for the reference.
    """
    metadata = {"check": check, "convert": convert, "written": written, "unit": unit}
    return field(default=default, metadata=metadata)


def size(default: int, unit: str) -> Any:
    """Declare a field that must be an integer of at least 1."""
    check: _Check = (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        "a whole number of at least 1",
    )
    return setting(default, check, written="always", unit=unit)


def rate(default: float) -> Any:
    """Declare a field that must be a number in [0, 1)."""
    check: _Check = (lambda value: isinstance(value, int | float) and 0 <= value < 1, "a number in [0, 1)")
    return setting(default, check, written="always", unit="0 to 1")


# --- names of arguments -------------------------------------------------------------------------

OTHER_NAMES = {
    "torch_dtype": "dtype",
    "use_return_dict": "return_dict",
    "_attn_implementation": "attn_implementation",
    "_name_or_path": "name_or_path",
}
"""Other names of fields, which `transformers` also uses."""


def one_of(**alternatives: Any) -> Any:
    """Return the value of the alternative that is not None, or None if all are None.

    `alternatives` are several names of one setting.

    Raises:
        ConfigError: Two alternatives have different values.
    """
    given = {name: value for name, value in alternatives.items() if value is not None}
    if len({str(value) for value in given.values()}) > 1:
        raise ConfigError(f"{' and '.join(alternatives)} are one setting but have different values: {given}")
    return next(iter(given.values()), None)


def under_one_name(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with older names replaced by the current names."""
    arguments = dict(arguments)
    for older, name in OTHER_NAMES.items():
        if older in arguments:
            arguments[name] = one_of(**{name: arguments.get(name), older: arguments.pop(older)})
    return arguments


def check_other_keys(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if a key of a file shows that its model is not a supported ALBERT model."""
    if values.get("model_type", "albert") != "albert":
        raise ConfigError(
            f"this config has model_type {values['model_type']!r}. albertkit supports ALBERT only "
            "(model_type 'albert')."
        )
    if values.get("is_encoder_decoder"):
        raise ConfigError("is_encoder_decoder is True. ALBERT has only an encoder.")
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise ConfigError(
            f"position_embedding_type {values['position_embedding_type']!r} is not supported. "
            "ALBERT's positions are 'absolute'."
        )


def is_misspelled(name: str, arguments: Iterable[str]) -> bool:
    """Return whether an unknown name is close to the name of an argument. Private names never are."""
    return not name.startswith("_") and bool(difflib.get_close_matches(name, arguments, n=1, cutoff=0.9))


def unknown_arguments(names: Iterable[str], arguments: Iterable[str]) -> ConfigError:
    """Return the error for names that are not arguments; it suggests the closest argument for each."""
    parts = [f"{name!r}{did_you_mean(name, arguments)}" for name in sorted(names)]
    return ConfigError(
        f"AlbertConfig has no argument {', '.join(parts)}. To add a key of your own, set it as an attribute."
    )


# --- labels -------------------------------------------------------------------------------------

LABEL_ARGUMENTS = ("num_labels", "id2label", "label2id")


def settle_labels(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with both `id2label` and `label2id`, and without `num_labels`.

    If the two mappings contradict each other, `id2label` takes precedence, with a warning.
    """
    count, id2label, label2id = (arguments.get(name) for name in LABEL_ARGUMENTS)
    if label2id is not None:  # some files have the ids as strings
        label2id = _mapped(
            "label2id", "labels to whole numbers", label2id, lambda label, index: (label, int(index))
        )
    if id2label is None and label2id is not None:
        id2label = {index: label for label, index in label2id.items()}
        if len(id2label) != len(label2id):
            raise ConfigError(
                f"label2id gives several labels the same id: {label2id!r}. Expected 0, 1, 2, ..."
            )
    if id2label is None:
        number = 2 if count is None else count
        # Each label needs memory, so limit the number from a damaged file.
        if not isinstance(number, Integral) or not 1 <= int(number) <= _MOST_LABELS:
            raise ConfigError(
                f"num_labels must be a whole number of at least 1, got {number!r} (maximum: {_MOST_LABELS:,})"
            )
        id2label = {index: f"LABEL_{index}" for index in range(number)}
    id2label = read_labels(id2label)
    if count is not None and count != len(id2label):
        raise ConfigError(
            f"num_labels is {count}, but id2label names {len(id2label)} labels. "
            "Pass one of the two, or make them agree."
        )
    inverse = ids_of_labels(id2label)
    label2id = inverse if label2id is None else label2id
    wrong = [label for label, index in label2id.items() if label in inverse and id2label.get(index) != label]
    if wrong:
        warn_caller(
            f"id2label gives {wrong[0]!r} the id {inverse[wrong[0]]}, but label2id gives it the id "
            f"{label2id[wrong[0]]}. albertkit uses id2label. Correct label2id, or omit it."
        )
        label2id = inverse
    rest = {name: value for name, value in arguments.items() if name != "num_labels"}
    return {**rest, "id2label": id2label, "label2id": label2id}
