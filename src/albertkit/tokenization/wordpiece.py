"""The tokenizer of checkpoints with a `vocab.txt`: BERT's, as the Chinese ALBERT models have it.

A text is cleaned, lower-cased and stripped of accents where the settings say so, and cut at spaces,
punctuation marks and Chinese characters; of each word the longest piece that the vocabulary knows is taken,
again and again (Devlin et al. 2018, arXiv:1810.04805; Wu et al. 2016, arXiv:1609.08144, section 4.1). The
Rust library `tokenizers` does all that.
"""

import json
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from albertkit.errors import ModelNotFoundError, TokenizerError
from albertkit.extras import optional
from albertkit.tokenization import folder
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.normalization import BertNormalization
from albertkit.tokenization.options import take_settings
from albertkit.tokenization.rust_file import text_of
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, token_text
from albertkit.tokenization.tokens import TokenizerSettings
from albertkit.tokenization.unigram import not_unicode

if TYPE_CHECKING:
    import tokenizers
else:
    tokenizers = optional("tokenizers", extra="tokenizers")

ROLES = {**DEFAULT_ROLES, "unk_token": "[UNK]", "pad_token": "[PAD]"}
"""The token of each role in a WordPiece vocabulary."""

_CONTINUATION = "##"
_MODEL = "WordPiece"  # the type of the model in a tokenizer.json


class MarkedContinuations:
    """WordPiece's spelling: a mark stands before every piece that goes on with a word."""

    rule = f"{_CONTINUATION} marks a piece inside a word"

    def begins_word(self, piece: str) -> bool:
        """Whether a word begins with this piece."""
        return not piece.startswith(_CONTINUATION)

    def join(self, tokens: list[str], *, apart: Container[str]) -> str:  # noqa: ARG002
        """Return the text that tokens spell, without the spaces before English punctuation.

        Every token that does not go on with a word is one, so nothing else need stand apart.
        """
        return tokenizers.decoders.WordPiece(prefix=_CONTINUATION).decode(tokens)


class WordPieceModel:
    """Cuts plain text into pieces; knows nothing of special tokens, pairs or padding."""

    spelling = MarkedContinuations()

    def __init__(self, pieces: tuple[str, ...], normalization: BertNormalization, *, unk_token: str) -> None:
        self.normalization = normalization
        self.size = len(pieces)
        self._pieces = pieces
        # Of a piece that is listed twice the last place counts, as in the original.
        self._ids = {piece: piece_id for piece_id, piece in enumerate(pieces)}
        self._tokenizer = tokenizers.Tokenizer(
            tokenizers.models.WordPiece(
                self._ids, unk_token=unk_token, continuing_subword_prefix=_CONTINUATION
            )
        )
        self._tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=normalization.tokenize_chinese_chars,
            strip_accents=normalization.strip_accents,
            lowercase=normalization.do_lower_case,
        )
        self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        self._tokenizer.decoder = tokenizers.decoders.WordPiece(prefix=_CONTINUATION)

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of one text; `[UNK]` stands for an unknown word."""
        return self._cut(text).tokens

    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of many texts' pieces, in this thread alone where `num_threads` is 1."""
        if num_threads == 1:
            return [self._cut(text).ids for text in texts]
        try:
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            raise not_unicode(texts) from error
        return [encoding.ids for encoding in encodings]

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece of a text: its characters in the text as given."""
        encoding = self._cut(text)
        return [
            (piece, start, end) for piece, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True)
        ]

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, None where it is not in the vocabulary."""
        return self._ids.get(piece)

    def id_to_token(self, piece_id: int) -> str:
        """Return the piece of an id."""
        return self._pieces[piece_id]

    def word_list(self) -> str:
        """Return the vocabulary as its file has it: a piece to a line, ids from 0."""
        return "".join([f"{piece}\n" for piece in self._pieces])

    def rust_content(self) -> dict[str, Any]:
        """Return the content of the `tokenizer.json`, without special tokens."""
        return json.loads(self._tokenizer.to_str())

    def _cut(self, text: str) -> "tokenizers.Encoding":
        try:
            return self._tokenizer.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            raise not_unicode([text]) from error


