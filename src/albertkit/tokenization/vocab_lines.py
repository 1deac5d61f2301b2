"""The lines of a `.vocab` file (piece, tab, score), and the SentencePiece model made of them again.

SentencePiece writes these lines beside its model, and Julia's files have nothing else of a tokenizer. The
lines lack the kinds of the pieces, which ALBERT's vocabularies show by name and score, and the normalizer,
which ALBERT left at SentencePiece's default.
"""

import math
from collections.abc import Sequence

import sentencepiece

from albertkit.errors import TokenizerError
from albertkit.tokenization.model_file import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    PieceTable,
    load_processor,
    pieces_content,
)

_KINDS = {"<pad>": CONTROL, "<unk>": UNKNOWN, "[CLS]": CONTROL, "[SEP]": CONTROL, "[MASK]": CONTROL}


def lines_of(model: bytes) -> list[str]:
    """Return the lines that SentencePiece writes beside a model.

    Raises:
        TokenizerError: the model is damaged.
    """
    processor = load_processor(model, source="the vocabulary")
    numbers = range(processor.GetPieceSize())
    return [f"{processor.IdToPiece(number)}\t{processor.GetScore(number):.6g}" for number in numbers]


def model_of(lines: Sequence[str]) -> bytes:
    """Return a SentencePiece model with the pieces of these lines, whose scores have six digits.

    Raises:
        TokenizerError: a line is no piece with a score, or the pieces make no model (none is `<unk>`, one is
            there twice).
    """
    pieces, scores = zip(*map(_parse, lines), strict=True)
    # Only pieces that are no part of the unigram model have the score 0.
    kinds = tuple(
        _KINDS.get(piece, NORMAL if score else USER_DEFINED)
        for piece, score in zip(pieces, scores, strict=True)
    )
    table = PieceTable(pieces=pieces, scores=scores, kinds=kinds, character_map=b"")
    # Fields may follow each other in any order, so the normalizer's come as the library writes them.
    model = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    model += pieces_content(table)
    try:
        sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise TokenizerError(f"the lines make no SentencePiece model: {error}") from error
    return model


def _parse(line: str) -> tuple[str, float]:
    piece, _, score = line.rpartition("\t")
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not piece or not math.isfinite(value):
        raise TokenizerError(f"{line!r} is no line of a vocabulary: expected a piece, a tab and its score.")
    return piece, value
