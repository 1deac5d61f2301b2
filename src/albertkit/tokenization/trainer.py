"""Train a SentencePiece model with the original's settings.

The model is a Unigram model with character coverage 0.99995. Ids 0-4 are `<pad> <unk> [CLS] [SEP] [MASK]`,
followed by the user-defined symbols below. The command is in issue 149 of google-research/albert.

SentencePiece keeps several copies of its training sample in memory. This module therefore draws the sample
itself, with a limit on its characters: it reads a corpus of any size once, as a stream, in bounded memory.
"""

import io
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import sentencepiece

from albertkit.errors import ConfigError, DataError, TokenizerError, short
from albertkit.options import check_size
from albertkit.tokenization.normalization import Normalization

CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "\N{EN DASH}", "\N{POUND SIGN}", "\N{EURO SIGN}")

SAMPLE_CHARACTERS = 40_000_000  # about 1.1 GB of memory in SentencePiece's Unigram trainer
HELD_OUT_EVERY = 50  # one line in 50 is held out for the report
HELD_OUT_LINES = 5_000
NO_TEXT = "no text to train a vocabulary on: every input was empty"
LINE_CHARACTERS = 1_000  # SentencePiece skips lines over 4,192 bytes; a character has up to 4 bytes


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
        # The message begins with the source location and the failed condition.
        reason = re.sub(r"^.*?\[.*?\]\s*", "", str(error), flags=re.DOTALL).strip() or error
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
