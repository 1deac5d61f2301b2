"""The settings of a tokenizer: arguments of its class, and entries of tokenizer_config.json."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from albertkit.errors import TokenizerError, short
from albertkit.hub import take_loading_options
from albertkit.tokenization.batch import Side, read_side
from albertkit.tokenization.special_tokens import token_texts

DEFAULTS: dict[str, Any] = {
    "model_max_length": 512,
    "padding_side": "right",
    "truncation_side": "right",
    "parse_special_tokens": True,
    "clean_up_tokenization_spaces": False,
}
"""The attributes other than special tokens and normalization rules, each with its default."""

# Options of `transformers` tokenizers, with the only value that ALBERT supports.
_FIXED: dict[str, Any] = {
    "add_prefix_space": True,
    "trim_offsets": True,
    "sp_model_kwargs": {},
    "tokenizer_type": "albert",
}


class TokenizerSettings(TypedDict, total=False):
    """Keyword arguments of every tokenizer, in addition to the files and the normalization rules.

    A token that is not in the vocabulary gets an id after it. Set a role to None if it has no token.
    `additional_special_tokens` and `extra_special_tokens` are the same setting. `parse_special_tokens` is the
    opposite of `split_special_tokens`.
    """

    bos_token: str | None
    eos_token: str | None
    unk_token: str | None
    sep_token: str | None
    pad_token: str | None
    cls_token: str | None
    mask_token: str | None
    additional_special_tokens: Iterable[str] | Mapping[str, str] | None
    extra_special_tokens: Iterable[str] | Mapping[str, str] | None
    added_tokens: Mapping[str, int]
    model_max_length: int | None
    padding_side: Side
    truncation_side: Side
    parse_special_tokens: bool
    split_special_tokens: bool
    clean_up_tokenization_spaces: bool


def read_setting(name: str, value: Any) -> Any:
    """Return an attribute in `DEFAULTS`, by default for None; raise TokenizerError if it is not valid."""
    if value is None:
        return DEFAULTS[name]
    if name.endswith("_side"):
        return read_side(name, value)
    if name != "model_max_length":
        return read_flag(name, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
        raise TokenizerError(f"{name}={short(value)}: expected a whole number of at least 1")
    return int(value)


def read_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TokenizerError(f"{name}={short(value)}: expected True or False")
    return value


def take_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tokenizer's arguments without the arguments of `transformers` that have no effect here.

    These are loading options (see `take_loading_options`), `use_fast`, `verbose`, `config`, and options for
    which ALBERT's tokenizers support only one value. Where a setting has two names, the result uses
    `extra_special_tokens` and `parse_special_tokens`.
    """
    taken = take_loading_options(settings)
    for name in ("use_fast", "verbose", "config"):
        taken.pop(name, None)
    for name, allowed in _FIXED.items():
        if name in taken and taken.pop(name) not in (None, allowed):
            raise TokenizerError(f"{name}={short(settings[name])} is not supported. Omit it.")
    if "additional_special_tokens" in taken:
        tokens = token_texts(taken.pop("additional_special_tokens") or ())
        others = token_texts(taken.get("extra_special_tokens") or ())
        if tokens and others and tokens != others:
            raise TokenizerError(
                "extra_special_tokens and additional_special_tokens are one setting, but differ: pass one of "
                f"{short(others)} and {short(tokens)}"
            )
        taken["extra_special_tokens"] = tokens or others
    if "split_special_tokens" in taken:
        parse = not read_flag("split_special_tokens", taken.pop("split_special_tokens"))
        if taken.setdefault("parse_special_tokens", parse) != parse:
            raise TokenizerError(
                f"parse_special_tokens is {not parse} and split_special_tokens is {not parse}. One is the "
                "opposite of the other: pass one of them"
            )
    return taken
