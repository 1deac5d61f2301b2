"""SentencePiece's own normaliser (normalizer.cc), for the tokenizer that works without SentencePiece.

A model file holds a table from character sequences to what is written for them ("nmt_nfkc": compatibility
characters, control characters, kinds of space). At each place of a text the longest entry wins; runs of
spaces become one word-start mark, and one stands before the first word.

The table is a double-array trie (darts-clone) over UTF-8, followed by the strings it points to.
"""

from albertkit.tokenization.model_file import USER_DEFINED, WORD_START, PieceTable


class CharacterMap:
    """The normaliser of one vocabulary."""

    def __init__(self, table: PieceTable) -> None:
        size = int.from_bytes(table.character_map[:4], "little")
        self._units = memoryview(table.character_map[4 : 4 + size]).cast("I")
        self._strings = table.character_map[4 + size :]
        # User-defined symbols are taken as they are, before the table is asked.
        kinds = zip(table.pieces, table.kinds, strict=True)
        symbols = [piece for piece, kind in kinds if kind == USER_DEFINED]
        self._symbols = tuple(sorted(symbols, key=len, reverse=True))

    def __call__(self, text: str) -> str:
        """Return what is cut: words with their marks."""
        if text.isascii() and text.isprintable():
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
        if not self._units:
            return found
        node = _children(self._units[0], 0)
        for end in range(position, len(text)):
            unit = 0
            for byte in text[end].encode():
                node ^= byte
                unit = self._units[node] if node < len(self._units) else 0
                if unit & ((1 << 31) | 0xFF) != byte:
                    return found
                node = _children(unit, node)
            if unit >> 8 & 1:  # an entry ends here: the first child is the place of its string
                start = self._units[node] & 0x7FFFFFFF
                found = (self._strings[start : self._strings.index(0, start)].decode(), end + 1 - position)
        return found


def _children(unit: int, node: int) -> int:
    """Return where the children of a node of the trie are."""
    return node ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6))
