"""Masked language modeling: from texts with [MASK] to rows, and from scores to the best words.

A text that exceeds the maximum length gets one row per mask: a window of tokens with the mask in the middle
(moved inwards at the ends of the text). Each answer then includes the characters of its window.

Shapes: P masked positions, V vocabulary, K candidates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from albertkit.engines.engine import Row, by_example
from albertkit.errors import ConfigError, DataError, short
from albertkit.reference import largest_indices, softmax
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import WORD_START

Candidates = tuple[list[float], list[int]]
"""The best words for one mask: probabilities and ids, (K,) each, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRow(Row):
    """A row with the masks to fill in it, and the text that it is a part of."""

    mask_positions: list[int]
    text_ids: list[int]
    text_masks: list[int]
    """The positions of all masks in the text."""
    no_spaces: set[int]
    """Positions of word-start marks without a space in the text, such as of the period in "[MASK].", which is
    split separately."""
    window: tuple[int, int] | None = None
    """For a text that exceeds the maximum length: the characters [start, end) of the row."""


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
        mask, mask_id = self.tokenizer.mask_token, self.tokenizer.mask_token_id
        mark = self.tokenizer.convert_tokens_to_ids(WORD_START)
        has_marks = mark != self.tokenizer.unk_token_id
        rows: list[MaskedRow] = []
        for number, text in enumerate(texts):
            ids, encoding = encoded["input_ids"][number], encoded[number]
            masks = [position for position, token_id in enumerate(ids) if token_id == mask_id]
            if not masks:
                raise DataError(
                    f"there is no {mask} in the text {short(text)}. Write {mask} for the word to predict."
                )
            before_mark = [position for position in masks if has_marks and ids[position + 1] == mark]
            offsets = encoding.offsets if before_mark else []  # usually not needed, and slow
            no_spaces = {
                position + 1 for position in before_mark if not text[offsets[position][1] :][:1].isspace()
            }
            row = partial(MaskedRow, example=number, text_ids=ids, text_masks=masks, no_spaces=no_spaces)
            if len(ids) <= self.max_length:
                rows.append(row(input_ids=ids, token_type_ids=[0] * len(ids), mask_positions=masks))
                continue
            offsets = encoding.offsets
            for position in masks:
                start, stop = centered_window(position, first=1, last=len(ids) - 1, size=self.max_length - 2)
                rows.append(
                    row(
                        input_ids=[ids[0], *ids[start:stop], ids[-1]],
                        token_type_ids=[0] * (stop - start + 2),
                        mask_positions=[position - start + 1],
                        window=(offsets[start][0], offsets[stop - 1][1]),
                    )
                )
        return rows

    def target_ids(self, targets: str | Iterable[str]) -> list[int]:
        """Return the ids of the words to score, without duplicates, in the given order.

        A target is a piece as the vocabulary writes it, or a word that is a single piece.
        """
        tokenizer, ids = self.tokenizer, list[int]()
        is_single = isinstance(targets, str) or not isinstance(targets, Iterable)
        for target in [targets] if is_single else targets:
            if not isinstance(target, str):
                raise DataError(f"the target is {short(target)}. Expected a word.")
            pieces = tokenizer.tokenize(target)
            # A piece inside a word ("ing") also counts, although a text that begins with it is split
            # differently.
            written = (pieces[0] if len(pieces) == 1 else target, target)
            known = [*map(tokenizer.convert_tokens_to_ids, written)]
            target_id = next((each for each in known if each != tokenizer.unk_token_id), None)
            if target_id is None:
                raise DataError(
                    f"the target {target!r} is not a single piece of the vocabulary: it is split into "
                    f"{' '.join(pieces) or 'nothing'}. Pass a word that is one piece (in the vocabulary, "
                    f"{tokenizer.spelling_rule})."
                )
            ids.append(target_id)
        if not ids:
            raise DataError("targets is empty. Expected at least one word, or None to score all words.")
        return list(dict.fromkeys(ids))

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
        predictions: list[Any] = []
        for own in by_example(rows, outputs, count=len(texts)):
            words_of_masks = [(row, words) for row, of_row in own for words in of_row]
            answers = [
                [self._answer(row, row.text_masks[number], *word) for word in zip(*words, strict=True)]
                for number, (row, words) in enumerate(words_of_masks)
            ]
            predictions.append(answers[0] if len(answers) == 1 else answers)
        return predictions

    def _answer(self, row: MaskedRow, mask: int, score: float, token_id: int) -> dict[str, Any]:
        decode, pad_id = self.tokenizer.decode, self.tokenizer.pad_token_id
        ids = [*row.text_ids[:mask], token_id, *row.text_ids[mask + 1 :]]
        ids = [each for position, each in enumerate(ids) if position not in row.no_spaces and each != pad_id]
        answer = {"score": score, "token": token_id, "token_str": decode([token_id])}
        answer["sequence"] = decode(ids, skip_special_tokens=len(row.text_masks) == 1)
        return answer if row.window is None else answer | {"window": row.window}


def centered_window(position: int, *, first: int, last: int, size: int) -> tuple[int, int]:
    """Return [start, stop): `size` tokens of [first, last), with `position` in the middle if possible."""
    start = max(first, min(position - size // 2, last - size))
    return start, min(start + size, last)
