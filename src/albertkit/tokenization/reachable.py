"""Which pieces of a vocabulary its own tokenizer can never produce.

A text is normalized before it is cut, so a piece that normalization would change occurs in no normalized
text: `▁Haus` where texts are lower-cased, `ü` where accents are dropped. Such pieces cost parameters, and
their words are cut into something else than the vocabulary was trained for.
"""

from collections import defaultdict
from dataclasses import replace

from albertkit.tokenization.model_file import NORMAL, USER_DEFINED, WORD_START
from albertkit.tokenization.unigram import UnigramModel

_SHOWN = 8  # pieces that a message names for each reason


def unreachable_pieces(encoder: UnigramModel) -> dict[str, list[str]]:
    """Return the pieces that no text can give, by the setting that is the reason; empty where all is well."""
    found: dict[str, list[str]] = defaultdict(list)
    table = encoder.table()
    for piece, kind in zip(table.pieces, table.kinds, strict=True):
        if kind in (NORMAL, USER_DEFINED) and (reason := _reason(encoder, piece, kind)):
            found[reason].append(piece)
    return dict(found)


def unreachable_warning(encoder: UnigramModel) -> str | None:
    """Say which pieces no text can give and why, None where there are none."""
    found = unreachable_pieces(encoder)
    if not found:
        return None
    total = sum(map(len, found.values()))
    parts = (
        f"{reason}: {' '.join(pieces[:_SHOWN])}"
        + (f" and {len(pieces) - _SHOWN:,} more" if len(pieces) > _SHOWN else "")
        for reason, pieces in found.items()
    )
    return (
        f"{total:,} of {encoder.size:,} pieces of the vocabulary can never occur, because the tokenizer "
        f"changes texts before it cuts them ({'; '.join(parts)}). Correct tokenizer_config.json, or train "
        "the vocabulary with the settings it is used with"
    )


def _reason(encoder: UnigramModel, piece: str, kind: int) -> str | None:
    text = piece.replace(WORD_START, " ").strip(" ")
    rule = encoder.normalization
    normalized = rule(text)
    if kind == NORMAL:  # SentencePiece leaves user-defined symbols as they are
        normalized = encoder.processor.normalize(normalized).replace(WORD_START, " ").strip(" ")
    if normalized == text:
        return None
    if rule.do_lower_case and text != text.lower():
        return "do_lower_case=true"
    if not rule.keep_accents and rule(text) != replace(rule, keep_accents=True)(text):
        return "keep_accents=false"
    return "quotes, spaces and compatibility characters"
