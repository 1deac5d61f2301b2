"""SentencePiece model files: the fields that the library's Python interface does not expose."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from albertkit.errors import ModelNotFoundError, TokenizerError, reading, short
from albertkit.protobuf import message_class

WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark for the start of a word

# Types of pieces: ModelProto.SentencePiece.Type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

# Algorithms: TrainerSpec.ModelType
UNIGRAM = 1

_TYPES = {"<pad>": CONTROL, "<unk>": UNKNOWN, "[CLS]": CONTROL, "[SEP]": CONTROL, "[MASK]": CONTROL}
_LONGEST_PIECE = 1_000
"""Maximum number of characters of a piece. The library `tokenizers` frees its trie recursively, one level per
byte, so a piece of 100,000 characters crashes the process. SentencePiece trains pieces of at most 16
characters."""


def read_model(content: bytes) -> Any:
    """Return the message `ModelProto` in a model file; the index of a piece is its id."""
    with reading("the SentencePiece model", TokenizerError):
        return message_class("ModelProto").FromString(content)


def new_model(pieces: Iterable[tuple[str, float, int]], character_map: bytes) -> Any:
    """Return a Unigram model with these pieces (text, score, type).

    `character_map` is the normalizer's compiled table; it is empty if the normalizer changes nothing.
    """
    model = message_class("ModelProto")()
    for text, score, kind in pieces:
        model.pieces.add(piece=text, score=score, type=kind)
    texts, trainer = [piece.piece for piece in model.pieces], model.trainer_spec
    trainer.model_type = UNIGRAM
    for field, name in (("unk_id", "<unk>"), ("bos_id", "<s>"), ("eos_id", "</s>"), ("pad_id", "<pad>")):
        setattr(trainer, field, texts.index(name) if name in texts else -1)
    model.normalizer_spec.precompiled_charsmap = character_map
    return model


def check_model(model: Any) -> None:
    """Raise ValueError if a model could crash the libraries, which read it without checks."""
    texts = [piece.piece for piece in model.pieces]
    longest = max(texts, key=len)
    if len(longest) > _LONGEST_PIECE:
        raise ValueError(f"the piece {short(longest)} has over {_LONGEST_PIECE:,} characters")
    if len(set(texts)) < len(texts) or "" in texts:
        raise ValueError("a piece is empty or occurs twice")
    character_map = model.normalizer_spec.precompiled_charsmap
    if character_map and not _is_character_map(character_map):
        raise ValueError("the normalizer's table of characters is damaged")


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
    offsets = units[leaves] & 0x7FFFFFFF
    return bool(
        (children[~leaves] < len(units)).all() and (offsets < len(strings)).all() and begins[offsets].all()
    )


def ends_in_digit_and_comma(piece: str) -> bool:
    """Return whether the original ALBERT splits a piece, such as `▁1990,`."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def read_vocabulary_file(path: str | Path) -> bytes:
    path = Path(path)
    if not path.is_file():
        raise ModelNotFoundError(f"{path}: no file. Expected a vocabulary, such as spiece.model.")
    return path.read_bytes()


def load_processor(model: bytes, *, source: str | Path) -> sentencepiece.SentencePieceProcessor:
    """Return SentencePiece's processor for the bytes of a model file; error messages name `source`."""
    processor = sentencepiece.SentencePieceProcessor()
    with reading(source, TokenizerError):
        try:
            processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            other = "a vocab.txt, a tokenizer.json or a Git LFS pointer"
            raise ValueError(f"SentencePiece cannot read it; it may be {other}") from error
        if not processor.get_piece_size():
            raise ValueError("it is empty")
    return processor


def vocab_lines(model: bytes) -> list[str]:
    """Return the lines of the `.vocab` file (piece, tab, score) that SentencePiece writes next to a model."""
    processor = load_processor(model, source="the vocabulary")
    ids = range(processor.GetPieceSize())
    return [f"{processor.IdToPiece(piece_id)}\t{processor.GetScore(piece_id):.6g}" for piece_id in ids]


def model_from_lines(lines: Sequence[str]) -> bytes:
    """Return a SentencePiece model with the pieces of a `.vocab` file, whose scores have six digits.

    Checkpoints from Julia contain no other tokenizer data. The lines contain neither the types of the pieces,
    which follow from names and scores in ALBERT's vocabularies, nor the normalizer, which is SentencePiece's
    default in ALBERT.
    """
    # Only the library's table: in versions before 0.2.3, the rest of its normalizer keeps spaces as they are.
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    with reading("the list of pieces", TokenizerError):
        pieces = []
        for line in lines:
            text, _, number = line.rpartition("\t")
            if not math.isfinite(score := float(number)):
                raise ValueError(f"{line!r} has no score")
            # Only pieces outside the Unigram model have the score 0.
            pieces.append((text, score, _TYPES.get(text, NORMAL if score else USER_DEFINED)))
        character_map = read_model(normalizer).normalizer_spec.precompiled_charsmap
        content = new_model(pieces, character_map).SerializeToString()
        load_processor(content, source="the list of pieces")  # raises for duplicate pieces, or without <unk>
    return content
