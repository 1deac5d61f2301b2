"""Texts for WordPiece tokenizers, and the settings that change how they are split."""

import random
from functools import cache

import tokenizers
from wordpiece_vocabulary import HAN, LETTERS, MARKS, PIECES

from albertkit.tokenization.normalization import BertNormalization
from albertkit.tokenization.wordpiece import CharacterTable

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
CHARACTERS = CharacterTable(BertNormalization())


@cache
def differs_in_the_rust_library(characters: str) -> bool:
    """Return whether the Rust library splits a text with the characters into other words than albertkit."""
    text = " ".join(f"a{character}b" for character in characters)
    normalizer = tokenizers.normalizers.BertNormalizer()
    words = tokenizers.pre_tokenizers.BertPreTokenizer()
    theirs = [word for word, _ in words.pre_tokenize_str(normalizer.normalize_str(text))]
    return theirs != text.translate(CHARACTERS).split()


def random_texts(count: int, seed: int) -> list[str]:
    """Return random texts, without characters that the Rust library handles differently."""
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

    def same_in_the_rust_library() -> str:
        while differs_in_the_rust_library(drawn := character()):
            pass
        return drawn

    return ["".join(same_in_the_rust_library() for _ in range(rng.randrange(40))) for _ in range(count)]
