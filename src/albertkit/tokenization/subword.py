"""The interface of subword models, which turn plain text into pieces and pieces into text."""

from abc import ABC, abstractmethod
from collections.abc import Container

from albertkit.errors import TokenizerError
from albertkit.tokenization.normalization import BertNormalization, Normalization
from albertkit.tokenization.special_tokens import SpecialTokens


class SubwordModel(ABC):
    """A vocabulary and its rules. It knows nothing of special tokens, pairs or padding."""

    spelling_rule: str
    """How pieces mark the words, for messages."""
    size: int
    """Number of pieces."""

    def __init__(self, normalization: Normalization | BertNormalization) -> None:
        self.normalization = normalization  # what happens to a text before it is split into pieces

    @abstractmethod
    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text."""

    @abstractmethod
    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of the pieces of each text."""

    @abstractmethod
    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece: its characters in the text as given."""

    @abstractmethod
    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, None if it is not in the vocabulary."""

    @abstractmethod
    def id_to_token(self, piece_id: int) -> str:
        """Return the piece of an id."""

    @abstractmethod
    def begins_word(self, piece: str) -> bool:
        """Return whether a word begins with this piece."""

    @abstractmethod
    def join(self, tokens: list[str], *, apart: Container[str]) -> str:
        """Return the text that tokens spell; each token in `apart` is a word of its own."""

    @abstractmethod
    def vocabulary_file(self) -> bytes | None:
        """Return the content of the vocabulary's own file, None if there was none."""

    @abstractmethod
    def tokenizer_json(self, special_tokens: SpecialTokens) -> str | None:
        """Return the content of the tokenizer.json, None if that format cannot hold the vocabulary."""


def not_unicode(texts: list[str]) -> TokenizerError:
    """Return the error for texts that a tokenizer library refused, quoting the place: it takes UTF-8.

    Callers number their texts themselves: these may be parts of texts.
    """
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text[max(0, error.start - 30) : error.start + 30]
            return TokenizerError(
                f"the text {shown!r} holds a lone surrogate ({text[error.start]!r}), which no UTF-8 text "
                "can; decode the original bytes with errors='replace'"
            )
    return TokenizerError("the texts could not be encoded")
