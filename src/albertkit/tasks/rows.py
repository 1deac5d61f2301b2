"""Convert texts to rows of token ids. Truncation happens only on request, and is counted."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from albertkit.engines.engine import Row
from albertkit.errors import AlbertKitError, DataError, TooLongError, UnknownTokensWarning, short, warn_caller
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.batch import read_choice
from albertkit.tokenization.model_file import WORD_START
from albertkit.tokenization.special_tokens import Parsing

TextOrPair = str | tuple[str, str]  # or a text and a second one


def text_rows(
    tokenizer: TokenizerBase,
    texts: Sequence[TextOrPair],
    *,
    max_length: int,
    truncation: bool | str,
    parse_special_tokens: Parsing | None = None,
) -> list[Row]:
    """Return one row per text, numbered like its example.

    Args:
        tokenizer: splits texts into pieces.
        texts: texts or pairs.
        max_length: maximum length of a row in tokens, including special tokens.
        truncation: which text to truncate: for a pair the longer one (True or "longest_first"), "only_first"
            or "only_second". The row counts the removed tokens. False or "do_not_truncate" raises an error.
        parse_special_tokens: whether `[SEP]` and other special tokens in a text are parsed, "mask" for only
            `[MASK]`; None for the tokenizer's setting.
    """
    if not texts:
        return []
    encoded = tokenizer(list(texts), parse_special_tokens=parse_special_tokens, verbose=False)
    columns = zip(encoded["input_ids"], encoded["token_type_ids"], strict=True)
    rows = [Row(input_ids=ids, token_type_ids=kinds, example=n) for n, (ids, kinds) in enumerate(columns)]
    long = [number for number, row in enumerate(rows) if len(row.input_ids) > max_length]
    if not long:
        return rows
    strategy = read_choice("truncation", truncation)
    if strategy == "do_not_truncate":
        text, count = texts[long[0]], len(rows[long[0]].input_ids)
        what = f"text {short(text)}" if isinstance(text, str) else f"pair {', '.join(map(short, text))}"
        reason = f"the {what} has {count} tokens with [CLS] and [SEP], but the maximum is {max_length}."
        raise TooLongError(reason, count, max_length)
    for number in long if strategy == "only_first" else ():
        # [CLS] and [SEP] of the first text, and at least one of its tokens, must fit beside the second text.
        if (second := sum(rows[number].token_type_ids)) > max_length - 3:
            what = f"the second text {short(texts[number][1])} has {second} tokens with its [SEP]"
            raise DataError(f"{what}, which leaves no room for the first: the maximum is {max_length}.")
    cut = tokenizer(
        [texts[number] for number in long],
        truncation=strategy,
        max_length=max_length,
        parse_special_tokens=parse_special_tokens,
    )
    for number, ids, segments in zip(long, cut["input_ids"], cut["token_type_ids"], strict=True):
        left_out = len(rows[number].input_ids) - len(ids)
        rows[number] = replace(rows[number], input_ids=ids, token_type_ids=segments, cut=left_out)
    return rows


def failures(make: Callable[..., Any], items: Sequence[Any], first: int = 0) -> dict[int, AlbertKitError]:
    """Return the error that `make([item])` raises for each item, by index; the first item has `first`."""
    errors: dict[int, AlbertKitError] = {}
    for number, item in enumerate(items, first):
        try:
            make([item])
        except AlbertKitError as error:
            errors[number] = error
    return errors


def tokens_cut(rows: Iterable[Row], *, examples: int) -> list[int]:
    """Return the number of removed tokens of each example: the most of any of its rows."""
    cuts = [0] * examples
    for row in rows:
        cuts[row.example] = max(cuts[row.example], row.cut)
    return cuts


def owned(windows: Sequence[range]) -> list[range]:
    """Return for each window the tokens that it predicts, so that each token belongs to one window.

    A token in the overlap of two windows belongs to the window in which it has more context, as in the
    original's answers to SQuAD ("maximum context").
    """
    # Two neighbors meet in the middle of their overlap. If it has a middle token, the first window gets it.
    middles = [(first.stop + second.start + 1) // 2 for first, second in pairwise(windows)]
    starts = [windows[0].start, *middles]
    stops = [*middles, windows[-1].stop]
    return [range(start, stop) for start, stop in zip(starts, stops, strict=True)]


class UnknownTokens:
    """Counts the examples with more than half of their tokens unknown.

    Special tokens and word-start marks without a word do not count as tokens of a text.
    """

    def __init__(self, tokenizer: TokenizerBase) -> None:
        self._unknown = tokenizer.unk_token_id
        special = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id}
        self._ignored = (special | {tokenizer.convert_tokens_to_ids(WORD_START)}) - {self._unknown}
        self.examples = self.affected = 0
        self._affected_tokens = self._affected_unknown = 0

    def add(self, rows: Iterable[Row], *, count: int) -> None:
        unknown, tokens = Counter[int](), Counter[int]()
        for row in rows:
            if count_unknown := row.input_ids.count(self._unknown):
                unknown[row.example] += count_unknown
                tokens[row.example] += sum(token not in self._ignored for token in row.input_ids)
        self.examples += count
        for example, count_unknown in unknown.items():
            if count_unknown > 0.5 * tokens[example]:
                self.affected += 1
                self._affected_unknown += count_unknown
                self._affected_tokens += tokens[example]

    def has_text(self, row: Row) -> bool:
        return any(token not in self._ignored for token in row.input_ids)

    def note(self) -> str | None:
        if not self.affected:
            return None
        share = self._affected_unknown / self._affected_tokens
        return (
            f"{self.affected:,} of {self.examples:,} texts consist mostly of unknown tokens ({share:.0%} of "
            "their tokens): the vocabulary does not cover their script or symbols"
        )

    def warn(self) -> bool:
        if note := self.note():
            warn_caller(note, UnknownTokensWarning)
        return note is not None
