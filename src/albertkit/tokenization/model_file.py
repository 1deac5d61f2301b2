"""The SentencePiece model file: reading it, and telling apart what is not one.

The file is a protocol buffer (sentencepiece_model.proto). SentencePiece itself reads it for encoding; the
few fields that its Python interface does not show (kind of a piece, normalizer table) are read here from
the wire format, so that no protobuf run time is needed.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from albertkit.errors import ModelNotFoundError, TokenizerError

WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark for the start of a word

# Kinds of a piece: ModelProto.SentencePiece.Type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

# Algorithms: TrainerSpec.ModelType
UNIGRAM = 1


@dataclass(frozen=True, kw_only=True)
class PieceTable:
    """What a model file says about its pieces; the position of a piece is its id."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    kinds: tuple[int, ...]
    character_map: bytes  # the normalizer's compiled table, empty for the identity
    algorithm: int = UNIGRAM
    usual_spaces: bool = True  # a mark before the first word, single marks between words

    def __post_init__(self) -> None:
        """Check the size of the normalizer's table: Rust's library aborts the process on a wrong one."""
        size = int.from_bytes(self.character_map[:4], "little")
        if self.character_map and (size % 4 or not 4 <= size <= len(self.character_map) - 4):
            raise TokenizerError(
                f"the normalizer's table claims {size} bytes of {len(self.character_map)}; the vocabulary is "
                "damaged. Copy the file again"
            )


def read_model_file(path: str | Path) -> bytes:
    """Return the bytes of a SentencePiece model file.

    Raises ModelNotFoundError where there is no such file, TokenizerError where it holds nothing.
    """
    path = Path(path)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise ModelNotFoundError(f"{path}: {what}; expected a SentencePiece model file such as spiece.model")
    model = path.read_bytes()
    if not model:
        raise TokenizerError(
            f"{path}: the file is empty; expected a SentencePiece model. Copy or download it again"
        )
    return model


def load_processor(model: bytes, *, source: str | Path) -> sentencepiece.SentencePieceProcessor:
    """Return SentencePiece's processor for the bytes of a model file; `source` is named in errors.

    Raises TokenizerError where the bytes are truncated or of another format.
    """
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise TokenizerError(
            f"{source}: {_guess(model)}; expected a complete SentencePiece model (spiece.model, "
            f"30k-clean.model, .spm). Copy or download it again, or name the right file"
        ) from error
    return processor


def read_piece_table(model: bytes) -> PieceTable:
    """Return pieces, scores, kinds and normalizer table from the bytes of a model file.

    Raises TokenizerError where the file is damaged: SentencePiece passes over fields of a wrong kind.
    """
    try:
        return _read_piece_table(model)
    except (AttributeError, LookupError, TypeError, struct.error, UnicodeDecodeError) as error:
        raise TokenizerError(
            f"the SentencePiece model is damaged ({type(error).__name__}: {error}); copy the file again"
        ) from error


def _read_piece_table(model: bytes) -> PieceTable:
    pieces: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    character_map, algorithm, usual_spaces = b"", UNIGRAM, True
    for field, value in _fields(model):
        if field == 1:  # repeated SentencePiece pieces
            piece = dict(_fields(value))
            pieces.append(piece.get(1, b"").decode())
            scores.append(struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0)
            kinds.append(piece.get(3, NORMAL))
        elif field == 2:  # TrainerSpec
            algorithm = dict(_fields(value)).get(3, UNIGRAM)
        elif field == 3:  # NormalizerSpec
            normalizer = dict(_fields(value))
            character_map = normalizer.get(2, b"")
            # add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
            usual_spaces = all(normalizer.get(flag, 1) for flag in (3, 4, 5))
    return PieceTable(
        pieces=tuple(pieces),
        scores=tuple(scores),
        kinds=tuple(kinds),
        character_map=character_map,
        algorithm=algorithm,
        usual_spaces=usual_spaces,
    )


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (field number, value) of one protocol buffer message, values as on the wire."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        wire_type = key & 7
        if wire_type == 0:
            value, position = _varint(message, position)
        else:
            length = 8 if wire_type == 1 else 4
            if wire_type == 2:
                length, position = _varint(message, position)
            value = message[position : position + length]
            position += length
        yield key >> 3, value


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _guess(model: bytes) -> str:
    """Say what bytes that SentencePiece refused may be."""
    head = model[:512]
    if head.lstrip()[:1] in (b"{", b"["):
        return "the file looks like JSON or a word list (vocab.txt)"
    if head.startswith(b"version https://git-lfs"):
        return "the file is a Git LFS pointer, not the model itself"
    if b"\n\x0e\n" in head or b"\n\x05" in head[:8] or head[:1] == b"\n":
        return "the file begins like a SentencePiece model but is damaged or cut off"
    return "the file is not a SentencePiece model"
