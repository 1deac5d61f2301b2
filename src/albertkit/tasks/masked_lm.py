"""Masked language modeling: from texts with [MASK] to rows, and from scores to the best words.

A text that exceeds the maximum length gets one row per mask: a window of tokens with the mask in the middle
(moved inwards at the ends of the text). Each answer then includes the characters of its window.

Shapes: P masked positions, V vocabulary, K candidates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from albertkit.engines.engine import Row
from albertkit.errors import ConfigError, DataError, short
from albertkit.tasks.scores import largest, softmax
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.encoding import BatchEncoding, Encoding
from albertkit.tokenization.model_file import WORD_START


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRow(Row):
    """A row, and the positions of the masks to fill in it."""

    mask_positions: list[int]


@dataclass(frozen=True)
class MaskedText:
    """One text: all its ids, its masks, and rows that contain every mask once."""

    input_ids: list[int]
    mask_positions: list[int]
    rows: list[MaskedRow]
    no_spaces: frozenset[int]
    """Positions of word-start marks without a space in the text, such as of the period in "[MASK].", which is
    split separately."""
    windows: list[tuple[int, int]] | None
    """For a text that exceeds the maximum length: the characters [start, end) of each row."""


class Candidates(NamedTuple):
    """The best words for one mask: probabilities and ids, (K,) each, best first."""

    scores: list[float]
    ids: list[int]


class MaskedLM:
    """Masked language modeling for one tokenizer and one maximum length.

    Args:
        tokenizer: splits texts into pieces, and decodes the answers.
        max_length: maximum length of a row in tokens, including [CLS] and [SEP].
    """

    def __init__(self, tokenizer: TokenizerBase, *, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length

    def features(self, texts: Sequence[str]) -> list[MaskedText]:
        """Return the rows of each text.

        [MASK] is always parsed. The tokenizer's setting applies only to the other special tokens.

        Raises:
            DataError: a text has no mask.
        """
        parse = self.tokenizer.parse_special_tokens or "mask"
        encoded = self.tokenizer(list(texts), parse_special_tokens=parse, verbose=False)
        return [
            self._feature(text, ids, number, encoded)
            for number, (text, ids) in enumerate(zip(texts, encoded["input_ids"], strict=True))
        ]

    def _feature(self, text: str, ids: list[int], number: int, encoded: BatchEncoding) -> MaskedText:
        mask_id = self.tokenizer.mask_token_id
        masks = [position for position, token_id in enumerate(ids) if token_id == mask_id]
        if not masks:
            raise DataError(
                f"there is no {self.tokenizer.mask_token} in the text {short(text)}. "
                f"Write {self.tokenizer.mask_token} in place of the word to predict."
            )
        no_spaces = self._no_spaces(text, ids, masks, encoded[number])
        if len(ids) <= self.max_length:
            return MaskedText(ids, masks, [_row(number, ids, masks)], no_spaces, None)
        offsets = encoded[number].offsets
        rows: list[MaskedRow] = []
        windows: list[tuple[int, int]] = []
        for mask in masks:
            start, stop = centered_window(mask, first=1, last=len(ids) - 1, size=self.max_length - 2)
            rows.append(_row(number, [ids[0], *ids[start:stop], ids[-1]], [mask - start + 1]))
            windows.append((offsets[start][0], offsets[stop - 1][1]))
        return MaskedText(ids, masks, rows, no_spaces, windows)

    def _no_spaces(self, text: str, ids: list[int], masks: list[int], encoding: Encoding) -> frozenset[int]:
        mark = self.tokenizer.convert_tokens_to_ids(WORD_START)
        if mark == self.tokenizer.unk_token_id:
            return frozenset()  # the vocabulary has no such marks
        before_mark = [mask for mask in masks if ids[mask + 1] == mark]
        if not before_mark:
            return frozenset()  # the usual case, which avoids computing offsets
        offsets = encoding.offsets
        return frozenset(mask + 1 for mask in before_mark if not text[offsets[mask][1] :][:1].isspace())

    def target_ids(self, targets: str | Iterable[str]) -> list[int]:
        """Return the ids of the words to score, without duplicates, in the given order.

        A target is a piece as the vocabulary writes it, or a word that is a single piece.

        Raises:
            DataError: a target is not text, or is several pieces or none. A mask stands for one piece, so the
                score would belong to another word.
        """
        is_one = isinstance(targets, str) or not isinstance(targets, Iterable)
        ids = [self._target_id(target) for target in ([targets] if is_one else targets)]
        if not ids:
            raise DataError("targets is empty. Expected at least one word, or None to score all words.")
        return list(dict.fromkeys(ids))

    def _target_id(self, target: Any) -> int:
        if not isinstance(target, str):
            raise DataError(f"the target is {short(target)}. Expected a word.")
        tokenizer = self.tokenizer
        pieces = tokenizer.tokenize(target)
        if len(pieces) == 1 and tokenizer.convert_tokens_to_ids(pieces[0]) != tokenizer.unk_token_id:
            return tokenizer.convert_tokens_to_ids(pieces[0])
        # A piece inside a word ("ing") also counts, although a text that begins with it is split differently.
        if (known := tokenizer.convert_tokens_to_ids(target)) != tokenizer.unk_token_id:
            return known
        raise DataError(
            f"the target {target!r} is not a single piece of the vocabulary: it is split into "
            f"{' '.join(pieces) or 'nothing'}. A mask stands for one piece. Pass a word that is one piece "
            f"(in the vocabulary, {self.tokenizer.spelling_rule})."
        )

    def candidates(
        self, logits: np.ndarray, *, top_k: int = 5, target_ids: Sequence[int] | None = None
    ) -> list[Candidates]:
        """Return the best words for each masked position.

        Args:
            logits: (P, V), the logits at the masked positions.
            top_k: number of words; if there are fewer targets, all targets.
            target_ids: ids to choose among; the probabilities still refer to all words.

        Raises:
            ConfigError: `top_k` is not between 1 and the size of the vocabulary.
        """
        # A model may have more rows than the tokenizer has pieces; these rows are not words.
        size = min(len(self.tokenizer), logits.shape[-1])
        check_top_k(top_k, size=size)
        scores = softmax(logits)[:, :size]  # (P, V)
        ids = np.arange(size) if target_ids is None else np.array(target_ids)
        order = largest(scores[:, ids], top_k)  # (P, K)
        ids = ids[order]
        return list(map(Candidates, np.take_along_axis(scores, ids, axis=1).tolist(), ids.tolist()))

    def predictions(self, text: MaskedText, candidates: Sequence[Candidates]) -> list[Any]:
        """Return the answer for one text in the format of `transformers`.

        Args:
            text: a result of `features`.
            candidates: one per mask, in order.

        Returns:
            For one mask a list of {score, token, token_str, sequence}; for several, a list of such lists.
            With several masks, `sequence` includes special tokens, because the other masks remain in it. If
            the text exceeds the maximum length, each answer has `window`, the characters that were read.
        """
        answers = [
            self._answers(text, number, one, single=len(candidates) == 1)
            for number, one in enumerate(candidates)
        ]
        return answers[0] if len(answers) == 1 else answers

    def _answers(
        self, text: MaskedText, number: int, candidates: Candidates, *, single: bool
    ) -> list[dict[str, Any]]:
        window = {} if text.windows is None else {"window": text.windows[number]}
        answers = []
        for score, token_id in zip(candidates.scores, candidates.ids, strict=True):
            ids = text.input_ids.copy()
            ids[text.mask_positions[number]] = token_id
            ids = [
                one
                for position, one in enumerate(ids)
                if one != self.tokenizer.pad_token_id and position not in text.no_spaces
            ]
            answers.append(
                {
                    "score": score,
                    "token": token_id,
                    "token_str": self.tokenizer.decode([token_id]),
                    "sequence": self.tokenizer.decode(ids, skip_special_tokens=single),
                    **window,
                }
            )
        return answers


def _row(example: int, input_ids: list[int], mask_positions: list[int]) -> MaskedRow:
    segments = [0] * len(input_ids)
    return MaskedRow(
        input_ids=input_ids, token_type_ids=segments, example=example, mask_positions=mask_positions
    )


def check_top_k(top_k: Any, *, size: int) -> None:
    """Raise ConfigError unless `top_k` is a whole number from 1 to the size of the vocabulary."""
    whole = isinstance(top_k, Integral) and not isinstance(top_k, bool)
    if not whole or not 1 <= int(top_k) <= size:
        raise ConfigError(
            f"top_k is {top_k!r}. Expected a whole number from 1 to {size}, the size of the vocabulary."
        )


def centered_window(position: int, *, first: int, last: int, size: int) -> tuple[int, int]:
    """Return [start, stop): `size` tokens of [first, last), with `position` in the middle if possible."""
    start = max(first, min(position - size // 2, last - size))
    return start, min(start + size, last)
