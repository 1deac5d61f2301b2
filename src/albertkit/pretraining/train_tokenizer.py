"""Train a vocabulary on raw text: `train_tokenizer`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.pretraining.settings import TokenizerSettings
from albertkit.recipe import settings_from, takes_settings
from albertkit.results import Result


@dataclass(frozen=True, repr=False)
class TrainedTokenizer(Result):
    """A new tokenizer, measured on lines that its vocabulary was not trained on."""

    pieces: int
    pieces_per_word: float
    """Tokens per word between spaces; meaningless for Chinese, Japanese, Thai and so on, which have no
    spaces."""
    characters_per_piece: float
    unknown_characters: float
    """Share of the non-space characters that only `<unk>` covers, 0 to 1."""
    lines: int
    lines_sampled: int
    lines_held_out: int
    output: Path
    """Folder of the tokenizer."""

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, loaded from its folder."""
        from albertkit.tokenization.tokenizer import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.output)


@takes_settings(TokenizerSettings)
def train_tokenizer(
    inputs: str | Path | Sequence[str | Path] | Any, *, output: str | Path, **settings: Any
) -> TrainedTokenizer:
    """Train a SentencePiece vocabulary with ALBERT's settings, and write the tokenizer's files.

    Args:
        inputs: text files, folders or glob patterns: `.txt`, `.jsonl` or `.parquet`, optionally compressed
            (`.gz`, `.zst` or `.bz2`). In Python also rows with a column of texts: a list of dicts, a
            `datasets.Dataset`, a pandas or Arrow table. A `datasets.IterableDataset` and a generator of dicts
            are read row by row.
        output: new folder of the tokenizer.
        **settings: fields of `TokenizerSettings`.

    Returns:
        The folder of the tokenizer, and statistics of its vocabulary.

    Raises:
        ConfigError: a setting is unknown or out of range.
        DataError: there is no text, or too little text for this vocabulary size; a file cannot be read; or
            `output` exists.
    """
    from albertkit.files import check_new_folder
    from albertkit.pretraining.corpus import Corpus
    from albertkit.tokenization.normalization import Normalization
    from albertkit.tokenization.vocabulary import train_vocabulary

    chosen = settings_from(TokenizerSettings, None, settings)
    check_new_folder(Path(output))
    corpus = Corpus(inputs, text_column=chosen.text_column)
    report = train_vocabulary(
        (document.text for document in corpus),
        output,
        vocab_size=chosen.vocab_size,
        normalization=Normalization(do_lower_case=not chosen.cased, keep_accents=chosen.keep_accents),
        character_coverage=chosen.coverage,
        num_threads=chosen.threads,
        seed=chosen.seed,
    )
    return TrainedTokenizer(
        pieces=report.size,
        pieces_per_word=round(report.pieces_per_word, 4),
        characters_per_piece=round(report.characters_per_piece, 4),
        unknown_characters=round(report.unknown_characters, 8),
        lines=report.total_lines,
        lines_sampled=report.sampled_lines,
        lines_held_out=report.held_out_lines,
        output=Path(output),
    )
