"""SentencePiece's own normalizer (normalizer.cc), for the tokenizer that works without SentencePiece.

A model file holds a table from character sequences to what is written for them ("nmt_nfkc": compatibility
characters, control characters, kinds of space). At each place of a text the longest entry wins; runs of
spaces become one word-start mark, and one stands before the first word.

The table is a double-array trie (darts-clone) over UTF-8, followed by the strings it points to.
"""

from collections.abc import Iterator
from functools import lru_cache

from albertkit.errors import TokenizerError
from albertkit.tokenization.model_file import USER_DEFINED, WORD_START, PieceTable

_PAIRS = 65_536  # of neighbouring characters, whose answers are kept


class CharacterMap:
    """The normalizer of one vocabulary."""

    def __init__(self, table: PieceTable) -> None:
        size = int.from_bytes(table.character_map[:4], "little")
        self._units = memoryview(table.character_map[4 : 4 + size]).cast("I")
        self._strings = table.character_map[4 + size :]
        # User-defined symbols are taken as they are, before the table is asked.
        kinds = zip(table.pieces, table.kinds, strict=True)
        symbols = [piece for piece, kind in kinds if kind == USER_DEFINED]
        self._symbols = tuple(sorted(symbols, key=len, reverse=True))
        self._kept = lru_cache(_PAIRS)(self._keeps)

    def __call__(self, text: str) -> str:
        """Return what is cut: words with their marks."""
        if text.isprintable() and (text.isascii() or all(map(self._kept, text, text[1:] + " "))):
            words = text.split(" ")
            if "" in words:
                words = [word for word in words if word]
            return "".join([WORD_START + word for word in words])
        return self.with_offsets(text)[0]

    def with_offsets(self, text: str) -> tuple[str, list[int]]:
        """Return also where each character was read, and at last where reading stopped."""
        position = 0
        while position < len(text) and (found := self._at(text, position))[0] == " ":
            position += found[1]
        # The mark before the first word, and then nothing but words and single marks.
        written, offsets, after_space = [WORD_START], [position], True
        while position < len(text):
            new, length = self._at(text, position)
            if after_space:
                new = new.lstrip(" ")
            if new:
                written.extend(new.replace(" ", WORD_START))
                offsets.extend([position] * len(new))
                after_space = new.endswith(" ")
            position += length
        while written and written[-1] == WORD_START:
            written.pop()
            position = offsets.pop()
        return "".join(written), [*offsets, position]

    def _at(self, text: str, position: int) -> tuple[str, int]:
        """Return what is written for the text at a position, and how many characters that reads."""
        if text.startswith(self._symbols, position):
            symbol = next(one for one in self._symbols if text.startswith(one, position))
            return symbol, len(symbol)
        found = (text[position], 1)
        for end, start in self._entries(text, position):
            if start is not None:
                try:
                    string = self._strings[start : self._strings.index(0, start)].decode()
                except ValueError as error:
                    raise _damaged() from error
                found = (string, end - position)
        return found

    def _keeps(self, character: str, after: str) -> bool:
        """Whether a character is written as it is where `after` follows, and no entry may hold both."""
        pair = character + after
        return self._at(character, 0)[0] == character and all(end < 2 for end, _ in self._entries(pair, 0))

    def _entries(self, text: str, position: int) -> Iterator[tuple[int, int | None]]:
        """Yield the ends of what entries begin with, and where its string is for what is an entry itself."""
        if not self._units:
            return
        node = _children(self._units[0], 0)
        for end in range(position, len(text)):
            unit = 0
            for byte in text[end].encode():
                node ^= byte
                unit = self._units[node] if node < len(self._units) else 0
                if unit & ((1 << 31) | 0xFF) != byte:
                    return
                node = _children(unit, node)
            # Where an entry ends, the first child is the place of its string.
            if node >= len(self._units):
                raise _damaged()
            yield end + 1, self._units[node] & 0x7FFFFFFF if unit >> 8 & 1 else None


def _damaged() -> TokenizerError:
    return TokenizerError("the vocabulary's table of characters is damaged; copy the file again")


def _children(unit: int, node: int) -> int:
    """Return where the children of a node of the trie are."""
    return node ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6))
