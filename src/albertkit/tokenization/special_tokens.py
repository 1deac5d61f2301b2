"""Special tokens, and tokens that a user added to the vocabulary.

A text is split at them before it is normalized: first at special tokens, which must match exactly, then at
added tokens, which match in any case if the tokenizer lower-cases. Adjacent spaces have no effect, because
each part between tokens is normalized separately, as in the original: `with [MASK].` becomes `▁with`,
`[MASK]`, `▁`, `.`
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from albertkit.errors import TokenizerError
from albertkit.text_files import lone_surrogate

DEFAULT_ROLES = {
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "unk_token": "<unk>",
    "sep_token": "[SEP]",
    "pad_token": "<pad>",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
"""Each role of a special token, with its token in ALBERT's vocabulary."""

Parsing = bool | Literal["mask"]
"""Whether to parse special tokens in a text; "mask" parses only `[MASK]` and reads the others as text."""


class Part(NamedTuple):
    """A part of a text that begins at `start`: plain text (`token_id` is None), or a token.

    The `text` of a token is its spelling in the vocabulary. The original text may differ in case, but has the
    same length.
    """

    text: str
    start: int
    token_id: int | None


def token_text(token: object) -> str:
    """Return the text of a token, which may be a string, an entry of a JSON file, or an AddedToken."""

    def get(name: str) -> Any:
        return token.get(name) if isinstance(token, Mapping) else getattr(token, name, None)

    text = token if isinstance(token, str) else get("content")
    if not isinstance(text, str) or not text:
        raise TokenizerError(f"received {token!r:.200} for a token. Expected a text or an AddedToken.")
    if get("single_word"):
        raise TokenizerError(f"the token {text!r:.200} has single_word=True, which is not supported.")
    if lone := lone_surrogate(text):
        raise TokenizerError(f"the token {text!r:.200} contains the lone surrogate {lone}")
    return text


def token_texts(tokens: object) -> list[str]:
    """Return the texts of several tokens, which may be a list or a mapping from names to tokens."""
    if isinstance(tokens, Mapping):
        tokens = tokens.values()
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        raise TokenizerError(f"received {tokens!r:.200} for a list of tokens. Expected a list of strings.")
    return [token_text(token) for token in tokens]


def fold(text: str) -> str:
    """Return a text in lower case with the same number of characters at the same positions.

    A character that Unicode folds to several (`ß` to `ss`) is only lower-cased.
    """
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    forms = ((character.casefold(), character.lower(), character) for character in text)
    return "".join(next(form for form in each if len(form) == 1) for each in forms)


