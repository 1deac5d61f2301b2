"""The output of a tokenizer: one `Encoding` per row, and the `BatchEncoding` that models take.

Shapes: B batch, T tokens. Offsets, words and tokens are computed on first use, because most calls need only
ids.
"""

import copy
from collections import UserDict
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from albertkit.errors import TokenizerError
from albertkit.extras import require

_T = TypeVar("_T")
Text = str | Sequence[str]  # a string, or the words of a text
_TENSORS = {"pt": ("torch", "tensor"), "np": ("numpy", "array"), "tf": ("tensorflow", "constant")}


class Span(NamedTuple):
    """Characters `start:end` of a text, or tokens `start:end` of a row."""

    start: int
    end: int


class EncodedText:
    """The ids of one text; the characters and the word number of each id are computed on first use."""

    def __init__(self, ids: list[int], locate: Callable[[], tuple[list[tuple[int, int]], list[int]]]) -> None:
        self.ids = ids
        self._locate = locate

    @cached_property
    def _located(self) -> tuple[list[tuple[int, int]], list[int]]:
        return self._locate()

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return self._located[0]

    @property
    def words(self) -> list[int]:
        return self._located[1]


class Encoding:
    """One row of a batch: its ids, and the origin of each of its T tokens.

    single   [CLS] A [SEP]              segments 0
    pair     [CLS] A [SEP] B [SEP]      segments 0 up to the first [SEP], then 1

    Args:
        sequences: The text, or the two texts of a pair.
        window: The tokens of each text in this row, as ranges of positions.
        marks: The ids of [CLS] and [SEP]; None for a row without special tokens.
        to_tokens: Function that returns the token string of each id.
    """

    def __init__(
        self,
        sequences: list[EncodedText],
        window: tuple[range, ...],
        marks: tuple[int, int] | None,
        to_tokens: Callable[[list[int]], list[str]],
    ) -> None:
        self.sequences, self.window, self._to_tokens = sequences, window, to_tokens
        self.overflowing: list[Encoding] | tuple[()] = ()
        self._special = marks is not None
        self._padding = (0, 0)  # left and right
        start, end = ([], []) if marks is None else ([marks[0]], [marks[1]])
        self.ids: list[int] = start
        for sequence, part in zip(sequences, window, strict=True):
            self.ids += sequence.ids[part.start : part.stop]
            self.ids += end

    def pad(self, width: int, side: str, padding_id: int) -> None:
        """Extend the row to `width` tokens. Call it before the columns are computed."""
        missing = max(0, width - len(self.ids))
        fill = [padding_id] * missing
        self.ids = [*self.ids, *fill] if side == "right" else [*fill, *self.ids]
        self._padding = (0, missing) if side == "right" else (missing, 0)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_sequences(self) -> int:
        return len(self.sequences)

    @property
    def type_ids(self) -> list[int]:
        """Segment of each token: 0, or 1 for the second text and its [SEP]."""
        right = self._padding[1]
        ones = len(self.window[1]) + self._special if len(self.window) == 2 else 0
        return [0] * (len(self.ids) - ones - right) + [1] * ones + [0] * right

    @property
    def attention_mask(self) -> list[int]:
        """1 for each token, 0 for padding."""
        left, right = self._padding
        return [0] * left + [1] * (len(self.ids) - left - right) + [0] * right

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for special tokens and padding, 0 for tokens of a text."""
        return [int(number is None) for number in self.sequence_ids]

    @property
    def tokens(self) -> list[str]:
        return self._to_tokens(self.ids)

    @cached_property
    def sequence_ids(self) -> list[int | None]:
        """0 or 1 for tokens of the first or second text, None for special tokens and padding."""
        return self._column([[number] * len(text.ids) for number, text in enumerate(self.sequences)], None)

    @cached_property
    def word_ids(self) -> list[int | None]:
        """Number of each token's word in its text; None for special tokens and padding."""
        return self._column([text.words for text in self.sequences], None)

    @property
    def words(self) -> list[int | None]:
        return self.word_ids

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """Characters (start, end) of each token in its text, or in its word if the text was passed as words.

        Special tokens and padding have (0, 0).
        """
        return self._column([text.offsets for text in self.sequences], (0, 0))

    @cached_property
    def _token_at(self) -> dict[tuple[int | None, int], int]:
        """The first token that covers a character, by (number of the text, character)."""
        tokens: dict[tuple[int | None, int], int] = {}
        for token, (number, (start, end)) in enumerate(zip(self.sequence_ids, self.offsets, strict=True)):
            for character in range(start, end):
                tokens.setdefault((number, character), token)
        return tokens

    @cached_property
    def _tokens_of_word(self) -> dict[tuple[int | None, int | None], Span]:
        """The tokens of each word, by (number of the text, number of the word)."""
        spans: dict[tuple[int | None, int | None], Span] = {}
        for token, word in enumerate(zip(self.sequence_ids, self.word_ids, strict=True)):
            start, _ = spans.get(word, (token, token))
            spans[word] = Span(start, token + 1)
        return spans

    def _column(self, of_texts: list[list[Any]], other: Any) -> list[Any]:
        """Return one value per token of the row, from one list per text; other tokens have `other`."""
        around = [other] * self._special
        column = [other] * self._padding[0] + around
        for values, part in zip(of_texts, self.window, strict=True):
            column += [*values[part.start : part.stop], *around]
        return column + [other] * self._padding[1]

    # The methods of `BatchEncoding` for one row.

    def token_to_sequence(self, token_index: int) -> int | None:
        return self.sequence_ids[token_index]

    def token_to_word(self, token_index: int) -> int | None:
        return self.word_ids[token_index]

    def token_to_chars(self, token_index: int) -> Span | None:
        return None if self.sequence_ids[token_index] is None else Span(*self.offsets[token_index])

    def char_to_token(self, char_index: int, sequence_index: int = 0) -> int | None:
        return self._token_at.get((sequence_index, char_index))

    def char_to_word(self, char_index: int, sequence_index: int = 0) -> int | None:
        token = self.char_to_token(char_index, sequence_index)
        return None if token is None else self.word_ids[token]

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> Span | None:
        return self._tokens_of_word.get((sequence_index, word_index))

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> Span | None:
        tokens = self.word_to_tokens(word_index, sequence_index)
        return tokens and Span(self.offsets[tokens.start][0], self.offsets[tokens.end - 1][1])


