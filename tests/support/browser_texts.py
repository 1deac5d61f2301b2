"""Texts whose ids and scores must be the same in JavaScript and in Python.

They do not contain U+200D and U+061C, which the tokenizers of transformers.js normalize differently. They
have at most 64 tokens, because transformers.js removes [SEP] when it truncates a longer text.
"""
# ruff: noqa: RUF001  # the texts test unusual characters

import random

ODD = (
    "Don’t “quote” me – it's 1,234.50 €, or ½ kg…",
    "``Old quotes'' and ''others``, \"plain\" ones.",
    "  Spaces   everywhere \t and\na new line.  ",
    "CAPITALS, MiXeD and ÀÉÎÕÜ with combining e\u0301 and o\u0308.",
    "ﬁne ligatures, ① circled, Ⅷ Roman and ｆｕｌｌ ｗｉｄｔｈ.",
    "他昨天在图书馆借了三本书。",
    "Вчера вечером мы долго говорили про новую книгу.",
    "Emoji 🙂 and 👧 families; a flag 🇨🇭.",
    "Ελληνικά, עברית, العربية and हिन्दी.",
    "12,000 letters, 1,2,3 and 4,, 5,a.",
    "e-mail: someone@example.org, https://example.org/a?b=c#d",
    "A zero\u200bwidth space, a soft\u00adhyphen, a no\u00a0break space.",
    "Straße, İstanbul, naïve, coöperate, São Paulo",
    "((brackets)) [square] {curly} <angle> and a_under_score",
    "one",
    "!",
    "No. 7: it costs $5—really?!",
    "x" * 40,
)
"""Quotes, spaces, accents, ligatures, scripts, digits with commas, symbols."""
PARTS = (
    *(
        "the",
        "captain",
        "opened",
        "a",
        "Silver",
        "key",
        "Zürich",
        "café",
        "12,000",
        "1847",
        "don’t",
        "(again)",
    ),
    *("“no”", "mother-in-law", "ﬁre", "№", "½", "α", "книга", "书", "🙂", "e\u0301", "…", "--", "''", "U.S."),
)
"""The parts of random texts."""


def texts(count: int) -> list[str]:
    """Return `count` texts: the texts in ODD, then random texts of 1 to 12 parts."""
    generator = random.Random(20)
    others = [" ".join(generator.choices(PARTS, k=generator.randint(1, 12))) for _ in range(count - len(ODD))]
    return [*ODD, *others]
