"""Read and write SentencePiece model files, and recognize files of other formats.

The file is a protocol buffer (sentencepiece_model.proto). SentencePiece itself reads it for encoding. Its
Python interface does not expose some fields (type of a piece, normalizer table), so this module parses them
itself and needs no protobuf runtime.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece

from albertkit.errors import ModelNotFoundError, TokenizerError
from albertkit.protobuf import fixed32, message, number, read_fields

WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark for the start of a word

# Types of pieces: ModelProto.SentencePiece.Type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

# Algorithms: TrainerSpec.ModelType
UNIGRAM = 1

_KINDS = {"<pad>": CONTROL, "<unk>": UNKNOWN, "[CLS]": CONTROL, "[SEP]": CONTROL, "[MASK]": CONTROL}
_NO_PIECE = (1 << 64) - 1  # the id -1 in a protocol buffer


class Piece(NamedTuple):
    """A piece with its score and its type."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True, kw_only=True)
class PieceTable:
    """The pieces of a model file. The index of a piece is its id."""

    pieces: tuple[Piece, ...]
    character_map: bytes  # the normalizer's compiled table; empty if the normalizer changes nothing
    algorithm: int = UNIGRAM
    usual_spaces: bool = True  # a mark before the first word, and single marks between words

    def __post_init__(self) -> None:
        """Check the normalizer's table, because the libraries follow its offsets without checks."""
        if self.character_map and not _is_character_map(self.character_map):
            raise TokenizerError("the normalizer's table of characters is damaged. Copy the file again.")


def _is_character_map(content: bytes) -> bool:
    """Return whether every lookup stays within a normalizer's table.

    The table is a trie over UTF-8 (a double array of darts-clone), followed by the strings that it points to.
    """
    import numpy as np  # imported here, because loading a spiece.model does not need NumPy

    size = int.from_bytes(content[:4], "little")
    if size % 1024 or not 4 <= size <= len(content) - 4:
        return False
    units, strings = np.frombuffer(content[4 : 4 + size], "<u4"), content[4 + size :]
    if not strings.endswith(b"\0"):
        return False
    leaves = units >> 31 == 1
    children = np.arange(len(units), dtype="<u4") ^ units >> 10 << ((units & 0x200) >> 6)
    ends = np.frombuffer(strings, np.uint8) == 0
    # The offset in a leaf must be the start of a string: the first byte, or the byte after an end.
    begins = np.concatenate([[True], ends[:-1]])
    places = units[leaves] & 0x7FFFFFFF
    return bool(
        (children[~leaves] < len(units)).all() and (places < len(strings)).all() and begins[places].all()
    )


