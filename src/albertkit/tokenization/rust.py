"""The Rust library `tokenizers` as a cutter of plain text, and its file `tokenizer.json`.

Rust's Unigram model finds the same best pieces as SentencePiece when it is given the same text and scores:

* user-defined symbols get the score with which SentencePiece always prefers them;
* SentencePiece's normalizer is done in Python (`character_map.py`): the library's own cuts at grapheme
  clusters, and so differs on decomposed text;
* control pieces must not be found in a text, so the model knows them under names that none can hold.

What remains: SentencePiece adds scores in single precision and Rust in double, so two cuts whose scores are
equal but for rounding (`n nn` and `nn n` in a run of letters) may be decided differently. No text of books,
Wikipedia or questions that was tried shows it; 1 in about 15,000 random strings does.

The digit-comma rule cannot be said in a `tokenizer.json`: it looks at the pieces that the model chose. The
cutter applies it afterwards. For other readers, the file gives the pieces that the rule splits a score with
which none is chosen: they get other ids where the digits are then cut otherwise, on 1 of 36,269 paragraphs of
books with digits.
"""

import base64
import math
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from albertkit.errors import TokenizerError
from albertkit.tokenization.character_map import CharacterMap
from albertkit.tokenization.decoding import MarkedStarts
from albertkit.tokenization.folder import named_damage, read_json
from albertkit.tokenization.model_file import (
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    WORD_START,
    PieceTable,
)
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.offsets import Alignment, align
from albertkit.tokenization.pieces import DigitCommaRule, not_unicode
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, SpecialTokens, token_text

_NEVER = -1_000.0
"""Added to the scores of pieces in `tokenizer.json` that no reader should choose."""
_LONGEST_PIECE = 1_000
"""Maximum number of characters in a piece. The library frees its trie recursively, one level for each
byte, and a piece of 100,000 characters crashes the process. SentencePiece trains pieces of up to 16."""


