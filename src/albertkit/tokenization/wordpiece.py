"""The tokenizer of checkpoints with a `vocab.txt`: BERT's tokenizer, which Chinese ALBERT models use.

The library `tokenizers` cleans a text, lower-cases it and strips accents (depending on the settings), and
splits it at spaces, punctuation marks and Chinese characters. Within each word it repeatedly takes the
longest piece in the vocabulary (Devlin et al. 2018, arXiv:1810.04805; Wu et al. 2016, arXiv:1609.08144,
section 4.1).
"""

import json
from collections.abc import Container
from pathlib import Path
from typing import Any, Self, Unpack

from albertkit.errors import DataError, TokenizerError, reading
from albertkit.extras import optional
from albertkit.tokenization import folder
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.folder import TokenizerSettings
from albertkit.tokenization.model_file import read_vocabulary_file
from albertkit.tokenization.normalization import CLEAN_UP, BertNormalization, not_unicode
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, SpecialTokens, token_text
from albertkit.tokenization.tokenizer_json import CONTINUATION, read_wordpiece_json, tokenizer_json

tokenizers: Any = optional("tokenizers")

ROLES = {**DEFAULT_ROLES, "unk_token": "[UNK]", "pad_token": "[PAD]"}
"""The default token of each role in a WordPiece vocabulary."""

_CLEAN_UP = {**CLEAN_UP, " do not": " don't"}


class WordPieceModel:
    """A WordPiece vocabulary; the index of a piece is its id. The methods are those of `UnigramModel`."""

    spelling_rule = f"{CONTINUATION} marks a piece inside a word"

    def __init__(self, pieces: tuple[str, ...], normalization: BertNormalization, unk_token: str) -> None:
        self.normalization = normalization
        self.size = len(pieces)
        self._pieces = pieces
        self._unk_token = unk_token
        # If a piece is listed twice, it has the last of its ids, as in the original BERT.
        self._ids = {piece: piece_id for piece_id, piece in enumerate(pieces)}
        # A longer word becomes [UNK], as in BERT's tokenizers.
        model = tokenizers.models.WordPiece(self._ids, unk_token=unk_token, max_input_chars_per_word=100)
        self.tokenizer = tokenizers.Tokenizer(model)
        self.tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=normalization.tokenize_chinese_chars,
            strip_accents=normalization.strip_accents,
            lowercase=normalization.do_lower_case,
        )
        self.tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

    @classmethod
    def read(
        cls, vocab_file: Any, tokenizer_file: Any, rules: dict[str, Any], settings: Any
    ) -> tuple[Self, dict[str, Any]]:
        pieces, saved_rules, saved = (), {}, {}
        if tokenizer_file is not None:
            pieces, saved_rules, saved = read_wordpiece_json(
                Path(tokenizer_file), ROLES, with_pieces=vocab_file is None
            )
        if vocab_file is not None:
            pieces = parse_word_list(read_vocabulary_file(vocab_file), source=vocab_file)
        unk_token = token_text(settings.get("unk_token") or ROLES["unk_token"])
        if unk_token not in pieces:
            raise ValueError(f"its {len(pieces)} pieces do not contain {unk_token!r}. Pass unk_token=...")
        return cls(pieces, BertNormalization(**saved_rules | rules), unk_token), saved

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._pieces, self.normalization, self._unk_token)

    def train(self, texts: Any, vocab_size: int, special: list[str]) -> bytes:
        from albertkit.options import check_size
        from albertkit.tokenization.trainer import NO_TEXT, lines

        check_size("vocab_size", vocab_size)
        texts = list(lines(texts, str))

        def trained(size: int, first: list[str]) -> dict[str, int]:
            trainer = tokenizers.trainers.WordPieceTrainer(
                vocab_size=size, special_tokens=first, show_progress=False
            )
            tokenizer = tokenizers.Tokenizer.from_str(self.tokenizer.to_str())
            tokenizer.train_from_iterator(texts, trainer)
            return tokenizer.get_vocab()

        # The library numbers the pieces `##a`, `##b`, ... at random and decides ties between merges by these
        # numbers. So a first training finds these pieces, and the second one gets them in a fixed order.
        letters = trained(len(special), special).keys() - {*special}
        pieces = trained(vocab_size, [*special, *sorted(letters)])
        if len(pieces) == len(special):
            raise DataError(NO_TEXT)
        if len(pieces) > vocab_size:
            need = f"the characters and the special tokens alone need {len(pieces)} pieces"
            raise DataError(f"{vocab_size} pieces (vocab_size) are too few: {need}. Use more pieces.")
        return "".join(f"{piece}\n" for piece in sorted(pieces, key=pieces.__getitem__)).encode()

    def pieces(self, text: str) -> list[str]:
        return self._encode(text).tokens

    def ids_batch(self, texts: list[str]) -> list[list[int]]:
        if len(texts) == 1:
            return [self._encode(texts[0]).ids]
        try:
            rows = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)  # without offsets
        except (TypeError, UnicodeError) as error:
            raise not_unicode(texts) from error
        return [row.ids for row in rows]

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        row = self._encode(text)
        return [(piece, *span) for piece, span in zip(row.tokens, row.offsets, strict=True)]

    def _encode(self, text: str) -> Any:
        try:
            return self.tokenizer.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeError) as error:
            raise not_unicode([text]) from error

    def token_to_id(self, piece: str) -> int | None:
        return self._ids.get(piece)

    def id_to_token(self, piece_id: int) -> str:
        return self._pieces[piece_id]

    def begins_word(self, piece: str) -> bool:
        return not piece.startswith(CONTINUATION)

    def join(self, tokens: list[str], *, apart: Container[str]) -> str:  # noqa: ARG002
        """Return the text of the tokens, without spaces before punctuation as in English.

        Every token that does not continue a word is a separate word, so `apart` has no effect.
        """
        text = ""
        for number, token in enumerate(tokens):
            if number:
                token = token[2:] if token.startswith(CONTINUATION) else f" {token}"
            for spaced, joined in _CLEAN_UP.items():
                token = token.replace(spaced, joined)
            text += token
        return text

    def vocabulary_file(self) -> bytes:
        return "".join([f"{piece}\n" for piece in self._pieces]).encode()

    def tokenizer_json(self, special_tokens: SpecialTokens) -> bytes:
        own = json.loads(self.tokenizer.to_str())
        parts = {name: own[name] for name in ("normalizer", "pre_tokenizer", "model")}
        decoder = {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True}
        return tokenizer_json(special_tokens, **parts, decoder=decoder)


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
    model_class = WordPieceModel
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
        rules = {
            "do_lower_case": do_lower_case,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": tokenize_chinese_chars,
        }
        super().__init__(vocab_file, tokenizer_file, rules, settings)


def parse_word_list(content: bytes, *, source: str | Path) -> tuple[str, ...]:
    """Return the pieces of a word list. Each line is a piece, and its line number from 0 is the id."""
    with reading(source, TokenizerError):
        text = content.decode("utf-8-sig")
        # Not splitlines(): some vocabularies contain characters that splitlines() treats as line ends.
        return tuple(text.replace("\r\n", "\n").removesuffix("\n").split("\n"))
