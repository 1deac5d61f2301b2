"""Texts and pairs as rows: never cut without being asked, and what was cut is counted."""

from collections.abc import Sequence
from dataclasses import replace

from albertkit.engines.engine import Row
from albertkit.errors import DataError
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.options import read_strategy
from albertkit.tokenization.special_tokens import Parsing

Text = str | tuple[str, str]  # or a text and a second one


def text_rows(
    tokenizer: TokenizerBase,
    texts: Sequence[Text],
    *,
    max_length: int,
    truncation: bool | str,
    parse_special_tokens: Parsing | None = None,
) -> list[Row]:
    """Return one row for each text, numbered as its example.

    Args:
        tokenizer: cuts texts into pieces.
        texts: texts or pairs.
        max_length: most tokens of a row, special tokens included.
        truncation: cut what is longer: of a pair the longer text (True or "longest_first"), "only_first" or
            "only_second". The row counts the tokens cut. False or "do_not_truncate": it is an error.
        parse_special_tokens: whether `[SEP]` and the like, written in a text, are special tokens, "mask" for
            `[MASK]` alone; None for the tokenizer's setting.

    Raises:
        DataError: a text is longer, and not to be cut, or not by cutting the first of a pair.
        TokenizerError: an unknown truncation, or one of second texts that are not there or too short.
    """
    if not texts:
        return []
    whole = tokenizer(list(texts), parse_special_tokens=parse_special_tokens, verbose=False)
    rows = [
        Row(input_ids=ids, token_type_ids=segments, example=number)
        for number, (ids, segments) in enumerate(
            zip(whole["input_ids"], whole["token_type_ids"], strict=True)
        )
    ]
    long = [number for number, row in enumerate(rows) if len(row.input_ids) > max_length]
    if not long:
        return rows
    strategy = read_strategy(truncation)
    if strategy == "do_not_truncate":
        raise _too_long(texts[long[0]], rows[long[0]], max_length)
    for number in long:
        # [CLS] and [SEP] of the first text, and at least one token of it, must fit beside the second.
        second = sum(rows[number].token_type_ids)
        if strategy == "only_first" and second > max_length - 3:
            raise DataError(
                f"the second text {texts[number][1]!r:.60} has {second} tokens with its [SEP], which leaves "
                f"no room for the first: a row has at most {max_length}. Shorten it"
            )
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


def _too_long(text: Text, row: Row, max_length: int) -> DataError:
    what = f"the text {text!r:.60}" if isinstance(text, str) else f"the pair {text[0]!r:.30}, {text[1]!r:.30}"
    return DataError(
        f"{what} has {len(row.input_ids)} tokens with [CLS] and [SEP], and the model reads at most "
        f"{max_length}: cut it into shorter texts, or let it be cut after the first ones (truncation=True in "
        "Python; --truncate, or --truncation of finetune, evaluate and predict; "
        '"truncate": true in a request)'
    )