class RustPieceEncoder:
    """Cuts plain text into pieces; knows nothing of special tokens, pairs or padding."""

    spelling = MarkedStarts()

    def __init__(self, table: PieceTable, normalization: Normalization, *, source: str | Path) -> None:
        if table.algorithm != UNIGRAM or UNKNOWN not in table.kinds:
            raise TokenizerError(
                f"{source}: expected a Unigram vocabulary with an unknown piece; AlbertTokenizer reads others"
            )
        if not table.usual_spaces:
            raise TokenizerError(
                f"{source}: its NormalizerSpec treats spaces in an unusual way; AlbertTokenizer reads it"
            )
        self.normalization = normalization
        self.size = len(table.pieces)
        self._table = table
        self._load()

    def _load(self) -> None:
        table = self._table
        self._ids = {piece: piece_id for piece_id, piece in enumerate(table.pieces)}
        self._unknown_id = table.kinds.index(UNKNOWN)
        # No text holds a space once the normalizer has turned them into marks.
        names = [
            f" {piece}" if kind in (CONTROL, UNKNOWN) else piece
            for piece, kind in zip(table.pieces, table.kinds, strict=True)
        ]
        self._tokenizer = tokenizers.Tokenizer(_unigram(names, table))
        if WORD_START in self._ids and not any(WORD_START in piece[1:] for piece in table.pieces):
            # No piece crosses the start of a word, so words can be cut one by one. The library remembers what
            # it cut, which would else be whole texts.
            self._tokenizer.pre_tokenizer = pre_tokenizers.Split(WORD_START, "merged_with_next")
        self._character_map = CharacterMap(table)
        if table.character_map:
            normalizers.Precompiled(table.character_map)  # which checks it
        self._rule = DigitCommaRule(
            table.pieces, encode=self._encode, to_ids=self._to_ids, unknown_id=self._unknown_id
        )

    def __getstate__(self) -> dict[str, object]:
        return {"normalization": self.normalization, "size": self.size, "_table": self._table}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._load()

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of one text; an unknown run of characters is its own piece."""
        return self._rule.pieces(self._encode(self.normalization(text)))

    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of many texts' pieces, in this thread alone where `num_threads` is 1."""
        encodings = self._cut([self.normalization(text) for text in texts], single=num_threads == 1)
        return self._rule.ids(
            [encoding.ids for encoding in encodings], pieces_of=lambda index: encodings[index].tokens
        )

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece of a text: its characters in the text as given."""
        return self.align(text).spans(self.pieces(text))

    def align(self, text: str) -> Alignment:
        """Return what the model cuts, each character with its place in the text as given."""
        normalized = align(text, self.normalization)
        return normalized.then(*self._character_map.with_offsets(normalized.text))

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, None where it is not in the vocabulary."""
        return self._ids.get(piece)

    def id_to_token(self, piece_id: int) -> str:
        """Return the piece of an id."""
        return self._table.pieces[piece_id]

    def table(self) -> PieceTable:
        """Return all pieces with scores and kinds, and the normalizer's table."""
        return self._table

    def _encode(self, normalized: str) -> list[str]:
        return self._cut([normalized], single=True)[0].tokens

    def _cut(self, normalized: list[str], *, single: bool) -> list[tokenizers.Encoding]:
        try:
            marked = [self._character_map(text) for text in normalized]
            if single:
                return [self._tokenizer.encode(text, add_special_tokens=False) for text in marked]
            return self._tokenizer.encode_batch_fast(marked, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            raise not_unicode(normalized) from error

    def _to_ids(self, pieces: list[str]) -> list[int]:
        return [self._ids.get(piece, self._unknown_id) for piece in pieces]


def build_tokenizer(
    table: PieceTable, normalization: Normalization, special_tokens: SpecialTokens
) -> tokenizers.Tokenizer:
    """Return the Rust library's tokenizer for other readers: what `tokenizer.json` holds."""
    scores = tuple(
        score + _NEVER if DigitCommaRule.applies_to(piece) else score
        for piece, score in zip(table.pieces, table.scores, strict=True)
    )
    tokenizer = tokenizers.Tokenizer(_unigram(table.pieces, replace(table, scores=scores)))
    tokenizer.normalizer = normalizers.Sequence(
        [*_original_steps(normalization), *_sentencepiece_steps(table)]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=WORD_START, prepend_scheme="always", split=False
    )
    tokenizer.decoder = decoders.Metaspace(replacement=WORD_START, prepend_scheme="always", split=False)
    add_special_tokens(tokenizer, special_tokens)
    return tokenizer


def add_special_tokens(tokenizer: tokenizers.Tokenizer, special_tokens: SpecialTokens) -> None:
    """Add the tokens that stand for themselves, and [CLS] and [SEP] around texts."""
    for token in special_tokens.describe().values():
        added = tokenizers.AddedToken(**token)
        (tokenizer.add_special_tokens if token["special"] else tokenizer.add_tokens)([added])
    first, end = special_tokens.roles["cls_token"], special_tokens.roles["sep_token"]
    if first is None or end is None:
        return
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {end}:0",
        pair=f"{first}:0 $A:0 {end}:0 $B:1 {end}:1",
        special_tokens=[(token, special_tokens.ids[token]) for token in (first, end)],
    )


def read_tokenizer_file(path: Path) -> tuple[PieceTable, dict[str, Any]]:
    """Return the vocabulary of a `tokenizer.json`, and what it says of rules and added tokens.

    Raises TokenizerError where the file is damaged, or holds no Unigram vocabulary.
    """
    with named_damage(path):
        return _read_content(read_json(path), path)


