"""Where each piece lies in the text as its author wrote it.

Normalization is a chain of steps; each maps every character it writes to a span of its input. Chained, they
map every character that SentencePiece cuts to a span of the original text, and a piece to the span from its
first character's start to its last character's end. Linear in the length of the text.

What holds for the pieces of a text, in order:

* starts and ends never decrease and lie within the text;
* the word-start mark has no width: `▁dog` covers `dog`, a lone `▁` is empty, at the start of what follows;
* pieces overlap only where one character became several (the ligature `ﬃ` as `ffi`): then each piece covers
  all of it;
* the covered text, normalized alone, is the piece, or in that case contains it; a removed character (an
  accent, a control character) goes to the piece before it.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from albertkit.tokenization.model_file import WORD_START
from albertkit.tokenization.normalization import Normalization


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """A normalized text; character i covers `starts[i]:ends[i]` of the original."""

    text: str
    starts: list[int]
    ends: list[int]

    def then(self, text: str, offsets: list[int]) -> "Alignment":
        """Add a step that wrote `text`; its character i began at `offsets[i]` of this text.

        `offsets` has one entry more than `text`: where the step stopped reading.
        """
        starts, ends = [0] * len(text), [0] * len(text)
        begin = end = offsets[-1]
        for i in range(len(text) - 1, -1, -1):
            if offsets[i] < begin:
                begin, end = offsets[i], begin
            if begin < end:
                starts[i], ends[i] = self.starts[begin], self.ends[end - 1]
            else:  # written from nothing, at the end of the text
                starts[i] = ends[i] = self.ends[begin - 1] if begin else 0
        return Alignment(text=text, starts=starts, ends=ends)

    def spans(self, pieces: list[str]) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for pieces that, joined, are this text, but for word-start marks."""
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
    characters = list(text)
    starts, ends = list(range(len(text))), list(range(1, len(text) + 1))
    if text.isascii() and len(normalized) == len(text):
        # On ASCII every step keeps a character's place or shortens the text.
        return Alignment(text=normalized, starts=starts, ends=ends)
    if normalization.remove_space:
        characters, starts, ends = _collapse_spaces(characters)
    characters, starts, ends = _join_quotes(characters, starts, ends)
    if not normalization.keep_accents:
        characters, starts, ends = _expand(characters, starts, ends, _without_accents)
    if normalization.do_lower_case:
        characters, starts, ends = _expand(characters, starts, ends, str.lower)
    # Lower-casing depends on context (a final sigma) but its length does not.
    assert len(normalized) == len(characters)
    return Alignment(text=normalized, starts=starts, ends=ends)


_Aligned = tuple[list[str], list[int], list[int]]


def _collapse_spaces(characters: list[str]) -> _Aligned:
    result: _Aligned = ([], [], [])
    pending = -1  # where a run of spaces began, once there is something before it
    for index, character in enumerate(characters):
        if character.isspace():
            if pending < 0 and result[0]:
                pending = index
            continue
        if pending >= 0:
            _append(result, " ", pending, index)
            pending = -1
        _append(result, character, index, index + 1)
    return result


def _join_quotes(characters: list[str], starts: list[int], ends: list[int]) -> _Aligned:
    result: _Aligned = ([], [], [])
    index = 0
    while index < len(characters):
        pair = characters[index] if characters[index] in "`'" else ""
        if pair and index + 1 < len(characters) and characters[index + 1] == pair:
            _append(result, '"', starts[index], ends[index + 1])
            index += 2
        else:
            _append(result, characters[index], starts[index], ends[index])
            index += 1
    return result


def _expand(
    characters: list[str], starts: list[int], ends: list[int], rule: Callable[[str], str]
) -> _Aligned:
    """Apply a rule that turns each character into none, one or several, which all share its span."""
    result: _Aligned = ([], [], [])
    for character, start, end in zip(characters, starts, ends, strict=True):
        written = rule(character)
        if not written and result[0]:
            result[2][-1] = max(result[2][-1], end)  # a removed character goes to the one before it
        for new in written:
            _append(result, new, start, end)
    return result


def _without_accents(character: str) -> str:
    # Canonical ordering moves combining marks only, and those are dropped: one by one is as good as whole.
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join([part for part in decomposed if not unicodedata.combining(part)])


def _append(aligned: _Aligned, character: str, start: int, end: int) -> None:
    aligned[0].append(character)
    aligned[1].append(start)
    aligned[2].append(end)
