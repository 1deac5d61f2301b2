"""Train a vocabulary, measure it, and find the pieces that its tokenizer can never produce.

A vocabulary is a Unigram model with the settings of the original: character coverage 0.99995, and the ids
0-4 are `<pad> <unk> [CLS] [SEP] [MASK]`, followed by the user-defined symbols below. The command is in issue
149 of google-research/albert. SentencePiece keeps several copies of its training sample in memory, so this
module draws the sample itself: it reads a corpus of any size once, as a stream, in bounded memory.

A text is normalized before it is split, so no text produces a piece that normalization would change: `▁Haus`
if texts are lower-cased, `ü` if accents are dropped. Such pieces waste parameters, and their words are split
into other pieces than the vocabulary was trained for.
"""

import io
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import sentencepiece

from albertkit.errors import ConfigError, DataError, TokenizerError, short
from albertkit.options import check_size
from albertkit.tokenization.model_file import NORMAL, USER_DEFINED, WORD_START, read_model
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.unigram import UnigramModel

CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "\N{EN DASH}", "\N{POUND SIGN}", "\N{EURO SIGN}")

SAMPLE_CHARACTERS = 40_000_000  # about 1.1 GB of memory in SentencePiece's Unigram trainer
HELD_OUT_EVERY = 50  # one line in 50 is held out for the report
HELD_OUT_LINES = 5_000
NO_TEXT = "no text to train a vocabulary on: every input was empty"
LINE_CHARACTERS = 1_000  # SentencePiece skips lines over 4,192 bytes; a character has up to 4 bytes


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


def train_model(
    texts: Iterable[str] | Iterable[list[str]],
    *,
    vocab_size: int,
    normalization: Normalization,
    character_coverage: float = 0.99995,
    num_threads: int = 2,
    seed: int = 0,
) -> tuple[bytes, "Sample", "Sample"]:
    """Return the content of a model file, and the samples of training lines and of held-out lines.

    For the arguments see `train_vocabulary`; batches of texts are possible, too.
    """
    check_size("vocab_size", vocab_size)
    check_size("num_threads", num_threads)
    if not 0.98 <= character_coverage <= 1:
        raise ConfigError(f"character_coverage must be between 0.98 and 1, not {character_coverage}")
    sample = Sample(SAMPLE_CHARACTERS, seed)
    held_out = Sample(HELD_OUT_LINES * LINE_CHARACTERS, seed + 1, max_lines=HELD_OUT_LINES)
    for number, line in enumerate(lines(texts, normalization)):
        (held_out if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else sample).offer(line)
    if not sample.lines:
        raise DataError(NO_TEXT)

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample.lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece="<pad>",
            unk_piece="<unk>",
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(USER_DEFINED_SYMBOLS),
            shuffle_input_sentence=False,
            num_threads=num_threads,
            minloglevel=2,
        )
    except (RuntimeError, OSError, ValueError) as error:  # ValueError for a number over 32 bits
        message = str(error)
        if counts := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
            reason = (
                f"its characters and the special tokens alone need {counts[1]} pieces. Use more pieces or a "
                "lower character coverage (for Chinese and Japanese, 0.9995 is common)."
            )
        else:  # without the source location and the failed condition
            reason = re.sub(r"^.*?\[.*?\]\s*", "", message, flags=re.DOTALL).strip() or message
        raise DataError(
            f"SentencePiece could not train {vocab_size} pieces (vocab_size) on {len(sample.lines)} lines "
            f"({sample.characters} characters): {reason}"
        ) from error
    return model.getvalue(), sample, held_out


def lines(texts: Any, normalization: Callable[[str], str]) -> Iterator[str]:
    """Yield the normalized nonempty lines of texts. Long lines are split, at a space if possible."""
    if isinstance(texts, str):
        raise TokenizerError(f"received {short(texts)} for the texts. Put a single text into a list.")
    for batch in texts:
        is_batch = isinstance(batch, Iterable) and not isinstance(batch, str | Mapping)
        for text in batch if is_batch else [batch]:
            if not isinstance(text, str):
                raise TokenizerError(f"received {short(text)} ({type(text).__name__}) for a text.")
            for line in text.splitlines():
                line = normalization(line)
                while len(line) > LINE_CHARACTERS:
                    cut = line.rfind(" ", 1, LINE_CHARACTERS)
                    cut = cut if cut > 0 else LINE_CHARACTERS
                    yield line[:cut]
                    line = line[cut:].lstrip()
                if line:
                    yield line


class Sample:
    """A uniform sample of a stream of lines, with a limit on its characters (reservoir sampling).

    The sample grows until it reaches the limit. After that, its number of lines is fixed: each new line
    replaces a random line with the probability that keeps every line equally likely.
    """

    def __init__(self, max_characters: int, seed: int, *, max_lines: int | None = None) -> None:
        self.lines: list[str] = []
        self.characters = 0
        self.seen = 0
        self._max_characters = max_characters
        self._max_lines = max_lines
        self._random = random.Random(seed)
        self._full = False

    def offer(self, line: str) -> None:
        self.seen += 1
        if not self._full:
            self.lines.append(line)
            self.characters += len(line)
            self._full = self.characters >= self._max_characters or len(self.lines) == self._max_lines
            return
        index = self._random.randrange(self.seen)
        if index < len(self.lines):
            self.characters += len(line) - len(self.lines[index])
            self.lines[index] = line


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