def _read_content(content: dict[str, Any], path: Path) -> tuple[PieceTable, dict[str, Any]]:
    model = content.get("model") or {}
    if model.get("type") != "Unigram" or model.get("unk_id") is None:
        raise TokenizerError(
            f"{path}: holds a {model.get('type', 'missing')} model; expected the Unigram vocabulary of an "
            f"ALBERT tokenizer. AutoTokenizer opens those with WordPiece vocabularies too"
        )
    vocabulary = [_piece(entry) for entry in model["vocab"]]
    unknown_id = model["unk_id"]
    if type(unknown_id) is not int or not 0 <= unknown_id < len(vocabulary):
        raise TokenizerError(
            f"unk_id is {unknown_id!r:.50}; expected the id of one of {len(vocabulary)} pieces"
        )
    tokens = {token_text(token): token for token in content.get("added_tokens") or ()}
    added = {text: token["id"] for text, token in tokens.items()}
    special = {text for text, token in tokens.items() if token.get("special")}
    steps = list(_flatten(content.get("normalizer")))
    maps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    kinds = [CONTROL if piece in special else NORMAL for piece, _ in vocabulary]
    kinds[unknown_id] = UNKNOWN
    # Learned scores are logarithms of probabilities below 1. `transformers` keeps SentencePiece's 0 for
    # user-defined symbols, and lists these as added tokens, at which texts are not to be cut.
    for piece_id, (_, score) in enumerate(vocabulary):
        if score == 0 and kinds[piece_id] == NORMAL:
            kinds[piece_id] = USER_DEFINED
    if not maps and "WhitespaceSplit" in {step["type"] for step in _flatten(content.get("pre_tokenizer"))}:
        warnings.warn(
            f"{path}: transformers wrote it without SentencePiece's table of characters, so texts with "
            "compatibility or control characters may get other ids than the original's; load the "
            "spiece.model instead",
            UserWarning,
            stacklevel=3,
        )
    table = PieceTable(
        pieces=tuple(piece for piece, _ in vocabulary),
        # No learned score is as low as that. The sum is exact, so taking it back is.
        scores=tuple(
            score - _NEVER if score < _NEVER and DigitCommaRule.applies_to(piece) else score
            for piece, score in vocabulary
        ),
        kinds=tuple(kinds),
        character_map=base64.b64decode(maps[0]) if maps else b"",
    )
    types = {step["type"] for step in steps}
    settings = {
        "do_lower_case": "Lowercase" in types,
        "keep_accents": "NFKD" not in types,
        "added_tokens": {token: number for token, number in added.items() if number >= len(vocabulary)},
    }
    roles = set(DEFAULT_ROLES.values())
    settings["extra_special_tokens"] = [token for token in added if token in special - roles]
    return table, settings


def _piece(entry: Any) -> tuple[str, float]:
    """Return a piece and its score as a tokenizer.json has them; raise TokenizerError for anything else."""
    piece, score = entry
    if not isinstance(piece, str) or isinstance(score, bool) or not math.isfinite(score):
        raise TokenizerError(f"received {entry!r:.100} for a piece; expected a string and its score")
    return piece, score


def _unigram(names: Iterable[str], table: PieceTable) -> models.Unigram:
    """Return the model with SentencePiece's scores, and its bonus for user-defined symbols.

    Raises:
        TokenizerError: a piece is longer than the library can handle.
    """
    longest = max(table.pieces, key=len)
    if len(longest) > _LONGEST_PIECE:
        raise TokenizerError(
            f"the piece {longest!r:.40} has {len(longest):,} characters; expected at most {_LONGEST_PIECE:,}"
        )
    best = max(score for score, kind in zip(table.scores, table.kinds, strict=True) if kind == NORMAL)
    scores = [
        len(piece) * best - 0.1 if kind == USER_DEFINED else score
        for piece, score, kind in zip(table.pieces, table.scores, table.kinds, strict=True)
    ]
    return models.Unigram(
        list(zip(names, scores, strict=True)), unk_id=table.kinds.index(UNKNOWN), byte_fallback=False
    )


def _sentencepiece_steps(table: PieceTable) -> list[normalizers.Normalizer]:
    """Return what SentencePiece does to a text before it cuts: its table, and single spaces between words."""
    steps: list[normalizers.Normalizer] = (
        [normalizers.Precompiled(table.character_map)] if table.character_map else []
    )
    return [*steps, normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex("^ | $"), "")]


def _original_steps(normalization: Normalization) -> list[normalizers.Normalizer]:
    """Return `Normalization` in the Rust library's terms."""
    steps: list[normalizers.Normalizer] = []
    if normalization.remove_space:
        steps += [
            normalizers.Replace(Regex(f"{_characters(str.isspace)}+"), " "),
            normalizers.Replace(Regex("^ | $"), ""),
        ]
    steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not normalization.keep_accents:
        # Not StripAccents: it also drops vowel signs, which the original keeps.
        steps += [normalizers.NFKD(), normalizers.Replace(Regex(_characters(_is_combining)), "")]
    return [*steps, normalizers.Lowercase()] if normalization.do_lower_case else steps


def _is_combining(character: str) -> bool:
    return unicodedata.combining(character) != 0


@lru_cache
def _characters(belongs: Callable[[str], bool]) -> str:
    """Return a regular expression's class of all characters that belong."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if belongs(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "[" + "".join(f"\\x{{{first:X}}}-\\x{{{last:X}}}" for first, last in ranges) + "]"


def _flatten(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the single steps of a normalizer or pre-tokenizer as it stands in the file."""
    if step is not None:
        if step["type"] == "Sequence":
            for inner in step.get("normalizers") or step.get("pretokenizers") or ():
                yield from _flatten(inner)
        else:
            yield step
