"""What a tokenizer needs of the library behind it."""

from typing import Protocol

from albertkit.tokenization.decoding import Spelling
from albertkit.tokenization.normalization import BertNormalization, Normalization


class SubwordModel(Protocol):
    """Cuts plain text into pieces; knows nothing of special tokens, pairs or padding."""

    size: int

    @property
    def normalization(self) -> Normalization | BertNormalization:
        """What happens to a text before it is cut."""
        ...

    @property
    def spelling(self) -> Spelling:
        """How pieces spell words."""
        ...

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text; SentencePiece has unknown ones as they stand in it."""
        ...

    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of many texts' pieces."""
        ...

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece: its characters in the text as given."""
        ...

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, None where it is not in the vocabulary."""
        ...

    def id_to_token(self, piece_id: int) -> str:
        """Return the piece of an id."""
        ...