class SpecialTokens:
    """The roles and ids of special tokens and added tokens, and the search for them in texts.

    Args:
        size: Number of pieces in the vocabulary.
        ignore_case: Whether added tokens match in any case.
        token_to_id: Function that returns the id of a piece, or None for other tokens.
    """

    def __init__(self, *, size: int, ignore_case: bool, token_to_id: Callable[[str], int | None]) -> None:
        self.size = size
        self.roles: dict[str, str | None] = {}
        self.additional: list[str] = []
        self.added: dict[str, int] = {}  # tokens after the vocabulary
        self.added_tokens: dict[int, str] = {}  # the same tokens by id
        self.ids: dict[str, int] = {}  # all tokens at which texts are split
        self._token_to_id = token_to_id
        self._fold = fold if ignore_case else str
        self._end = size  # one more than the largest id
        self._words: dict[str, str] | None = None
        self._patterns: dict[Parsing | None, re.Pattern[str] | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        # `datasets` identifies a tokenizer by its pickle, which must not depend on earlier calls.
        return {**vars(self), "_words": None, "_patterns": {}}

    def __len__(self) -> int:
        """Number of ids after the vocabulary."""
        return self._end - self.size

    @property
    def special(self) -> list[str]:
        """Every special token once: first the tokens with a role, then the additional tokens."""
        return list(dict.fromkeys([*filter(None, self.roles.values()), *self.additional]))

    @property
    def special_ids(self) -> set[int]:
        return {self.ids[token] for token in self.special}

    @property
    def words(self) -> dict[str, str]:
        """The added tokens by their text to search for; of tokens that differ only in case, the first."""
        words = self._words
        if words is None:
            special, words = set(self.special), {}
            for token in self.ids:
                if token not in special:
                    words.setdefault(self._fold(token), token)
            self._words = words  # set when it is complete, because other threads may use it
        return words

    def word_in_any_case(self, token: str) -> str | None:
        return self.words.get(self._fold(token))

    def add(self, token: str, *, added_id: int | None = None) -> None:
        """Add a token, with its saved id if it has one."""
        vocabulary_id = self._token_to_id(token)
        if vocabulary_id is None and token not in self.added:
            self.added[token] = new_id = self._end if added_id is None else added_id
            self.added_tokens[new_id] = token
            self._end = max(self._end, new_id + 1)
        self.ids[token] = self.added[token] if vocabulary_id is None else vocabulary_id
        self._patterns.clear()
        # Extended, because thousands of tokens may be added one by one.
        if self._words is not None and token not in (*self.additional, *self.roles.values()):
            self._words.setdefault(self._fold(token), token)

    def set_role(self, role: str, token: str | None) -> None:
        if token is not None:
            self.add(token)
        self.roles[role] = token
        self._words, self._patterns = None, {}

    def set_additional(self, tokens: list[str]) -> None:
        """Add the special tokens without a role; previous ones become ordinary added tokens."""
        for token in tokens:
            if token not in self.ids:
                self.add(token)
        self.additional = [token for token in dict.fromkeys(tokens) if token not in self.roles.values()]
        self._words, self._patterns = None, {}

    def id_of(self, role: str) -> int:
        token = self.roles[role]
        if token is None:
            without = "padding=False" if role == "pad_token" else "add_special_tokens=False"
            raise TokenizerError(f"this tokenizer has no {role}. Set tokenizer.{role}, or pass {without}.")
        return self.ids[token]

    def marks(self) -> tuple[int, int]:
        """Return the ids of [CLS] and [SEP]."""
        return self.id_of("cls_token"), self.id_of("sep_token")

    def split(self, text: str, *, parse_special_tokens: Parsing) -> list[Part]:
        """Return the parts of a text in order. Parts of plain text may be empty or blank."""
        parts = [Part(text, 0, None)]
        for parsed in (parse_special_tokens, None):
            if pattern := self._pattern(parsed):
                parts = [new for part in parts for new in self._split(part, pattern, is_added=parsed is None)]
        return parts

    def _split(self, part: Part, pattern: re.Pattern[str], *, is_added: bool) -> Iterator[Part]:
        text, offset, token_id = part
        if token_id is not None:
            yield part
            return
        position = 0
        for match in pattern.finditer(self._fold(text) if is_added else text):
            token = self.words[match.group()] if is_added else match.group()
            yield Part(text[position : match.start()], offset + position, None)
            yield Part(token, offset + match.start(), self.ids[token])
            position = match.end()
        yield Part(text[position:], offset + position, None)

    def _pattern(self, parsed: Parsing | None) -> re.Pattern[str] | None:
        """Return the pattern for special tokens under a parsing mode, or for added tokens (None)."""
        if parsed not in self._patterns:
            if parsed is None:
                tokens = list(self.words)
            elif parsed == "mask":
                tokens = [token for token in (self.roles["mask_token"],) if token]
            else:
                tokens = self.special if parsed else []
            self._patterns[parsed] = re.compile(_longest_of(tokens)) if tokens else None
        return self._patterns[parsed]

    def describe(self) -> dict[int, dict[str, Any]]:
        """Return every token by id, with the flags that files and the Rust library's AddedToken need."""
        special = set(self.special)
        return {
            token_id: {
                "content": token,
                "lstrip": False,
                "normalized": token not in special,
                "rstrip": False,
                "single_word": False,
                "special": token in special,
            }
            for token, token_id in sorted(self.ids.items(), key=lambda item: item[1])
        }


def _longest_of(texts: list[str], depth: int = 2) -> str:
    """Return a pattern that matches the longest of the texts that occurs at a position.

    The texts are grouped by their first `depth` characters, because `re` tries every alternative of a group.
    """
    if depth == 0 or len(texts) == 1:
        return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    rests: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        rests[text[:1]].append(text[1:])
    groups = sorted(rests.items(), reverse=True)  # a text that ends here comes last
    return "|".join(f"{re.escape(first)}(?:{_longest_of(rest, depth - 1)})" for first, rest in groups)
