"""Read and write the file `tokenizer.json` of the Rust library `tokenizers` without that library.

The format cannot express the digit-comma rule, which depends on the pieces that the model chose. Instead, the
file gives the pieces that the rule splits a score so low that they are never chosen. Other readers then get
other ids if they split the digits differently, which happens in 1 of 36,269 paragraphs of books with digits.
"""

import base64
import json
import math
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from albertkit.errors import TokenizerError, reading, short, warn_caller
from albertkit.files import json_text, read_json
from albertkit.tokenization.model_file import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    WORD_START,
    check_model,
    ends_in_digit_and_comma,
    new_model,
)
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, SpecialTokens, token_text

CONTINUATION = "##"
"""The mark of pieces inside a word in a WordPiece vocabulary."""
_NEVER = -1_000.0
"""Added to the scores of pieces that other readers should never choose."""


# --- writing ------------------------------------------------------------------------------------


def unigram_json(model: Any, normalization: Normalization, special_tokens: SpecialTokens) -> bytes:
    check_model(model)
    best = max(piece.score for piece in model.pieces if piece.type == NORMAL)
    vocabulary: list[tuple[str, float]] = []
    for piece in model.pieces:
        text, score = piece.piece, piece.score
        if piece.type == USER_DEFINED:
            score = len(text) * best - 0.1  # SentencePiece's bonus for user-defined symbols
        vocabulary.append((text, score + _NEVER if ends_in_digit_and_comma(text) else score))
    spaces = {"type": "Metaspace", "replacement": WORD_START, "prepend_scheme": "always", "split": False}
    steps = _steps(normalization, model.normalizer_spec.precompiled_charsmap)
    return tokenizer_json(
        special_tokens,
        normalizer={"type": "Sequence", "normalizers": steps},
        pre_tokenizer=spaces,
        decoder=spaces,
        model={
            "type": "Unigram",
            "unk_id": [piece.type for piece in model.pieces].index(UNKNOWN),
            "vocab": vocabulary,
            "byte_fallback": False,
        },
    )


def tokenizer_json(special_tokens: SpecialTokens, **parts: dict[str, Any]) -> bytes:
    """Return the content of a file with these parts, which puts [CLS] and [SEP] around texts."""
    flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    first, end = special_tokens.roles["cls_token"], special_tokens.roles["sep_token"]
    post_processor = None
    if first is not None and end is not None:

        def token(text: str, segment: int) -> dict[str, Any]:
            return {"SpecialToken": {"id": text, "type_id": segment}}

        single = [token(first, 0), {"Sequence": {"id": "A", "type_id": 0}}, token(end, 0)]
        post_processor = {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, token(end, 1)],
            "special_tokens": {
                text: {"id": text, "ids": [special_tokens.ids[text]], "tokens": [text]}
                for text in sorted({first, end})
            },
        }
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token_id, **{flag: token[flag] for flag in flags}}
            for token_id, token in special_tokens.describe().items()
        ],
        "normalizer": parts["normalizer"],
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": post_processor,
        "decoder": parts["decoder"],
        "model": parts["model"],
    }
    return json_text(content, indent=2, ensure_ascii=False).encode()


def _steps(normalization: Normalization, character_map: bytes) -> list[dict[str, Any]]:
    """Return the normalization of the original, then that of SentencePiece."""

    def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
        return {"type": "Replace", "pattern": pattern, "content": content}

    strip = replace({"Regex": "^ | $"}, "")
    steps: list[dict[str, Any]] = []
    if normalization.remove_space:
        steps += [replace({"Regex": f"{_characters(str.isspace)}+"}, " "), strip]
    steps += [replace({"String": "``"}, '"'), replace({"String": "''"}, '"')]
    if not normalization.keep_accents:
        # Not StripAccents, which also drops vowel signs that the original ALBERT keeps.
        steps += [{"type": "NFKD"}, replace({"Regex": _characters(unicodedata.combining)}, "")]
    if normalization.do_lower_case:
        steps.append({"type": "Lowercase"})
    if character_map:
        characters = base64.b64encode(character_map).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": characters})
    return [*steps, replace({"Regex": " {2,}"}, " "), strip]


@lru_cache
def _characters(belongs: Callable[[str], object]) -> str:
    """Return a regular expression for all characters for which `belongs` is true."""
    codes = map(ord, filter(belongs, map(chr, range(sys.maxunicode + 1))))
    # Consecutive characters have the same difference between their code and their index in the list.
    runs = [list(run) for _, run in groupby(enumerate(codes), lambda numbered: numbered[1] - numbered[0])]
    return "[" + "".join(f"\\x{{{run[0][1]:X}}}-\\x{{{run[-1][1]:X}}}" for run in runs) + "]"


# --- reading ------------------------------------------------------------------------------------


class ListedTokens(NamedTuple):
    """The tokens that a tokenizer.json lists in addition to its pieces."""

    added: dict[str, int]
    """The tokens that are not in the vocabulary, with their ids."""
    special: list[str]
    """The special tokens, in or after the vocabulary."""
    symbols: set[str]
    """The user-defined symbols of the vocabulary."""


