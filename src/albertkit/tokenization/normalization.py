"""Normalize texts before they are split, and map each character to its position in the original text.

The rule of the original (`preprocess_text` of google-research/albert), before SentencePiece:

1. strip the text and collapse every run of whitespace to one space (`remove_space`);
2. two backticks or two apostrophes become one double quote;
3. unless `keep_accents`: NFKD decomposition, then every combining mark is dropped;
4. `do_lower_case`: lower case.

For ASCII text, one byte table does nearly all of this; step 3 has no effect on it.

`align` maps each character of the normalized text to a span of the original text. `UnigramModel.spans` adds
SentencePiece's own normalization. The span of a piece goes from the start of its first character to the end
of its last character. The time is linear in the length of the text. The spans of the pieces have these
properties:

* Starts and ends never decrease and lie within the text.
* The word-start mark has no width: `▁dog` covers `dog`. A lone `▁` is empty, at the start of the next token.
* Pieces overlap only if one character became several (the ligature `ﬃ` becomes `ffi`). Each of these pieces
  then covers all of it.
* If you normalize the covered text alone, you get the piece, or a text that contains it if pieces overlap. A
  removed character (an accent, a control character) belongs to the piece before it.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

from albertkit.errors import TokenizerError, short
from albertkit.text_files import lone_surrogate

_PART = 256  # characters
_REWRITTEN = {
    True: re.compile(r"\s+|``|''|[^\x00-\x7f]"),
    False: re.compile(r"``|''|[^\x00-\x7f]"),
}
"""The parts of a text that normalization may write with another length, if it removes spaces or not."""


def _check_flags(rules: Any) -> None:
    for name, value in vars(rules).items():
        if not isinstance(value, bool) and (name, value) != ("strip_accents", None):
            raise TokenizerError(f"{name}={short(value)}: expected True or False")


@dataclass(frozen=True, kw_only=True)
class Normalization:
    """The normalization rules for a text before SentencePiece; saved in `tokenizer_config.json`."""

    do_lower_case: bool = True
    """Whether to lower-case texts."""
    remove_space: bool = True
    """Whether to strip texts and collapse runs of spaces."""
    keep_accents: bool = False
    """Whether to keep accents and compatibility characters."""

    __post_init__ = _check_flags

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})

    def __call__(self, text: str) -> str:
        """Return the normalized text; the same as `plain`, but faster for ASCII."""
        if not text.isascii():
            return self.plain(text)
        text = text.encode().translate(self._table).decode()
        if self.remove_space:
            text = " ".join(text.split()) if "  " in text else text.strip(" ")
        if "`" in text:  # this check takes a tenth of the time of a replacement
            text = text.replace("``", '"')
        return text.replace("''", '"')

    def plain(self, text: str) -> str:
        """Return the normalized text by applying the rule step by step."""
        if self.remove_space:
            text = " ".join(text.split())
        text = text.replace("``", '"').replace("''", '"')
        if not self.keep_accents and not text.isascii():
            # In parts, because `normalize` sorts each run of marks in quadratic time. The order of the marks
            # does not matter, because they are dropped; each character decomposes independently.
            parts = range(0, len(text), _PART)
            text = "".join(unicodedata.normalize("NFKD", text[begin : begin + _PART]) for begin in parts)
            for mark in filter(unicodedata.combining, set(text)):  # a text has few distinct characters
                text = text.replace(mark, "")
        return text.lower() if self.do_lower_case else text

    @cached_property
    def _table(self) -> bytes:
        characters = map(chr, range(128))
        table = "".join(" " if self.remove_space and each.isspace() else each for each in characters)
        return (table.lower() if self.do_lower_case else table).encode() + bytes(range(128, 256))


@dataclass(frozen=True, kw_only=True)
class BertNormalization:
    """The normalization rules for a text before WordPiece, as in the original BERT."""

    do_lower_case: bool = True
    """Whether to lower-case texts."""
    strip_accents: bool | None = None
    """Whether to drop accents. None drops them if texts are lower-cased, as in the original BERT."""
    tokenize_chinese_chars: bool = True
    """Whether every Chinese character is a separate word."""

    __post_init__ = _check_flags


def align(text: str, normalization: Normalization) -> tuple[str, list[int], list[int]]:
    """Return `normalization(text)`, and the start and the end of each of its characters in `text`."""
    normalized = normalization(text)
    position, stop = 0, len(text)
    starts: list[int] = []
    ends: list[int] = []
    if not text.isascii() or len(normalized) != len(text):
        # In ASCII text, every step keeps a character's position or shortens the text.
        if normalization.remove_space:
            position, stop = stop - len(text.lstrip()), len(text.rstrip())
        for match in _REWRITTEN[normalization.remove_space].finditer(text, position, stop):
            part, (start, end) = match.group(), match.span()
            if part in ("``", "''") or (normalization.remove_space and part.isspace()):
                length = 1
            else:
                if not normalization.keep_accents:
                    # Characters decompose alone, because canonical ordering moves only the dropped marks.
                    decomposed = unicodedata.normalize("NFKD", part)
                    part = "".join(char for char in decomposed if not unicodedata.combining(char))
                length = len(part.lower() if normalization.do_lower_case else part)
            starts += [*range(position, start), *[start] * length]
            ends += [*range(position + 1, start + 1), *[end] * length]
            if not length and ends:  # a removed character belongs to the character before it
                ends[-1] = end
            position = end
    starts += range(position, stop)
    ends += range(position + 1, stop + 1)
    # Lower-casing depends on the context (a final sigma), but its length does not.
    assert len(normalized) == len(starts)
    return normalized, starts, ends


CLEAN_UP = {
    **{f" {mark}": mark for mark in (".", "?", "!", ",")},
    " ' ": "'",
    **{f" {ending}": ending for ending in ("n't", "'m", "'s", "'ve", "'re")},
}
"""The replacements of clean-up in decoded texts, in order: spaces before punctuation and contractions."""


def not_unicode(texts: list[str]) -> TokenizerError:
    """Return the error for texts that a tokenizer library rejected because they are not valid Unicode."""
    for text in texts:
        if lone := lone_surrogate(text):
            return TokenizerError(
                f"the text {short(text)} contains a lone surrogate ({lone}), which UTF-8 does not allow. "
                "Decode the original bytes with errors='replace'."
            )
    return TokenizerError("the texts could not be encoded")
