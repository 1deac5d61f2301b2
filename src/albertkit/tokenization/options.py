"""The arguments of a tokenizer call: their types, defaults and checks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

from albertkit.errors import TokenizerError, short, suggestion
from albertkit.hub import take_loading_options
from albertkit.tokenization.special_tokens import Parsing, token_texts

# Options of `transformers` tokenizers, with the only value that ALBERT supports.
_FIXED: dict[str, Any] = {
    "add_prefix_space": True,
    "trim_offsets": True,
    "sp_model_kwargs": {},
    "tokenizer_type": "albert",
}

NO_LIMIT = 10**9
"""A larger maximum length means that there is none; `transformers` writes a huge number then."""

# Warnings of calls, whose values are numbers of tokens.
TRUNCATED_BY_DEFAULT = (
    "max_length=%d without truncation= or padding= truncates longer texts to that length. Pass "
    "truncation=True if you want that, or truncation=False to keep all tokens."
)
OVER_MAXIMUM_LENGTH = (
    "a text has %d tokens, but the maximum length is %d. Pass truncation=True to truncate it. To get windows "
    "over the whole text, also pass return_overflowing_tokens=True and a stride."
)

Side = Literal["left", "right"]
Strategy = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
Padding = Literal["longest", "max_length", "do_not_pad"]
Text = str | Sequence[str]  # a string, or the words of a text


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


class ParsingOptions(TypedDict, total=False):
    """Keyword arguments of every method that splits texts. For their meaning see `Options`."""

    parse_special_tokens: Parsing | None
    split_special_tokens: bool | None


class CallOptions(ParsingOptions, total=False):
    """Keyword arguments of every method that encodes texts. For their meaning and defaults see `Options`."""

    add_special_tokens: bool
    padding: bool | str
    truncation: bool | str | None
    max_length: int | None
    stride: int
    is_split_into_words: bool
    pad_to_multiple_of: int | None
    padding_side: Side | None
    return_tensors: str | None
    return_token_type_ids: bool | None
    return_attention_mask: bool | None
    return_overflowing_tokens: bool
    return_special_tokens_mask: bool
    return_offsets_mapping: bool
    return_length: bool
    verbose: bool


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of one call."""

    add_special_tokens: bool = True
    """Whether to put [CLS] and [SEP] around the texts."""
    padding: bool | str = False
    """True or "longest" pads to the longest row, "max_length" to `max_length`. False or "do_not_pad" does not
    pad."""
    truncation: bool | str | None = None
    """The text of a pair to truncate: True or "longest_first", "only_first", "only_second". False or
    "do_not_truncate" truncates nothing. None truncates only if `max_length` is set and `padding` is not."""
    max_length: int | None = None
    """Maximum length of a row in tokens, including special tokens. None means `model_max_length`."""
    stride: int = 0
    """Overlap: the number of tokens that a window shares with the previous window."""
    is_split_into_words: bool = False
    """Whether texts are passed as lists of words. Offsets are then relative to each word."""
    pad_to_multiple_of: int | None = None
    """Number to whose next multiple the padded length is rounded up."""
    padding_side: Side | None = None
    """Side to pad. None means the tokenizer's setting. ALBERT's absolute positions need "right"."""
    return_tensors: str | None = None
    """"pt", "np" or "tf" for tensors; None for lists."""
    return_token_type_ids: bool | None = None
    """Whether to return `token_type_ids`. None means True."""
    return_attention_mask: bool | None = None
    """Whether to return `attention_mask`. None means True."""
    return_overflowing_tokens: bool = False
    """Whether to return each window of a truncated text as a row, and `overflow_to_sample_mapping` with the
    index of each row's example."""
    return_special_tokens_mask: bool = False
    """Whether to return `special_tokens_mask`: 1 for [CLS], [SEP] and padding."""
    return_offsets_mapping: bool = False
    """Whether to return `offset_mapping`: the characters (start, end) of each token in the original text."""
    return_length: bool = False
    """Whether to return `length`: the number of tokens of each row."""
    parse_special_tokens: Parsing | None = None
    """Whether to parse special tokens such as `[MASK]` in a text. False reads them as plain text; "mask"
    parses only `[MASK]`. None means the tokenizer's setting."""
    split_special_tokens: bool | None = None
    """The opposite of `parse_special_tokens`, as in `transformers`. Used only if that one is None."""
    verbose: bool = True
    """Whether to warn about rows that are longer than `model_max_length`."""

    @classmethod
    def read(cls, **options: Unpack[CallOptions]) -> "Options":
        """Read the arguments of a call.

        Raises:
            TypeError: An argument is unknown; the message suggests the closest known name.
            TokenizerError: `parse_special_tokens` has an unknown value.
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise TypeError(f"a tokenizer call has no argument {name!r}. {suggestion(name, known)}")
        chosen = cls(**options)
        if chosen.parse_special_tokens not in (None, True, False, "mask"):
            value = chosen.parse_special_tokens
            raise TokenizerError(f"parse_special_tokens={short(value)}: expected True, False or 'mask'")
        if chosen.parse_special_tokens is None and chosen.split_special_tokens is not None:
            return replace(chosen, parse_special_tokens=not chosen.split_special_tokens)
        return chosen

    @classmethod
    def read_parsing(cls, **options: Unpack[ParsingOptions]) -> "Options":
        """Read the arguments of a method that splits texts, but neither truncates nor pads.

        Raises:
            TypeError: An argument has an effect only in calls of the tokenizer, or is unknown.
            TokenizerError: See `read`.
        """
        chosen = cls.read(**options)
        for name in options:
            if name not in ParsingOptions.__annotations__ and name != "verbose":
                raise TypeError(
                    f"{name!r} has no effect here: this method only splits texts into tokens. Call the "
                    f"tokenizer instead: tokenizer(text, {name}=...).tokens()"
                )
        return chosen


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The resolved values of `padding`, `truncation` and `max_length`."""

    padding: Padding
    truncation: Strategy
    max_length: int


