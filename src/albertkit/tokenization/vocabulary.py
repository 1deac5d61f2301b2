"""Train a vocabulary, measure it, and find the pieces that its tokenizer can never produce.

A text is normalized before it is split, so no text produces a piece that normalization would change: `▁Haus`
if texts are lower-cased, `ü` if accents are dropped. Such pieces waste parameters, and their words are split
into other pieces than the vocabulary was trained for. `trainer.py` contains the training settings.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from albertkit.tokenization.model_file import NORMAL, USER_DEFINED, WORD_START, read_model
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.trainer import train_model
from albertkit.tokenization.unigram import UnigramModel

_SHOWN = 8  # number of pieces that a message lists for each reason


@dataclass(frozen=True)
class VocabularyReport:
    """The quality of a vocabulary, measured on held-out text."""

    size: int
    """Number of pieces."""
    sampled_lines: int
    """Number of lines that the vocabulary was trained on."""
    sampled_characters: int
    total_lines: int
    """Number of nonempty lines of the corpus; long lines are split."""
    held_out_lines: int
    pieces_per_word: float
    """Pieces per word between spaces; meaningless for languages without spaces, such as Chinese and Thai."""
    characters_per_piece: float
    unknown_characters: float
    """Share of the non-space characters of the held-out lines that become `<unk>`, 0 to 1."""


def train_vocabulary(
    texts: Iterable[str],
    output: str | Path,
    *,
    vocab_size: int,
    normalization: Normalization | None = None,
    character_coverage: float = 0.99995,
    num_threads: int = 2,
    seed: int = 0,
) -> VocabularyReport:
    """Train a vocabulary and write the tokenizer's files, including `spiece.model`, to `output`.

    All files appear at once, so a vocabulary never exists without its normalization rules.

    Args:
        texts: Documents, paragraphs or lines; read once.
        output: Folder of the vocabulary; it is created if it does not exist.
        vocab_size: Number of pieces, including special tokens.
        normalization: The tokenizer's normalization rules. The vocabulary is trained on normalized text, and
            `tokenizer_config.json` records the rules.
        character_coverage: Share of the sample's characters that must be pieces of the vocabulary.
        num_threads: Number of SentencePiece threads.
        seed: Seed of the sample. The same texts, settings and seed give the same file.

    Raises:
        ConfigError: `vocab_size` or `num_threads` is not a whole number of at least 1, or SentencePiece does
            not accept the character coverage.
        DataError: There is no text, too little text for this vocabulary size, or a vocabulary size too
            small for the number of different characters.
        TokenizerError: A value in `texts` is not a text.
        OSError: `output` cannot be written. It is then unchanged.
    """
    normalization = normalization or Normalization()
    content, sample, held_out = train_model(
        texts,
        vocab_size=vocab_size,
        normalization=normalization,
        character_coverage=character_coverage,
        num_threads=num_threads,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        model_file = Path(folder) / "spiece.model"
        model_file.write_bytes(content)
        AlbertTokenizer(model_file, **asdict(normalization)).save_pretrained(output)
        model = UnigramModel(model_file, normalization)
    words = pieces = characters = unknown = 0
    unk_id = model.processor.unk_id()
    for line in held_out.lines or sample.lines:  # a corpus of fewer than 50 lines has no held-out lines
        line_pieces = model.pieces(line)
        ids = model.processor.piece_to_id(line_pieces)
        words += len(line.split())
        pieces += len(ids)
        characters += sum(not char.isspace() for char in line)
        unknown += sum(len(piece) for piece, id in zip(line_pieces, ids, strict=True) if id == unk_id)
    return VocabularyReport(
        size=model.size,
        sampled_lines=len(sample.lines),
        sampled_characters=sample.characters,
        total_lines=sample.seen + held_out.seen,
        held_out_lines=len(held_out.lines),
        pieces_per_word=pieces / max(words, 1),
        characters_per_piece=characters / max(pieces, 1),
        unknown_characters=unknown / max(characters, 1),
    )


def unreachable_pieces(model: UnigramModel) -> dict[str, list[str]]:
    """Return the pieces that no text can produce, by the setting that prevents them."""
    unreachable: dict[str, list[str]] = defaultdict(list)
    rule = model.normalization
    for piece in read_model(model.content).pieces:
        text = piece.piece.replace(WORD_START, " ").strip(" ")
        normalized = rule(text)
        if piece.type == NORMAL:  # SentencePiece does not change user-defined symbols
            normalized = model.processor.normalize(normalized).replace(WORD_START, " ").strip(" ")
        if piece.type not in (NORMAL, USER_DEFINED) or normalized == text:
            continue
        reason = "quotes, spaces and compatibility characters"
        if rule.do_lower_case and text != text.lower():
            reason = "do_lower_case=true"
        elif not rule.keep_accents and rule(text) != replace(rule, keep_accents=True)(text):
            reason = "keep_accents=false"
        unreachable[reason].append(piece.piece)
    return dict(unreachable)


def unreachable_warning(model: UnigramModel) -> str | None:
    """Return a warning that lists the pieces that no text can produce, or None if there are none."""
    unreachable = unreachable_pieces(model)
    if not unreachable:
        return None
    total = sum(map(len, unreachable.values()))
    parts = (
        f"{reason}: {' '.join(pieces[:_SHOWN])}"
        + (f" and {len(pieces) - _SHOWN:,} more" if len(pieces) > _SHOWN else "")
        for reason, pieces in unreachable.items()
    )
    return (
        f"{total:,} of {model.size:,} pieces of the vocabulary can never occur, because the tokenizer "
        f"changes texts before it splits them ({'; '.join(parts)}). Correct tokenizer_config.json, or train "
        "the vocabulary with the settings it is used with"
    )
