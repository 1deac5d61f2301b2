"""From tokens back to a text."""

from collections.abc import Container
from typing import Protocol

from albertkit.tokenization.model_file import WORD_START

# Beside a token that stands for itself no space is written after the one and before the other.
_CLOSING = (".", ",", ";", ":", "!", "?", ")", "]", "}", "'", "%")
_OPENING = ("(", "[", "{")

# What cleaning up changes, in this order: spaces before punctuation, and inside English contractions.
_CLEAN_UP = {f" {mark}": mark for mark in (".", "?", "!", ",")}
_CLEAN_UP |= {" ' ": "'"}
_CLEAN_UP |= {f" {ending}": ending for ending in ("n't", "'m", "'s", "'ve", "'re")}


class Spelling(Protocol):
    """How the pieces of a vocabulary spell words."""

    rule: str
    """In words, for messages."""

    def begins_word(self, piece: str) -> bool:
        """Whether a word begins with this piece."""
        ...

    def join(self, tokens: list[str], *, apart: Container[str]) -> str:
        """Return the text that tokens spell; those in `apart` stand for words."""
        ...


class MarkedStarts:
    """SentencePiece's: a mark stands before every word."""

    rule = f"{WORD_START} marks the beginning of a word"

    def begins_word(self, piece: str) -> bool:
        """Whether a word begins with this piece."""
        return piece.startswith(WORD_START)

    def join(self, tokens: list[str], *, apart: Container[str]) -> str:
        """Return the text that tokens spell, as `join_tokens` does."""
        return join_tokens(tokens, apart=apart)


def join_tokens(tokens: list[str], *, apart: Container[str]) -> str:
    """Return the text that tokens spell: word-start marks become spaces.

    Tokens in `apart` ([MASK], added tokens) stand for words: a space goes before them, but not after an
    opening bracket. What follows such a token was cut as a text of its own and so begins with a word start,
    whether or not there was a space. A mark alone is taken for none before what closes (`[MASK]`, `▁`, `.`
    spell `[MASK].`), else for one.
    """
    result: list[str] = []
    after_word = False
    for index, token in enumerate(tokens):
        if token in apart:
            after_bracket = index > 0 and tokens[index - 1].endswith(_OPENING)
            result.append(token if after_bracket else WORD_START + token)
        elif not (after_word and token == WORD_START and _closes(tokens[index + 1 : index + 3])):
            result.append(token)
        after_word = token in apart
    return "".join(result).replace(WORD_START, " ").strip()


def _closes(tokens: list[str]) -> bool:
    """Whether tokens, of which the first two count, begin with a mark that stands close to the word before.

    A quotation mark does unless a word follows, a hyphen if one does.
    """
    first, next_token = [*tokens, "", ""][:2]
    if first == '"':
        return not next_token[:1].isalnum()
    if first in ("-", "/"):
        return next_token[:1].isalnum()
    return first.startswith(_CLOSING)


def clean_up(text: str) -> str:
    """Return the text without spaces before punctuation and inside contractions."""
    for spaced, closed in _CLEAN_UP.items():
        text = text.replace(spaced, closed)
    return text