class BatchEncoding(UserDict[str, Any]):
    """Lists or tensors by name, also available as attributes. Pass it to a model as `model(**encoding)`.

    `encoding["input_ids"]` is (B, T) or (T,); `encoding[0]` is the `Encoding` of the first row. Methods such
    as `token_to_chars(row, token)` use the first row if you pass only one number. A pickled BatchEncoding
    contains the lists and tensors, but not the rows.
    """

    def __init__(
        self,
        data: dict[str, Any] | None = None,
        encodings: list[Encoding] | None = None,
        tensor_type: str | None = None,
        prepend_batch_axis: bool = False,
    ) -> None:
        super().__init__(data or {})
        self._encodings = encodings
        self.convert_to_tensors(tensor_type, prepend_batch_axis=prepend_batch_axis)

    def __getitem__(self, item: str | int | slice) -> Any:
        """Return a value by name, a row's `Encoding` by number, or a slice of all values."""
        if isinstance(item, str):
            return self.data[item]
        if isinstance(item, slice):
            return {name: value[item] for name, value in self.data.items()}
        return self._rows[item]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "data":  # not yet set during construction or unpickling
            raise AttributeError(name)
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(f"this encoding has no {name!r}. It has {', '.join(self.data)}.") from None

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data, "_encodings": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> "BatchEncoding":
        # Copies share the rows, which do not change.
        return BatchEncoding(copy.deepcopy(self.data, memo), self._encodings)

    @property
    def encodings(self) -> list[Encoding] | None:
        """One `Encoding` per row, or None if the rows are not known (after `pad` or unpickling)."""
        return self._encodings

    @property
    def is_fast(self) -> bool:
        """Whether offsets and words are available. `transformers` uses the same name."""
        return self._encodings is not None

    @property
    def n_sequences(self) -> int | None:
        """Number of texts in a row: 1, or 2 for pairs. None if the rows are not known."""
        return self._encodings[0].n_sequences if self._encodings else None

    def tokens(self, batch_index: int = 0) -> list[str]:
        """Return the tokens of a row."""
        return self._rows[batch_index].tokens

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """Return the number of the text that contains each token of a row; None for special tokens."""
        return self._rows[batch_index].sequence_ids

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """Return the number of the word that contains each token of a row; None for special tokens."""
        return self._rows[batch_index].word_ids

    words = word_ids

    def token_to_sequence(self, batch_or_token_index: int, token_index: int | None = None) -> int | None:
        """Return the number of the text that contains a token, or None for special tokens and padding."""
        return self._ask(Encoding.token_to_sequence, batch_or_token_index, token_index)

    def token_to_word(self, batch_or_token_index: int, token_index: int | None = None) -> int | None:
        """Return the number of a token's word, or None for special tokens and padding."""
        return self._ask(Encoding.token_to_word, batch_or_token_index, token_index)

    def token_to_chars(self, batch_or_token_index: int, token_index: int | None = None) -> Span | None:
        """Return the characters of a token, or None for special tokens and padding."""
        return self._ask(Encoding.token_to_chars, batch_or_token_index, token_index)

    def char_to_token(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """Return the token that covers a character, or None if no token does (a space, truncated text)."""
        return self._ask(Encoding.char_to_token, batch_or_char_index, char_index, sequence_index)

    def char_to_word(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """Return the number of the word that covers a character, or None if no token covers it."""
        return self._ask(Encoding.char_to_word, batch_or_char_index, char_index, sequence_index)

    def word_to_tokens(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> Span | None:
        """Return the tokens of a word, or None if the row does not contain the word."""
        return self._ask(Encoding.word_to_tokens, batch_or_word_index, word_index, sequence_index)

    def word_to_chars(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> Span | None:
        """Return the characters from the start of a word's first token to the end of its last token."""
        return self._ask(Encoding.word_to_chars, batch_or_word_index, word_index, sequence_index)

    def convert_to_tensors(
        self, tensor_type: str | None = None, prepend_batch_axis: bool = False
    ) -> "BatchEncoding":
        """Convert the lists to tensors: PyTorch ("pt"), NumPy ("np") or TensorFlow ("tf"); None keeps lists.

        Raises:
            TokenizerError: The rows have different lengths, or contain text.
            ImportError: The library is not installed.
        """
        if tensor_type is None:
            return self
        tensor_type = str(getattr(tensor_type, "value", tensor_type))
        if tensor_type not in _TENSORS:
            raise TokenizerError(f"return_tensors is {tensor_type!r}. Expected 'pt', 'np' or 'tf'.")
        name, function = _TENSORS[tensor_type]
        library = require("torch", extra="torch") if tensor_type == "pt" else import_module(name)
        for name, value in self.data.items():
            if hasattr(value, "shape"):
                continue
            try:
                rows = [value] if prepend_batch_axis else value
                integers = library.int64 if _is_empty(rows) else None
                self.data[name] = getattr(library, function)(rows, dtype=integers)
            except (ValueError, TypeError) as error:
                hint = "If its rows have different lengths, pass padding=True."
                raise TokenizerError(f"{name} cannot become a tensor ({error}). {hint}") from error
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "BatchEncoding":
        """Move every PyTorch tensor to a device and return self."""
        for name, value in self.data.items():
            if hasattr(value, "to"):
                self.data[name] = value.to(device, non_blocking=non_blocking)
        return self

    @property
    def _rows(self) -> list[Encoding]:
        if self._encodings is None:
            raise TokenizerError("the encoding has no rows: it was padded by `pad`, or unpickled")
        return self._encodings

    def _ask(self, method: Callable[..., _T], batch_or_index: int, index: int | None, *sequence: int) -> _T:
        if index is None:
            return method(self._rows[0], batch_or_index, *sequence)
        return method(self._rows[batch_or_index], index, *sequence)


def _is_empty(value: Any) -> bool:
    """Return whether nested lists contain no number. By default, libraries convert such lists to floats."""
    return isinstance(value, list) and all(map(_is_empty, value))