def listed_tokens(content: Mapping[str, Any]) -> ListedTokens:
    """Return the added and special tokens in the content of a tokenizer.json.

    `transformers` 5 writes added tokens only into this file, even if the folder has a spiece.model. It also
    lists the user-defined symbols of the vocabulary as added tokens, and the folder's settings list them as
    special tokens, including brackets and the full stop. The original does not split texts at them. They
    are the added tokens that are pieces with SentencePiece's score 0.
    """
    vocabulary = (content.get("model") or {}).get("vocab") or ()
    is_unigram = not isinstance(vocabulary, dict)
    pieces = {piece for piece, _ in vocabulary} if is_unigram else set(vocabulary)
    tokens = {token_text(token): token for token in content.get("added_tokens") or ()}
    symbols = {
        text
        for text, token in tokens.items()
        if is_unigram and not token["special"] and [text, 0] in vocabulary[token["id"] : token["id"] + 1]
    }
    return ListedTokens(
        added={text: token["id"] for text, token in tokens.items() if text not in pieces},
        special=[text for text, token in tokens.items() if token["special"]],
        symbols=symbols,
    )


def is_wordpiece(file: Path) -> bool:
    if b'"WordPiece"' not in file.read_bytes():  # faster than parsing a large file first
        return False
    with reading(file, TokenizerError):
        return read_json(file, TokenizerError)["model"]["type"] == "WordPiece"


def has_pieces(file: str | Path, model: Any, *, samples: int | None = None) -> bool:
    """Return whether a tokenizer.json has the pieces of a vocabulary: all, or those in a sample."""
    try:
        vocabulary: Any = json.loads(Path(file).read_bytes())["model"]["vocab"]
        is_list = isinstance(vocabulary, list)
        ids = {piece: number for number, (piece, _) in enumerate(vocabulary)} if is_list else vocabulary
        sample = list(ids)[:: max(1, len(ids) // (samples or len(ids)))]
        size = max(ids.values()) + 1  # a word list may have a piece twice
        return size == model.size and all(model.token_to_id(piece) == ids[piece] for piece in sample)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):  # damaged
        return False


def read_unigram_json(path: Path) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return the SentencePiece model, the normalization rules and the added tokens of a file."""
    content = read_json(path, TokenizerError)
    with reading(path, TokenizerError):
        model = content["model"]
        if model["type"] != "Unigram" or model.get("byte_fallback"):
            raise ValueError(f"it has a {model['type']} model, not a Unigram model without byte_fallback")
        tokens, steps = listed_tokens(content), list(_flatten(content.get("normalizer")))
        types = {step["type"] for step in steps}
        maps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
        splits = {step["type"] for step in _flatten(content.get("pre_tokenizer"))}
        if not maps and "WhitespaceSplit" in splits:
            warn_caller(
                f"{path}: transformers wrote it without SentencePiece's table of characters, so texts with "
                "compatibility or control characters may get other ids than with the original. Load the "
                "spiece.model instead."
            )
        special, unknown_id = {*tokens.special}, model["unk_id"]
        pieces = [_read_piece(piece, float(score), special) for piece, score in model["vocab"]]
        if not all(math.isfinite(score) for _, score, _ in pieces) or unknown_id not in range(len(pieces)):
            raise ValueError(f"a score is not finite, or unk_id is {short(unknown_id)}")
        pieces[unknown_id] = (*pieces[unknown_id][:2], UNKNOWN)
        unigram = new_model(pieces, base64.b64decode(maps[0]) if maps else b"")
        check_model(unigram)
        rules = {"do_lower_case": "Lowercase" in types, "keep_accents": "NFKD" not in types}
        return unigram, rules, _settings(tokens, DEFAULT_ROLES)


def _read_piece(piece: str, score: float, special: set[str]) -> tuple[str, float, int]:
    if piece in special and (score == 0 or piece in DEFAULT_ROLES.values()):
        # A learned piece that was made a special token is still a piece of plain text.
        return piece, score, CONTROL
    if score < _NEVER and ends_in_digit_and_comma(piece):
        score -= _NEVER  # no learned score is this low; the sum is exact, so the subtraction is exact too
    # Learned scores are logarithms of probabilities below 1. `transformers` keeps SentencePiece's 0 for
    # user-defined symbols and lists them as added tokens, but texts must not be split at them.
    return piece, score, USER_DEFINED if score == 0 else NORMAL


def read_wordpiece_json(
    path: Path, roles: Mapping[str, str], *, with_pieces: bool
) -> tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]:
    """Return the pieces, the normalization rules and the added tokens of a file."""
    content = read_json(path, TokenizerError)
    with reading(path, TokenizerError):
        model, normalizer = content["model"], content.get("normalizer") or {"type": None}
        types = (model["type"], model["continuing_subword_prefix"], normalizer["type"])
        if types != ("WordPiece", CONTINUATION, "BertNormalizer"):
            raise ValueError("expected a WordPiece model with ## and BertNormalizer")
        ids = model["vocab"]
        pieces = tuple(sorted(ids, key=ids.__getitem__)) if with_pieces else ()
        if [ids[piece] for piece in pieces] != list(range(len(pieces))):
            raise ValueError(f"the ids of its {len(pieces)} pieces have gaps. Add the vocab.txt")
        rules = {
            "do_lower_case": normalizer["lowercase"],
            "strip_accents": normalizer["strip_accents"],
            "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        }
        return pieces, rules, _settings(listed_tokens(content), roles)


def _settings(tokens: ListedTokens, roles: Mapping[str, str]) -> dict[str, Any]:
    extra = [token for token in tokens.special if token not in roles.values()]
    return {"added_tokens": tokens.added, "extra_special_tokens": extra}


def _flatten(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the single steps of a normalizer or pre-tokenizer, which may be nested sequences."""
    if step is not None:
        if step["type"] == "Sequence":
            for inner in step.get("normalizers") or step.get("pretokenizers") or ():
                yield from _flatten(inner)
        else:
            yield step
