"""Training a vocabulary and measuring it, and finding pieces that its tokenizer can never produce.

A text is normalized before it is split, so a piece that normalization would change occurs in no normalized
text: `▁Haus` where texts are lower-cased, `ü` where accents are dropped. Such pieces cost parameters, and
their words are split into other pieces than those that the vocabulary was trained for. `trainer.py` has the
recipe.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from albertkit.tokenization.model_file import NORMAL, USER_DEFINED, WORD_START
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.trainer import Sample, train_model
from albertkit.tokenization.unigram import UnigramModel

_SHOWN = 8  # pieces that a message names for each reason


@dataclass(frozen=True)
class VocabularyReport:
    """What a vocabulary is worth on text it was not trained on."""

    size: int
    sampled_lines: int
    sampled_characters: int
    total_lines: int
    held_out_lines: int
    pieces_per_word: float
    """Of the words between spaces: of no use for Chinese, Japanese, Thai ..., which have none."""
    characters_per_piece: float
    unknown_characters: float
    """Share of the non-space characters of the held-out lines that only `<unk>` covers, 0 to 1."""

    def to_dict(self) -> dict[str, int | float]:
        """Return the figures as plain values."""
        return asdict(self)


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
    """Train a vocabulary and write the tokenizer's files, `spiece.model` first among them, to `output`.

    All of them appear at once, so no vocabulary is ever found without the normalization it was trained for.

    Args:
        texts: documents, paragraphs or lines; read once.
        output: folder of the vocabulary, made if need be.
        vocab_size: number of pieces, special tokens included.
        normalization: what the tokenizer will do to a text first; the vocabulary is trained on that, and
            `tokenizer_config.json` keeps it.
        character_coverage: share of the characters of the sample that must be pieces of their own.
        num_threads: threads of SentencePiece.
        seed: of the sample. The same texts, settings and seed give the same file.

    Raises:
        ConfigError: a coverage that SentencePiece does not take.
        DataError: no text at all, or too little for so many pieces; too many different characters for so few.
        OSError: `output` cannot be written; then nothing new is in it.
    """
    normalization = normalization or Normalization()
    model, sample, held_out = train_model(
        texts,
        vocab_size=vocab_size,
        normalization=normalization,
        character_coverage=character_coverage,
        num_threads=num_threads,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        model_file = Path(folder) / "spiece.model"
        model_file.write_bytes(model)
        AlbertTokenizer(model_file, **asdict(normalization)).save_pretrained(output)
        return _report(UnigramModel(model_file, normalization), sample, held_out)


def _report(model: UnigramModel, sample: Sample, held_out: Sample) -> VocabularyReport:
    lines = held_out.lines or sample.lines  # a corpus of under 50 lines has none to hold out
    words = pieces = characters = unknown = 0
    unk_id = model.processor.unk_id()
    for line in lines:
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
    """Return the pieces that no text can give, by the setting that is the reason."""
    unreachable: dict[str, list[str]] = defaultdict(list)
    table = model.table()
    for piece, kind in zip(table.pieces, table.kinds, strict=True):
        if kind in (NORMAL, USER_DEFINED) and (reason := _reason_unreachable(model, piece, kind)):
            unreachable[reason].append(piece)
    return dict(unreachable)


def unreachable_warning(model: UnigramModel) -> str | None:
    """Return a warning that names the pieces that no text can give, None if there are none."""
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


def _reason_unreachable(model: UnigramModel, piece: str, kind: int) -> str | None:
    text = piece.replace(WORD_START, " ").strip(" ")
    rule = model.normalization
    normalized = rule(text)
    if kind == NORMAL:  # SentencePiece leaves user-defined symbols as they are
        normalized = model.processor.normalize(normalized).replace(WORD_START, " ").strip(" ")
    if normalized == text:
        return None
    if rule.do_lower_case and text != text.lower():
        return "do_lower_case=true"
    if not rule.keep_accents and rule(text) != replace(rule, keep_accents=True)(text):
        return "keep_accents=false"
    return "quotes, spaces and compatibility characters"
