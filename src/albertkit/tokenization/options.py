"""The arguments of a tokenizer call: their types, and the reading of what `transformers` users pass."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

from albertkit.errors import TokenizerError, suggestion
from albertkit.hub import take_loading_options
from albertkit.tokenization.special_tokens import Parsing, token_texts

# Options of the tokenizers of `transformers` with the only value that goes with ALBERT.
_FIXED: dict[str, Any] = {
    "add_prefix_space": True,
    "trim_offsets": True,
    "sp_model_kwargs": {},
    "tokenizer_type": "albert",
}

Side = Literal["left", "right"]
Strategy = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
Padding = Literal["longest", "max_length", "do_not_pad"]
Words = Sequence[str]  # a text that is already split into words
Text = str | Words


class TokenizerSettings(TypedDict, total=False):
    """Keyword arguments of every tokenizer, beside the files and the rules of normalization.

    A token that the vocabulary lacks is added behind it; a role whose token is None has none.
    `additional_special_tokens` and `extra_special_tokens` are one setting, as are `parse_special_tokens` and
    the opposite of `split_special_tokens`.
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
    """Keyword arguments of every method that splits texts."""

    parse_special_tokens: Parsing | None
    split_special_tokens: bool | None


class CallOptions(ParsingOptions, total=False):
    """Keyword arguments of every method that encodes texts; `Options` explains them and has the defaults."""

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
    """Put [CLS] and [SEP] around the texts."""
    padding: bool | str = False
    """True or "longest": to the longest row; "max_length": to `max_length`; False or "do_not_pad": not."""
    truncation: bool | str | None = None
    """True or "longest_first", "only_first", "only_second"; False or "do_not_truncate": not. None truncates
    only where `max_length` is given and `padding` is not."""
    max_length: int | None = None
    """Longest row, special tokens included; None for the tokenizer's `model_max_length`."""
    stride: int = 0
    """Tokens that a window of a truncated text repeats from the window before."""
    is_split_into_words: bool = False
    """Texts are lists of words; offsets then point into each word."""
    pad_to_multiple_of: int | None = None
    """Round the padded length up."""
    padding_side: Side | None = None
    """None for the tokenizer's own: right, as ALBERT's absolute positions need."""
    return_tensors: str | None = None
    """"pt", "np" or "tf"; None for lists."""
    return_token_type_ids: bool | None = None
    """False leaves them out."""
    return_attention_mask: bool | None = None
    """False leaves it out."""
    return_overflowing_tokens: bool = False
    """Return every window of a truncated text as a row of its own, and `overflow_to_sample_mapping` with the
    number of the example that each row comes from."""
    return_special_tokens_mask: bool = False
    """`special_tokens_mask`: 1 for the tokens that stand around the texts and for padding."""
    return_offsets_mapping: bool = False
    """`offset_mapping`: the characters (start, end) of each token in its text as given."""
    return_length: bool = False
    """`length`: tokens of each row."""
    parse_special_tokens: Parsing | None = None
    """Whether `[MASK]` and the like, written in a text, are special tokens or plain text; "mask": that alone.
    None for the tokenizer's own setting."""
    split_special_tokens: bool | None = None
    """The opposite of `parse_special_tokens`, as `transformers` names it; counts where that one is None."""
    verbose: bool = True
    """Warn of rows longer than `model_max_length`."""

    @classmethod
    def read(cls, **options: Unpack[CallOptions]) -> "Options":
        """Take the arguments of a call; raise TypeError for one that no call has, naming the nearest."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise TypeError(f"a tokenizer call has no argument {name!r}; {suggestion(name, known)}")
        chosen = cls(**options)
        if chosen.parse_special_tokens is None and chosen.split_special_tokens is not None:
            return replace(chosen, parse_special_tokens=not chosen.split_special_tokens)
        return chosen


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How rows are made to fit: `padding`, `truncation` and `max_length`, resolved."""

    padding: Padding
    truncation: Strategy
    max_length: int


def read_fit(options: Options, *, model_max_length: int) -> Fit:
    """Resolve the arguments as `transformers` does.

    Raises:
        TokenizerError: A value is unknown, or a length is not a multiple of `pad_to_multiple_of`.
    """
    for name, least in (("stride", 0), ("pad_to_multiple_of", 1)):
        value = getattr(options, name)
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
    if (
        fit.truncation != "do_not_truncate"
        and fit.padding != "do_not_pad"
        and options.pad_to_multiple_of
        and fit.max_length % options.pad_to_multiple_of
    ):
        raise TokenizerError(
            f"max_length={fit.max_length} is no multiple of pad_to_multiple_of={options.pad_to_multiple_of}: "
            f"rows could not be both truncated and padded"
        )
    return fit


def read_strategy(truncation: bool | str | None) -> Strategy:
    """Return how rows are cut; raise TokenizerError for an unknown way."""
    return _choice("truncation", truncation, "longest_first", "do_not_truncate", get_args(Strategy))


def read_side(name: str, value: Any) -> Side:
    """Return a side as it was given.

    Raises:
        TokenizerError: The value is neither "left" nor "right".
    """
    if value not in get_args(Side):
        raise TokenizerError(f"{name}={value!r}: expected one of {', '.join(get_args(Side))}")
    return value


def read_flag(name: str, value: Any) -> bool:
    """Return a setting that is True or False; raise TokenizerError for anything else."""
    if not isinstance(value, bool):
        raise TokenizerError(f"{name}={value!r:.80}: expected True or False")
    return value


