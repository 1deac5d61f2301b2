"""The base class of all tokenizers, which differ only in their subword model.

Legend: B batch, T tokens of a row.
"""

import logging
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

from albertkit import published
from albertkit.errors import TokenizerError, did_you_mean, reading, short, warn_caller
from albertkit.extras import optional
from albertkit.files import file_sha256, json_bytes
from albertkit.hub import refuse_push_to_hub, split_hub_options
from albertkit.hub_upload import PushToHub
from albertkit.tokenization import folder
from albertkit.tokenization.batch import (
    Side,
    TextEncoder,
    check_number,
    collection_paused,
    make_rows,
    pad_rows,
    plain,
    read_choice,
    read_examples,
    read_lengths,
)
from albertkit.tokenization.encoding import BatchEncoding
from albertkit.tokenization.folder import DEFAULTS, TokenizerSettings, read_setting, take_settings
from albertkit.tokenization.normalization import CLEAN_UP, BertNormalization, Normalization
from albertkit.tokenization.special_tokens import (
    DEFAULT_ROLES,
    Parsing,
    SpecialTokens,
    token_text,
    token_texts,
)
from albertkit.tokenization.tokenizer_json import has_pieces

logger = logging.getLogger(__name__)
tokenizers: Any = optional("tokenizers")

_MOST_IDS = 1 << 31  # other libraries store ids as int32

_TRUNCATED_BY_DEFAULT = (
    "max_length=%d without truncation= or padding= truncates longer texts to that length. Pass "
    "truncation=True if you want that, or truncation=False to keep all tokens."
)
_OVER_MAXIMUM_LENGTH = (
    "a text has %d tokens, but the maximum length is %d. Pass truncation=True to truncate it. To get windows "
    "over the whole text, also pass return_overflowing_tokens=True and a stride."
)


def _role(role: str) -> tuple[Any, Any]:
    """Return the properties for the token of a role and its id, which are None if the role has no token."""

    def token(self: "TokenizerBase") -> str | None:
        return self._special.roles[role]

    def set_token(self: "TokenizerBase", token: str | None) -> None:
        self._special.set_role(role, None if token is None else token_text(token))

    def token_id(self: "TokenizerBase") -> int | None:
        token = self._special.roles[role]
        return None if token is None else self._special.ids[token]

    def set_token_id(self: "TokenizerBase", token_id: int | None) -> None:
        setattr(self, role, None if token_id is None else self.convert_ids_to_tokens(token_id))

    return property(token, set_token), property(token_id, set_token_id)


