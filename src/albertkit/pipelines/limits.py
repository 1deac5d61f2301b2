"""What callers of `transformers` give to a tokenizer through a pipeline: truncation, max_length, padding."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from albertkit.errors import ConfigError
from albertkit.tokenization.options import Options, Strategy, read_fit

_ARGUMENTS = ("truncation", "max_length", "padding")
_LEAST = 3  # [CLS], a token, [SEP]


def check_size(name: str, value: int | None, *, least: int = 1) -> int | None:
    """Return an argument that is a whole number or None; raise ConfigError for anything else."""
    if value is not None and (not isinstance(value, Integral) or value < least):
        raise ConfigError(f"{name} is {value!r}; expected a whole number of at least {least}")
    return value


def read_limits(*given: Mapping[str, Any], most: int, trained: int | None = None) -> tuple[Strategy, int]:
    """Return how a long text is cut, and the most tokens of a row.

    Args:
        given: the arguments of the pipeline, and those of the call, which override them unless they are None:
            `truncation`, as of a tokenizer; `max_length`, by default `trained` where long texts are cut, else
            `most`; `padding`, as of a tokenizer, though no answer depends on it.
        most: what the model reads.
        trained: maximum length that the model was fine-tuned with; None for `most`.

    Raises:
        ConfigError: `max_length` is none.
        TokenizerError: an unknown truncation or padding.
    """
    limits = dict[str, Any](
        (name, value) for one in given for name, value in one.items() if value is not None
    )
    max_length = limits.get("max_length")
    options = Options(truncation=limits.get("truncation") or False, padding=limits.get("padding") or False)
    strategy = read_fit(options, model_max_length=most).truncation
    check_size("max_length", max_length, least=_LEAST)
    if max_length is not None and max_length > most:
        raise ConfigError(f"max_length is {max_length}; expected at most {most}, what the model reads")
    if max_length is None:
        max_length = most if strategy == "do_not_truncate" else trained
    return strategy, max_length or most


def merge_arguments(name: str, given: Mapping[str, Any] | None, **direct: Any) -> dict[str, Any]:
    """Return the arguments for the tokenizer, given as a mapping and directly.

    Args:
        name: what the mapping is called.
        given: the mapping.
        direct: those given directly; None where not.

    Raises:
        ConfigError: one that has no meaning here, or one given twice.
    """
    given = given or {}
    unknown = [one for one in given if one not in _ARGUMENTS]
    if unknown:
        raise ConfigError(f"{name} has {', '.join(unknown)}; expected some of {', '.join(_ARGUMENTS)}")
    found = {argument: value for argument, value in direct.items() if value is not None}
    if twice := [argument for argument in found if argument in given]:
        raise ConfigError(f"{', '.join(twice)} is given twice, directly and in {name}; give it once")
    return dict.fromkeys(_ARGUMENTS) | found | dict(given)
