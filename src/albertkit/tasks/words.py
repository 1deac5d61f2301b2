"""Split a text into words like the training data of taggers: at spaces, with punctuation as separate words.

    He said: "Don't go to St. Ives (Cornwall)."
    He said :  " Don't go to St . Ives ( Cornwall ) . "

Punctuation inside a word is kept (Don't, well-kept, 12,000). Scripts without spaces between words are split
into characters, like most of their tagged corpora.
"""

import re
import unicodedata

from albertkit.datasets.examples import CHARACTER_WORD, inside_word

_BETWEEN_SPACES = re.compile(r"\S+")
_REPEATED = re.compile(r"(.)\1*", re.DOTALL)


def split_words(text: str) -> list[tuple[int, int]]:
    """Return the words of a text in order, each as the characters (start, end)."""
    words: list[tuple[int, int]] = []
    for run in _BETWEEN_SPACES.finditer(text):
        start = run.start()
        for character in CHARACTER_WORD.finditer(text, *run.span()):
            _add_run(words, text, start, character.start())
            words.append(character.span())
            start = character.end()
        _add_run(words, text, start, run.end())
    return words


def whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without spaces at its ends, extended if it begins or ends between letters or digits."""
    part = text[start:end]
    start, end = start + len(part) - len(part.lstrip()), start + len(part.rstrip())
    while 0 < start < end and inside_word(text, start):
        start -= 1
    while start < end < len(text) and inside_word(text, end):
        end += 1
    return start, end


def _add_run(words: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    """Append a run without spaces: punctuation, the word in it, punctuation."""
    first, last = start, end
    while first < last and _is_punctuation(text[first]):
        first += 1
    while last > first and _is_punctuation(text[last - 1]):
        last -= 1
    _add_punctuation(words, text, start, first)
    if first < last:
        words.append((first, last))
    _add_punctuation(words, text, last, end)


def _add_punctuation(words: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    # "..." and "--" are one word, ".)" are two
    words.extend(same.span() for same in _REPEATED.finditer(text, start, end))


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"
