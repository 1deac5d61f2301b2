"""Make a batch from texts: encode, truncate, make windows, add special tokens and pad."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from numbers import Integral
from typing import Any, Literal, NamedTuple, get_args

from albertkit.errors import TokenizerError, short
from albertkit.tokenization.encoding import BatchEncoding, EncodedText, Encoding, Text
from albertkit.tokenization.special_tokens import Parsing, Part, SpecialTokens

Side = Literal["left", "right"]
Strategy = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
Padding = Literal["longest", "max_length", "do_not_pad"]
_CHOICES: dict[str, tuple[Any, dict[bool, str]]] = {
    "padding": (Padding, {True: "longest", False: "do_not_pad"}),
    "truncation": (Strategy, {True: "longest_first", False: "do_not_truncate"}),
    "padding_side": (Side, {}),
    "truncation_side": (Side, {}),
}
"""The values of each argument, and the values that True and False stand for; None is the same as False."""
NO_LIMIT = 10**9
"""A larger maximum length means that there is none; `transformers` writes a huge number then."""


# --- options ------------------------------------------------------------------------------------


class Lengths(NamedTuple):
    padding: Padding
    truncation: Strategy
    max_length: int
    multiple_of: int | None

    def width(self, longest: int) -> int:
        width = longest if self.padding == "longest" else self.max_length
        return width if not self.multiple_of else -(-width // self.multiple_of) * self.multiple_of


def read_lengths(
    padding: bool | str,
    truncation: bool | str | None,
    max_length: int | None,
    pad_to_multiple_of: int | None,
    *,
    model_max_length: int,
) -> Lengths:
    """Resolve the arguments of a call as `transformers` does, except for the errors."""
    for name, value, least in (("pad_to_multiple_of", pad_to_multiple_of, 1), ("max_length", max_length, 0)):
        if value is not None:
            check_number(name, value, least)
    if truncation is None:
        truncation = max_length is not None and padding is False
    lengths = Lengths(
        padding=read_choice("padding", padding),
        truncation=read_choice("truncation", truncation),
        max_length=model_max_length if max_length is None else max_length,
        multiple_of=pad_to_multiple_of,
    )
    if lengths.padding == "max_length" and max_length is None and model_max_length > NO_LIMIT:
        raise TokenizerError("padding='max_length' needs max_length: this tokenizer has no maximum length")
    is_fixed = lengths.truncation != "do_not_truncate" and lengths.padding != "do_not_pad"
    if is_fixed and pad_to_multiple_of and lengths.max_length % pad_to_multiple_of:
        raise TokenizerError(f"max_length={lengths.max_length} is not a multiple of {pad_to_multiple_of}")
    return lengths


def check_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise TokenizerError(f"{name}={short(value)}: expected a whole number of at least {least}")


def read_choice(name: str, value: Any) -> Any:
    """Return one of the choices of an argument, passed as a bool, a name or an enumeration member."""
    choices, by_bool = _CHOICES[name]
    value = getattr(value, "value", value)
    if value is None or isinstance(value, bool):
        value = by_bool.get(bool(value), value)
    if value not in get_args(choices):
        raise TokenizerError(f"{name}={value!r}: expected one of {', '.join(get_args(choices))}")
    return value


# --- texts --------------------------------------------------------------------------------------


def read_examples(text: Any, text_pair: Any, *, is_split_into_words: bool) -> tuple[list[list[Text]], bool]:
    """Return the one or two texts of each example of a call, and whether the call is a batch."""

    def is_text(value: Any) -> bool:
        if is_split_into_words:
            return isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)
        return isinstance(value, str)

    def refused(value: Any) -> TokenizerError:
        expected = "a list of words" if is_split_into_words else "a string, or a list of strings or pairs"
        received = f"{short(value)} ({type(value).__name__})"
        return TokenizerError(f"received {received} for a text. Expected {expected}.")

    def listed(values: Any) -> list[Any]:  # a list, tuple, NumPy array or table column
        if not hasattr(values, "__len__") or isinstance(values, (str, bytes, dict)):
            raise refused(values)
        return list(values)

    examples: list[list[Any]]
    if is_text(text):
        examples = [[text] if text_pair is None else [text, text_pair]]
    elif text_pair is None:
        examples = [
            list(entry)
            if isinstance(entry, (tuple, list)) and len(entry) == 2 and all(map(is_text, entry))
            else [entry]
            for entry in listed(text)
        ]
    else:
        texts, pairs = listed(text), listed(text_pair)
        if len(texts) != len(pairs):
            raise TokenizerError(f"received {len(texts)} texts and {len(pairs)} second texts")
        examples = [list(pair) for pair in zip(texts, pairs, strict=True)]
    for value in chain(*examples):
        if not is_text(value):
            raise refused(value)
    return examples, not is_text(text)


class TextEncoder:
    """Encodes texts: splits them at special tokens, and encodes the parts between with a subword model.

    The model is a `UnigramModel` or a `WordPieceModel`.
    """

    def __init__(self, model: Any, special_tokens: SpecialTokens) -> None:
        self._model, self._special = model, special_tokens

    def encode(self, examples: list[list[Text]], parse: Parsing) -> list[list[EncodedText]]:
        texts = list(chain(*examples))
        rows = [self._parts(text, parse) for text in texts]
        # Encode the plain parts of all texts in one call, then assign the ids to their texts.
        plain = iter(
            self._model.ids_batch([part.text for parts in rows for part in parts if part.token_id is None])
        )
        encoded = []
        for text, parts in zip(texts, rows, strict=True):
            ids: list[int] = []
            for part in parts:
                ids += next(plain) if part.token_id is None else [part.token_id]
            encoded.append(EncodedText(ids, partial(self._locate, text, parse)))
        remaining = iter(encoded)
        return [[next(remaining) for _ in example] for example in examples]

    def _parts(self, text: Text, parse: Parsing) -> list[Part]:
        if isinstance(text, str):
            return self._special.split(text, parse_special_tokens=parse)
        return [part for word in text for part in self._parts(word, parse)]

    def pieces(self, text: Text, parse: Parsing) -> list[str]:
        return [
            piece
            for part in self._parts(text, parse)
            for piece in (self._model.pieces(part.text) if part.token_id is None else [part.text])
        ]

    def _locate(self, text: Text, parse: Parsing) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the characters and the word number of each token of a text.

        Spaces separate the words of a string. For WordPiece, each punctuation mark and each Chinese character
        is also a word. Each special token is a word. If the text is a list, its entries are the words.
        """
        offsets: list[tuple[int, int]] = []
        words: list[int] = []
        word = -1
        for number, string in enumerate([text] if isinstance(text, str) else text):
            for part in self._special.split(string, parse_special_tokens=parse):
                spans = [(part.text, 0, len(part.text))]
                if part.token_id is None:
                    spans = self._model.spans(part.text)
                for index, (piece, start, end) in enumerate(spans):
                    word += index == 0 or self._model.begins_word(piece)
                    offsets.append((part.start + start, part.start + end))
                    words.append(word if isinstance(text, str) else number)
        return offsets, words


