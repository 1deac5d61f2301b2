"""From a text to SentencePiece pieces and ids, exactly as the original ALBERT did.

A piece that ends in a digit and a comma is split: its digits are encoded again and the comma stands
alone, because the original vocabulary holds pieces such as `▁1990,` that its own tokenizer never used.
"""

from pathlib import Path

import sentencepiece

from albertkit.tokenization.normalization import Normalization

WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark for the start of a word


class PieceEncoder:
    """Cuts plain text into pieces; knows nothing of special tokens, pairs or padding."""

    def __init__(self, model_file: str | Path, normalization: Normalization) -> None:
        self.normalization = normalization
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
        self.size = self.processor.get_piece_size()

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of one text."""
        pieces = self.processor.encode(self.normalization(text), out_type=str)
        result: list[str] = []
        for piece in pieces:
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                result.extend(self._split_digits_comma(piece))
            else:
                result.append(piece)
        return result

    def ids(self, text: str) -> list[int]:
        """Return the ids of one text's pieces."""
        return self.processor.piece_to_id(self.pieces(text))

    def _split_digits_comma(self, piece: str) -> list[str]:
        digits = self.processor.encode(piece[:-1].replace(WORD_START, ""), out_type=str)
        if piece[0] != WORD_START and digits and digits[0][0] == WORD_START:
            digits = digits[1:] if len(digits[0]) == 1 else [digits[0][1:], *digits[1:]]
        return [*digits, ","]
