"""ALBERT's subword model: SentencePiece with the digit-comma rule of the original ALBERT.

The vocabulary has pieces such as `▁1990,` that the original tokenizer never produces: it encodes the digits
of such a piece again and makes the comma a separate piece.
"""

from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from albertkit.cores import usable_cores
from albertkit.tokenization.model_file import (
    UNIGRAM,
    WORD_START,
    ends_in_digit_and_comma,
    load_processor,
    read_model,
    read_vocabulary_file,
)
from albertkit.tokenization.normalization import Normalization, align, not_unicode
from albertkit.tokenization.special_tokens import SpecialTokens
from albertkit.tokenization.tokenizer_json import read_unigram_json, unigram_json

# Decoding writes no space after an opening bracket or before closing punctuation.
_CLOSING = (".", ",", ";", ":", "!", "?", ")", "]", "}", "'", "%")
_OPENING = ("(", "[", "{")

# For fewer texts, starting threads takes longer than they save.
_TEXTS_WORTH_THREADS = 16
_TEXTS_OF_A_PART = 512


class UnigramModel:
    """A SentencePiece vocabulary.

    Args:
        model: The path of a SentencePiece model, or the content of the file.
        normalization: The normalization rules that are applied before SentencePiece.
        is_converted: Whether the model was made from a tokenizer.json, so that it is not saved.
    """

    spelling_rule = f"{WORD_START} marks the beginning of a word"

    def __init__(
        self, model: str | Path | bytes, normalization: Normalization, is_converted: bool = False
    ) -> None:
        self.normalization = normalization
        self.content = model if isinstance(model, bytes) else read_vocabulary_file(model)
        self._is_converted = is_converted
        self._json: tuple[str, bytes] | None = None
        source = "the SentencePiece model" if isinstance(model, bytes) else model
        self.processor = processor = load_processor(self.content, source=source)
        self.size: int = processor.get_piece_size()
        # The result of the digit-comma rule depends only on the piece, so this table contains all cases.
        self._split_ids = {
            piece_id: processor.piece_to_id(self._split(piece))
            for piece_id, piece in enumerate(processor.id_to_piece(list(range(self.size))))
            if ends_in_digit_and_comma(piece)
        }
        # An unknown piece is a run of unknown characters. It can end in a comma only if the comma is not in
        # the vocabulary. Then the text of the piece decides, not its id.
        unknown_id = processor.unk_id()
        self._undecided_id = unknown_id if processor.piece_to_id(",") == unknown_id else -1
        self._affected_ids = frozenset([*self._split_ids, self._undecided_id])
        # With byte fallback, the bytes of a character that is not in the vocabulary are pieces.
        has_bytes = processor.is_byte(processor.piece_to_id("<0x00>"))
        self._bytes = {f"<0x{value:02X}>": value for value in range(256)} if has_bytes else {}

    @classmethod
    def read(
        cls, vocab_file: Any, tokenizer_file: Any, rules: dict[str, Any], settings: Any
    ) -> tuple[Self, dict[str, Any]]:
        """Read one of the files; return its model, and the settings of the tokenizer that it contains.

        `rules` are normalization rules that override those of the file.
        """
        del settings  # only WordPiece needs the unknown token
        if vocab_file is not None:
            return cls(vocab_file, Normalization(**rules)), {}
        model, saved_rules, saved = read_unigram_json(Path(tokenizer_file))
        normalization = Normalization(**saved_rules | rules)
        return cls(model.SerializeToString(), normalization, is_converted=True), saved

    def __reduce__(self) -> tuple[Any, ...]:
        normalization = replace(self.normalization)  # without the cached table, which only some calls need
        return type(self), (self.content, normalization, self._is_converted)

    def train(self, texts: Any, vocab_size: int, special: list[str]) -> bytes:
        """Return the content of a vocabulary file for other texts."""
        # Import here: reading a vocabulary does not need the training modules.
        from albertkit.tokenization.trainer import train_model

        del special  # SentencePiece puts ALBERT's tokens first
        return train_model(texts, vocab_size=vocab_size, normalization=self.normalization)[0]

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of one text. A run of unknown characters is one piece, as written."""
        normalized = self.normalization(text)
        try:
            return self._by_rule(self.processor.encode(normalized, out_type=str))
        except RuntimeError as error:
            raise not_unicode([normalized]) from error

    def _by_rule(self, pieces: list[str]) -> list[str]:
        return [
            part
            for piece in pieces
            for part in (self._split(piece) if ends_in_digit_and_comma(piece) else [piece])
        ]

    def _split(self, piece: str) -> list[str]:
        digits = self.processor.encode(piece[:-1].replace(WORD_START, ""), out_type=str)
        if piece[0] != WORD_START and digits and digits[0][0] == WORD_START:
            # Encoded alone, the digits get a word-start mark that they did not have.
            digits = digits[1:] if len(digits[0]) == 1 else [digits[0][1:], *digits[1:]]
        return [*digits, ","]

    def ids(self, text: str) -> list[int]:
        return self.ids_batch([text])[0]

    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of each text's pieces, computed in `num_threads` threads (default: all cores)."""
        if num_threads is None:
            num_threads = usable_cores() if len(texts) >= _TEXTS_WORTH_THREADS else 1
        try:
            if num_threads == 1 or len(texts) < 2 * _TEXTS_OF_A_PART:
                return self._ids(texts, num_threads)
            # SentencePiece releases Python's lock, so other threads normalize the next part meanwhile.
            parts = [
                texts[start : start + _TEXTS_OF_A_PART] for start in range(0, len(texts), _TEXTS_OF_A_PART)
            ]
            with ThreadPoolExecutor(num_threads) as threads:
                return [row for rows in threads.map(self._ids, parts) for row in rows]
        except (RuntimeError, TypeError) as error:  # RuntimeError for one text, TypeError for several
            raise not_unicode(texts) from error

    def _ids(self, texts: list[str], num_threads: int = 1) -> list[list[int]]:
        normalized = [self.normalization(text) for text in texts]
        if len(texts) < _TEXTS_WORTH_THREADS:
            rows = [self.processor.encode(text) for text in normalized]
        else:
            rows = self.processor.encode(normalized, num_threads=num_threads)
        for index, row in enumerate(rows):
            if self._affected_ids.isdisjoint(row):
                continue
            if self._undecided_id in row:
                pieces = self.processor.encode(normalized[index], out_type=str)
                rows[index] = self.processor.piece_to_id(self._by_rule(pieces))
            else:
                rows[index] = [
                    part for piece_id in row for part in self._split_ids.get(piece_id, (piece_id,))
                ]
        return rows

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece; `start:end` are its characters in the original text."""
        groups: list[list[str]] = []
        for piece in self.pieces(text):
            # The bytes of a character are one group, because each has the span of the character.
            if 0x80 <= self._bytes.get(piece, 0) < 0xC0:  # not the first byte of a character
                groups[-1].append(piece)
            else:
                groups.append([piece])
        normalized, starts, ends = self._align(text)
        spans: list[tuple[str, int, int]] = []
        position, last_end = 0, 0
        for group in groups:
            body = self._without_bytes(group)[0].removeprefix(WORD_START)
            if position < len(normalized) and normalized[position] == WORD_START:
                position += 1
            if body:
                start, last_end = starts[position], ends[position + len(body) - 1]
            else:
                start = last_end = starts[position] if position < len(normalized) else last_end
            spans += [(piece, start, last_end) for piece in group]
            position += len(body)
        return spans

    def _align(self, text: str) -> tuple[str, list[int], list[int]]:
        """Return the text that SentencePiece splits, with the start and end of its characters in `text`."""
        aligned, starts, ends = align(text, self.normalization)
        # Character i of `normalized` begins at `offsets[i]` of the aligned text. The last offset is the
        # position at which SentencePiece stopped reading.
        normalized, offsets = self.processor.normalize(aligned, with_offsets=True)
        new_starts, new_ends = [0] * len(normalized), [0] * len(normalized)
        begin = end = offsets[-1]
        for i in range(len(normalized) - 1, -1, -1):
            if offsets[i] < begin:
                begin, end = offsets[i], begin
            if begin < end:
                new_starts[i], new_ends[i] = starts[begin], ends[end - 1]
            else:  # inserted at the end of the text
                new_starts[i] = new_ends[i] = ends[begin - 1] if begin else 0
        return normalized, new_starts, new_ends

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, or None if it is not in the vocabulary."""
        piece_id = self.processor.piece_to_id(piece)
        known = piece_id != self.processor.unk_id() or self.processor.id_to_piece(piece_id) == piece
        return piece_id if known else None

    def id_to_token(self, piece_id: int) -> str:
        return self.processor.id_to_piece(piece_id)

    def begins_word(self, piece: str) -> bool:
        return piece.startswith(WORD_START)

    def join(self, tokens: list[str], *, apart: Container[str]) -> str:
        """Return the text of the tokens; word-start marks become spaces.

        A space precedes each token in `apart` ([MASK], added tokens), except after an opening bracket. The
        text after such a token was split separately, so it begins with a mark even if the original had no
        space there. Such a mark is dropped before closing punctuation (`[MASK]`, `▁`, `.` becomes `[MASK].`).
        """
        tokens = self._without_bytes(tokens)
        result: list[str] = []
        after_word = False
        for index, token in enumerate(tokens):
            if token in apart:
                after_bracket = index > 0 and tokens[index - 1].endswith(_OPENING)
                result.append(token if after_bracket else WORD_START + token)
            elif not (after_word and token == WORD_START and _closes(tokens[index + 1 : index + 3])):
                result.append(token)
            after_word = token in apart
        return "".join(result).replace(WORD_START, " ").strip()

    def _without_bytes(self, tokens: list[str]) -> list[str]:
        """Return the tokens with each run of bytes replaced by its text."""
        if self._bytes.keys().isdisjoint(tokens):
            return tokens
        texts: list[str] = []
        for is_bytes, run in groupby(tokens, key=self._bytes.__contains__):
            if is_bytes:
                texts.append(bytes(map(self._bytes.__getitem__, run)).decode(errors="replace"))
            else:
                texts.extend(run)
        return texts

    def vocabulary_file(self) -> bytes | None:
        """Return the content of the spiece.model, or None if the model was made from a tokenizer.json."""
        return None if self._is_converted else self.content

    def tokenizer_json(self, special_tokens: SpecialTokens) -> bytes | None:
        """Return the content of the tokenizer.json, or None for models that are not standard Unigram models.

        The content is cached, because a training run saves the tokenizer with every checkpoint.
        """
        tokens = repr((special_tokens.roles, special_tokens.describe()))
        if self._json is None or self._json[0] != tokens:
            model = read_model(self.content)
            spaces = model.normalizer_spec
            usual_spaces = (
                spaces.add_dummy_prefix and spaces.remove_extra_whitespaces and spaces.escape_whitespaces
            )
            if model.trainer_spec.model_type != UNIGRAM or not usual_spaces or self._bytes:
                return None
            self._json = tokens, unigram_json(model, self.normalization, special_tokens)
        return self._json[1]


def _closes(tokens: list[str]) -> bool:
    """Return whether the first token is a mark that directly follows a word; only two tokens are read.

    A quotation mark does, unless a word follows it. A hyphen does only if a word follows it.
    """
    first, next_token = [*tokens, "", ""][:2]
    if first == '"':
        return not next_token[:1].isalnum()
    if first in ("-", "/"):
        return next_token[:1].isalnum()
    return first.startswith(_CLOSING)