# --- rows ---------------------------------------------------------------------------------------


def make_rows(
    examples: list[list[EncodedText]],
    lengths: Lengths,
    *,
    marks: tuple[int, int] | None,
    stride: int,
    side: Side,
    with_overflowing: bool,
    to_tokens: Callable[[list[int]], list[str]],
) -> tuple[list[Encoding], list[int]]:
    """Return the rows of all examples (each one or two texts), and the number of each row's example.

    With `with_overflowing`, each window over a truncated text is a row.
    """
    rows: list[Encoding] = []
    samples: list[int] = []
    truncates = lengths.truncation != "do_not_truncate"
    for sample, texts in enumerate(examples):
        available = lengths.max_length - (0 if marks is None else 1 + len(texts))
        if truncates and (available < 0 or (available == 0 and with_overflowing)):
            raise TokenizerError(f"max_length={lengths.max_length} leaves no room for text")
        if available == 0 and truncates and (len(texts) == 1 or lengths.truncation == "longest_first"):
            parts = [(range(0),) * len(texts)]
        else:
            sizes = [len(text.ids) for text in texts]
            parts = windows(sizes, limit=available, strategy=lengths.truncation, stride=stride, side=side)
        row, *overflowing = (Encoding(texts, part, marks, to_tokens) for part in parts)
        rows.append(row)
        if overflowing:
            row.overflowing = overflowing
            if with_overflowing:
                rows += overflowing
        samples += [sample] * (len(rows) - len(samples))
    return rows, samples


