"""The tokenizer of checkpoints with a `vocab.txt`: BERT's tokenizer, which Chinese ALBERT models use.

The tokenizer cleans a text, lower-cases it and strips accents (depending on the settings), and splits it at
spaces, punctuation marks and Chinese characters. Within each word it repeatedly takes the longest piece in
the vocabulary (Devlin et al. 2018, arXiv:1810.04805; Wu et al. 2016, arXiv:1609.08144, section 4.1).
"""

import re
import string
import unicodedata
from collections.abc import Container
from pathlib import Path
from typing import Any, NoReturn, Unpack

from albertkit.errors import TokenizerError
from albertkit.text_files import lone_surrogate
from albertkit.tokenization import folder
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import read_vocabulary_file
from albertkit.tokenization.normalization import BertNormalization
from albertkit.tokenization.options import TokenizerSettings
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, SpecialTokens, token_text
from albertkit.tokenization.subword import CLEAN_UP, SubwordModel, not_unicode
from albertkit.tokenization.tokenizer_json import tokenizer_json

ROLES = {**DEFAULT_ROLES, "unk_token": "[UNK]", "pad_token": "[PAD]"}
"""The default token of each role in a WordPiece vocabulary."""

_CONTINUATION = "##"
_WORD = re.compile("[^ ]+")
_MODEL = "WordPiece"  # the model type in a tokenizer.json
_LONGEST_WORD = 100  # characters; a longer word becomes [UNK]
_REMEMBERED_WORDS = 50_000  # words of at most 30 characters need up to 25 MB
_LONGEST_REMEMBERED = 30
_REMEMBERED_CHARACTERS = 20_000
_REMOVED = ("Cc", "Cf", "Co")  # Unicode categories of dropped characters
_CHINESE = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)
_CLEAN_UP = {**CLEAN_UP, " do not": " don't"}
"""The replacements of clean-up in decoded text."""


class CharacterTable(dict[int, str]):
    """A map from the code of a character to its replacement; a word of its own has a space on both sides.

    Each rule of BERT's normalization depends on a single character, so one `str.translate` applies all rules.
    (NFD would also sort runs of marks; the few marks that are not dropped keep their order.)
    """

    def __init__(self, rules: BertNormalization) -> None:
        super().__init__()
        self._lower = rules.do_lower_case
        self._strip = rules.do_lower_case if rules.strip_accents is None else rules.strip_accents
        self._split_chinese = rules.tokenize_chinese_chars

    def __missing__(self, code: int) -> str:
        if len(self) >= _REMEMBERED_CHARACTERS:
            self.clear()
        self[code] = written = self._write(chr(code))
        return written

    def _write(self, character: str) -> str:
        if character in "\t\n\r" or (character.isspace() and unicodedata.category(character)[0] == "Z"):
            return " "
        if character == "\ufffd" or unicodedata.category(character) in _REMOVED:
            return ""
        written = character
        if self._strip:
            written = unicodedata.normalize("NFD", written)
            written = "".join(one for one in written if unicodedata.category(one) != "Mn")
        if self._lower:
            written = "".join(one.lower() for one in written)  # one by one, without the final-sigma rule
        written = "".join(f" {one} " if _is_punctuation(one) else one for one in written)
        return f" {written} " if self._split_chinese and _is_chinese(ord(character)) else written


