"""Everything that all tokenizers do alike, given something that cuts plain text into pieces.

`TokenizerBase` is what `transformers` users know: calls, special tokens, decoding, saving. Its subclasses
differ in their `SubwordModel` alone.

Legend: B batch, T tokens of a row.
"""

import hashlib
import logging
import tempfile
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from albertkit import published
from albertkit.errors import TokenizerError
from albertkit.extras import optional
from albertkit.hub import refuse_push_to_hub
from albertkit.tokenization import folder
from albertkit.tokenization.encoding import BatchEncoding, Places, Sequence
from albertkit.tokenization.normalization import BertNormalization, Normalization
from albertkit.tokenization.options import (
    CallOptions,
    Options,
    Side,
    Text,
    read_examples,
    read_fit,
    read_flag,
    read_max_length,
    read_side,
    take_settings,
)
from albertkit.tokenization.rows import Marks, assemble, collection_paused, pad_rows, windows
from albertkit.tokenization.special_tokens import Parsing, Part, token_texts
from albertkit.tokenization.subword import SubwordModel
from albertkit.tokenization.tokens import TokenInterface

if TYPE_CHECKING:
    import tokenizers
else:
    tokenizers = optional("tokenizers", extra="tokenizers")

logger = logging.getLogger(__name__)


class TokenizerBase(TokenInterface, ABC):
    """Texts to what a model reads: pairs, truncation, windows and padding; and a tokenizer's files."""

    model_input_names: ClassVar[list[str]] = ["input_ids", "token_type_ids", "attention_mask"]
    is_fast: ClassVar[bool] = True
    """Offsets, words and `backend_tokenizer` are available, as `transformers` puts it."""
    normalization_class: ClassVar[type[Normalization | BertNormalization]] = Normalization
    """The rules of normalization that the class has."""
    vocabulary_file_name: ClassVar[str] = folder.MODEL_FILE
    saved_class: ClassVar[str] = "AlbertTokenizer"
    """The name under which `transformers` knows such a tokenizer."""

    def __init__(
        self,
        model: SubwordModel,
        *,
        source: str | Path,
        saved: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Set up what all tokenizers share.

        Args:
            model: What splits plain text into pieces.
            source: The file of the vocabulary, for messages.
            saved: The settings that the file has.
            settings: The settings of the caller, which override them.
        """
        settings = {**saved, **take_settings(settings)}
        super().__init__(model, source=source, settings=settings)
        self.name_or_path = str(source)
        self.model_max_length = read_max_length(settings.get("model_max_length"))
        self.padding_side: Side = read_side("padding_side", settings.get("padding_side", "right"))
        self.truncation_side: Side = read_side("truncation_side", settings.get("truncation_side", "right"))
        self.parse_special_tokens = read_flag(
            "parse_special_tokens", settings.get("parse_special_tokens", True)
        )
        self._warned_of_length = False
        self._warned_of_truncation = False

    @property
    def split_special_tokens(self) -> bool:
        """The opposite of `parse_special_tokens`, as `transformers` names it."""
        return not self.parse_special_tokens

    @split_special_tokens.setter
    def split_special_tokens(self, value: bool) -> None:
        self.parse_special_tokens = not value

    @property
    def init_kwargs(self) -> dict[str, Any]:
        """The settings as arguments of the class: roles, rules of normalization, lengths, sides."""
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

    def __call__(self, text: Any, text_pair: Any = None, **options: Unpack[CallOptions]) -> BatchEncoding:
        """Encode a text, a pair of texts, or a batch of either.

        Args:
            text: a string; a list of strings; a list of (text, second text). With `is_split_into_words`, a
                list of words or a list of those.
            text_pair: the second text of each example, in the same form.
            options: see `Options`.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask` and what else was asked for: lists (T,) for one
            example, (B, T) for a batch or windows; tensors are always (B, T).

        Raises:
            TokenizerError: for inputs that are no texts, and lengths that cannot be met.
        """
        chosen = Options.read(**options)
        examples, batched = read_examples(text, text_pair, is_split_into_words=chosen.is_split_into_words)
        parse = self._whether_to_parse(chosen.parse_special_tokens)
        locate = partial(self._locate, parse=parse)
        with collection_paused():
            firsts = self._ids([first for first, _ in examples], parse)
            seconds = iter(self._ids([second for _, second in examples if second is not None], parse))
            sequences = [
                [Sequence(ids, first, locate)]
                + ([] if second is None else [Sequence(next(seconds), second, locate)])
                for (first, second), ids in zip(examples, firsts, strict=True)
            ]
            return self._assemble(sequences, chosen, batched=batched)

    def encode(self, text: Any, text_pair: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Return the ids of a text or a pair: a list, or a tensor (1, T) where `return_tensors` is given."""
        return self.encode_plus(text, text_pair, **options)["input_ids"]

    def encode_plus(self, text: Any, text_pair: Any = None, **options: Unpack[CallOptions]) -> BatchEncoding:
        """Encode one text or pair; also one given as a list of tokens or of ids."""
        if isinstance(text, (list, tuple)) and not options.get("is_split_into_words"):
            ids = [self._as_ids(one) for one in (text, text_pair) if one is not None]
            return self.prepare_for_model(*ids, **options)
        return self(text, text_pair, **options)

    def batch_encode_plus(
        self, batch_text_or_text_pairs: Iterable[Any], **options: Unpack[CallOptions]
    ) -> BatchEncoding:
        """Encode a list of texts, or a list of (text, second text)."""
        return self(list(batch_text_or_text_pairs), **options)

    def prepare_for_model(
        self, ids: list[int], pair_ids: list[int] | None = None, **options: Unpack[CallOptions]
    ) -> BatchEncoding:
        """Do what a call does from ids on: special tokens, truncation, windows, padding."""
        sequences = [Sequence(list(one)) for one in (ids, pair_ids) if one is not None]
        return self._assemble([sequences], Options.read(**options), batched=False)

    def truncate_sequences(
        self,
        ids: list[int],
        pair_ids: list[int] | None = None,
        num_tokens_to_remove: int = 0,
        truncation_strategy: str = "longest_first",
        stride: int = 0,
    ) -> tuple[list[int], list[int] | None, list[int]]:
        """Return both sequences without that many tokens, and what was cut off with `stride` before it."""
        options = Options(truncation=truncation_strategy)
        (first, second), *_ = windows(
            len(ids),
            None if pair_ids is None else len(pair_ids),
            room=len(ids) + len(pair_ids or ()) - num_tokens_to_remove,
            strategy=read_fit(options, model_max_length=self.model_max_length).truncation,
            side=self.truncation_side,
        )
        kept = [ids[first.start : first.stop], pair_ids]
        cut, window = ids, first
        if pair_ids is not None and second is not None and len(second) < len(pair_ids):
            kept[1] = pair_ids[second.start : second.stop]
            if len(first) == len(ids):
                cut, window = pair_ids, second
        if self.truncation_side == "right":
            overflow = cut[max(0, window.stop - stride) :] if len(window) < len(cut) else []
        else:
            overflow = cut[: window.start + stride] if len(window) < len(cut) else []
        return kept[0] or [], kept[1], overflow

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,  # noqa: ARG002  # there is nothing to warn of
    ) -> BatchEncoding:
        """Pad rows encoded before: a mapping of lists, or a list of such mappings (what a DataLoader gives).

        Raises TokenizerError where there are no `input_ids`.
        """
        options = Options(padding=padding, max_length=max_length, pad_to_multiple_of=pad_to_multiple_of)
        fit = read_fit(options, model_max_length=self.model_max_length)
        marks = self._marks(around=False, padding=fit.padding != "do_not_pad")
        return pad_rows(
            encoded_inputs,
            fit=fit,
            multiple_of=pad_to_multiple_of,
            side=read_side("padding_side", padding_side or self.padding_side),
            values={"input_ids": marks.padding, "special_tokens_mask": 1, "token_type_ids": 0},
            attention_mask=return_attention_mask is not False,
        ).convert_to_tensors(return_tensors)

    def tokenize(
        self,
        text: str,
        pair: str | None = None,
        add_special_tokens: bool = False,
        *,
        parse_special_tokens: Parsing | None = None,
        split_special_tokens: bool | None = None,
    ) -> list[str]:
        """Return the pieces of a text; SentencePiece has unknown ones as they stand in the text."""
        if parse_special_tokens is None and split_special_tokens is not None:
            parse_special_tokens = not split_special_tokens
        parse = self._whether_to_parse(parse_special_tokens)
        sequences = [self._pieces(one, parse) for one in (text, pair) if one is not None]
        if not add_special_tokens:
            return [piece for pieces in sequences for piece in pieces]
        marks = self._marks()
        first, end = self.convert_ids_to_tokens([marks.first, marks.end])
        return [first, *(token for pieces in sequences for token in [*pieces, end])]

    def _marks(self, *, around: bool = True, padding: bool = False) -> Marks:
        """Return the ids around texts and of padding; raise TokenizerError where a needed one is not set."""
        needed = {"cls_token": around, "sep_token": around, "pad_token": padding}
        ids = [self._special.ids.get(self._special.roles[role] or "") for role in needed]
        for token_id, (role, is_needed) in zip(ids, needed.items(), strict=True):
            if token_id is None and is_needed:
                without = "padding=False" if role == "pad_token" else "add_special_tokens=False"
                raise TokenizerError(f"this tokenizer has no {role}; set tokenizer.{role}, or pass {without}")
        first, end, pad = (-1 if token_id is None else token_id for token_id in ids)
        return Marks(first=first, end=end, padding=pad)

    def _assemble(self, sequences: list[list[Sequence]], options: Options, *, batched: bool) -> BatchEncoding:
        fit = read_fit(options, model_max_length=self.model_max_length)
        if options.truncation is None and fit.truncation != "do_not_truncate" and options.verbose:
            self._warn_of_truncation(fit.max_length)
        return assemble(
            sequences,
            options,
            fit=fit,
            marks=self._marks(around=options.add_special_tokens, padding=fit.padding != "do_not_pad"),
            truncation_side=read_side("truncation_side", self.truncation_side),
            padding_side=read_side("padding_side", options.padding_side or self.padding_side),
            batched=batched,
            warn=self._warn_of_length,
            to_tokens=self.convert_ids_to_tokens,
        )

    def _ids(self, texts: Iterable[Text], parse: Parsing) -> list[list[int]]:
        """Return the ids of texts, each a string or a list of words."""
        texts = list(texts)
        plain_texts = [text for text in texts if isinstance(text, str)]
        if len(plain_texts) == len(texts) and not any(
            self._special.occur_in(text, parse_special_tokens=parse) for text in plain_texts
        ):
            return self._model.ids_batch(plain_texts)
        # All plain parts of all texts in one call, and then back to their places.
        parts = [list(self._parts(text, parse)) for text in texts]
        plain = iter(
            self._model.ids_batch([part.text for one in parts for part in one if part.token_id is None])
        )
        return [
            [
                token_id
                for part in one
                for token_id in (next(plain) if part.token_id is None else [part.token_id])
            ]
            for one in parts
        ]

    def _pieces(self, text: str, parse: Parsing) -> list[str]:
        return [
            piece
            for part in self._parts(text, parse)
            for piece in (self._model.pieces(part.text) if part.token_id is None else [part.text])
        ]

    def _parts(self, text: Text, parse: Parsing) -> Iterator[Part]:
        for one in [text] if isinstance(text, str) else text:
            yield from self._special.cut(one, parse_special_tokens=parse)

    def _locate(self, text: Text, parse: Parsing) -> Places:
        """Return the place of each token of a text.

        The words of a string are what stands between spaces (for WordPiece, also each punctuation mark and
        each Chinese character), and each token that stands for itself; those of a list are its entries.
        """
        places = Places([], [])
        word = -1
        for number, one in enumerate([text] if isinstance(text, str) else text):
            for part in self._special.cut(one, parse_special_tokens=parse):
                spans = [(part.text, 0, len(part.text))]
                if part.token_id is None:
                    spans = self._model.spans(part.text)
                for index, (piece, start, end) in enumerate(spans):
                    word += index == 0 or self._model.begins_word(piece)
                    places.offsets.append((part.start + start, part.start + end))
                    places.words.append(word if isinstance(text, str) else number)
        return places

    def _whether_to_parse(self, asked: Parsing | None) -> Parsing:
        return self.parse_special_tokens if asked is None else asked

    def _warn_of_truncation(self, length: int) -> None:
        """Warn, once, that a maximum length truncates where nobody asked for truncation."""
        if not self._warned_of_truncation:
            self._warned_of_truncation = True
            logger.warning(
                "max_length=%d without truncation= or padding= truncates longer texts to that length: pass "
                "truncation=True if that is meant, or truncation=False to keep all tokens",
                length,
            )

    def _warn_of_length(self, length: int) -> None:
        """Warn, once, of a row longer than the model takes."""
        if length > self.model_max_length and not self._warned_of_length:
            self._warned_of_length = True
            logger.warning(
                "a text has %d tokens, and the model takes %d: pass truncation=True, or also "
                "return_overflowing_tokens=True and a stride for windows over all of it",
                length,
                self.model_max_length,
            )

    def _as_ids(self, tokens: Iterable[Any]) -> list[int]:
        return [
            self.convert_tokens_to_ids(token) if isinstance(token, str) else int(token) for token in tokens
        ]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Return how many tokens stand around a text (2) or a pair (3)."""
        return 3 if pair else 2

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """Return `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]`."""
        marks = self._marks()
        row = [marks.first, *token_ids_0, marks.end]
        return row if token_ids_1 is None else [*row, *token_ids_1, marks.end]

    def create_token_type_ids_from_sequences(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """Return 0 for `[CLS] A [SEP]` and 1 for `B [SEP]`."""
        return [0] * (len(token_ids_0) + 2) + ([] if token_ids_1 is None else [1] * (len(token_ids_1) + 1))

    def get_special_tokens_mask(
        self,
        token_ids_0: list[int],
        token_ids_1: list[int] | None = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """Return 1 for special tokens and 0 for others.

        Raises TokenizerError for a second sequence where the first already has its special tokens.
        """
        if already_has_special_tokens:
            if token_ids_1 is not None:
                raise TokenizerError("received a second sequence for one that already has its special tokens")
            special = set(self.all_special_ids)
            return [int(token_id in special) for token_id in token_ids_0]
        mask = [1, *[0] * len(token_ids_0), 1]
        return mask if token_ids_1 is None else [*mask, *[0] * len(token_ids_1), 1]

    @property
    def max_len_single_sentence(self) -> int:
        """Most tokens of a text that the model takes."""
        return self.model_max_length - 2

    @property
    def max_len_sentences_pair(self) -> int:
        """Most tokens of both texts of a pair that the model takes."""
        return self.model_max_length - 3

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        subfolder: str = "",
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        **overrides: Any,
    ) -> Self:
        """Load a tokenizer from a model folder, a vocabulary file, the hub, or the bundled model.

        `overrides` are arguments of the class that win over what the folder says; `vocab_file` or
        `tokenizer_file` stands for the folder's files of the vocabulary. Options of `transformers` that
        change nothing here are ignored. The hub's arguments are those of `albertkit.hub.resolve`.

        Raises ModelNotFoundError where nothing is found, TokenizerError where what is found is damaged.
        """
        path = folder.locate(
            pretrained_model_name_or_path,
            subfolder=subfolder,
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
        )
        return cls.load(path, name=pretrained_model_name_or_path, **overrides)

    @classmethod
    def load(cls, path: Path, *, name: str | Path, **overrides: Any) -> Self:
        """Load a tokenizer from a folder or file that was found under a name.

        Where what is found for a published name contradicts what is known of that model, a warning says so.

        Raises ModelNotFoundError and TokenizerError as `from_pretrained` does.
        """
        settings = folder.read_settings(
            path, normalization=cls.normalization_class, default_roles=cls.default_roles
        )
        # Under one name for each setting, so that what the caller says wins.
        tokenizer = cls._from_path(path, {**settings, **take_settings(overrides)})
        tokenizer.name_or_path = str(name)
        if published.find(name):
            found = tokenizer.normalization
            if (model := folder.find_model_file(path)) is not None:
                found[published.hash_of(folder.MODEL_FILE)] = hashlib.sha256(model.read_bytes()).hexdigest()
            published.warn_of_contradictions(name, found, settled=overrides.keys(), stacklevel=4)
        return tokenizer

    def save_pretrained(
        self,
        save_directory: str | Path,
        legacy_format: bool | None = None,  # noqa: ARG002  # all files are written, older ones too
        filename_prefix: str | None = None,
        push_to_hub: bool = False,
    ) -> tuple[str, ...]:
        """Write all files of the tokenizer into a folder; return their paths.

        Args:
            save_directory: the folder, which is created where missing.
            legacy_format: without effect: the files of older readers are always written too.
            filename_prefix: put before the name of each file, with a hyphen.
            push_to_hub: must be False.

        Raises:
            ConfigError: `push_to_hub` is True.
            DataError: `save_directory` is a file.
        """
        refuse_push_to_hub(push_to_hub, save_directory)
        config = {
            "added_tokens_decoder": {
                str(number): token for number, token in self._special.describe().items()
            },
            **self.init_kwargs,
            "tokenizer_class": self.saved_class,
        }
        files = {
            **self._vocabulary_files(),
            folder.CONFIG_FILE: folder.as_json(config),
            folder.SPECIAL_TOKENS_FILE: folder.as_json(self.special_tokens_map),
        }
        return folder.write(save_directory, files, prefix=filename_prefix)

    def train_new_from_iterator(
        self,
        text_iterator: Iterable[str] | Iterable[list[str]],
        vocab_size: int,
        length: int | None = None,  # noqa: ARG002  # of the iterator, for a progress bar that we do not show
        new_special_tokens: Iterable[Any] | None = None,
        special_tokens_map: Mapping[str, str] | None = None,
    ) -> Self:
        """Return a tokenizer of the same rules whose vocabulary is trained on other texts.

        Args:
            text_iterator: texts, or batches of them; read once. Tokens that were added are added again.
            vocab_size: number of pieces, special tokens included.
            length: without effect.
            new_special_tokens: further special tokens, which get the ids behind the vocabulary.
            special_tokens_map: must be left out: the vocabulary has ALBERT's own special tokens.

        Raises:
            TokenizerError: a `special_tokens_map`, or a class whose vocabularies cannot be trained here.
            DataError: too little text for so many pieces.
        """
        if special_tokens_map:
            raise TokenizerError(
                f"special_tokens_map={dict(special_tokens_map)} is not supported: a trained vocabulary has "
                "ALBERT's special tokens; rename a role afterwards, such as tokenizer.pad_token = ..."
            )
        # Training loads what reading a vocabulary does not need.
        from albertkit.tokenization.trainer import train_model

        if not isinstance(rules := self._model.normalization, Normalization):
            raise TokenizerError(f"a vocabulary for {type(self).__name__} cannot be trained here")
        texts = (text for batch in text_iterator for text in ([batch] if isinstance(batch, str) else batch))
        model = train_model(texts, vocab_size=vocab_size, normalization=rules)
        extra = [*self.extra_special_tokens, *token_texts(new_special_tokens or ())]
        with tempfile.TemporaryDirectory() as folder_name:
            file = Path(folder_name) / folder.MODEL_FILE
            file.write_bytes(model.content)
            trained = self._from_path(file, {**self.init_kwargs, "additional_special_tokens": extra})
        trained.add_tokens(list(self._special.words.values()))
        trained.name_or_path = self.name_or_path
        return trained

    def save_vocabulary(
        self, save_directory: str | Path, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write the vocabulary's own files into a folder; return their paths."""
        return folder.write(save_directory, self._vocabulary_files(), prefix=filename_prefix)

    @property
    def backend_tokenizer(self) -> "tokenizers.Tokenizer":
        """The Rust library's tokenizer, read from the tokenizer.json; it lacks the digit-comma rule.

        Raises:
            MissingExtraError: The extra `tokenizers` is not installed.
            TokenizerError: A tokenizer.json cannot hold the vocabulary.
        """
        content = self._model.tokenizer_json(self._special)
        if content is None:
            raise TokenizerError(f"{self.name_or_path}: a tokenizer.json holds usual Unigram models only")
        return tokenizers.Tokenizer.from_str(content)

    @classmethod
    def _from_path(cls, path: Path, settings: dict[str, Any]) -> Self:
        """Build the tokenizer from the files of a folder, or from one file."""
        if settings.get("vocab_file") is None and settings.get("tokenizer_file") is None:
            vocab_file = folder.find(path, cls.vocabulary_file_name)
            tokenizer_file = folder.find(path, folder.TOKENIZER_FILE)
            if vocab_file is None and tokenizer_file is None:
                raise folder.missing(
                    path, f"{cls.vocabulary_file_name}, or {folder.TOKENIZER_FILE} in its place"
                )
            settings = {**settings, "vocab_file": vocab_file, "tokenizer_file": tokenizer_file}
        return cls(**settings)

    def _vocabulary_files(self) -> dict[str, bytes]:
        """Return the vocabulary's own files by name."""
        with folder.named_damage(self.name_or_path):
            contents = {
                self.vocabulary_file_name: self._model.vocabulary_file(),
                folder.TOKENIZER_FILE: self._model.tokenizer_json(self._special),
            }
        return {
            name: content.encode() if isinstance(content, str) else content
            for name, content in contents.items()
            if content is not None
        }

    def __repr__(self) -> str:
        rules = ", ".join(f"{name}={value}" for name, value in self.normalization.items())
        return (
            f"{type(self).__name__}({self.name_or_path!r}, vocab_size={self.vocab_size}, "
            f"added={len(self._special)}, {rules}, model_max_length={self.model_max_length}, "
            f"padding_side={self.padding_side!r})"
        )
