"""The output of a tokenizer: one `Encoding` per row, and the `BatchEncoding` that models take.

Shapes: B batch, T tokens. Offsets, words and tokens are computed on first use, because most calls need only
ids.
"""

import copy
from bisect import bisect_left, bisect_right
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from albertkit.errors import MissingExtraError, TokenizerError
from albertkit.extras import require
from albertkit.tokenization.options import Text

_T = TypeVar("_T")


class CharSpan(NamedTuple):
    """Characters `start:end` of a text."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """Tokens `start:end` of a row."""

    start: int
    end: int


class Places(NamedTuple):
    """The origin of the tokens of one text: the characters and the word number of each token."""

    offsets: list[tuple[int, int]]
    words: list[int]


@dataclass(eq=False, slots=True)
class Sequence:
    """The ids of one text, and the text itself if it is known. `locate` computes the places on first use."""

    ids: list[int]
    text: Text | None = None
    locate: Callable[[Text], Places] | None = None
    _places: Places | None = None

    @property
    def places(self) -> Places:
        """The characters and the word number of each id."""
        if self._places is None:
            if self.text is None or self.locate is None:
                raise TokenizerError(
                    "offsets and words are not available: the tokenizer received ids, not text"
                )
            self._places = self.locate(self.text)
        return self._places


class Window(NamedTuple):
    """The tokens of each text that a row contains, as ranges of positions."""

    first: range
    second: range | None = None


@dataclass(eq=False, slots=True)
class Encoding:
    """One row of a batch: its ids, and the origin of each of its T tokens.

    single   [CLS] A [SEP]              segments 0
    pair     [CLS] A [SEP] B [SEP]      segments 0 up to the first [SEP], then 1
    """

    ids: list[int]
    window: Window
    special_tokens: bool
    """Whether [CLS] and [SEP] surround the texts."""
    sequences: list[Sequence] = field(repr=False)
    to_tokens: Callable[[list[int]], list[str]] = field(repr=False)
    overflowing: list["Encoding"] | tuple[()] = field(default=(), repr=False)
    padding_left: int = 0
    padding_right: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_sequences(self) -> int:
        """Number of texts: 1, or 2 for a pair."""
        return len(self.sequences)

    @property
    def type_ids(self) -> list[int]:
        """Segment of each token: 0, or 1 for the second text and its [SEP]."""
        second = self.window.second
        ones = 0 if second is None else len(second) + self.special_tokens
        return [0] * (len(self) - ones - self.padding_right) + [1] * ones + [0] * self.padding_right

    @property
    def attention_mask(self) -> list[int]:
        """1 for each token, 0 for padding."""
        ones = len(self) - self.padding_left - self.padding_right
        return [0] * self.padding_left + [1] * ones + [0] * self.padding_right

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for special tokens and padding, 0 for tokens of a text."""
        return self._column(lambda _, window: [0] * len(window), 1)

    @property
    def tokens(self) -> list[str]:
        """The token string of each id."""
        return self.to_tokens(self.ids)

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 or 1 for tokens of the first or second text, None for special tokens and padding."""
        return self._column(lambda number, window: [number] * len(window), None)

    @property
    def word_ids(self) -> list[int | None]:
        """Number of each token's word in its text; None for special tokens and padding."""
        return self._column(
            lambda number, window: self.sequences[number].places.words[window.start : window.stop], None
        )

    words = word_ids

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Characters (start, end) of each token in its text, or in its word if the text was passed as words.

        Special tokens and padding have (0, 0).
        """
        return self._column(
            lambda number, window: self.sequences[number].places.offsets[window.start : window.stop], (0, 0)
        )

    def _column(self, of_text: Callable[[int, range], Iterable[_T]], other: _T) -> list[_T]:
        """Return one value per token: `of_text` computes it for texts; other tokens have `other`."""
        around = [other] * self.special_tokens
        column = [other] * self.padding_left + around
        for number, window in enumerate(self.window):
            if window is not None:
                column += [*of_text(number, window), *around]
        return column + [other] * self.padding_right

    def _parts(self) -> Iterator[tuple[int, int, range]]:
        """Yield (number, shift, window) of each text. Token i of a text is token i + shift of the row."""
        start = self.padding_left + self.special_tokens
        for number, window in enumerate(self.window):
            if window is not None:
                yield number, start - window.start, window
                start += len(window) + self.special_tokens

    def _origin(self, token_index: int) -> tuple[int, int] | None:
        """Return the number of the text that contains a token, and the token's number in this text."""
        token_index = range(len(self))[token_index]  # negative indices count from the end
        for number, shift, window in self._parts():
            if token_index - shift in window:
                return number, token_index - shift
        return None

    def token_to_sequence(self, token_index: int) -> int | None:
        """Return the number of the text that contains a token, or None for special tokens and padding."""
        origin = self._origin(token_index)
        return None if origin is None else origin[0]

    def token_to_word(self, token_index: int) -> int | None:
        """Return the number of a token's word, or None for special tokens and padding."""
        origin = self._origin(token_index)
        return None if origin is None else self.sequences[origin[0]].places.words[origin[1]]

    def token_to_chars(self, token_index: int) -> CharSpan | None:
        """Return the characters of a token, or None for special tokens and padding."""
        origin = self._origin(token_index)
        return None if origin is None else CharSpan(*self.sequences[origin[0]].places.offsets[origin[1]])

    def char_to_token(self, char_index: int, sequence_index: int = 0) -> int | None:
        """Return the token that covers a character, or None if no token does (a space, truncated text)."""
        for number, shift, window in self._parts():
            if number == sequence_index:
                sequence = self.sequences[number]
                offsets = sequence.places.offsets
                if isinstance(sequence.text, str):  # starts and ends are sorted
                    after = bisect_right(offsets, char_index, window.start, window.stop, key=itemgetter(1))
                    window = range(after, min(after + 1, window.stop))
                for token in window:
                    if offsets[token][0] <= char_index < offsets[token][1]:
                        return token + shift
        return None

    def char_to_word(self, char_index: int, sequence_index: int = 0) -> int | None:
        """Return the number of the word that covers a character, or None if no token covers it."""
        token = self.char_to_token(char_index, sequence_index)
        return None if token is None else self.token_to_word(token)

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> TokenSpan | None:
        """Return the tokens of a word, or None if the row does not contain the word."""
        for number, shift, window in self._parts():
            if number == sequence_index:
                words = self.sequences[number].places.words  # sorted
                start = bisect_left(words, word_index, window.start, window.stop)
                end = bisect_right(words, word_index, start, window.stop)
                if start < end:
                    return TokenSpan(start + shift, end + shift)
        return None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> CharSpan | None:
        """Return the characters from the start of a word's first token to the end of its last token."""
        tokens = self.word_to_tokens(word_index, sequence_index)
        if tokens is None:
            return None
        first, last = self.token_to_chars(tokens.start), self.token_to_chars(tokens.end - 1)
        return CharSpan(first[0], last[1]) if first and last else None


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
        """Return the number of the text that contains a token."""
        return self._ask(Encoding.token_to_sequence, batch_or_token_index, token_index)

    def token_to_word(self, batch_or_token_index: int, token_index: int | None = None) -> int | None:
        """Return the number of the word that contains a token."""
        return self._ask(Encoding.token_to_word, batch_or_token_index, token_index)

    def token_to_chars(self, batch_or_token_index: int, token_index: int | None = None) -> CharSpan | None:
        """Return the start and end of a token in its text."""
        return self._ask(Encoding.token_to_chars, batch_or_token_index, token_index)

    def char_to_token(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """Return the index of the token that covers a character."""
        return self._ask(Encoding.char_to_token, batch_or_char_index, char_index, sequence_index)

    def char_to_word(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """Return the number of the word that covers a character."""
        return self._ask(Encoding.char_to_word, batch_or_char_index, char_index, sequence_index)

    def word_to_tokens(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> TokenSpan | None:
        """Return the range of a word's tokens."""
        return self._ask(Encoding.word_to_tokens, batch_or_word_index, word_index, sequence_index)

    def word_to_chars(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> CharSpan | None:
        """Return the start and end of a word in its text."""
        return self._ask(Encoding.word_to_chars, batch_or_word_index, word_index, sequence_index)

    def convert_to_tensors(
        self, tensor_type: str | None = None, prepend_batch_axis: bool = False
    ) -> "BatchEncoding":
        """Convert the lists to tensors: PyTorch ("pt"), NumPy ("np") or TensorFlow ("tf"); None keeps lists.

        Raises:
            TokenizerError: The rows have different lengths, or contain text.
            MissingExtraError: The library is not installed.
        """
        if tensor_type is None:
            return self
        to_tensor = _tensor_maker(str(getattr(tensor_type, "value", tensor_type)))
        for name, value in self.data.items():
            if hasattr(value, "shape"):
                continue
            try:
                self.data[name] = to_tensor([value] if prepend_batch_axis else value)
            except (ValueError, TypeError) as error:
                if _has_text(value):
                    raise TokenizerError(
                        f"{name} contains text, which cannot become a tensor. Remove it from the rows."
                    ) from error
                lengths = sorted({len(row) for row in value if hasattr(row, "__len__")})
                raise TokenizerError(
                    f"{name} cannot become a tensor: its rows have {lengths} entries. Pass padding=True, and "
                    f"truncation=True if texts may be too long."
                ) from error
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
            raise TokenizerError(
                "the rows of this encoding are not known: it was padded by `pad`, or unpickled"
            )
        return self._encodings

    def _ask(self, method: Callable[..., _T], batch_or_index: int, index: int | None, *sequence: int) -> _T:
        if index is None:
            return method(self._rows[0], batch_or_index, *sequence)
        return method(self._rows[batch_or_index], index, *sequence)


def _tensor_maker(tensor_type: str) -> Callable[[Any], Any]:
    """Import a library and return its function that converts a list to a tensor."""
    if tensor_type == "pt":
        torch = require("torch", extra="torch")
        return lambda value: torch.tensor(value, dtype=torch.int64 if _is_empty(value) else None)
    if tensor_type == "np":
        import numpy

        return lambda value: numpy.array(value, dtype=numpy.int64 if _is_empty(value) else None)
    if tensor_type == "tf":
        try:
            # No extra of albertkit installs TensorFlow.
            import tensorflow  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
        except ImportError as error:
            raise MissingExtraError(
                "return_tensors='tf' needs TensorFlow, which is not installed. Run `pip install "
                "tensorflow`, or use 'pt' or 'np'."
            ) from error
        return lambda value: tensorflow.constant(value, dtype=tensorflow.int64 if _is_empty(value) else None)
    raise TokenizerError(f"return_tensors is {tensor_type!r}. Expected 'pt', 'np' or 'tf'.")


def _has_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and any(map(_has_text, value)))


def _is_empty(value: Any) -> bool:
    """Return whether nested lists contain no number. By default, libraries convert such lists to floats."""
    return isinstance(value, list) and all(map(_is_empty, value))