class WordPieceModel(SubwordModel):
    """A WordPiece vocabulary.

    Args:
        pieces: The vocabulary; the index of a piece is its id.
        normalization: The normalization rules that are applied before a text is split into words.
        unk_token: The piece for unknown words.
    """

    spelling_rule = f"{_CONTINUATION} marks a piece inside a word"
    normalization: BertNormalization

    def __init__(self, pieces: tuple[str, ...], normalization: BertNormalization, *, unk_token: str) -> None:
        super().__init__(normalization)
        self.size = len(pieces)
        self._pieces = pieces
        self._unk_token = unk_token
        # If a piece is listed twice, it has the last of its ids, as in the original BERT.
        self._ids = {piece: piece_id for piece_id, piece in enumerate(pieces)}
        self._characters = CharacterTable(normalization)
        self._word_ids: dict[str, list[int]] = {}

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of one text; each unknown word is `[UNK]`."""
        return [piece for word in self._words(text) for piece, _, _ in self._split(word)]

    def ids_batch(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of the pieces of each text."""
        return [self._ids_of(text) for text in texts]

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece; `start:end` are its characters in the original text."""
        self._check(text)
        written = [self._characters[ord(character)] for character in text]
        places = [place for place, characters in enumerate(written) for _ in characters]
        return [
            (piece, places[word.start() + start], places[word.start() + end - 1] + 1)
            for word in _WORD.finditer("".join(written))
            for piece, start, end in self._split(word.group())
        ]

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, or None if it is not in the vocabulary."""
        return self._ids.get(piece)

    def id_to_token(self, piece_id: int) -> str:
        """Return the piece of an id."""
        return self._pieces[piece_id]

    def begins_word(self, piece: str) -> bool:
        """Return whether the piece does not begin with the continuation mark."""
        return not piece.startswith(_CONTINUATION)

    def join(self, tokens: list[str], *, apart: Container[str]) -> str:  # noqa: ARG002
        """Return the text of the tokens, without spaces before punctuation as in English.

        Every token that does not continue a word is a separate word, so `apart` has no effect.
        """
        text = ""
        for number, token in enumerate(tokens):
            if number:
                token = token[2:] if token.startswith(_CONTINUATION) else f" {token}"
            for spaced, joined in _CLEAN_UP.items():
                token = token.replace(spaced, joined)
            text += token
        return text

    def vocabulary_file(self) -> bytes:
        """Return the content of the vocab.txt: one piece per line, ids from 0."""
        return "".join([f"{piece}\n" for piece in self._pieces]).encode()

    def tokenizer_json(self, special_tokens: SpecialTokens) -> bytes:
        """Return the content of the tokenizer.json, as the Rust library writes it."""
        return tokenizer_json(
            special_tokens,
            normalizer={
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": self.normalization.tokenize_chinese_chars,
                "strip_accents": self.normalization.strip_accents,
                "lowercase": self.normalization.do_lower_case,
            },
            pre_tokenizer={"type": "BertPreTokenizer"},
            decoder={"type": "WordPiece", "prefix": _CONTINUATION, "cleanup": True},
            model={
                "type": _MODEL,
                "unk_token": self._unk_token,
                "continuing_subword_prefix": _CONTINUATION,
                "max_input_chars_per_word": _LONGEST_WORD,
                "vocab": dict(sorted(self._ids.items(), key=lambda item: item[1])),
            },
        )

    def _words(self, text: str) -> list[str]:
        self._check(text)
        return text.translate(self._characters).split()

    def _ids_of(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in self._words(text):
            known = self._word_ids.get(word)
            if known is None:
                known = [self._ids[piece] for piece, _, _ in self._split(word)]
                if len(self._word_ids) >= _REMEMBERED_WORDS:
                    self._word_ids.clear()
                if len(word) <= _LONGEST_REMEMBERED:
                    self._word_ids[word] = known
            ids += known
        return ids

    def _split(self, word: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece of a word: repeatedly the longest piece that fits."""
        unknown = [(self._unk_token, 0, len(word))]
        if len(word) > _LONGEST_WORD:
            return unknown
        found: list[tuple[str, int, int]] = []
        start = 0
        while start < len(word):
            mark = _CONTINUATION if start else ""
            for end in range(len(word), start, -1):
                if (piece := mark + word[start:end]) in self._ids:
                    break
            else:
                return unknown
            found.append((piece, start, end))
            start = end
        return found

    def _check(self, text: str) -> None:
        if lone_surrogate(text):
            raise not_unicode([text])


def _is_chinese(code: int) -> bool:
    """Return whether a character is in a block of Chinese characters."""
    return any(first <= code <= last for first, last in _CHINESE)


def _is_punctuation(character: str) -> bool:
    """Return whether BERT treats a character as punctuation, including ASCII symbols such as $, + and ~."""
    return character in string.punctuation or unicodedata.category(character)[0] == "P"


class AlbertWordPieceTokenizer(TokenizerBase):
    """Converts texts to inputs of a model with a WordPiece vocabulary, and ids back to text.

    `BertTokenizer` of `transformers` returns the same ids and offsets.

        tokenizer = AutoTokenizer.from_pretrained("albert_base_zh")      # a folder with vocab.txt
        tokenizer("\u751f\u6d3b\u7684\u771f\u8c1b\u662f[MASK]\u3002", return_tensors="pt")

    Args:
        vocab_file: The vocab.txt. It takes precedence over `tokenizer_file`.
        tokenizer_file: The tokenizer.json of a WordPiece vocabulary.
        do_lower_case: Whether to lower-case texts. None uses the rule of the tokenizer.json, or True.
        strip_accents: Whether to drop accents. None uses the rule of the tokenizer.json, or the value of
            `do_lower_case`.
        tokenize_chinese_chars: Whether each Chinese character is a separate word. None uses the rule of the
            tokenizer.json, or True.
        settings: See `TokenizerSettings`.

    Raises:
        ModelNotFoundError: The file does not exist.
        TokenizerError: No file was passed, the file is damaged or has another format, or its vocabulary lacks
            the special tokens.
    """

    default_roles = ROLES
    normalization_class = BertNormalization
    saved_class = "BertTokenizer"
    vocabulary_file_name = folder.WORD_LIST_FILE

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
                "received no file. Expected vocab_file (vocab.txt) or tokenizer_file (.json)."
            )
        vocabulary, rules, saved = {}, {}, {}
        if tokenizer_file is not None:
            vocabulary, rules, saved = read_tokenizer_file(Path(tokenizer_file))
        if vocab_file is None:
            pieces = _in_order(vocabulary, source=source)
        else:
            content = read_vocabulary_file(vocab_file, expected="a word list such as vocab.txt")
            pieces = parse_word_list(content, source=vocab_file)
        given = {
            "do_lower_case": do_lower_case,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": tokenize_chinese_chars,
        }
        rules |= {name: value for name, value in given.items() if value is not None}
        unk_token = token_text(settings.get("unk_token") or ROLES["unk_token"])
        self.vocab_file = None if vocab_file is None else str(vocab_file)
        with folder.named_damage(source):
            model = WordPieceModel(pieces, BertNormalization(**rules), unk_token=unk_token)
        super().__init__(model, source=source, saved=saved, settings=settings)
        if model.token_to_id(unk_token) is None:
            raise TokenizerError(
                f"{source}: {unk_token!r} is not one of its {model.size} pieces, but unknown words become "
                "unk_token. Pass a piece of the vocabulary."
            )

    def train_new_from_iterator(self, *arguments: Any, **options: Any) -> NoReturn:  # noqa: ARG002
        """Raise TokenizerError: albertkit cannot train WordPiece vocabularies."""
        raise TokenizerError(f"albertkit cannot train a vocabulary for {type(self).__name__}")


def is_wordpiece_json(path: Path) -> bool:
    """Return whether a tokenizer.json has a WordPiece vocabulary."""
    if f'"{_MODEL}"'.encode() not in path.read_bytes():  # faster than parsing a large file first
        return False
    model = folder.read_json(path).get("model")
    return isinstance(model, dict) and model.get("type") == _MODEL


def parse_word_list(content: bytes, *, source: str | Path) -> tuple[str, ...]:
    """Return the pieces of a word list. Each line is a piece, and its line number from 0 is the id.

    Raises:
        TokenizerError: The list is empty or is not valid UTF-8 text.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"{source}: not UTF-8 text ({error.reason} at byte {error.start}). Expected one piece per line."
        ) from error
    if not text:
        raise TokenizerError(f"{source}: the file is empty. Expected one piece per line. Copy it again.")
    # Not splitlines(): some vocabularies contain characters that splitlines() treats as line ends.
    return tuple(text.replace("\r\n", "\n").removesuffix("\n").split("\n"))


def read_tokenizer_file(path: Path) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    """Return the vocabulary, normalization rules and added tokens of a tokenizer.json.

    Raises:
        TokenizerError: The file is damaged, or is not from a BERT tokenizer.
    """
    with folder.named_damage(path):
        content = folder.read_json(path)
        model, normalizer = content.get("model") or {}, content.get("normalizer") or {}
        if (
            model.get("type") != _MODEL
            or model.get("continuing_subword_prefix") != _CONTINUATION
            or normalizer.get("type") != "BertNormalizer"
        ):
            raise TokenizerError(
                f"{path}: the file has a {model.get('type', 'missing')} model with the normalizer "
                f"{normalizer.get('type', 'none')}. Expected a {_MODEL} model that marks continuations with "
                f"{_CONTINUATION}, and BertNormalizer, as BERT's tokenizers have them."
            )
        rules = {
            "do_lower_case": normalizer["lowercase"],
            "strip_accents": normalizer["strip_accents"],
            "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        }
        tokens = folder.listed_tokens(content)
        special = [token for token in tokens.special if token not in ROLES.values()]
        return dict(model["vocab"]), rules, {"added_tokens": tokens.added, "extra_special_tokens": special}


def _in_order(vocabulary: dict[str, int], *, source: str | Path) -> tuple[str, ...]:
    """Return the pieces in the order of their ids; raise TokenizerError if an id has no piece."""
    with folder.named_damage(source):
        pieces = tuple(sorted(vocabulary, key=vocabulary.__getitem__))
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise TokenizerError(
            f"{source}: the ids of its {len(pieces)} pieces are not 0 to {len(pieces) - 1}, so some have no "
            f"piece. Put the {folder.WORD_LIST_FILE} that the file was made from into the folder."
        )
    return pieces