def read_max_length(value: Any) -> int:
    """Return `model_max_length`, which may be a huge number for no limit, or None for the usual 512.

    Raises:
        TokenizerError: The value is anything else.
    """
    if value is None:
        return 512
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
        raise TokenizerError(f"model_max_length={value!r:.80}: expected a whole number of at least 1")
    return int(value)


SETTINGS: dict[str, Callable[[Any], Any]] = {
    "model_max_length": read_max_length,
    "padding_side": lambda value: "right" if value is None else read_side("padding_side", value),
    "truncation_side": lambda value: "right" if value is None else read_side("truncation_side", value),
    "parse_special_tokens": lambda value: value is None or read_flag("parse_special_tokens", value),
    "clean_up_tokenization_spaces": lambda value: (
        value is not None and read_flag("clean_up_tokenization_spaces", value)
    ),
}
"""The settings beside special tokens and rules of normalization: each with the function that checks a value
and returns the default for None."""


def take_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tokenizer's arguments without those of `transformers` that change nothing here.

    These are its loading options (see `take_loading_options`), `use_fast`, `verbose` and `config`, and
    options that can have one value only with ALBERT's tokenizers. Of a setting with two names, the result has
    `extra_special_tokens` and `parse_special_tokens`.

    Raises:
        ConfigError, TokenizerError: an option asks for what is not supported, or the two names of a setting
            have different values.
    """
    taken = take_loading_options(settings)
    for name in ("use_fast", "verbose", "config"):
        taken.pop(name, None)
    for name, allowed in _FIXED.items():
        if name in taken and taken.pop(name) not in (None, allowed):
            raise TokenizerError(f"{name}={settings[name]!r:.80} is not supported; leave it out")
    if "additional_special_tokens" in taken:
        tokens = token_texts(taken.pop("additional_special_tokens") or ())
        others = token_texts(taken.get("extra_special_tokens") or ())
        if tokens and others and tokens != others:
            raise TokenizerError(
                f"extra_special_tokens is {others!r:.80} and additional_special_tokens is {tokens!r:.80}; "
                "they are one setting, so give one of them"
            )
        taken["extra_special_tokens"] = tokens or others
    if "split_special_tokens" in taken:
        parse = not read_flag("split_special_tokens", taken.pop("split_special_tokens"))
        if taken.setdefault("parse_special_tokens", parse) != parse:
            raise TokenizerError(
                f"parse_special_tokens is {not parse} and split_special_tokens is {not parse}; one is the "
                "opposite of the other, so give one of them"
            )
    return taken


def read_examples(
    text: Any, text_pair: Any, *, is_split_into_words: bool
) -> tuple[list[tuple[Text, Text | None]], bool]:
    """Return the examples of a call as (text, second text or None), and whether they came as a batch.

    Raises:
        TokenizerError: A value is not a text; the message names its type.
    """
    single = _is_words(text) if is_split_into_words else isinstance(text, str)
    if single:
        examples = [(text, text_pair)]
    else:
        texts = _as_list("text", text)
        if text_pair is None:
            examples = [_read_pair(entry, is_split_into_words) for entry in texts]
        else:
            pairs = _as_list("text_pair", text_pair)
            if len(texts) != len(pairs):
                raise TokenizerError(
                    f"received {len(texts)} texts and {len(pairs)} second texts; expected as many"
                )
            examples = list(zip(texts, pairs, strict=True))
    is_text = _is_words if is_split_into_words else _is_string
    expected = "a list of words" if is_split_into_words else "a string, a list of strings, or a list of pairs"
    for first, second in examples:
        for value in (first, *([] if second is None else [second])):
            if not is_text(value):
                raise TokenizerError(
                    f"received {value!r:.80} ({type(value).__name__}) for a text; expected {expected}"
                )
    return cast("list[tuple[Text, Text | None]]", examples), not single


def _read_pair(example: Any, is_split_into_words: bool) -> tuple[Any, Any]:
    """Return one entry of a batch as an example: a text, or a pair given as (text, second text)."""
    if isinstance(example, (tuple, list)) and len(example) == 2:
        is_text = _is_words if is_split_into_words else _is_string
        if is_text(example[0]) and is_text(example[1]):
            return example[0], example[1]
    return example, None


def _is_string(text: Any) -> bool:
    return isinstance(text, str)


def _is_words(text: Any) -> bool:
    return isinstance(text, (list, tuple)) and all(isinstance(word, str) for word in text)


def _as_list(name: str, texts: Any) -> list[Any]:
    """Return a batch as a list; it may be any sequence (list, tuple, NumPy array, column of a table)."""
    if (
        isinstance(texts, (str, bytes, dict))
        or not hasattr(texts, "__len__")
        or not hasattr(texts, "__iter__")
    ):
        raise TokenizerError(
            f"received {texts!r:.80} ({type(texts).__name__}) for {name}; expected a string or a list of them"
        )
    return list(texts)


def _choice(name: str, value: Any, true: str, false: str, allowed: tuple[str, ...]) -> Any:
    """Return a strategy given as a bool, a name or one of the enumerations of `transformers`."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, bool):
        return true if value else false
    if value not in allowed:
        raise TokenizerError(f"{name}={value!r}: expected True, False or one of {', '.join(allowed)}")
    return value
