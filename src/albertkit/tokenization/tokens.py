"""The tokens of a tokenizer: special tokens and their roles, ids, what was added, and ids back to text."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, TypedDict, Unpack

from albertkit.errors import TokenizerError
from albertkit.tokenization.cutter import PieceCutter
from albertkit.tokenization.decoding import clean_up
from albertkit.tokenization.layout import Side
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, SpecialTokens, token_text


class TokenizerSettings(TypedDict, total=False):
    """Keyword arguments of every tokenizer, beside the files and the rules of normalisation."""

    bos_token: str
    eos_token: str
    unk_token: str
    sep_token: str
    pad_token: str
    cls_token: str
    mask_token: str
    additional_special_tokens: Iterable[str]
    added_tokens: Mapping[str, int]
    model_max_length: int
    padding_side: Side
    truncation_side: Side
    parse_special_tokens: bool
    clean_up_tokenization_spaces: bool


class Role:
    """The token of a role as an attribute: `tokenizer.mask_token`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._role = name

    def __get__(self, tokenizer: "TokenInterface", owner: type | None = None) -> Any:
        return tokenizer._special.roles[self._role]

    def __set__(self, tokenizer: "TokenInterface", token: str) -> None:
        tokenizer.add_special_tokens({self._role: token})


class RoleId:
    """The id of the token of a role as an attribute: `tokenizer.mask_token_id`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._role = name.removesuffix("_id")

    def __get__(self, tokenizer: "TokenInterface", owner: type | None = None) -> Any:
        return tokenizer._special.ids[tokenizer._special.roles[self._role]]

    def __set__(self, tokenizer: "TokenInterface", token_id: int) -> None:
        tokenizer.add_special_tokens({self._role: tokenizer.convert_ids_to_tokens(token_id)})


class TokenInterface:
    """What a tokenizer knows of single tokens; `TokenizerInterface` adds what it does with texts."""

    default_roles: ClassVar[Mapping[str, str]] = DEFAULT_ROLES
    """The token of each role, where the settings name none."""

    def __init__(
        self, cutter: PieceCutter, *, source: str | Path, **settings: Unpack[TokenizerSettings]
    ) -> None:
        unknown = settings.keys() - TokenizerSettings.__annotations__.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no argument {', '.join(sorted(unknown))}")
        self._cutter = cutter
        self.clean_up_tokenization_spaces = settings.get("clean_up_tokenization_spaces", False)
        self._special = SpecialTokens(size=cutter.size, ignore_case=cutter.normalization.do_lower_case)
        for token, token_id in settings.get("added_tokens", {}).items():
            self._special.add(token, vocabulary_id=cutter.token_to_id(token), added_id=token_id)
        for role, default in self.default_roles.items():
            token = token_text(settings.get(role, default))
            token_id = cutter.token_to_id(token)
            if token_id is None and token not in self._special.added:
                raise TokenizerError(
                    f"{source}: its {cutter.size} pieces do not hold {token!r}, expected as {role}. Such a "
                    f"vocabulary holds {', '.join(dict.fromkeys(self.default_roles.values()))}; name this "
                    f"one's own token as {role}=..."
                )
            self._special.add(token, vocabulary_id=token_id)
            self._special.set_role(role, token)
        self._add(settings.get("additional_special_tokens", ()), special=True)

    bos_token, bos_token_id = Role(), RoleId()
    eos_token, eos_token_id = Role(), RoleId()
    unk_token, unk_token_id = Role(), RoleId()
    sep_token, sep_token_id = Role(), RoleId()
    pad_token, pad_token_id = Role(), RoleId()
    cls_token, cls_token_id = Role(), RoleId()
    mask_token, mask_token_id = Role(), RoleId()
    pad_token_type_id = 0

    def __len__(self) -> int:
        """Return the size of the vocabulary with the tokens added."""
        return self.vocab_size + len(self._special)

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary without the tokens added."""
        return self._cutter.size

    @property
    def special_tokens_map(self) -> dict[str, Any]:
        """The token of each role, and the additional special tokens where there are any."""
        additional = {"additional_special_tokens": self.additional_special_tokens}
        return {**self._special.roles, **(additional if self.additional_special_tokens else {})}

    @property
    def all_special_tokens(self) -> list[str]:
        """Every special token once."""
        return self._special.special

    @property
    def all_special_ids(self) -> list[int]:
        """The id of every special token."""
        return [self._special.ids[token] for token in self._special.special]

    @property
    def additional_special_tokens(self) -> list[str]:
        """Special tokens without a role."""
        return list(self._special.additional)

    @property
    def additional_special_tokens_ids(self) -> list[int]:
        """Ids of the special tokens without a role."""
        return [self._special.ids[token] for token in self._special.additional]

    @property
    def do_lower_case(self) -> bool:
        """Whether texts are lower-cased."""
        return self._cutter.normalization.do_lower_case

    @property
    def normalization(self) -> dict[str, Any]:
        """The rules of normalisation by name: `do_lower_case` and those of the class."""
        return asdict(self._cutter.normalization)

    @property
    def spelling_rule(self) -> str:
        """How the vocabulary marks where words begin, in words."""
        return self._cutter.spelling.rule

    def get_vocab(self) -> dict[str, int]:
        """Return the id of every token, with the tokens added."""
        pieces = {self._cutter.id_to_token(piece_id): piece_id for piece_id in range(self.vocab_size)}
        return {**pieces, **self._special.added}

    def get_added_vocab(self) -> dict[str, int]:
        """Return the id of every token added."""
        return dict(self._special.added)

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Have tokens stand for themselves wherever they occur; return how many got a new id.

        Give the model room for them: `model.resize_token_embeddings(len(tokenizer))`.
        """
        tokens = new_tokens if isinstance(new_tokens, (list, tuple)) else [new_tokens]
        return self._add(tokens, special=special_tokens)

    def add_special_tokens(self, special_tokens_dict: Mapping[str, Any]) -> int:
        """Add tokens by role (`{"pad_token": "[PAD]"}`), or as `additional_special_tokens` without one.

        Raises TokenizerError for an unknown role.
        """
        added = 0
        for role, value in special_tokens_dict.items():
            if role in ("additional_special_tokens", "extra_special_tokens"):
                added += self._add(value, special=True)
            elif role in DEFAULT_ROLES:
                token = token_text(value)
                added += self._special.add(token, vocabulary_id=self._cutter.token_to_id(token))
                self._special.set_role(role, token)
            else:
                known = ", ".join([*DEFAULT_ROLES, "additional_special_tokens"])
                raise TokenizerError(f"{role!r} is no role of a special token; expected one of {known}")
        return added

    def _add(self, tokens: Iterable[Any], *, special: bool) -> int:
        added = 0
        for token in map(token_text, tokens):
            added += self._special.add(token, vocabulary_id=self._cutter.token_to_id(token))
            if special:
                self._special.add_additional(token)
        return added

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Return the id of a token, or of each of a list; unknown ones have the id of `unk_token`."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self._special.ids.get(tokens)
        if found is None:
            found = self._cutter.token_to_id(tokens)
        return self.unk_token_id if found is None else found

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the token of an id, or of each of a list.

        Raises TokenizerError for an id outside the vocabulary.
        """
        if hasattr(ids, "tolist"):
            ids = ids.tolist()
        if isinstance(ids, int):
            return self._token_of(ids)
        skipped = set(self.all_special_ids) if skip_special_tokens else ()
        return [self._token_of(token_id) for token_id in ids if token_id not in skipped]

    def _token_of(self, token_id: int) -> str:
        if 0 <= token_id < self.vocab_size:
            return self._cutter.id_to_token(token_id)
        for token, added_id in self._special.added.items():
            if added_id == token_id:
                return token
        raise TokenizerError(f"{token_id} is the id of no token; expected 0 to {len(self) - 1}")

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Return the text that tokens spell."""
        joined = {self.cls_token, self.sep_token, self.unk_token, self.pad_token}
        return self._cutter.spelling.join(tokens, apart=set(self._special.ids) - joined)

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> Any:
        """Return the text of a row of ids; a list of texts for (B, T) ids.

        `clean_up_tokenization_spaces` takes away spaces before punctuation; the tokenizer's own setting by
        default.
        """
        if hasattr(token_ids, "tolist"):
            token_ids = token_ids.tolist()
        if isinstance(token_ids, int):
            token_ids = [token_ids]
        if len(token_ids) and hasattr(token_ids[0], "__len__"):
            return self.batch_decode(token_ids, skip_special_tokens, clean_up_tokenization_spaces)
        text = self.convert_tokens_to_string(self.convert_ids_to_tokens(token_ids, skip_special_tokens))
        if clean_up_tokenization_spaces is None:
            clean_up_tokenization_spaces = self.clean_up_tokenization_spaces
        return clean_up(text) if clean_up_tokenization_spaces else text

    def batch_decode(
        self,
        sequences: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[str]:
        """Return the text of each row of ids."""
        return [self.decode(row, skip_special_tokens, clean_up_tokenization_spaces) for row in sequences]
