"""Read and write the file `tokenizer.json` of the Rust library `tokenizers` without that library.

The format cannot express the digit-comma rule, which depends on the pieces that the model chose. Instead, the
file gives the pieces that the rule splits a score so low that they are never chosen. Other readers then get
other ids if they split the digits differently, which happens in 1 of 36,269 paragraphs of books with digits.
"""

import base64
import math
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from albertkit.errors import TokenizerError, reading, short, warn_caller
from albertkit.files import json_text
from albertkit.tokenization.folder import listed_tokens, read_json
from albertkit.tokenization.model_file import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    WORD_START,
    Piece,
    PieceTable,
    ends_in_digit_and_comma,
)
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, SpecialTokens

_NEVER = -1_000.0
"""Added to the scores of pieces that other readers should never choose."""
_LONGEST_PIECE = 1_000
"""Maximum number of characters of a piece. The library frees its trie recursively, one level per byte, so a
piece of 100,000 characters crashes the process. SentencePiece trains pieces of at most 16 characters."""


def unigram_json(table: PieceTable, normalization: Normalization, special_tokens: SpecialTokens) -> bytes:
    _check_pieces([piece.text for piece in table.pieces])
    best = max(piece.score for piece in table.pieces if piece.kind == NORMAL)
    vocabulary: list[tuple[str, float]] = []
    for piece, score, kind in table.pieces:
        if kind == USER_DEFINED:
            score = len(piece) * best - 0.1  # SentencePiece's bonus for user-defined symbols
        vocabulary.append((piece, score + _NEVER if ends_in_digit_and_comma(piece) else score))
    spaces = {"type": "Metaspace", "replacement": WORD_START, "prepend_scheme": "always", "split": False}
    return tokenizer_json(
        special_tokens,
        normalizer={
            "type": "Sequence",
            "normalizers": [*_original_steps(normalization), *_sentencepiece_steps(table)],
        },
        pre_tokenizer=spaces,
        decoder=spaces,
        model={
            "type": "Unigram",
            "unk_id": [piece.kind for piece in table.pieces].index(UNKNOWN),
            "vocab": vocabulary,
            "byte_fallback": False,
        },
    )


def tokenizer_json(
    special_tokens: SpecialTokens,
    *,
    normalizer: dict[str, Any],
    pre_tokenizer: dict[str, Any],
    decoder: dict[str, Any],
    model: dict[str, Any],
) -> bytes:
    """Return the content of a `tokenizer.json` with these parts, which puts [CLS] and [SEP] around texts."""
    flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token_id, **{flag: token[flag] for flag in flags}}
            for token_id, token in special_tokens.describe().items()
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _post_processor(special_tokens),
        "decoder": decoder,
        "model": model,
    }
    return json_text(content, indent=2, ensure_ascii=False).encode()


def _post_processor(special_tokens: SpecialTokens) -> dict[str, Any] | None:
    first, end = special_tokens.roles["cls_token"], special_tokens.roles["sep_token"]
    if first is None or end is None:
        return None
    single = [_token(first, 0), {"Sequence": {"id": "A", "type_id": 0}}, _token(end, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, _token(end, 1)],
        "special_tokens": {
            token: {"id": token, "ids": [special_tokens.ids[token]], "tokens": [token]}
            for token in sorted({first, end})
        },
    }


