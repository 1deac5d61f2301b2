"""Masked language modeling: from texts with [MASK] to rows, and from scores to the best words.

A text that exceeds the maximum length gets one row per mask: a window of tokens with the mask in the middle
(moved inwards at the ends of the text). Each answer then includes the characters of its window.

Shapes: P masked positions, V vocabulary, K candidates.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from albertkit.engines.engine import Row, by_example
from albertkit.errors import ConfigError, DataError, short
from albertkit.reference import largest_indices, softmax
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.encoding import BatchEncoding, Encoding
from albertkit.tokenization.model_file import WORD_START

Candidates = tuple[list[float], list[int]]
"""The best words for one mask: probabilities and ids, (K,) each, best first."""


@dataclass(frozen=True)
class MaskedText:
    """One text: all its ids, its masks, and the windows in which they are read."""

    input_ids: list[int]
    mask_positions: list[int]
    no_spaces: frozenset[int]
    """Positions of word-start marks without a space in the text, such as of the period in "[MASK].", which is
    split separately."""
    windows: list[tuple[int, int]] | None
    """For a text that exceeds the maximum length: the characters [start, end) that are read for each mask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRow(Row):
    """A row of a text, and the positions of the masks to fill in it."""

    mask_positions: list[int]
    text: MaskedText


class MaskedLM:
    """Masked language modeling for one tokenizer and one maximum length of rows in tokens."""

    def __init__(self, tokenizer: TokenizerBase, *, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length

    def features(self, texts: Sequence[str]) -> list[MaskedRow]:
        """Return the rows of each text, which contain every mask once.

        [MASK] is always parsed. The tokenizer's setting applies only to the other special tokens.
        """
        parse = self.tokenizer.parse_special_tokens or "mask"
        encoded = self.tokenizer(list(texts), parse_special_tokens=parse, verbose=False)
        return [row for number, text in enumerate(texts) for row in self._rows(text, number, encoded)]

    def _rows(self, text: str, number: int, encoded: BatchEncoding) -> Iterator[MaskedRow]:
        ids: list[int] = encoded["input_ids"][number]
        mask, mask_id = self.tokenizer.mask_token, self.tokenizer.mask_token_id
        masks = [position for position, token_id in enumerate(ids) if token_id == mask_id]
        if not masks:
            raise DataError(
                f"there is no {mask} in the text {short(text)}. Write {mask} for the word to predict."
            )
        parts, windows = [(ids, masks)], None
        if len(ids) > self.max_length:
            parts, windows, offsets = [], [], encoded[number].offsets
            for position in masks:
                start, stop = centered_window(position, first=1, last=len(ids) - 1, size=self.max_length - 2)
                parts.append(([ids[0], *ids[start:stop], ids[-1]], [position - start + 1]))
                windows.append((offsets[start][0], offsets[stop - 1][1]))
        masked = MaskedText(ids, masks, self._no_spaces(text, ids, masks, encoded[number]), windows)
        for input_ids, positions in parts:
            yield MaskedRow(
                input_ids=input_ids,
                token_type_ids=[0] * len(input_ids),
                example=number,
                mask_positions=positions,
                text=masked,
            )

    def _no_spaces(self, text: str, ids: list[int], masks: list[int], encoding: Encoding) -> frozenset[int]:
        mark = self.tokenizer.convert_tokens_to_ids(WORD_START)
        has_marks = mark != self.tokenizer.unk_token_id  # of the vocabulary
        before_mark = [mask for mask in masks if has_marks and ids[mask + 1] == mark]
        offsets = encoding.offsets if before_mark else []  # usually not needed, and slow
        return frozenset(mask + 1 for mask in before_mark if not text[offsets[mask][1] :][:1].isspace())

    def target_ids(self, targets: str | Iterable[str]) -> list[int]:
        """Return the ids of the words to score, without duplicates, in the given order.

        A target is a piece as the vocabulary writes it, or a word that is a single piece.
        """
        is_single = isinstance(targets, str) or not isinstance(targets, Iterable)
        ids = [self._target_id(target) for target in ([targets] if is_single else targets)]
        if not ids:
            raise DataError("targets is empty. Expected at least one word, or None to score all words.")
        return list(dict.fromkeys(ids))

    def _target_id(self, target: Any) -> int:
        if not isinstance(target, str):
            raise DataError(f"the target is {short(target)}. Expected a word.")
        tokenizer = self.tokenizer
        pieces = tokenizer.tokenize(target)
        # A piece inside a word ("ing") also counts, although a text that begins with it is split differently.
        for piece in (pieces[0] if len(pieces) == 1 else target, target):
            if (token_id := tokenizer.convert_tokens_to_ids(piece)) != tokenizer.unk_token_id:
                return token_id
        raise DataError(
            f"the target {target!r} is not a single piece of the vocabulary: it is split into "
            f"{' '.join(pieces) or 'nothing'}. Pass a word that is one piece (in the vocabulary, "
            f"{tokenizer.spelling_rule})."
        )

    def candidates(
        self, logits: np.ndarray, *, top_k: int = 5, target_ids: Sequence[int] | None = None
    ) -> list[Candidates]:
        """Return the best words for each masked position.

        Args:
            logits: (P, V), the logits at the masked positions.
            top_k: number of words; if there are fewer targets, all targets.
            target_ids: ids to choose among; the probabilities still refer to all words.
        """
        # A model may have more rows than the tokenizer has pieces; these rows are not words.
        size = min(len(self.tokenizer), logits.shape[-1])
        if top_k > size:
            raise ConfigError(
                f"top_k is {top_k}. Expected a whole number of at most {size}, the size of the vocabulary."
            )
        scores = softmax(logits)[:, :size]  # (P, V)
        ids = np.arange(size) if target_ids is None else np.array(target_ids)
        ids = ids[largest_indices(scores[:, ids], top_k)]  # (P, K)
        return list(zip(np.take_along_axis(scores, ids, axis=1).tolist(), ids.tolist(), strict=True))

    def predictions(
        self, texts: Sequence[str], rows: Sequence[MaskedRow], outputs: Sequence[list[Candidates]]
    ) -> list[Any]:
        """Return the answer for each text in the format of `transformers`."""
        predictions = []
        for own in by_example(rows, outputs, count=len(texts)):
            text = own[0][0].text
            candidates = [words for _, of_row in own for words in of_row]
            answers = [self._answers(text, number, words) for number, words in enumerate(candidates)]
            predictions.append(answers[0] if len(answers) == 1 else answers)
        return predictions

    def _answers(self, text: MaskedText, number: int, candidates: Candidates) -> list[dict[str, Any]]:
        window = {} if text.windows is None else {"window": text.windows[number]}
        answers = []
        for score, token_id in zip(*candidates, strict=True):
            ids = text.input_ids.copy()
            ids[text.mask_positions[number]] = token_id
            pad = self.tokenizer.pad_token_id
            ids = [token for place, token in enumerate(ids) if place not in text.no_spaces and token != pad]
            answers.append(
                {
                    "score": score,
                    "token": token_id,
                    "token_str": self.tokenizer.decode([token_id]),
                    "sequence": self.tokenizer.decode(ids, skip_special_tokens=len(text.mask_positions) == 1),
                    **window,
                }
            )
        return answers


def centered_window(position: int, *, first: int, last: int, size: int) -> tuple[int, int]:
    """Return [start, stop): `size` tokens of [first, last), with `position` in the middle if possible."""
    start = max(first, min(position - size // 2, last - size))
    return start, min(start + size, last)