def read_fit(options: Options, *, model_max_length: int) -> Fit:
    """Resolve `padding`, `truncation` and `max_length` as `transformers` does, except for the errors.

    Raises:
        TokenizerError: A value is unknown, a length is not a multiple of `pad_to_multiple_of`, or rows should
            be padded to a maximum length that the tokenizer does not have.
    """
    for name, least in (("stride", 0), ("pad_to_multiple_of", 1), ("max_length", 0)):
        value = getattr(options, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise TokenizerError(f"{name}={short(value)}: expected a whole number")
        if value is not None and value < least:
            raise TokenizerError(f"{name}={value}: expected at least {least}")
    truncation = options.truncation
    if truncation is None and options.max_length is not None and options.padding is False:
        truncation = True
    fit = Fit(
        padding=_choice("padding", options.padding, "longest", "do_not_pad", get_args(Padding)),
        truncation=read_strategy(truncation),
        max_length=model_max_length if options.max_length is None else options.max_length,
    )
    if fit.padding == "max_length" and options.max_length is None and model_max_length > NO_LIMIT:
        raise TokenizerError(
            "padding='max_length' needs a maximum length, but this tokenizer has none. Pass max_length."
        )
    if (
        fit.truncation != "do_not_truncate"
        and fit.padding != "do_not_pad"
        and options.pad_to_multiple_of
        and fit.max_length % options.pad_to_multiple_of
    ):
        raise TokenizerError(
            f"max_length={fit.max_length} is not a multiple of "
            f"pad_to_multiple_of={options.pad_to_multiple_of}: rows could not be both truncated and padded"
        )
    return fit


def read_strategy(truncation: bool | str | None) -> Strategy:
    """Return the truncation strategy; raise TokenizerError for an unknown one."""
    return _choice("truncation", truncation, "longest_first", "do_not_truncate", get_args(Strategy))


def read_side(name: str, value: Any) -> Side:
    """Return a side; raise TokenizerError if it is neither "left" nor "right"."""
    if value not in get_args(Side):
        raise TokenizerError(f"{name}={value!r}: expected one of {', '.join(get_args(Side))}")
    return value


def read_flag(name: str, value: Any) -> bool:
    """Return a boolean setting; raise TokenizerError if it is not True or False."""
    if not isinstance(value, bool):
        raise TokenizerError(f"{name}={short(value)}: expected True or False")
    return value


def _read_max_length(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
        raise TokenizerError(f"{name}={short(value)}: expected a whole number of at least 1")
    return int(value)


SETTINGS: dict[str, tuple[Any, Callable[[str, Any], Any]]] = {
    "model_max_length": (512, _read_max_length),
    "padding_side": ("right", read_side),
    "truncation_side": ("right", read_side),
    "parse_special_tokens": (True, read_flag),
    "clean_up_tokenization_spaces": (False, read_flag),
}
"""The attributes other than special tokens and normalization rules, each with its default and its check."""


def read_setting(name: str, value: Any) -> Any:
    """Return an attribute in `SETTINGS`, by default for None; raise TokenizerError if it is not valid."""
    default, read = SETTINGS[name]
    return default if value is None else read(name, value)


def take_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tokenizer's arguments without the arguments of `transformers` that have no effect here.

    These are loading options (see `take_loading_options`), `use_fast`, `verbose`, `config`, and options for
    which ALBERT's tokenizers support only one value. Where a setting has two names, the result uses
    `extra_special_tokens` and `parse_special_tokens`.

    Raises:
        ConfigError, TokenizerError: An option has an unsupported value, or the two names of a setting have
            different values.
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
                f"extra_special_tokens is {short(others)} and additional_special_tokens is {short(tokens)}. "
                "They are the same setting: pass one of them"
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


def read_examples(
    text: Any, text_pair: Any, *, is_split_into_words: bool
) -> tuple[list[tuple[Text, Text | None]], bool]:
    """Return the examples of a call as (text, second text or None), and whether the call is a batch.

    Raises:
        TokenizerError: A value is not a text. The message gives its type.
    """
    is_text = _is_words if is_split_into_words else _is_string
    expected = "a list of words" if is_split_into_words else "a string, a list of strings, or a list of pairs"
    single = is_text(text)
    if single:
        examples = [(text, text_pair)]
    elif text_pair is None:
        entries = _as_list("text", text, expected)
        examples = [entry if _is_pair(entry, is_text) else (entry, None) for entry in entries]
    else:
        texts, pairs = _as_list("text", text, expected), _as_list("text_pair", text_pair, expected)
        if len(texts) != len(pairs):
            raise TokenizerError(
                f"received {len(texts)} texts and {len(pairs)} second texts. Expected equal numbers."
            )
        examples = list(zip(texts, pairs, strict=True))
    for first, second in examples:
        is_alone = second is None and (single or text_pair is None)
        for value in (first,) if is_alone else (first, second):
            if not is_text(value):
                raise TokenizerError(
                    f"received {short(value)} ({type(value).__name__}) for a text. Expected {expected}."
                )
    return cast("list[tuple[Text, Text | None]]", examples), not single


def _is_pair(entry: Any, is_text: Callable[[Any], bool]) -> bool:
    return isinstance(entry, (tuple, list)) and len(entry) == 2 and all(map(is_text, entry))


def _is_string(text: Any) -> bool:
    return isinstance(text, str)


def _is_words(text: Any) -> bool:
    return isinstance(text, (list, tuple)) and all(isinstance(word, str) for word in text)


def _as_list(name: str, texts: Any, expected: str) -> list[Any]:
    """Return a batch, which may be a list, tuple, NumPy array or table column, as a list."""
    if (
        isinstance(texts, (str, bytes, dict))
        or not hasattr(texts, "__len__")
        or not hasattr(texts, "__iter__")
    ):
        raise TokenizerError(
            f"received {short(texts)} ({type(texts).__name__}) for {name}. Expected {expected}."
        )
    return list(texts)


def _choice(name: str, value: Any, true: str, false: str, allowed: tuple[str, ...]) -> Any:
    """Return the name of a strategy that was passed as a bool, a name or an enumeration member."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, bool):
        return true if value else false
    if value not in allowed:
        raise TokenizerError(f"{name}={value!r}: expected True, False or one of {', '.join(allowed)}")
    return value
