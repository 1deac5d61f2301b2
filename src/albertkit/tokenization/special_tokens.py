"""The tokens that stand for themselves: special tokens and tokens added after training.

They are found in a text before it is normalised, and cut out. Special tokens are found as written; added
words are found in any case where the tokenizer lower-cases. Spaces beside them never matter, for the text
between them is normalised on its own, as the original does: `with [MASK].` is `▁with`, `[MASK]`, `▁`, `.`
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from albertkit.errors import TokenizerError

DEFAULT_ROLES = {
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "unk_token": "<unk>",
    "sep_token": "[SEP]",
    "pad_token": "<pad>",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
"""Every role a special token has, with the token that ALBERT's vocabulary gives it."""

Parsing = bool | Literal["mask"]
"""Whether special tokens written in a text are read as such; "mask": that alone, the others as text."""


class Part(NamedTuple):
    """A stretch of a text, beginning at `start`: a token that stands for itself, or plain text (id None)."""

    text: str
    start: int
    token_id: int | None


def token_text(token: object) -> str:
    """Return the text of a token: a string, an entry of a JSON file, or the Rust library's AddedToken."""
    if isinstance(token, Mapping):
        token = token.get("content")
    text = token if isinstance(token, str) else getattr(token, "content", None)
    if not isinstance(text, str) or not text:
        raise TokenizerError(f"received {token!r} for a token; expected a non-empty string or an AddedToken")
    return text


class SpecialTokens:
    """Which token has which role, which tokens were added, their ids, and where they occur in a text."""

    def __init__(self, *, size: int, ignore_case: bool) -> None:
        self.size = size
        self.roles: dict[str, str] = {}
        self.additional: list[str] = []
        self.added: dict[str, int] = {}  # tokens behind the vocabulary
        self.ids: dict[str, int] = {}  # every token that is cut out of a text
        self._first_characters: set[str] = set()
        self._ignore_case = ignore_case
        self._patterns: dict[Parsing, re.Pattern[str] | None] = {}

    def __len__(self) -> int:
        """Number of ids given out behind the vocabulary."""
        return max(self.added.values(), default=self.size - 1) + 1 - self.size

    @property
    def special(self) -> list[str]:
        """Every special token once: those with a role, then the additional ones."""
        return list(dict.fromkeys([*self.roles.values(), *self.additional]))

    def add(self, token: str, *, vocabulary_id: int | None, added_id: int | None = None) -> bool:
        """Have a token stand for itself; return whether that needed a new id.

        `vocabulary_id` is its id where the vocabulary holds it; `added_id` the id it was saved with.
        """
        new = vocabulary_id is None and token not in self.added
        if new:
            self.added[token] = self.size + len(self) if added_id is None else added_id
        self._first_characters.add(token[0])
        self.ids[token] = self.added[token] if vocabulary_id is None else vocabulary_id
        self._patterns.clear()
        return new

    def set_role(self, role: str, token: str) -> None:
        """Give a role to a token that was added before."""
        self.roles[role] = token
        self._patterns.clear()

    def add_additional(self, token: str) -> None:
        """Make a token that was added before an additional special token."""
        if token not in self.additional:
            self.additional.append(token)
        self._patterns.clear()

    def occur_in(self, text: str, *, parse_special_tokens: Parsing) -> bool:
        """Whether any token to be cut out is in the text; special tokens count where they are parsed."""
        if not self.added:  # the usual case: a few tokens, and searching them one by one is fastest
            if not parse_special_tokens:
                return False
            if parse_special_tokens == "mask":
                return self.roles["mask_token"] in text
            for character in self._first_characters:  # two, for ALBERT's; they settle nearly every text
                if character in text:
                    return any(token in text for token in self.ids)
            return False
        pattern = self._pattern(parse_special_tokens)
        return pattern is not None and pattern.search(text) is not None

    def cut(self, text: str, *, parse_special_tokens: Parsing) -> list[Part]:
        """Return the parts of a text in order; plain parts may be empty or blank."""
        pattern = self._pattern(parse_special_tokens)
        folded = {token.lower(): token_id for token, token_id in self.added.items()}
        parts: list[Part] = []
        position = 0
        for match in pattern.finditer(text) if pattern else ():
            parts.append(Part(text[position : match.start()], position, None))
            found = match.group()
            token_id = self.ids.get(found)
            if token_id is None:  # an added word in another case
                token_id = folded[found.lower()]
            parts.append(Part(found, match.start(), token_id))
            position = match.end()
        parts.append(Part(text[position:], position, None))
        return parts

    def _pattern(self, parse_special_tokens: Parsing) -> re.Pattern[str] | None:
        """Return what finds the tokens to be cut out, the longest first; None where there are none."""
        if parse_special_tokens not in self._patterns:
            special = set(self.special)
            words = [re.escape(token) for token in self.ids if token not in special]
            if self._ignore_case:
                words = [f"(?i:{word})" for word in words]
            parsed = {self.roles["mask_token"]} if parse_special_tokens == "mask" else special
            exact = [re.escape(token) for token in parsed] if parse_special_tokens else []
            choices = sorted([*exact, *words], key=len, reverse=True)
            self._patterns[parse_special_tokens] = re.compile("|".join(choices)) if choices else None
        return self._patterns[parse_special_tokens]
