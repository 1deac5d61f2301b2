"""The base class of all tokenizers, which differ only in their `SubwordModel`.

Legend: B batch, T tokens of a row.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

from albertkit import published
from albertkit.errors import TokenizerError
from albertkit.files import file_sha256, json_bytes
from albertkit.hub import refuse_push_to_hub, split_hub_options
from albertkit.hub_upload import PushToHub
from albertkit.tokenization import folder
from albertkit.tokenization.encoding import BatchEncoding, Sequence
from albertkit.tokenization.normalization import BertNormalization, Normalization
from albertkit.tokenization.options import (
    OVER_MAXIMUM_LENGTH,
    SETTINGS,
    TRUNCATED_BY_DEFAULT,
    CallOptions,
    Options,
    ParsingOptions,
    Side,
    read_examples,
    read_fit,
    read_setting,
    read_side,
    read_strategy,
    take_settings,
)
from albertkit.tokenization.rows import assemble, collection_paused, pad_rows, tensor_type_of, truncate
from albertkit.tokenization.special_tokens import Parsing
from albertkit.tokenization.subword import SubwordModel, TextEncoder
from albertkit.tokenization.tokens import TokenVocabulary, tokenizers

logger = logging.getLogger(__name__)


class TokenizerBase(TokenVocabulary, PushToHub):
    """Converts texts to model inputs and back, and loads and saves the tokenizer's files.

    The methods and their arguments have the same names as in `transformers`.
    """

    model_input_names: ClassVar[list[str]] = ["input_ids", "token_type_ids", "attention_mask"]
    is_fast: ClassVar[bool] = True
    """Whether offsets, words and `backend_tokenizer` are available. `transformers` uses the same name."""
    normalization_class: ClassVar[type[Normalization | BertNormalization]] = Normalization
    vocabulary_file_name: ClassVar[str] = folder.MODEL_FILE
    saved_class: ClassVar[str] = "AlbertTokenizer"
    """The class name that is saved for `transformers`."""

    model_max_length: int
    padding_side: Side
    truncation_side: Side
    parse_special_tokens: bool

    def __init__(
        self,
        model: SubwordModel,
        *,
        source: str | Path,
        saved: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Set up the tokenizer.

        Args:
            model: The subword model that splits plain text into pieces.
            source: The vocabulary file, for error messages.
            saved: The settings that the folder or file contains.
            settings: The caller's settings, which override the saved settings.
        """
        settings = {**saved, **take_settings(settings)}
        super().__init__(model, source=source, settings=settings)
        self.name_or_path = str(source)
        for name in SETTINGS:
            setattr(self, name, settings.get(name))
        self._encoder = TextEncoder(model, self._special)
        self._warned: set[str] = set()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, read_setting(name, value) if name in SETTINGS else value)

    @property
    def split_special_tokens(self) -> bool:
        """The opposite of `parse_special_tokens`, as in `transformers`."""
        return not self.parse_special_tokens

    @split_special_tokens.setter
    def split_special_tokens(self, value: bool) -> None:
        self.parse_special_tokens = not value

    @property
    def init_kwargs(self) -> dict[str, Any]:
        """The current settings as arguments of the class."""
        return {
            **self._special.roles,
            **self.normalization,
            "model_max_length": self.model_max_length,
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            "parse_special_tokens": self.parse_special_tokens,
            "split_special_tokens": self.split_special_tokens,
            "clean_up_tokenization_spaces": self.clean_up_tokenization_spaces,
            "additional_special_tokens": self.additional_special_tokens,
        }

    # ---- texts to ids ----

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        *,
        text_target: Any = None,
        text_pair_target: Any = None,
        **options: Unpack[CallOptions],
    ) -> BatchEncoding:
        """Encode a text, a pair of texts, or a batch of either.

        Args:
            text: A string, a list of strings, or a list of pairs (first text, second text). With
                `is_split_into_words`, a list of words or a list of lists of words.
            text_pair: The second text of each example, in the same form.
            text_target: Another text of each example, in the same form. Its ids are the column `labels`.
            text_pair_target: The second text of each `text_target`.
            options: See `Options`.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask` and the other requested columns. Lists are (T,)
            for one example and (B, T) for a batch or for windows; tensors are always (B, T).

        Raises:
            TokenizerError: An input is not a text, or a length cannot be met.
        """
        if text_target is not None:
            target = self(text_target, text_pair_target, **options)
            if text is None:
                return target
            encoding = self(text, text_pair, **options)
            encoding["labels"] = target["input_ids"]
            return encoding
        chosen = Options.read(**options)
        examples, batched = read_examples(text, text_pair, is_split_into_words=chosen.is_split_into_words)
        with collection_paused():
            sequences = self._encoder.sequences(examples, self._parsing(chosen))
            return self._assemble(sequences, chosen, batched=batched)

    def encode(self, text: Any, text_pair: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Return the ids of a text or a pair: a list, or a tensor (1, T) with `return_tensors`."""
        return self.encode_plus(text, text_pair, **options)["input_ids"]

    def encode_plus(self, text: Any, text_pair: Any = None, **options: Unpack[CallOptions]) -> BatchEncoding:
        """Encode a text or a pair. Each text may also be a list of tokens or of ids."""
        rows = [text] if text_pair is None else [text, text_pair]
        if options.get("is_split_into_words") or not any(isinstance(row, (list, tuple)) for row in rows):
            return self(text, text_pair, **options)
        parse = self._parsing(Options.read(**options))
        ids = [self._encoder.ids([row], parse)[0] if isinstance(row, str) else row for row in rows]
        return self.prepare_for_model(*ids, **options)

    def batch_encode_plus(
        self, batch_text_or_text_pairs: Iterable[Any], **options: Unpack[CallOptions]
    ) -> BatchEncoding:
        """Encode a list of texts, or a list of pairs (first text, second text)."""
        return self(list(batch_text_or_text_pairs), **options)

    def prepare_for_model(
        self, ids: list[int], pair_ids: list[int] | None = None, **options: Unpack[CallOptions]
    ) -> BatchEncoding:
        """Add special tokens to ids, then truncate, pad and split into windows as `__call__` does.

        Raises:
            TokenizerError: A value is not an id or a token.
        """
        sequences = [Sequence(self._ids_of(row)) for row in (ids, pair_ids) if row is not None]
        return self._assemble([sequences], Options.read(**options), batched=False)

    def truncate_sequences(
        self,
        ids: list[int],
        pair_ids: list[int] | None = None,
        num_tokens_to_remove: int = 0,
        truncation_strategy: str = "longest_first",
        stride: int = 0,
    ) -> tuple[list[int], list[int] | None, list[int]]:
        """Truncate a text or a pair to fewer tokens.

        Args:
            ids: Ids of the first text, without special tokens.
            pair_ids: Ids of the second text; None for a single text.
            num_tokens_to_remove: Number of tokens to remove.
            truncation_strategy: "longest_first", "only_first" or "only_second".
            stride: Number of remaining tokens to return together with the removed tokens, as an overlap.

        Returns:
            The remaining ids of both texts (None without a second text), and the removed ids: first those of
            the first text, then those of the second.

        Raises:
            TokenizerError: The strategy is unknown, or the text that it truncates is too short.
        """
        strategy = read_strategy(truncation_strategy)
        room = len(ids) + len(pair_ids or ()) - num_tokens_to_remove
        return truncate(ids, pair_ids, room=room, strategy=strategy, stride=stride, side=self.truncation_side)

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

        For the options see `Options`. Only `input_ids`, masks and `token_type_ids` are padded. If the rows
        are tensors or arrays, so is the result, unless `return_tensors` requests another type.

        Raises:
            TokenizerError: The rows have no `input_ids`, or are not mappings with the same names.
        """
        options = Options(
            padding=padding,
            max_length=max_length,
            pad_to_multiple_of=pad_to_multiple_of,
            return_attention_mask=return_attention_mask,
        )
        fit = read_fit(options, model_max_length=self.model_max_length)
        side = read_side("padding_side", padding_side or self.padding_side)
        padded = pad_rows(encoded_inputs, options, fit=fit, side=side, special=self._special)
        return padded.convert_to_tensors(return_tensors or tensor_type_of(encoded_inputs))

    def tokenize(
        self,
        text: str,
        pair: str | None = None,
        add_special_tokens: bool = False,
        **options: Unpack[ParsingOptions],
    ) -> list[str]:
        """Return the tokens of a text, followed by the tokens of a second text if one is passed.

        With SentencePiece, a token that is not in the vocabulary is returned as its text, not as `<unk>`.

        Args:
            text: The first text.
            pair: The second text, or None.
            add_special_tokens: Whether to put [CLS] and [SEP] around the texts.
            options: See `Options`. Only the options for parsing special tokens are allowed.

        Raises:
            TokenizerError: An input is not a text.
        """
        parse = self._parsing(Options.read_parsing(**options))
        read_examples(text, pair, is_split_into_words=False)  # raises if a value is not a text
        sequences = [self._encoder.pieces(each, parse) for each in (text, pair) if each is not None]
        if not add_special_tokens:
            return [piece for pieces in sequences for piece in pieces]
        first, end = self.convert_ids_to_tokens(self._special.marks())
        return [first, *(token for pieces in sequences for token in [*pieces, end])]

    @property
    def max_len_single_sentence(self) -> int:
        """Maximum number of tokens of a single text, without special tokens."""
        return self.model_max_length - 2

    @property
    def max_len_sentences_pair(self) -> int:
        """Maximum number of tokens of both texts of a pair, without special tokens."""
        return self.model_max_length - 3

    def _parsing(self, options: Options) -> Parsing:
        asked = options.parse_special_tokens
        return self.parse_special_tokens if asked is None else asked

    def _assemble(self, sequences: list[list[Sequence]], options: Options, *, batched: bool) -> BatchEncoding:
        fit = read_fit(options, model_max_length=self.model_max_length)
        if options.truncation is None and fit.truncation != "do_not_truncate" and options.verbose:
            self._warn_once(TRUNCATED_BY_DEFAULT, fit.max_length)
        encoding, longest = assemble(
            sequences,
            options,
            fit=fit,
            special=self._special,
            truncation_side=self.truncation_side,
            padding_side=read_side("padding_side", options.padding_side or self.padding_side),
            batched=batched,
            to_tokens=self.convert_ids_to_tokens,
        )
        if options.verbose and fit.truncation == "do_not_truncate" and longest > self.model_max_length:
            self._warn_once(OVER_MAXIMUM_LENGTH, longest, self.model_max_length)
        return encoding

    def _warn_once(self, message: str, *arguments: int) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message, *arguments)

    # ---- files ----

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

        Raises:
            ModelNotFoundError, TokenizerError: See `from_pretrained`.
        """
        settings = folder.read_settings(
            path, normalization=cls.normalization_class, default_roles=cls.default_roles
        )
        settings |= take_settings(overrides)
        if settings.get("vocab_file") is None and settings.get("tokenizer_file") is None:
            settings |= folder.find_files(path, cls.vocabulary_file_name)
        tokenizer = cls(**settings)
        tokenizer.name_or_path = str(name)
        if {"vocab_file", "tokenizer_file"} <= settings.keys():
            folder.warn_of_other_pieces(settings["vocab_file"], settings["tokenizer_file"], tokenizer._model)
        if published.find(name):
            facts = tokenizer.normalization
            if (model := folder.find_model_file(path)) is not None:
                facts[published.hash_of(folder.MODEL_FILE)] = file_sha256(model)
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
        config = {
            "added_tokens_decoder": {
                str(number): token for number, token in self._special.describe().items()
            },
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
        """Return the content of the vocabulary files by file name."""
        with folder.named_damage(self.name_or_path):
            files = {
                self.vocabulary_file_name: self._model.vocabulary_file(),
                folder.TOKENIZER_FILE: self._model.tokenizer_json(self._special),
            }
        return {name: content for name, content in files.items() if content is not None}

    @property
    def backend_tokenizer(self) -> Any:
        """The `Tokenizer` of the Rust library `tokenizers`, without ALBERT's rule for digits before commas.

        Raises:
            MissingExtraError: The extra `tokenizers` is not installed.
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
