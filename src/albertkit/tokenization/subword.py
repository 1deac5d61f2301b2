"""The interface of subword models, and the encoder of texts with special tokens."""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator
from functools import partial
from typing import Any

from albertkit.errors import TokenizerError
from albertkit.tokenization.encoding import EncodedText, Text
from albertkit.tokenization.special_tokens import Parsing, Part, SpecialTokens

CLEAN_UP = {
    **{f" {mark}": mark for mark in (".", "?", "!", ",")},
    " ' ": "'",
    **{f" {ending}": ending for ending in ("n't", "'m", "'s", "'ve", "'re")},
}
"""The replacements of clean-up, in order: spaces before punctuation, then spaces in English contractions."""


class SubwordModel(ABC):
    """Converts plain text to pieces and back."""

    spelling_rule: str
    """How pieces mark word boundaries, for messages."""
    size: int
    """Number of pieces."""
    normalization: Any
    """The rules that are applied before a text is split: `Normalization` or `BertNormalization`."""

    @abstractmethod
    def pieces(self, text: str) -> list[str]: ...

    @abstractmethod
    def ids_batch(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of the pieces of each text."""

    @abstractmethod
    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece; `start:end` are its characters in the original text."""

    @abstractmethod
    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, or None if it is not in the vocabulary."""

    @abstractmethod
    def id_to_token(self, piece_id: int) -> str: ...

    @abstractmethod
    def begins_word(self, piece: str) -> bool: ...

    @abstractmethod
    def join(self, tokens: list[str], *, apart: Container[str]) -> str:
        """Return the text of the tokens; each token in `apart` becomes a separate word."""

    @abstractmethod
    def vocabulary_file(self) -> bytes | None:
        """Return the content of the vocabulary's own file, or None if the vocabulary has no such file."""

    @abstractmethod
    def tokenizer_json(self, special_tokens: SpecialTokens) -> bytes | None:
        """Return the content of the tokenizer.json, or None if the format cannot express the vocabulary."""


class TextEncoder:
    """Encodes texts: splits them at special tokens, and encodes the parts between with a subword model."""

    def __init__(self, model: SubwordModel, special_tokens: SpecialTokens) -> None:
        self._model, self._special = model, special_tokens

    def sequences(self, examples: list[tuple[Text, Text | None]], parse: Parsing) -> list[list[EncodedText]]:
        """Return each example as one or two texts with their ids."""
        firsts = self.ids([first for first, _ in examples], parse)
        seconds = iter(self.ids([second for _, second in examples if second is not None], parse))
        return [
            [EncodedText(ids, partial(self.locate, first, parse))]
            + ([] if second is None else [EncodedText(next(seconds), partial(self.locate, second, parse))])
            for (first, second), ids in zip(examples, firsts, strict=True)
        ]

    def ids(self, texts: list[Text], parse: Parsing) -> list[list[int]]:
        strings = [text for text in texts if isinstance(text, str)]
        if len(strings) == len(texts) and not any(
            self._special.occur_in(text, parse_special_tokens=parse) for text in strings
        ):
            return self._model.ids_batch(strings)
        # Encode the plain parts of all texts in one call, then assign the ids to their texts.
        rows = [list(self._parts(text, parse)) for text in texts]
        plain = iter(
            self._model.ids_batch([part.text for parts in rows for part in parts if part.token_id is None])
        )
        return [
            [
                token_id
                for part in parts
                for token_id in (next(plain) if part.token_id is None else [part.token_id])
            ]
            for parts in rows
        ]

    def locate(self, text: Text, parse: Parsing) -> tuple[list[tuple[int, int]], list[int]]:
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

    def _parts(self, text: Text, parse: Parsing) -> Iterator[Part]:
        for string in [text] if isinstance(text, str) else text:
            yield from self._special.split(string, parse_special_tokens=parse)

    def pieces(self, text: Text, parse: Parsing) -> list[str]:
        return [
            piece
            for part in self._parts(text, parse)
            for piece in (self._model.pieces(part.text) if part.token_id is None else [part.text])
        ]


def not_unicode(texts: list[str]) -> TokenizerError:
    """Return the error for texts that a tokenizer library rejected because they are not valid Unicode."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text[max(0, error.start - 30) : error.start + 30]
            return TokenizerError(
                f"the text {shown!r} contains a lone surrogate ({text[error.start]!r}), which UTF-8 does not "
                "allow. Decode the original bytes with errors='replace'."
            )
    return TokenizerError("the texts could not be encoded")
