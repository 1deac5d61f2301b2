"""Texts that the vocabulary does not cover: their tokens are unknown, so a model cannot tell them apart."""

from collections import Counter
from collections.abc import Iterable

from albertkit.engines.engine import Row
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import WORD_START

_MOSTLY = 0.5


class UnknownTokens:
    """Counts the examples of which more than half of the tokens are unknown.

    Special tokens and marks of a word's beginning without a word are not counted as tokens of a text.

    Args:
        tokenizer: made the rows.
    """

    def __init__(self, tokenizer: TokenizerBase) -> None:
        self._unknown = tokenizer.unk_token_id
        special = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id}
        self._ignored = (special | {tokenizer.convert_tokens_to_ids(WORD_START)}) - {self._unknown}
        self.examples = 0
        """All examples so far."""
        self.affected = 0
        """Examples of which more than half of the tokens are unknown."""
        self._affected_tokens = 0
        self._affected_unknown = 0

    def add(self, rows: Iterable[Row], *, count: int) -> None:
        """Count some examples; rows that share the number of an example belong together.

        Args:
            rows: the rows of these examples.
            count: how many examples they are.
        """
        unknown, tokens = Counter[int](), Counter[int]()
        for row in rows:
            if found := row.input_ids.count(self._unknown):
                unknown[row.example] += found
                tokens[row.example] += sum(one not in self._ignored for one in row.input_ids)
        self.examples += count
        for example, found in unknown.items():
            if found > _MOSTLY * tokens[example]:
                self.affected += 1
                self._affected_unknown += found
                self._affected_tokens += tokens[example]

    def note(self) -> str | None:
        """Return the sentence to warn with; None if no example is affected."""
        if not self.affected:
            return None
        share = self._affected_unknown / self._affected_tokens
        return (
            f"{self.affected:,} of {self.examples:,} texts consist mostly of unknown tokens ({share:.0%} of "
            "their tokens): the vocabulary does not cover their script or symbols, so the model cannot tell "
            "them apart"
        )