def _token(token: str, segment: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": segment}}


def _sentencepiece_steps(table: PieceTable) -> list[dict[str, Any]]:
    """Return SentencePiece's normalizer as steps: its table, then single spaces between words."""
    characters = base64.b64encode(table.character_map).decode()
    steps = [{"type": "Precompiled", "precompiled_charsmap": characters}] if characters else []
    return [*steps, _replace({"Regex": " {2,}"}, " "), _replace({"Regex": "^ | $"}, "")]


def _original_steps(normalization: Normalization) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    if normalization.remove_space:
        steps += [_replace({"Regex": f"{_characters(str.isspace)}+"}, " "), _replace({"Regex": "^ | $"}, "")]
    steps += [_replace({"String": "``"}, '"'), _replace({"String": "''"}, '"')]
    if not normalization.keep_accents:
        # Not StripAccents, which also drops vowel signs that the original ALBERT keeps.
        steps += [{"type": "NFKD"}, _replace({"Regex": _characters(unicodedata.combining)}, "")]
    return [*steps, {"type": "Lowercase"}] if normalization.do_lower_case else steps


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


@lru_cache
def _characters(belongs: Callable[[str], object]) -> str:
    """Return a regular expression for all characters for which `belongs` is true."""
    codes = map(ord, filter(belongs, map(chr, range(sys.maxunicode + 1))))
    # Consecutive characters have the same difference between their code and their index in the list.
    runs = [list(run) for _, run in groupby(enumerate(codes), lambda numbered: numbered[1] - numbered[0])]
    return "[" + "".join(f"\\x{{{run[0][1]:X}}}-\\x{{{run[-1][1]:X}}}" for run in runs) + "]"


def read_unigram_json(path: Path) -> tuple[PieceTable, dict[str, Any], dict[str, Any]]:
    with reading(path, TokenizerError):
        return _read_content(read_json(path), path)


def _read_content(content: dict[str, Any], path: Path) -> tuple[PieceTable, dict[str, Any], dict[str, Any]]:
    model = content.get("model") or {}
    if model.get("type") != "Unigram" or model.get("unk_id") is None:
        raise ValueError(
            f"the file has a {model.get('type', 'missing')} model. Expected the Unigram vocabulary of an "
            "ALBERT tokenizer. AutoTokenizer also loads WordPiece vocabularies."
        )
    if model.get("byte_fallback"):
        raise ValueError("byte_fallback is true, which only a spiece.model supports. Load the spiece.model.")
    vocabulary = [_piece(entry) for entry in model["vocab"]]
    _check_pieces([piece for piece, _ in vocabulary])
    unknown_id = model["unk_id"]
    if type(unknown_id) is not int or not 0 <= unknown_id < len(vocabulary):
        raise ValueError(
            f"unk_id is {short(unknown_id)}. Expected the id of one of {len(vocabulary)} pieces."
        )
    tokens = listed_tokens(content)
    steps = list(_flatten(content.get("normalizer")))
    maps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    if not maps and "WhitespaceSplit" in {step["type"] for step in _flatten(content.get("pre_tokenizer"))}:
        warn_caller(
            f"{path}: transformers wrote it without SentencePiece's table of characters, so texts with "
            "compatibility or control characters may get other ids than with the original. Load the "
            "spiece.model instead."
        )
    special = {*tokens.special}
    pieces = [_read_piece(piece, score, special) for piece, score in vocabulary]
    pieces[unknown_id] = pieces[unknown_id]._replace(kind=UNKNOWN)
    table = PieceTable(pieces=tuple(pieces), character_map=base64.b64decode(maps[0]) if maps else b"")
    types = {step["type"] for step in steps}
    rules = {"do_lower_case": "Lowercase" in types, "keep_accents": "NFKD" not in types}
    extra = [token for token in tokens.special if token not in DEFAULT_ROLES.values()]
    return table, rules, {"added_tokens": tokens.added, "extra_special_tokens": extra}


def _read_piece(piece: str, score: float, special: set[str]) -> Piece:
    """Return a piece with its type, given the special tokens."""
    if piece in special and (score == 0 or piece in DEFAULT_ROLES.values()):
        # A learned piece that was made a special token is still a piece of plain text.
        return Piece(piece, score, CONTROL)
    if score < _NEVER and ends_in_digit_and_comma(piece):
        score -= _NEVER  # no learned score is this low; the sum is exact, so the subtraction is exact too
    # Learned scores are logarithms of probabilities below 1. `transformers` keeps SentencePiece's 0 for
    # user-defined symbols and lists them as added tokens, but texts must not be split at them.
    return Piece(piece, score, USER_DEFINED if score == 0 else NORMAL)


def _check_pieces(pieces: Sequence[str]) -> None:
    longest = max(pieces, key=len)
    if len(longest) > _LONGEST_PIECE:
        raise ValueError(
            f"the piece {short(longest)} has {len(longest):,} characters. Expected at most "
            f"{_LONGEST_PIECE:,}."
        )
    for piece, count in Counter(pieces).items():
        if count > 1 or not piece:
            raise ValueError(
                f"the piece {piece!r} occurs {count} times. Expected pieces that are unique and not empty."
            )


def _piece(entry: Any) -> tuple[str, float]:
    piece, score = entry
    if not isinstance(piece, str) or isinstance(score, bool) or not math.isfinite(score):
        raise ValueError(f"received {entry!r:.100} for a piece. Expected a string and its score.")
    return piece, score


def _flatten(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the single steps of a normalizer or pre-tokenizer, which may be nested sequences."""
    if step is not None:
        if step["type"] == "Sequence":
            for inner in step.get("normalizers") or step.get("pretokenizers") or ():
                yield from _flatten(inner)
        else:
            yield step
