"""Training a vocabulary and reporting what it is worth; `trainer.py` has the recipe."""

import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.trainer import SAMPLE_CHARACTERS, Sample, train_model
from albertkit.tokenization.unigram import UnigramModel


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
    sample_characters: int = SAMPLE_CHARACTERS,
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
        sample_characters: bound on the sample, in characters.
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
        sample_characters=sample_characters,
        num_threads=num_threads,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        model_file = Path(folder) / "spiece.model"
        model_file.write_bytes(model)
        AlbertTokenizer(model_file, **asdict(normalization)).save_pretrained(output)
        return _report(UnigramModel(model_file, normalization), sample, held_out)


def _report(encoder: UnigramModel, sample: Sample, held_out: Sample) -> VocabularyReport:
    lines = held_out.lines or sample.lines  # a corpus of under 50 lines has none to hold out
    words = pieces = characters = unknown = 0
    unk_id = encoder.processor.unk_id()
    for line in lines:
        line_pieces = encoder.pieces(line)
        ids = encoder.processor.piece_to_id(line_pieces)
        words += len(line.split())
        pieces += len(ids)
        characters += sum(not char.isspace() for char in line)
        unknown += sum(len(piece) for piece, id in zip(line_pieces, ids, strict=True) if id == unk_id)
    return VocabularyReport(
        size=encoder.size,
        sampled_lines=len(sample.lines),
        sampled_characters=sample.characters,
        total_lines=sample.seen + held_out.seen,
        held_out_lines=len(held_out.lines),
        pieces_per_word=pieces / max(words, 1),
        characters_per_piece=characters / max(pieces, 1),
        unknown_characters=unknown / max(characters, 1),
    )
