"""Normalize texts before they are split, and map each character to its position in the original text.

The rule of the original (`preprocess_text` of google-research/albert), before SentencePiece:

1. strip the text and collapse every run of whitespace to one space (`remove_space`);
2. two backticks or two apostrophes become one double quote;
3. unless `keep_accents`: NFKD decomposition, then every combining mark is dropped;
4. `do_lower_case`: lower case.

For ASCII text, one byte table does nearly all of this; step 3 has no effect on it.

Normalization is a chain of steps. Each step maps every character of its output to a span of its input.
`align` chains these maps, so every character that SentencePiece splits has a span in the original text. The
span of a piece goes from the start of its first character to the end of its last character. The time is
linear in the length of the text. The spans of the pieces of a text have these properties:

* Starts and ends never decrease and lie within the text.
* The word-start mark has no width: `▁dog` covers `dog`. A lone `▁` is empty, at the start of the next token.
* Pieces overlap only if one character became several (the ligature `ﬃ` becomes `ffi`). Each of these pieces
  then covers the whole character.
* If you normalize the covered text alone, you get the piece, or a text that contains it if pieces overlap. A
  removed character (an accent, a control character) belongs to the piece before it.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

from albertkit.errors import TokenizerError, short
from albertkit.tokenization.model_file import WORD_START

_PART = 256  # characters
_SPACES = re.compile(r"\s+")
_DOUBLE_QUOTES = re.compile("``|''")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


@dataclass(frozen=True, kw_only=True)
class Normalization:
    """The normalization rules for a text before SentencePiece; saved in `tokenizer_config.json`."""

    do_lower_case: bool = True
    """Whether to lower-case texts."""
    remove_space: bool = True
    """Whether to strip texts and collapse runs of spaces."""
    keep_accents: bool = False
    """Whether to keep accents and compatibility characters."""

    def __post_init__(self) -> None:
        _check_flags(self)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the normalization rules in a tokenizer's settings."""
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})

    def __call__(self, text: str) -> str:
        """Return the normalized text."""
        return self._ascii(text) if text.isascii() else self.plain(text)

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

    def _ascii(self, text: str) -> str:
        """Return the normalized text; the fast twin of `plain` for ASCII."""
        text = text.encode().translate(self._table).decode()
        if self.remove_space:
            text = " ".join(text.split()) if "  " in text else text.strip(" ")
        if "`" in text:  # this check takes a tenth of the time of a replacement
            text = text.replace("``", '"')
        return text.replace("''", '"')

    @cached_property
    def _table(self) -> bytes:
        """The output for each byte: every space becomes a plain space, and letters become lower case."""
        written = (
            " " if self.remove_space and character.isspace() else character
            for character in map(chr, range(128))
        )
        table = "".join(written)
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

    def __post_init__(self) -> None:
        _check_flags(self, may_be_none=("strip_accents",))


def _check_flags(rules: Normalization | BertNormalization, *, may_be_none: tuple[str, ...] = ()) -> None:
    for name, value in asdict(rules).items():
        if not isinstance(value, bool) and not (value is None and name in may_be_none):
            raise TokenizerError(f"{name}={short(value)}: expected True or False")


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """A normalized text; its character i comes from `starts[i]:ends[i]` of the original text."""

    text: str
    starts: list[int]
    ends: list[int]

    def part(self, start: int, stop: int) -> "Alignment":
        """Return the characters `start:stop` with their spans."""
        part = slice(start, max(start, stop))
        return Alignment(text=self.text[part], starts=self.starts[part], ends=self.ends[part])

    def rewrite(self, pattern: re.Pattern[str], write: Callable[[str], str]) -> "Alignment":
        """Replace the matches of a pattern; the new characters get the span of the match.

        If a match is replaced with nothing, its span is added to the character before it.
        """
        strings: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        position = 0
        for match in pattern.finditer(self.text):
            begin, end = match.span()
            written = write(match.group())
            strings += self.text[position:begin], written
            starts += self.starts[position:begin] + [self.starts[begin]] * len(written)
            ends += self.ends[position:begin] + [self.ends[end - 1]] * len(written)
            if not written and ends:
                ends[-1] = max(ends[-1], self.ends[end - 1])
            position = end
        text = "".join(strings) + self.text[position:]
        return Alignment(text=text, starts=starts + self.starts[position:], ends=ends + self.ends[position:])

    def then(self, text: str, offsets: list[int]) -> "Alignment":
        """Add a step that wrote `text`, whose character i began at `offsets[i]` of this text.

        `offsets` has one more entry than `text`: the position at which the step stopped reading.
        """
        starts, ends = [0] * len(text), [0] * len(text)
        begin = end = offsets[-1]
        for i in range(len(text) - 1, -1, -1):
            if offsets[i] < begin:
                begin, end = offsets[i], begin
            if begin < end:
                starts[i], ends[i] = self.starts[begin], self.ends[end - 1]
            else:  # inserted at the end of the text
                starts[i] = ends[i] = self.ends[begin - 1] if begin else 0
        return Alignment(text=text, starts=starts, ends=ends)

    def spans(self, pieces: list[str]) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for pieces that, joined, are this text apart from word-start marks."""
        spans: list[tuple[str, int, int]] = []
        position, last_end = 0, 0
        for piece in pieces:
            body = piece.removeprefix(WORD_START)
            if position < len(self.text) and self.text[position] == WORD_START:
                position += 1
            if body:
                start, last_end = self.starts[position], self.ends[position + len(body) - 1]
            else:
                start = last_end = self.starts[position] if position < len(self.text) else last_end
            spans.append((piece, start, last_end))
            position += len(body)
        return spans


def align(text: str, normalization: Normalization) -> Alignment:
    """Return the normalized text with each character's span in `text`; the twin of `normalization(text)`."""
    normalized = normalization(text)
    aligned = Alignment(text=text, starts=list(range(len(text))), ends=list(range(1, len(text) + 1)))
    if not text.isascii() or len(normalized) != len(text):
        # In ASCII text, every step keeps a character's position or shortens the text.
        if normalization.remove_space:
            aligned = aligned.part(len(text) - len(text.lstrip()), len(text.rstrip()))
            aligned = aligned.rewrite(_SPACES, lambda _: " ")
        aligned = aligned.rewrite(_DOUBLE_QUOTES, lambda _: '"')
        if not normalization.keep_accents:
            aligned = aligned.rewrite(_NOT_ASCII, _without_accents)
        if normalization.do_lower_case:
            aligned = aligned.rewrite(_NOT_ASCII, str.lower)
    # Lower-casing depends on the context (a final sigma), but its length does not.
    assert len(normalized) == len(aligned.text)
    return replace(aligned, text=normalized)


def _without_accents(character: str) -> str:
    # Canonical ordering moves only combining marks, which are dropped, so each character decomposes alone.
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join([part for part in decomposed if not unicodedata.combining(part)])