def windows(
    sizes: list[int], *, limit: int, strategy: Strategy, stride: int, side: Side
) -> list[tuple[range, ...]]:
    """Return the windows over a text or a pair that fit into `limit` tokens; the first is the row itself.

    The other windows cover the truncated tokens. Each repeats `stride` tokens of the previous window. If both
    texts of a pair are truncated, the result contains every combination of their windows, in the order of
    `transformers`: combinations with the first window of the first text come last.
    """
    everything = tuple(map(range, sizes))
    if strategy == "do_not_truncate" or sum(sizes) <= limit:
        return [everything]
    if strategy == "longest_first" and len(sizes) == 2:
        # All of the shorter text stays if it fits into half of the limit.
        shorter = min(*sizes, limit // 2)
        limits = (shorter, limit - shorter) if sizes[0] <= sizes[1] else (limit - shorter, shorter)
        firsts, seconds = (
            list(_slide(size, most, stride, side)) for size, most in zip(sizes, limits, strict=True)
        )
        others = [(part, second) for part in firsts[1:] for second in seconds]
        return [(firsts[0], seconds[0]), *others, *((firsts[0], second) for second in seconds[1:])]
    cut = 1 if strategy == "only_second" else 0
    if cut == len(sizes):
        raise TokenizerError("truncation='only_second' needs a second text, text_pair")
    other = sum(sizes) - sizes[cut]
    if limit <= other:
        raise TokenizerError(f"{limit} tokens have no room for the {other} of the text that is not truncated")
    parts = _slide(sizes[cut], limit - other, stride, side)
    return [(*everything[:cut], part, *everything[cut + 1 :]) for part in parts]


def _slide(length: int, size: int, stride: int, side: Side) -> Iterator[range]:
    """Yield ranges of at most `size` that cover `length`; consecutive ranges share `stride` positions."""
    if length <= size:
        yield range(length)
        return
    if stride >= size:
        raise TokenizerError(f"max_length leaves {size} tokens for a text, too few for stride={stride}")
    for step in range(0, length, size - stride):
        stop = min(step + size, length)
        yield range(step, stop) if side == "right" else range(length - stop, length - step)
        if stop == length:
            return


# --- rows that are already encoded --------------------------------------------------------------


def pad_rows(
    encoded: Any,
    lengths: Lengths,
    *,
    side: Side,
    padding_id: int,
    with_mask: bool,
    return_tensors: str | None,
) -> BatchEncoding:
    def as_lists(values: Any) -> list[Any]:
        values = values.tolist() if hasattr(values, "tolist") else values
        rows = [value.tolist() if hasattr(value, "tolist") else value for value in values]
        return [list(row) if isinstance(row, (list, tuple)) else row for row in rows]

    try:
        if not hasattr(encoded, "keys"):
            encoded = {name: [row[name] for row in encoded] for name in (encoded[0] if len(encoded) else [])}
        columns = {name: as_lists(encoded[name]) for name in encoded}
        ids = encoded["input_ids"]
        package = type(ids[0]).__module__.partition(".")[0] if len(ids) else ""
        single = not columns["input_ids"] or not isinstance(columns["input_ids"][0], list)
    except (TypeError, KeyError) as error:
        raise TokenizerError(
            f"received {short(encoded)} to pad. Expected a mapping with input_ids, or several."
        ) from error
    if single:
        columns = {name: [column] for name, column in columns.items()}
    if with_mask:
        columns.setdefault("attention_mask", [[1] * len(row) for row in columns["input_ids"]])
    if lengths.padding != "do_not_pad":
        width = lengths.width(max(map(len, columns["input_ids"])))
        values = {"input_ids": padding_id, "special_tokens_mask": 1, "token_type_ids": 0, "attention_mask": 0}
        for name in values.keys() & columns.keys():
            fills = [[values[name]] * (width - len(row)) for row in columns[name]]
            columns[name] = [
                [*row, *fill] if side == "right" else [*fill, *row]
                for row, fill in zip(columns[name], fills, strict=True)
            ]
    if single:
        columns = {name: column[0] for name, column in columns.items()}
    return BatchEncoding(columns, tensor_type=return_tensors or {"torch": "pt", "numpy": "np"}.get(package))


def plain(ids: Any) -> Any:
    """Return an id, a list of ids or a list of rows as plain Python values."""

    def without_tensor(value: Any) -> Any:
        if hasattr(value, "numpy") and not hasattr(value, "tolist"):  # TensorFlow
            value = value.numpy()
        return value.tolist() if hasattr(value, "tolist") else value

    ids = without_tensor(ids)
    return ids if isinstance(ids, int) else [without_tensor(token_id) for token_id in ids]


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector: calls create no cycles, but it visits all ids."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