class AlbertWordPieceTokenizer(TokenizerBase):
    """Turns texts into what a model with a WordPiece vocabulary reads, and back; `transformers` has it as
    BertTokenizer, with the same ids and offsets.

        tokenizer = AutoTokenizer.from_pretrained("albert_base_zh")      # a folder with vocab.txt
        tokenizer("\u751f\u6d3b\u7684\u771f\u8c1b\u662f[MASK]\u3002", return_tensors="pt")

    Args:
        vocab_file: the vocab.txt; its pieces win where both files are given.
        tokenizer_file: the tokenizer.json of such a tokenizer.
        do_lower_case: lower-case texts; None for what the tokenizer.json does (True where there is none).
        strip_accents: drop accents; None as above, and then where texts are lower-cased.
        tokenize_chinese_chars: make each Chinese character a word; None as above (True).
        settings: see `TokenizerSettings`.

    Raises:
        MissingExtraError: the extra `tokenizers` is not installed.
        ModelNotFoundError: there is no such file.
        TokenizerError: no file was named, it is damaged or of another kind, or lacks the special tokens.
    """

    is_fast = True
    default_roles = ROLES
    normalization_class = BertNormalization
    saved_class = "BertTokenizer"
    _cutter: WordPieceModel

    def __init__(
        self,
        vocab_file: str | Path | None = None,
        tokenizer_file: str | Path | None = None,
        do_lower_case: bool | None = None,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool | None = None,
        **settings: Unpack[TokenizerSettings],
    ) -> None:
        source = tokenizer_file if vocab_file is None else vocab_file
        if source is None:
            raise TokenizerError(
                "received no file; expected vocab_file (vocab.txt) or tokenizer_file (.json)"
            )
        vocabulary: dict[str, int] = {}
        rules: dict[str, Any] = {}
        known: dict[str, Any] = {}
        if tokenizer_file is not None:
            vocabulary, rules, known = read_tokenizer_file(Path(tokenizer_file))
        if vocab_file is not None:
            pieces = read_word_list(Path(vocab_file))
        else:
            pieces = _in_order(vocabulary, source=source)
        given = {
            "do_lower_case": do_lower_case,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": tokenize_chinese_chars,
        }
        rules |= {name: value for name, value in given.items() if value is not None}
        unk_token = token_text(settings.get("unk_token") or ROLES["unk_token"])
        self.vocab_file = None if vocab_file is None else str(vocab_file)
        with folder.named_damage(source):
            cutter = WordPieceModel(pieces, BertNormalization(**rules), unk_token=unk_token)
        super().__init__(
            cutter, source=source, **cast(TokenizerSettings, {**known, **take_settings(settings)})
        )
        if cutter.token_to_id(unk_token) is None:
            raise TokenizerError(
                f"{source}: {unk_token!r} is none of its {cutter.size} pieces, and unknown words become "
                "unk_token; name a piece of the vocabulary"
            )

    @property
    def backend_tokenizer(self) -> "tokenizers.Tokenizer":
        """The Rust library's tokenizer as it is saved, which cuts exactly alike."""
        return tokenizers.Tokenizer.from_str(self._rust_file())

    @classmethod
    def _from_path(cls, path: Path, settings: dict[str, Any]) -> Self:
        if settings.get("vocab_file") is None and settings.get("tokenizer_file") is None:
            vocab_file, tokenizer_file = folder.find_word_list(path), folder.find_rust_file(path)
            if vocab_file is None and tokenizer_file is None:
                raise folder.missing(path, f"{folder.WORD_LIST_FILE} or {folder.RUST_FILE}")
            settings = {**settings, "vocab_file": vocab_file, "tokenizer_file": tokenizer_file}
        return cls(**settings)

    def _vocabulary_files(self) -> dict[str, bytes]:
        return {
            folder.WORD_LIST_FILE: self._cutter.word_list().encode(),
            folder.RUST_FILE: self._rust_file().encode(),
        }

    def _rust_file(self) -> str:
        return text_of(self._cutter.rust_content(), self._special)


def is_tokenizer_file(path: Path) -> bool:
    """Whether a tokenizer.json holds a WordPiece vocabulary."""
    model = folder.read_json(path).get("model")
    return isinstance(model, dict) and model.get("type") == _MODEL


def read_word_list(path: Path) -> tuple[str, ...]:
    """Return the pieces of a vocab.txt.

    Raises ModelNotFoundError where there is no such file, TokenizerError as `parse_word_list` does.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"{path}: no file; expected a word list such as {folder.WORD_LIST_FILE}")
    return parse_word_list(path.read_bytes(), source=path)


def parse_word_list(content: bytes, *, source: str | Path) -> tuple[str, ...]:
    """Return the pieces of a word list: its lines, numbered from 0.

    Raises TokenizerError where it is empty or no text.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"{source}: not UTF-8 text ({error.reason} at byte {error.start}); expected a piece to a line"
        ) from error
    if not text:
        raise TokenizerError(f"{source}: the file is empty; expected a piece to a line. Copy it again")
    # Not splitlines(): some vocabularies hold characters that it takes for ends of lines.
    return tuple(text.replace("\r\n", "\n").removesuffix("\n").split("\n"))


def read_tokenizer_file(path: Path) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    """Return the vocabulary of a tokenizer.json, its rules of normalization, and the tokens added to it.

    Raises TokenizerError where the file is damaged, or is not that of a BERT-style tokenizer.
    """
    with folder.named_damage(path):
        return _read_content(folder.read_json(path), path)


def _read_content(
    content: dict[str, Any], path: Path
) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    model, normalizer = content.get("model") or {}, content.get("normalizer") or {}
    if (
        model.get("type") != _MODEL
        or model.get("continuing_subword_prefix") != _CONTINUATION
        or normalizer.get("type") != "BertNormalizer"
    ):
        raise TokenizerError(
            f"{path}: holds a {model.get('type', 'missing')} model with the normalizer "
            f"{normalizer.get('type', 'none')}; expected a {_MODEL} model that marks continuations with "
            f"{_CONTINUATION}, and BertNormalizer, as BERT's tokenizers have them"
        )
    rules = {
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    }
    vocabulary = dict(model["vocab"])
    tokens = {token_text(token): token for token in content.get("added_tokens") or ()}
    behind = {text: token["id"] for text, token in tokens.items() if text not in vocabulary}
    roles = set(ROLES.values())
    special = [text for text, token in tokens.items() if token["special"] and text not in roles]
    return vocabulary, rules, {"added_tokens": behind, "extra_special_tokens": special}


def _in_order(vocabulary: dict[str, int], *, source: str | Path) -> tuple[str, ...]:
    """Return the pieces by their ids; raise TokenizerError where some have none."""
    with folder.named_damage(source):
        pieces = tuple(sorted(vocabulary, key=vocabulary.__getitem__))
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise TokenizerError(
            f"{source}: the ids of its {len(pieces)} pieces are not 0 to {len(pieces) - 1}, so some have no "
            f"piece; put the {folder.WORD_LIST_FILE} that it was made of beside it"
        )
    return pieces