class TokenizerBase(PushToHub):
    """Converts texts to model inputs and back, and loads and saves the tokenizer's files.

    The methods and their arguments have the same names as in `transformers`.
    """

    model_input_names: ClassVar[list[str]] = ["input_ids", "token_type_ids", "attention_mask"]
    is_fast: ClassVar[bool] = True
    """Whether offsets, words and `backend_tokenizer` are available. `transformers` uses the same name."""
    SPECIAL_TOKENS_ATTRIBUTES: ClassVar[tuple[str, ...]] = tuple(DEFAULT_ROLES)
    default_roles: ClassVar[Mapping[str, str]] = DEFAULT_ROLES
    """The token of each role, unless the settings name another token."""
    model_class: ClassVar[Any]
    """The class of the subword model."""
    normalization_class: ClassVar[type[Normalization | BertNormalization]] = Normalization
    vocabulary_file_name: ClassVar[str] = folder.MODEL_FILE
    saved_class: ClassVar[str] = "AlbertTokenizer"
    """The class name that is saved for `transformers`."""
    pad_token_type_id = 0

    model_max_length: int
    padding_side: Side
    truncation_side: Side
    parse_special_tokens: bool
    clean_up_tokenization_spaces: bool

    bos_token, bos_token_id = _role("bos_token")
    eos_token, eos_token_id = _role("eos_token")
    unk_token, unk_token_id = _role("unk_token")
    sep_token, sep_token_id = _role("sep_token")
    pad_token, pad_token_id = _role("pad_token")
    cls_token, cls_token_id = _role("cls_token")
    mask_token, mask_token_id = _role("mask_token")

    def __init__(
        self,
        vocab_file: str | Path | None,
        tokenizer_file: str | Path | None,
        rules: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> None:
        source = tokenizer_file if vocab_file is None else vocab_file
        if source is None:
            raise TokenizerError(f"received no file. Expected {self.vocabulary_file_name} or tokenizer.json.")
        settings, known = take_settings(settings), TokenizerSettings.__annotations__
        for name in settings.keys() - known.keys():
            hint = did_you_mean(name, [*known, *rules])
            raise TypeError(f"{type(self).__name__} has no argument {name!r}{hint}")
        self.vocab_file = None if vocab_file is None else str(vocab_file)
        self.name_or_path = str(source)
        self._warned: set[str] = set()
        with reading(source, TokenizerError):
            given_rules = {name: value for name, value in rules.items() if value is not None}
            model, saved = self.model_class.read(vocab_file, tokenizer_file, given_rules, settings)
            settings = {**saved, **settings}
            self._model = model
            self._special = SpecialTokens(
                size=model.size,
                ignore_case=model.normalization.do_lower_case,
                token_to_id=model.token_to_id,
            )
            for token, token_id in settings.get("added_tokens", {}).items():
                is_id = type(token_id) is int and model.size <= token_id < _MOST_IDS
                if model.token_to_id(token_text(token)) is None and not is_id:
                    number = f"{short(token_id)}, not a number of at least {model.size}"
                    raise ValueError(f"the added token {token!r:.99} has the id {number}")
                self._special.add(token, added_id=token_id)
            if len(self._special.added_tokens) < len(self._special.added):
                raise ValueError("two of the added tokens have the same id")
            for role, default in self.default_roles.items():
                given = settings.get(role, default)
                token = None if given is None else token_text(given)
                is_known = model.token_to_id(default) is not None or token in self._special.added
                if token == default and not is_known:
                    raise ValueError(f"its {model.size} pieces do not contain {token!r}. Pass its {role}")
                self._special.set_role(role, token)
            self.extra_special_tokens = settings.get("extra_special_tokens")
            self._encoder = TextEncoder(model, self._special)
            for name in DEFAULTS:
                setattr(self, name, read_setting(name, settings.get(name)))

    # ---- vocabulary and special tokens ----

    def __len__(self) -> int:
        """Return the size of the vocabulary, including added tokens."""
        return self.vocab_size + len(self._special)

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary, without added tokens."""
        return self._model.size

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

    @property
    def split_special_tokens(self) -> bool:
        """The opposite of `parse_special_tokens`, as in `transformers`."""
        return not self.parse_special_tokens

    @split_special_tokens.setter
    def split_special_tokens(self, value: bool) -> None:
        self.parse_special_tokens = not value

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
        tokens = self._special.describe()
        return {token_id: tokenizers.AddedToken(**token) for token_id, token in tokens.items()}

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Add tokens to the vocabulary, and return the number of new ids.

        The tokenizer then keeps each of these tokens in one piece. If the tokenizer lower-cases and tokens
        differ only in case, it adds only the first. Resize the model's embeddings for new ids:
        `model.resize_token_embeddings(len(tokenizer))`.
        """
        tokens = token_texts(new_tokens if isinstance(new_tokens, (list, tuple)) else [new_tokens])
        before = len(self._special.added)
        if special_tokens:
            self.extra_special_tokens = [*self._special.additional, *tokens]
            tokens = []
        for token in tokens:
            if self._special.word_in_any_case(token) is None:
                self._special.add(token)
        return len(self._special.added) - before

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
            TokenizerError: A role is unknown, a value is not a token, or both names of `extra_special_tokens`
                were passed.
        """
        before = len(self._special.added)
        if {"additional_special_tokens", "extra_special_tokens"} <= special_tokens_dict.keys():
            names = "additional_special_tokens and extra_special_tokens"
            raise TokenizerError(f"{names} are two names of one setting. Pass one of them.")
        for role, value in special_tokens_dict.items():
            if role in ("additional_special_tokens", "extra_special_tokens"):
                previous = [] if replace_extra_special_tokens else self._special.additional
                self.extra_special_tokens = [*previous, *token_texts(value)]
            elif role in DEFAULT_ROLES:
                self._special.set_role(role, token_text(value))
            else:
                known = ", ".join([*DEFAULT_ROLES, "extra_special_tokens"])
                raise TokenizerError(f"{role!r} is not a role of a special token. Expected one of {known}.")
        return len(self._special.added) - before

    def train_new_from_iterator(
        self,
        text_iterator: Iterable[str] | Iterable[list[str]],
        vocab_size: int,
        length: int | None = None,  # noqa: ARG002  # of a progress bar that we do not show
        new_special_tokens: Iterable[Any] | None = None,
        special_tokens_map: Mapping[str, str] | None = None,
    ) -> Self:
        """Train a vocabulary on other texts and return a tokenizer with the same settings.

        Args:
            text_iterator: Texts, or batches of texts. It is iterated over once.
            vocab_size: Number of pieces, including special tokens. A WordPiece vocabulary may have fewer.
            length: Has no effect; accepted for compatibility with `transformers`.
            new_special_tokens: Additional special tokens. Like this tokenizer's added tokens, they get ids
                after the vocabulary.
            special_tokens_map: Must be None: the vocabulary has the special tokens of this tokenizer's roles.

        Raises:
            TokenizerError: `special_tokens_map` was passed, or `text_iterator` has other values than texts.
            ConfigError: `vocab_size` is not a whole number of at least 1.
            DataError: The text is too short for this vocabulary size, or has too many different characters.
        """
        if special_tokens_map:
            raise TokenizerError("special_tokens_map is not supported. Set the roles afterwards.")
        special = sorted(filter(None, {*self._special.roles.values()}), key=self.convert_tokens_to_ids)
        content = self._model.train(text_iterator, vocab_size, special)
        extra = [*self.extra_special_tokens, *token_texts(new_special_tokens or ())]
        settings: dict[str, Any] = {**self.init_kwargs, "additional_special_tokens": extra}
        with tempfile.TemporaryDirectory() as folder_name:
            file = Path(folder_name) / self.vocabulary_file_name
            file.write_bytes(content)
            trained = type(self)(vocab_file=file, **settings)
        trained.add_tokens(list(self._special.words.values()))
        trained.name_or_path = self.name_or_path
        return trained

    # ---- texts to ids ----

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        *,
        text_target: Any = None,
        text_pair_target: Any = None,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        parse_special_tokens: Parsing | None = None,
        split_special_tokens: bool | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Encode a text, a pair of texts, or a batch of either.

        Args:
            text: A string, a list of strings, or a list of pairs (first text, second text). With
                `is_split_into_words`, a list of words or a list of lists of words.
            text_pair: The second text of each example, in the same form.
            text_target: Another text of each example, in the same form. Its ids are the column `labels`.
            text_pair_target: The second text of each `text_target`.
            add_special_tokens: Whether to put [CLS] and [SEP] around the texts.
            padding: True or "longest" pads to the longest row, "max_length" to `max_length`. False or
                "do_not_pad" does not pad.
            truncation: The text of a pair to truncate: True or "longest_first", "only_first", "only_second".
                False or "do_not_truncate" truncates nothing. None truncates only if `max_length` is set and
                `padding` is not.
            max_length: Maximum length of a row in tokens, including special tokens. None means
                `model_max_length`.
            stride: Overlap: the number of tokens that a window shares with the previous window.
            is_split_into_words: Whether texts are passed as lists of words. Offsets are then relative to each
                word.
            pad_to_multiple_of: Number to whose next multiple the padded length is rounded up.
            padding_side: Side to pad. None means the tokenizer's setting. ALBERT's absolute positions need
                "right".
            return_tensors: "pt", "np" or "tf" for tensors; None for lists.
            return_token_type_ids: Whether to return `token_type_ids`. None means True.
            return_attention_mask: Whether to return `attention_mask`. None means True.
            return_overflowing_tokens: Whether to return each window of a truncated text as a row, and
                `overflow_to_sample_mapping` with the index of each row's example.
            return_special_tokens_mask: Whether to return `special_tokens_mask`: 1 for [CLS], [SEP] and
                padding.
            return_offsets_mapping: Whether to return `offset_mapping`: the characters (start, end) of each
                token in the original text.
            return_length: Whether to return `length`: the number of tokens of each row.
            parse_special_tokens: Whether to parse special tokens such as `[MASK]` in a text. False reads them
                as plain text; "mask" parses only `[MASK]`. None means the tokenizer's setting.
            split_special_tokens: The opposite of `parse_special_tokens`, as in `transformers`. Used only if
                that one is None.
            verbose: Whether to warn about rows that are longer than `model_max_length`.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask` and the other requested columns. Lists are (T,)
            for one example and (B, T) for a batch or for windows; tensors are always (B, T).

        Raises:
            TokenizerError: An input is not a text, or a length cannot be met.
        """
        if text_target is not None:
            inputs = ("self", "text", "text_pair", "text_target", "text_pair_target")
            options = {name: value for name, value in locals().items() if name not in (*inputs, "inputs")}
            target = self(text_target, text_pair_target, **options)
            if text is None:
                return target
            encoding = self(text, text_pair, **options)
            encoding["labels"] = target["input_ids"]
            return encoding
        check_number("stride", stride, 0)
        lengths = read_lengths(
            padding, truncation, max_length, pad_to_multiple_of, model_max_length=self.model_max_length
        )
        parse = self._parsing(parse_special_tokens, split_special_tokens)
        side = read_choice("padding_side", padding_side or self.padding_side)
        examples, batched = read_examples(text, text_pair, is_split_into_words=is_split_into_words)
        if truncation is None and lengths.truncation != "do_not_truncate" and verbose:
            self._warn_once(_TRUNCATED_BY_DEFAULT, lengths.max_length)
        with collection_paused():
            rows, samples = make_rows(
                self._encoder.encode(examples, parse),
                lengths,
                marks=self._special.marks() if add_special_tokens else None,
                stride=stride,
                side=read_choice("truncation_side", self.truncation_side),
                with_overflowing=return_overflowing_tokens,
                to_tokens=self.convert_ids_to_tokens,
            )
            longest = max(map(len, rows), default=0)
            if lengths.padding != "do_not_pad":
                width, padding_id = lengths.width(longest), self._special.id_of("pad_token")
                for row in rows:
                    row.pad(width, side, padding_id)
            columns: dict[str, list[Any]] = {"input_ids": [row.ids for row in rows]}
            if return_token_type_ids is not False:
                columns["token_type_ids"] = [row.type_ids for row in rows]
            if return_attention_mask is not False:
                columns["attention_mask"] = [row.attention_mask for row in rows]
            if return_special_tokens_mask:
                columns["special_tokens_mask"] = [row.special_tokens_mask for row in rows]
            if return_offsets_mapping:
                columns["offset_mapping"] = [row.offsets for row in rows]
            if return_length:
                columns["length"] = [len(row) for row in rows]
            if return_overflowing_tokens:
                columns["overflow_to_sample_mapping"] = samples
        if verbose and lengths.truncation == "do_not_truncate" and longest > self.model_max_length:
            self._warn_once(_OVER_MAXIMUM_LENGTH, longest, self.model_max_length)
        if not batched and return_tensors is None and not return_overflowing_tokens:
            # The length of one text stays a list of one, as in `transformers`.
            data = {name: column if name == "length" else column[0] for name, column in columns.items()}
            return BatchEncoding(data, rows)
        return BatchEncoding(columns, rows, tensor_type=return_tensors)

    def encode(self, text: Any, text_pair: Any = None, **options: Any) -> Any:
        """Return the ids of a text or a pair: a list, or a tensor (1, T) with `return_tensors`."""
        return self(text, text_pair, **options)["input_ids"]

    def encode_plus(self, text: Any, text_pair: Any = None, **options: Any) -> BatchEncoding:
        """Encode a text or a pair, as a call of the tokenizer does."""
        return self(text, text_pair, **options)

    def batch_encode_plus(self, batch_text_or_text_pairs: Iterable[Any], **options: Any) -> BatchEncoding:
        """Encode a list of texts, or a list of pairs (first text, second text)."""
        return self(list(batch_text_or_text_pairs), **options)

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,  # noqa: ARG002  # padding emits no warnings
    ) -> BatchEncoding:
        """Pad rows that are already encoded: a mapping of lists, or a list of mappings (as in a DataLoader).

        For the options see `__call__`. Only `input_ids`, masks and `token_type_ids` are padded. If the rows
        are tensors or arrays, so is the result, unless `return_tensors` requests another type.

        Raises:
            TokenizerError: The rows have no `input_ids`, or are not mappings with the same names.
        """
        return pad_rows(
            encoded_inputs,
            read_lengths(
                padding, None, max_length, pad_to_multiple_of, model_max_length=self.model_max_length
            ),
            side=read_choice("padding_side", padding_side or self.padding_side),
            padding_id=self._special.id_of("pad_token"),
            with_mask=return_attention_mask is not False,
            return_tensors=return_tensors,
        )

    def tokenize(
        self,
        text: str,
        pair: str | None = None,
        add_special_tokens: bool = False,
        *,
        parse_special_tokens: Parsing | None = None,
        split_special_tokens: bool | None = None,
    ) -> list[str]:
        """Return the tokens of a text, followed by the tokens of a second text if one is passed.

        With SentencePiece, a token that is not in the vocabulary is returned as its text, not as `<unk>`.

        Args:
            text: The first text.
            pair: The second text, or None.
            add_special_tokens: Whether to put [CLS] and [SEP] around the texts.
            parse_special_tokens: Whether to parse special tokens in the texts; see `__call__`.
            split_special_tokens: The opposite of `parse_special_tokens`.

        Raises:
            TokenizerError: An input is not a text.
        """
        parse = self._parsing(parse_special_tokens, split_special_tokens)
        examples, _ = read_examples(text, pair, is_split_into_words=False)
        first, end = self.convert_ids_to_tokens(self._special.marks()) if add_special_tokens else ("", "")
        tokens = [first] if first else []
        for each in examples[0]:
            tokens += self._encoder.pieces(each, parse)
            tokens += [end] if end else []
        return tokens

    @property
    def max_len_single_sentence(self) -> int:
        """Maximum number of tokens of a single text, without special tokens."""
        return self.model_max_length - 2

    @property
    def max_len_sentences_pair(self) -> int:
        """Maximum number of tokens of both texts of a pair, without special tokens."""
        return self.model_max_length - 3

    def _parsing(self, parse: Any, split: bool | None) -> Parsing:
        if parse is None:
            return self.parse_special_tokens if split is None else not split
        if parse not in (True, False, "mask"):
            raise TokenizerError(f"parse_special_tokens={short(parse)}: expected True, False or 'mask'")
        return parse

    def _warn_once(self, message: str, *arguments: int) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message, *arguments)

    # ---- ids and tokens ----

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Return the id of a token, or of each token in a list. Unknown tokens get the id of `unk_token`."""
        if tokens is None:
            return None
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        token_id = self._special.ids.get(tokens)
        if token_id is None:
            token_id = self._model.token_to_id(tokens)
        if token_id is None and (word := self._special.word_in_any_case(tokens)) is not None:
            token_id = self._special.ids[word]
        return self.unk_token_id if token_id is None else token_id

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the token of an id, or of each id in a list.

        Raises:
            TokenizerError: An id is outside the vocabulary.
        """
        ids = plain(ids)
        if isinstance(ids, int):
            return self._token_of(ids)
        skipped = self._special.special_ids if skip_special_tokens else ()
        return [self._token_of(token_id) for token_id in ids if token_id not in skipped]

    def _token_of(self, token_id: Any) -> str:
        if isinstance(token_id, int):
            if 0 <= token_id < self.vocab_size:
                return self._model.id_to_token(token_id)
            if token_id in self._special.added_tokens:
                return self._special.added_tokens[token_id]
        raise TokenizerError(f"{short(token_id)} is not the id of a token. Expected 0 to {len(self) - 1}.")

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
        """Return 1 for each special token and 0 for each other token."""
        if already_has_special_tokens:
            special = self._special.special_ids
            return [int(token_id in special) for token_id in token_ids_0]
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
        token_ids = plain(token_ids)
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

    # ---- files ----

    @property
    def init_kwargs(self) -> dict[str, Any]:
        """The current settings as arguments of the class."""
        return {
            **self._special.roles,
            **self.normalization,
            **{name: getattr(self, name) for name in DEFAULTS},
            "split_special_tokens": self.split_special_tokens,
            "additional_special_tokens": self.additional_special_tokens,
        }

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """Load a tokenizer from a model folder, a vocabulary file, the hub, or the bundled model.

        Args:
            pretrained_model_name_or_path: A folder, a vocabulary file, a hub name, or "bundled".
            options: Arguments of the class, which override the saved settings (`vocab_file` or
                `tokenizer_file` replaces the folder's vocabulary), and hub options (see `hub.HubOptions`).
                Options of `transformers` that have no effect here are ignored.

        Raises:
            ModelNotFoundError: The folder, file or name does not exist.
            TokenizerError: The files are damaged.
        """
        hub_options, overrides = split_hub_options(options)
        path = folder.locate(pretrained_model_name_or_path, **hub_options)
        return cls.load(path, name=pretrained_model_name_or_path, **overrides)

    @classmethod
    def load(cls, path: Path, *, name: str | Path, **overrides: Any) -> Self:
        """Load a tokenizer from a resolved folder or file.

        If `name` is a published model whose files differ from the published values, a warning lists the
        differences.
        """
        settings = folder.read_settings(
            path, normalization=cls.normalization_class, default_roles=cls.default_roles
        )
        settings |= take_settings(overrides)
        if settings.get("vocab_file") is None and settings.get("tokenizer_file") is None:
            names = {"vocab_file": cls.vocabulary_file_name, "tokenizer_file": folder.TOKENIZER_FILE}
            files = {argument: file for argument, name in names.items() if (file := folder.find(path, name))}
            if not files:
                expected = f"{cls.vocabulary_file_name}, or {folder.TOKENIZER_FILE} in its place"
                raise folder.missing(path, expected)
            settings |= files
        tokenizer = cls(**settings)
        tokenizer.name_or_path = str(name)
        if {"vocab_file", "tokenizer_file"} <= settings.keys():
            vocabulary, other = settings["vocab_file"], settings["tokenizer_file"]
            if not has_pieces(other, tokenizer._model, samples=100):
                warn_caller(
                    f"{vocabulary} and {Path(other).name} have different pieces. albertkit uses the former, "
                    "other libraries use the latter. Delete the file that does not belong to the model."
                )
        if published.find(name):
            facts = tokenizer.normalization
            if (model := folder.find(path, folder.MODEL_FILE)) is not None:
                facts[published.VOCABULARY_HASH] = file_sha256(model)
            published.warn_of_contradictions(name, facts, settled=overrides.keys())
        return tokenizer

    def save_pretrained(
        self,
        save_directory: str | Path,
        legacy_format: bool | None = None,  # noqa: ARG002  # files for older libraries are always written
        filename_prefix: str | None = None,
        push_to_hub: bool = False,
    ) -> tuple[str, ...]:
        """Write all files of the tokenizer into a folder and return their paths.

        Args:
            save_directory: The folder; it is created if it does not exist.
            legacy_format: Has no effect: the files for older libraries are always written.
            filename_prefix: Prefix of the file names, followed by a hyphen.
            push_to_hub: Must be False.

        Raises:
            ConfigError: `push_to_hub` is True.
            DataError: `save_directory` is a file.
            TokenizerError: The folder has a SentencePiece model, and this tokenizer has none to replace it.
        """
        refuse_push_to_hub(push_to_hub, save_directory)
        tokens = self._special.describe()
        config = {
            "added_tokens_decoder": {str(token_id): token for token_id, token in tokens.items()},
            **self.init_kwargs,
            # Without this list, `transformers` 5 omits the segments of a pair.
            folder.INPUT_NAMES_KEY: self.model_input_names,
            "tokenizer_class": self.saved_class,
        }
        files = {
            **self._vocabulary_files(),
            folder.TOKENIZER_CONFIG_FILE: json_bytes(config),
            folder.SPECIAL_TOKENS_FILE: json_bytes(self.special_tokens_map),
        }
        return folder.write(save_directory, files, prefix=filename_prefix)

    def save_vocabulary(
        self, save_directory: str | Path, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write only the vocabulary files into a folder and return their paths; see `save_pretrained`."""
        return folder.write(save_directory, self._vocabulary_files(), prefix=filename_prefix)

    def _vocabulary_files(self) -> dict[str, bytes]:
        with reading(self.name_or_path, TokenizerError):
            files = {
                self.vocabulary_file_name: self._model.vocabulary_file(),
                folder.TOKENIZER_FILE: self._model.tokenizer_json(self._special),
            }
        return {name: content for name, content in files.items() if content is not None}

    @property
    def backend_tokenizer(self) -> Any:
        """The `Tokenizer` of the Rust library `tokenizers`, without ALBERT's rule for digits before commas.

        Raises:
            TokenizerError: The vocabulary is not a standard Unigram model, so it has no tokenizer.json.
        """
        content = self._model.tokenizer_json(self._special)
        if content is None:
            raise TokenizerError(f"{self.name_or_path}: only a standard Unigram model has a tokenizer.json")
        return tokenizers.Tokenizer.from_str(content.decode())

    def __repr__(self) -> str:
        rules = ", ".join(f"{name}={value}" for name, value in self.normalization.items())
        return (
            f"{type(self).__name__}({self.name_or_path!r}, vocab_size={self.vocab_size}, "
            f"added={len(self._special)}, {rules}, model_max_length={self.model_max_length}, "
            f"padding_side={self.padding_side!r})"
        )