def ends_in_digit_and_comma(piece: str) -> bool:
    """Return whether a piece ends in a digit and a comma, such as `▁1990,`; the original ALBERT splits it."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def read_vocabulary_file(path: str | Path, *, expected: str) -> bytes:
    """Return the bytes of a vocabulary file.

    Raises:
        ModelNotFoundError: The file does not exist.
        TokenizerError: The file is empty.
    """
    path = Path(path)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise ModelNotFoundError(f"{path}: {what}. Expected {expected}.")
    content = path.read_bytes()
    if not content:
        raise TokenizerError(f"{path}: the file is empty. Expected {expected}. Copy or download it again.")
    return content


def load_processor(model: bytes, *, source: str | Path) -> sentencepiece.SentencePieceProcessor:
    """Return SentencePiece's processor for the bytes of a model file; error messages name `source`.

    Raises:
        TokenizerError: The bytes are truncated or have another format.
    """
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise TokenizerError(
            f"{source}: {_guess(model)}. Expected a complete SentencePiece model (spiece.model, "
            f"30k-clean.model, .spm). Copy or download it again, or pass the right file or folder."
        ) from error
    return processor


def read_piece_table(model: bytes) -> PieceTable:
    """Return the pieces, scores, types and normalizer table from the bytes of a model file.

    Raises:
        TokenizerError: The file is damaged. SentencePiece itself ignores fields of a wrong type.
    """
    pieces: list[Piece] = []
    character_map, algorithm, usual_spaces = b"", UNIGRAM, True
    try:
        for field, value, _ in read_fields(model):
            if field == 1:  # repeated SentencePiece pieces
                piece = _values(value)
                (score,) = struct.unpack("<f", struct.pack("<I", piece.get(2, 0)))
                pieces.append(Piece(piece.get(1, b"").decode(), score, piece.get(3, NORMAL)))
            elif field == 2:  # TrainerSpec
                algorithm = _values(value).get(3, UNIGRAM)
            elif field == 3:  # NormalizerSpec
                normalizer = _values(value)
                character_map = normalizer.get(2, b"")
                # add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
                usual_spaces = all(normalizer.get(flag, 1) for flag in (3, 4, 5))
        return PieceTable(
            pieces=tuple(pieces),
            character_map=character_map,
            algorithm=algorithm,
            usual_spaces=usual_spaces,
        )
    except (AttributeError, TypeError, struct.error, ValueError) as error:
        raise TokenizerError(
            f"the SentencePiece model is damaged ({type(error).__name__}: {error}). Copy the file again."
        ) from error


def _values(message: bytes) -> dict[int, Any]:
    return {field: value for field, value, _ in read_fields(message)}


def model_content(table: PieceTable) -> bytes:
    """Return the bytes of a SentencePiece model with these pieces."""
    types = {kind: number(3, kind) for kind in {piece.kind for piece in table.pieces}}
    pieces = b"".join(
        message(1, message(1, text.encode()) + fixed32(2, struct.pack("<f", score)) + types[kind])
        for text, score, kind in table.pieces
    )
    texts = [piece.text for piece in table.pieces]
    trainer = number(3, table.algorithm)
    for field, name in ((40, "<unk>"), (41, "<s>"), (42, "</s>"), (43, "<pad>")):
        trainer += number(field, texts.index(name) if name in texts else _NO_PIECE)
    return message(3, message(2, table.character_map)) + pieces + message(2, trainer)


def vocab_lines(model: bytes) -> list[str]:
    """Return the lines of the `.vocab` file (piece, tab, score) that SentencePiece writes next to a model."""
    processor = load_processor(model, source="the vocabulary")
    numbers = range(processor.GetPieceSize())
    return [f"{processor.IdToPiece(number)}\t{processor.GetScore(number):.6g}" for number in numbers]


def model_from_lines(lines: Sequence[str]) -> bytes:
    """Return a SentencePiece model with the pieces of a `.vocab` file, whose scores have six digits.

    Checkpoints from Julia contain no other tokenizer data. The lines contain neither the types of the pieces,
    which follow from names and scores in ALBERT's vocabularies, nor the normalizer, which is SentencePiece's
    default in ALBERT.

    Raises:
        TokenizerError: A line is not a piece with a score, or the pieces are not a valid model (no `<unk>`,
            or a duplicate piece).
    """
    # Only the library's table: in versions before 0.2.3, the rest of its normalizer keeps spaces as they are.
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    character_map = read_piece_table(normalizer).character_map
    table = PieceTable(pieces=tuple(map(_parse_line, lines)), character_map=character_map)
    model = model_content(table)
    try:
        sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise TokenizerError(f"the lines are not a valid SentencePiece model: {error}") from error
    return model


def _parse_line(line: str) -> Piece:
    text, _, score = line.rpartition("\t")
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not text or not math.isfinite(value):
        raise TokenizerError(
            f"{line!r} is not a line of a vocabulary. Expected a piece, a tab and its score."
        )
    # Only pieces outside the Unigram model have the score 0.
    return Piece(text, value, _KINDS.get(text, NORMAL if value else USER_DEFINED))


def _guess(model: bytes) -> str:
    """Describe the likely content of bytes that SentencePiece rejected."""
    head = model[:512]
    if head.lstrip()[:1] in (b"{", b"["):
        return "the file looks like JSON or a word list (vocab.txt)"
    if head.startswith(b"version https://git-lfs"):
        return "the file is a Git LFS pointer, not the model itself"
    if b"\n\x0e\n" in head or b"\n\x05" in head[:8] or head[:1] == b"\n":
        return "the file begins like a SentencePiece model but is damaged or cut off"
    return "the file is not a SentencePiece model"
