"""From tokens back to a text."""

from collections.abc import Container

from albertkit.tokenization.model_file import WORD_START

# What cleaning up changes, in this order: spaces before punctuation, and inside English contractions.
_CLEAN_UP = {f" {mark}": mark for mark in (".", "?", "!", ",")}
_CLEAN_UP |= {" ' ": "'"}
_CLEAN_UP |= {f" {ending}": ending for ending in ("n't", "'m", "'s", "'ve", "'re")}


def join_tokens(tokens: list[str], *, apart: Container[str]) -> str:
    """Return the text that tokens spell: word-start marks become spaces.

    Tokens in `apart` ([MASK], added tokens) stand for words: a space goes before them. What follows such
    a token was cut as a text of its own and so begins with a word start; where that is a piece of its own,
    it is no space (`[MASK]`, `▁`, `.` spell `[MASK].`).
    """
    result: list[str] = []
    after_word = False
    for index, token in enumerate(tokens):
        if token in apart:
            result.append(WORD_START + token)
        elif not (after_word and token == WORD_START and index + 1 < len(tokens)):
            result.append(token)
        after_word = token in apart
    return "".join(result).replace(WORD_START, " ").strip()


def clean_up(text: str) -> str:
    """Return the text without spaces before punctuation and inside contractions."""
    for spaced, closed in _CLEAN_UP.items():
        text = text.replace(spaced, closed)
    return text
