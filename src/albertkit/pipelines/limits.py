"""Read the tokenizer arguments of pipelines, as in `transformers`: truncation, max_length, padding."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from albertkit.errors import ConfigError, short
from albertkit.tokenization.batch import Padding, Strategy, read_choice, read_strategy

_ARGUMENTS = ("truncation", "max_length", "padding")
_LEAST = 3  # [CLS], a token, [SEP]


def check_size(name: str, value: int | None, *, least: int = 1) -> int | None:
    """Return an argument that must be a whole number or None; raise ConfigError for anything else."""
    if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < least):
        raise ConfigError(f"{name} is {value!r}. Expected a whole number of at least {least}.")
    return value


def check_dict(name: str, value: Any, *, expected: str) -> Mapping[str, Any]:
    """Return an argument that must be a mapping, or {} for None; raise ConfigError for anything else."""
    if not isinstance(value, Mapping | None):
        raise ConfigError(f"{name} is {short(value)}. Expected a dict with {expected}.")
    return value or {}


def read_limits(
    truncation: bool | str | None,
    max_length: int | None,
    padding: bool | str | None = None,
    *,
    most: int,
    trained: int | None = None,
    by_default: Strategy = "longest_first",
) -> tuple[Strategy, int]:
    """Return the truncation strategy of long texts, and the maximum length of a row.

    A fine-tuned model gives the same answers here as in `albertkit.predict`: it reads texts up to the length
    of its fine-tuning, and longer texts are truncated unless the caller refuses.

    Args:
        truncation: as for a tokenizer; None for True if the limit is `trained`, otherwise for False.
        max_length: the maximum length; None for `trained`.
        padding: as for a tokenizer, although it does not change answers.
        most: the model's maximum length.
        trained: maximum length of the fine-tuning; None for `most`.
        by_default: the strategy of `truncation=True`.

    Raises:
        ConfigError: `max_length` is invalid.
        TokenizerError: truncation or padding is unknown.
    """
    if truncation is None:
        truncation = max_length is None and trained is not None
    strategy = read_strategy(by_default if truncation is True else truncation)
    read_choice("padding", padding, "longest", "do_not_pad", Padding)  # raises if it is unknown
    check_size("max_length", max_length, least=_LEAST)
    if max_length is not None and max_length > most:
        raise ConfigError(f"max_length is {max_length}. Expected at most {most}, the model's maximum.")
    return strategy, max_length or trained or most


def merge_arguments(name: str, given: Mapping[str, Any] | None, **direct: Any) -> dict[str, Any]:
    """Return the arguments of `read_limits`, which may be passed in a mapping and directly.

    Args:
        name: the name of the mapping.
        given: the mapping.
        direct: the arguments passed directly; None if not passed.

    Raises:
        ConfigError: an argument is not supported, or is passed twice.
    """
    given = check_dict(name, given, expected=f"some of {', '.join(_ARGUMENTS)}")
    unknown = [one for one in given if one not in _ARGUMENTS]
    if unknown:
        raise ConfigError(
            f"{name} has {', '.join(map(str, unknown))}. Expected some of {', '.join(_ARGUMENTS)}."
        )
    found = {argument: value for argument, value in direct.items() if value is not None}
    if twice := [argument for argument in found if argument in given]:
        raise ConfigError(f"{', '.join(twice)} is passed twice, directly and in {name}. Pass it once.")
    return dict.fromkeys(_ARGUMENTS) | found | dict(given)
