"""The lines of a `.vocab` file (piece, tab, score), and the SentencePiece model made of them again.

SentencePiece writes these lines beside its model, and Julia's files have nothing else of a tokenizer. A model
is a protocol buffer (sentencepiece_model.proto): the pieces with their kinds, which ALBERT's vocabularies
show by name and score, and the normaliser, which ALBERT left at SentencePiece's default.
"""

import math
import struct
from collections.abc import Sequence

import sentencepiece

from albertkit.checkpoints.cursor import encode_varint
from albertkit.errors import CheckpointError

_NORMALIZER = "nmt_nfkc"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_KINDS = {"<pad>": _CONTROL, "<unk>": _UNKNOWN, "[CLS]": _CONTROL, "[SEP]": _CONTROL, "[MASK]": _CONTROL}
_UNIGRAM = 1
_NONE = (1 << 64) - 1
"""The number -1 as a protocol buffer writes it: there is no such piece."""


def lines_of(model: bytes) -> list[str]:
    """The lines that SentencePiece writes beside a model.

    Raises:
        CheckpointError: the model is damaged.
    """
    processor = _load(model)
    numbers = range(processor.GetPieceSize())
    return [f"{processor.IdToPiece(number)}\t{processor.GetScore(number):.6g}" for number in numbers]


def model_of(lines: Sequence[str]) -> bytes:
    """A SentencePiece model with the pieces of these lines, whose scores have six digits.

    Raises:
        CheckpointError: a line is no piece with a score, or the pieces make no model (none is `<unk>`, one is
            there twice).
    """
    pieces = [_parse(line) for line in lines]
    trainer = _number(3, _UNIGRAM)
    for field, name in ((40, "<unk>"), (41, "<s>"), (42, "</s>"), (43, "<pad>")):
        places = (place for place, (piece, _) in enumerate(pieces) if piece == name)
        trainer += _number(field, next(places, _NONE))
    # Fields may follow each other in any order, so the normaliser's come as the library writes them.
    model = sentencepiece.SentencePieceNormalizer(rule_name=_NORMALIZER).serialized_model_proto()
    model += b"".join(_message(1, _piece(*piece)) for piece in pieces) + _message(2, trainer)
    _load(model)
    return model


def _load(model: bytes) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise CheckpointError(f"The vocabulary is no SentencePiece model: {error}.") from error
    return processor


def _parse(line: str) -> tuple[str, float]:
    piece, _, score = line.rpartition("\t")
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not piece or not math.isfinite(value):
        raise CheckpointError(f"{line!r} is no line of a vocabulary: expected a piece, a tab and its score.")
    return piece, value


def _piece(piece: str, score: float) -> bytes:
    # Only pieces that are no part of the unigram model have the score 0.
    kind = _KINDS.get(piece, _USER_DEFINED if score == 0 else _NORMAL)
    return (
        _message(1, piece.encode()) + encode_varint(2 << 3 | 5) + struct.pack("<f", score) + _number(3, kind)
    )


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3) + encode_varint(value)


def _message(field: int, content: bytes) -> bytes:
    return encode_varint(field << 3 | 2) + encode_varint(len(content)) + content
