"""The tokens of a tokenizer: special tokens and their roles, ids, added tokens, and decoding."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from albertkit.errors import TokenizerError, did_you_mean, short
from albertkit.extras import optional
from albertkit.tokenization.options import CallOptions, TokenizerSettings
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, SpecialTokens, token_text, token_texts
from albertkit.tokenization.subword import CLEAN_UP, SubwordModel

tokenizers: Any = optional("tokenizers", extra="tokenizers")

_MOST_IDS = 1 << 31  # other libraries store ids as int32


def _role(role: str) -> tuple[Any, Any]:
    """Return the properties for the token of a role and its id, which are None if the role has no token."""

    def token(self: "TokenVocabulary") -> str | None:
        return self._special.roles[role]

    def set_token(self: "TokenVocabulary", token: str | None) -> None:
        self._special.set_role(role, None if token is None else token_text(token))

    def token_id(self: "TokenVocabulary") -> int | None:
        token = self._special.roles[role]
        return None if token is None else self._special.ids[token]

    def set_token_id(self: "TokenVocabulary", token_id: int | None) -> None:
        setattr(self, role, None if token_id is None else self.convert_ids_to_tokens(token_id))

    return property(token, set_token), property(token_id, set_token_id)


class TokenVocabulary:
    """The tokens of a tokenizer: pieces, special tokens by role, and added tokens. It also decodes ids."""

    clean_up_tokenization_spaces: bool
    default_roles: ClassVar[Mapping[str, str]] = DEFAULT_ROLES
    """The token of each role, unless the settings name another token."""
    SPECIAL_TOKENS_ATTRIBUTES: ClassVar[tuple[str, ...]] = tuple(DEFAULT_ROLES)

    def __init__(self, model: SubwordModel, *, source: str | Path, settings: Mapping[str, Any]) -> None:
        if unknown := settings.keys() - TokenizerSettings.__annotations__.keys():
            name = min(unknown)
            hint = did_you_mean(name, [*TokenizerSettings.__annotations__, *asdict(model.normalization)])
            if name in CallOptions.__annotations__:
                hint = f". Pass it in calls: tokenizer(text, {name}=...)"
            raise TypeError(f"{type(self).__name__} has no argument {name!r}{hint}")
        self._model = model
        self._special = SpecialTokens(
            size=model.size,
            ignore_case=model.normalization.do_lower_case,
            token_to_id=model.token_to_id,
        )
        self._restore(settings.get("added_tokens", {}), source)
        for role, default in self.default_roles.items():
            given = settings.get(role, default)
            token = None if given is None else token_text(given)
            if token == default and model.token_to_id(default) is None and token not in self._special.added:
                raise TokenizerError(
                    f"{source}: its {model.size} pieces do not contain {token!r}, the default {role}. "
                    f"Expected {', '.join(dict.fromkeys(self.default_roles.values()))}. "
                    f"Pass the vocabulary's own token as {role}=..."
                )
            self._special.set_role(role, token)
        self.extra_special_tokens = settings.get("extra_special_tokens")

    def _restore(self, added: Mapping[str, int], source: str | Path) -> None:
        """Add tokens with their saved ids; raise TokenizerError for invalid or duplicate ids."""
        size = self._special.size
        for token, token_id in added.items():
            vocabulary_id = self._model.token_to_id(token_text(token))
            if vocabulary_id is None and (
                not isinstance(token_id, int)
                or isinstance(token_id, bool)
                or not size <= token_id < _MOST_IDS
            ):
                raise TokenizerError(
                    f"{source}: the added token {token!r:.200} has the id {short(token_id)}. Expected a "
                    f"whole number of at least {size}, because the vocabulary has {size} pieces."
                )
            self._special.add(token, added_id=token_id)
        if len(set(self._special.added.values())) < len(self._special.added):
            raise TokenizerError(f"{source}: two of the added tokens have the same id. Copy the file again.")

    bos_token, bos_token_id = _role("bos_token")
    eos_token, eos_token_id = _role("eos_token")
    unk_token, unk_token_id = _role("unk_token")
    sep_token, sep_token_id = _role("sep_token")
    pad_token, pad_token_id = _role("pad_token")
    cls_token, cls_token_id = _role("cls_token")
    mask_token, mask_token_id = _role("mask_token")
    pad_token_type_id = 0

    def __len__(self) -> int:
        """Return the size of the vocabulary, including added tokens."""
        return self.vocab_size + len(self._special)

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary, without added tokens."""
        return self._model.size

    @property
    def special_tokens_map(self) -> dict[str, Any]:
        """The token of each role that has one, and the additional special tokens, if any."""
        roles = {role: token for role, token in self._special.roles.items() if token is not None}
        additional = {"additional_special_tokens": self.additional_special_tokens}
        return {**roles, **(additional if self.additional_special_tokens else {})}

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens, each once."""
        return self._special.special

    @property
    def all_special_ids(self) -> list[int]:
        """The id of every special token."""
        return [self._special.ids[token] for token in self._special.special]

    @property
    def extra_special_tokens(self) -> list[str]:
        """Special tokens without a role. If you replace the list, the previous tokens become added tokens."""
        return list(self._special.additional)

    @extra_special_tokens.setter
    def extra_special_tokens(self, tokens: Iterable[Any] | Mapping[str, Any] | None) -> None:
        self._special.set_additional(token_texts(tokens or ()))

    @property
    def extra_special_tokens_ids(self) -> list[int]:
        """Ids of the special tokens without a role. Set them to choose the tokens by id."""
        return [self._special.ids[token] for token in self._special.additional]

    @extra_special_tokens_ids.setter
    def extra_special_tokens_ids(self, ids: Iterable[int] | None) -> None:
        self.extra_special_tokens = self.convert_ids_to_tokens(ids or [])

    additional_special_tokens = extra_special_tokens
    additional_special_tokens_ids = extra_special_tokens_ids

    @property
    def do_lower_case(self) -> bool:
        """Whether texts are lower-cased."""
        return self._model.normalization.do_lower_case

    @property
    def normalization(self) -> dict[str, Any]:
        """The normalization rules by name: `do_lower_case` and the rules of the class."""
        return asdict(self._model.normalization)

    @property
    def spelling_rule(self) -> str:
        """A phrase for messages: how the vocabulary marks the beginning of words."""
        return self._model.spelling_rule

    def get_vocab(self) -> dict[str, int]:
        """Return a dict from every token, including added tokens, to its id."""
        pieces = {self._model.id_to_token(piece_id): piece_id for piece_id in range(self.vocab_size)}
        return {**pieces, **self._special.added}

    vocab = property(get_vocab)

    def get_added_vocab(self) -> dict[str, int]:
        """Return a dict from every special and added token to its id, ordered by id."""
        return dict(sorted(self._special.ids.items(), key=lambda item: item[1]))

    added_tokens_encoder = property(get_added_vocab)

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """A dict from the id of every special and added token to the Rust library's AddedToken."""
        return {
            token_id: tokenizers.AddedToken(**token) for token_id, token in self._special.describe().items()
        }

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Add tokens to the vocabulary, and return the number of new ids.

        The tokenizer then keeps each of these tokens in one piece. If the tokenizer lower-cases and tokens
        differ only in case, it adds only the first. Resize the model's embeddings for new ids:
        `model.resize_token_embeddings(len(tokenizer))`.
        """
        tokens = token_texts(new_tokens if isinstance(new_tokens, (list, tuple)) else [new_tokens])
        if special_tokens:
            return self.add_special_tokens(
                {"extra_special_tokens": tokens}, replace_extra_special_tokens=False
            )
        added = 0
        for token in tokens:
            if self._special.word_in_any_case(token) is None:
                added += self._special.add(token)
        return added

    def add_special_tokens(
        self, special_tokens_dict: Mapping[str, Any], replace_extra_special_tokens: bool = True
    ) -> int:
        """Set the tokens of roles (`{"pad_token": "[PAD]"}`) or add `extra_special_tokens` without a role.

        Args:
            special_tokens_dict: The tokens by role. `additional_special_tokens` is an older name for
                `extra_special_tokens`.
            replace_extra_special_tokens: Whether to replace the previous special tokens without a role, which
                stay in the vocabulary as added tokens. False keeps them.

        Returns:
            The number of new ids.

        Raises:
            TokenizerError: A role is unknown, a value is not a token, or the argument is not a mapping.
        """
        if not isinstance(special_tokens_dict, Mapping):
            raise TokenizerError(
                f"received {short(special_tokens_dict)}. Expected a mapping from roles to tokens, such as "
                "{'pad_token': '[PAD]'}."
            )
        before = len(self._special.added)
        for role, value in special_tokens_dict.items():
            if role in ("additional_special_tokens", "extra_special_tokens"):
                kept = [] if replace_extra_special_tokens else self._special.additional
                self.extra_special_tokens = [*kept, *token_texts(value)]
            elif role in DEFAULT_ROLES:
                self._special.set_role(role, token_text(value))
            else:
                known = ", ".join([*DEFAULT_ROLES, "extra_special_tokens"])
                raise TokenizerError(f"{role!r} is not a role of a special token. Expected one of {known}.")
        return len(self._special.added) - before

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Return the id of a token, or of each token in a list. Unknown tokens get the id of `unk_token`.

        Raises:
            TokenizerError: A value is not a token.
        """
        if tokens is None:
            return None
        if not isinstance(tokens, Iterable):
            raise TokenizerError(
                f"received {short(tokens)} ({type(tokens).__name__}). Expected a token or a list of tokens."
            )
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        token_id = self._special.ids.get(tokens)
        if token_id is None:
            token_id = self._model.token_to_id(tokens)
        if token_id is None and (word := self._special.word_in_any_case(tokens)) is not None:
            token_id = self._special.ids[word]
        return self.unk_token_id if token_id is None else token_id

    def _ids_of(self, tokens: Iterable[str | int]) -> list[int]:
        """Return the ids of tokens, some of which may already be ids."""
        return [
            self.convert_tokens_to_ids(one) if isinstance(one, str) else self._checked_id(one)
            for one in _plain(tokens)
        ]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the token of an id, or of each id in a list.

        Raises:
            TokenizerError: An id is outside the vocabulary.
        """
        ids = _plain(ids)
        if isinstance(ids, int):
            return self._token_of(ids)
        skipped = self._special.special_ids if skip_special_tokens else ()
        return [self._token_of(token_id) for token_id in ids if token_id not in skipped]

    def _checked_id(self, token_id: Any) -> int:
        if not isinstance(token_id, int):
            raise TokenizerError(
                f"{short(token_id)} is not an id. Expected a whole number, 0 to {len(self) - 1}."
            )
        return token_id

    def _token_of(self, token_id: Any) -> str:
        if 0 <= self._checked_id(token_id) < self.vocab_size:
            return self._model.id_to_token(token_id)
        if token_id in self._special.added_tokens:
            return self._special.added_tokens[token_id]
        raise TokenizerError(f"{token_id} is not the id of a token. Expected 0 to {len(self) - 1}.")

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Return the number of special tokens around a text (2) or a pair (3)."""
        return 3 if pair else 2

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """Return `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]`."""
        first, end = self._special.marks()
        row = [first, *token_ids_0, end]
        return row if token_ids_1 is None else [*row, *token_ids_1, end]

    def create_token_type_ids_from_sequences(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """Return the segment ids: 0 for each token of `[CLS] A [SEP]` and 1 for each token of `B [SEP]`."""
        return [0] * (len(token_ids_0) + 2) + ([] if token_ids_1 is None else [1] * (len(token_ids_1) + 1))

    def get_special_tokens_mask(
        self,
        token_ids_0: list[int],
        token_ids_1: list[int] | None = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """Return 1 for each special token and 0 for each other token.

        Raises:
            TokenizerError: `token_ids_1` is passed, but `token_ids_0` already contains special tokens.
        """
        if already_has_special_tokens:
            if token_ids_1 is not None:
                raise TokenizerError(
                    "token_ids_1 is passed, but token_ids_0 already has special tokens. Omit token_ids_1."
                )
            return [int(token_id in self._special.special_ids) for token_id in token_ids_0]
        mask = [1, *[0] * len(token_ids_0), 1]
        return mask if token_ids_1 is None else [*mask, *[0] * len(token_ids_1), 1]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Return the text of a list of tokens."""
        joined = {self.cls_token, self.sep_token, self.unk_token, self.pad_token}
        return self._model.join(tokens, apart={*filter(self._special.ids.__contains__, tokens)} - joined)

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        *,
        spaces_between_special_tokens: bool = True,  # noqa: ARG002  # no effect, as in transformers
        use_source_tokenizer: bool = False,  # noqa: ARG002
    ) -> Any:
        """Return the text of one row of ids, or a list of texts for (B, T) ids.

        Args:
            token_ids: Ids as lists, arrays or tensors, or a mapping with `input_ids`.
            skip_special_tokens: Whether to omit special tokens.
            clean_up_tokenization_spaces: Whether to remove spaces before punctuation. None uses the
                tokenizer's setting.
            spaces_between_special_tokens: Has no effect, as in `transformers`.
            use_source_tokenizer: Has no effect, as in `transformers`.
        """
        if hasattr(token_ids, "keys"):
            token_ids = token_ids["input_ids"]
        token_ids = _plain(token_ids)
        if isinstance(token_ids, int):
            token_ids = [token_ids]
        if token_ids and not isinstance(token_ids[0], int):
            return self.batch_decode(token_ids, skip_special_tokens, clean_up_tokenization_spaces)
        text = self.convert_tokens_to_string(self.convert_ids_to_tokens(token_ids, skip_special_tokens))
        if clean_up_tokenization_spaces is None:
            clean_up_tokenization_spaces = self.clean_up_tokenization_spaces
        if clean_up_tokenization_spaces:
            for spaced, closed in CLEAN_UP.items():
                text = text.replace(spaced, closed)
        return text

    def batch_decode(
        self,
        sequences: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **ignored: Any,
    ) -> list[str]:
        """Return the text of each row of ids. For the options see `decode`."""
        if hasattr(sequences, "keys"):
            sequences = sequences["input_ids"]
        return [
            self.decode(row, skip_special_tokens, clean_up_tokenization_spaces, **ignored)
            for row in sequences
        ]


def _plain(ids: Any) -> Any:
    """Return an id, a list of ids or a list of rows as plain Python values."""
    ids = _without_tensor(ids)
    if isinstance(ids, int):
        return ids
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise TokenizerError(
            f"received {short(ids)} ({type(ids).__name__}). Expected ids, which are whole numbers."
        )
    return [_without_tensor(one) for one in ids]


def _without_tensor(ids: Any) -> Any:
    """Return a tensor or an array as Python numbers, and any other value unchanged."""
    if hasattr(ids, "numpy") and not hasattr(ids, "tolist"):  # TensorFlow
        ids = ids.numpy()
    return ids.tolist() if hasattr(ids, "tolist") else ids
