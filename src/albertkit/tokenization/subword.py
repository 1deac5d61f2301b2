"""The interface of a subword model: a vocabulary and its splitting rules, without special tokens."""

from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Any

from albertkit.errors import TokenizerError
from albertkit.tokenization.special_tokens import SpecialTokens

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
