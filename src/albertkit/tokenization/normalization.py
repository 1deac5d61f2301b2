"""What is done to a text before it is cut: the original's rule, and the settings of BERT's.

The original's (documented AlbertTokenizer, google-research/albert `preprocess_text`), before SentencePiece:

1. strip the text and collapse every run of whitespace to one space (`remove_space`);
2. two backticks or two apostrophes become one double quote;
3. unless `keep_accents`: NFKD decomposition, then every combining mark is dropped;
4. `do_lower_case`: lower case.

Of ASCII, whose spaces and letters are bytes, nearly all is done by one table; step 3 is the identity there.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Self

from albertkit.errors import TokenizerError

_PART = 256  # characters


@dataclass(frozen=True, kw_only=True)
class Normalization:
    """What happens to a text before it is cut into pieces; saved in `tokenizer_config.json`."""

    do_lower_case: bool = True
    remove_space: bool = True
    keep_accents: bool = False

    def __post_init__(self) -> None:
        _check_flags(self)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the normalization among a tokenizer's settings."""
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})

    def __call__(self, text: str) -> str:
        """Return the normalized text."""
        return self._ascii(text) if text.isascii() else self.plain(text)

    def plain(self, text: str) -> str:
        """Return the normalized text, as the rule reads."""
        if self.remove_space:
            text = " ".join(text.split())
        text = text.replace("``", '"').replace("''", '"')
        if not self.keep_accents and not text.isascii():
            # In parts: `normalize` sorts each run of marks, in a time that grows with the square of its
            # length. Their order does not matter, as they are dropped; each character decomposes alone.
            parts = range(0, len(text), _PART)
            text = "".join(unicodedata.normalize("NFKD", text[begin : begin + _PART]) for begin in parts)
            for mark in filter(unicodedata.combining, set(text)):  # few characters are different ones
                text = text.replace(mark, "")
        return text.lower() if self.do_lower_case else text

    def _ascii(self, text: str) -> str:
        """Return the normalized text; the fast twin of `plain` for ASCII."""
        text = text.encode().translate(self._table).decode()
        if self.remove_space:
            text = " ".join(text.split()) if "  " in text else text.strip(" ")
        if "`" in text:  # to look for one character costs a tenth of replacing two
            text = text.replace("``", '"')
        return text.replace("''", '"')

    @cached_property
    def _table(self) -> bytes:
        """What is written for each byte: spaces are one kind, and letters are lower-cased."""
        written = (" " if self.remove_space and one.isspace() else one for one in map(chr, range(128)))
        table = "".join(written)
        return (table.lower() if self.do_lower_case else table).encode() + bytes(range(128, 256))


@dataclass(frozen=True, kw_only=True)
class BertNormalization:
    """What happens to a text before WordPiece; the Rust library does it (`BertNormalizer`)."""

    do_lower_case: bool = True
    strip_accents: bool | None = None
    """None: where texts are lower-cased, as in the original BERT."""
    tokenize_chinese_chars: bool = True
    """Every Chinese character is a word."""

    def __post_init__(self) -> None:
        _check_flags(self, may_be_none=("strip_accents",))


def _check_flags(rules: Normalization | BertNormalization, *, may_be_none: tuple[str, ...] = ()) -> None:
    for name, value in asdict(rules).items():
        if not isinstance(value, bool) and not (value is None and name in may_be_none):
            raise TokenizerError(f"{name}={value!r:.80}: expected True or False")
