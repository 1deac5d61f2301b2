"""Texts for WordPiece tokenizers, and the settings that change how they are split."""

import random

from wordpiece_vocabulary import HAN, LETTERS, MARKS, PIECES

RULES = [
    {},
    {"do_lower_case": False},
    {"strip_accents": False},
    {"do_lower_case": False, "strip_accents": True},
    {"tokenize_chinese_chars": False},
]
TEXTS = [
    "",
    " ",
    "\n\t \u3000",
    "今天天气很好。",
    "我喜欢Albert和北京大学!",
    "the fox is running, unaffable; words-words",
    "  The   Café\tnaïve ÉÉ é e\u0301 Ü  ",
    "生活的真谛是[MASK]。",
    "[CLS]a[SEP] [PAD] [UNK] [mask] [MASK][MASK]x",
    "[unused3] is [unused 3]",
    "㐀𠀀龍\U0002f800한국 アイー ﾊﾝ",
    "x" * 101 + " " + "a" * 100,
    "emoji 👩‍👩‍👧 ☃ flags 🇩🇪, zero\u200bwidth \ufeffmark \u00adsoft \x00\x07control \ufffd",
    "İstanbul ǅ ß ﬃ ① ½ ᾳ ϒ",  # noqa: RUF001
    "don't U.S.A. 1,000.5 a_b c/d #hash @me ##ing",
]


def random_texts(count: int, seed: int) -> list[str]:
    """Return random texts."""
    rng = random.Random(seed)

    def character() -> str:
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(HAN + LETTERS + MARKS + "    ÉÜ")
        if kind < 0.5:
            return rng.choice([piece.removeprefix("##") for piece in PIECES])
        if kind < 0.85:
            return chr(rng.randrange(0x20, 0x3000))
        while 0xD800 <= (code := rng.randrange(0x110000)) < 0xE000:
            pass
        return chr(code)

    return ["".join(character() for _ in range(rng.randrange(40))) for _ in range(count)]
