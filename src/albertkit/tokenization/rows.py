"""Assemble a batch from sequences of ids: truncate, make windows, add special tokens and pad."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from albertkit.errors import TokenizerError, short
from albertkit.tokenization.encoding import BatchEncoding, Encoding, Sequence, Window
from albertkit.tokenization.options import Fit, Options, Side, Strategy
from albertkit.tokenization.special_tokens import SpecialTokens


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector: calls create no cycles, but it visits all ids."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def assemble(
    examples: list[list[Sequence]],
    options: Options,
    *,
    fit: Fit,
    special: SpecialTokens,
    truncation_side: Side,
    padding_side: Side,
    batched: bool,
    to_tokens: Callable[[list[int]], list[str]],
) -> tuple[BatchEncoding, int]:
    """Return the batch for a list of examples (each one or two sequences), and the length of its longest row.

    Raises:
        TokenizerError: An example cannot fit into `max_length`, or tensors need rows of equal length.
    """
    marks = special.marks() if options.add_special_tokens else None
    rows: list[Encoding] = []
    samples: list[int] = []
    for sample, sequences in enumerate(examples):
        row, *overflowing = _rows(sequences, options, fit, marks, truncation_side, to_tokens)
        rows.append(row)
        if overflowing:
            row.overflowing = overflowing
            if options.return_overflowing_tokens:
                rows.extend(overflowing)
        samples.extend([sample] * (len(rows) - len(samples)))
    longest = max(map(len, rows), default=0)
    if fit.padding != "do_not_pad":
        width, padding_id = _width(longest, fit, options.pad_to_multiple_of), special.id_of("pad_token")
        for row in rows:
            _pad(row, width, padding_side, padding_id)
    data = _columns(rows, samples, options)
    if not batched and options.return_tensors is None and not options.return_overflowing_tokens:
        # The length of one text stays a list of one, as in `transformers`.
        data = {name: column if name == "length" else column[0] for name, column in data.items()}
    return BatchEncoding(data, rows, tensor_type=options.return_tensors), longest


def pad_rows(
    encoded: Any, options: Options, *, fit: Fit, side: Side, special: SpecialTokens
) -> BatchEncoding:
    """Pad rows that are already encoded, and add their attention mask.

    Raises:
        TokenizerError: The rows have no `input_ids`, or are not mappings with the same names.
    """
    if not hasattr(encoded, "keys"):
        try:
            names = list(encoded[0]) if len(encoded) else []
            encoded = {name: [row[name] for row in encoded] for name in names}
        except (TypeError, KeyError) as error:
            raise TokenizerError(
                f"received {short(encoded)} to pad. Expected a mapping, or mappings with the same names."
            ) from error
    columns = {name: _as_lists(encoded[name]) for name in encoded}
    if "input_ids" not in columns:
        raise TokenizerError(f"received {sorted(columns)} to pad. Expected input_ids among them.")
    single = not columns["input_ids"] or not isinstance(columns["input_ids"][0], list)
    if single:
        columns = {name: [column] for name, column in columns.items()}
    lengths = [len(row) for row in columns["input_ids"]]
    if options.return_attention_mask is not False:
        columns.setdefault("attention_mask", [[1] * length for length in lengths])
    if fit.padding != "do_not_pad":
        width = _width(max(lengths), fit, options.pad_to_multiple_of)
        values = {"special_tokens_mask": 1, "token_type_ids": 0, "attention_mask": 0}
        for name, value in {"input_ids": special.id_of("pad_token"), **values}.items():
            if name in columns:
                fills = [[value] * (width - len(row)) for row in columns[name]]
                columns[name] = [
                    [*row, *fill] if side == "right" else [*fill, *row]
                    for row, fill in zip(columns[name], fills, strict=True)
                ]
    return BatchEncoding({name: column[0] for name, column in columns.items()} if single else columns)


def tensor_type_of(encoded: Any) -> str | None:
    """Return "pt" or "np" if the ids of the first row are a tensor or an array, otherwise None."""
    rows = encoded["input_ids"] if hasattr(encoded, "keys") else [row["input_ids"] for row in encoded[:1]]
    package = type(rows[0]).__module__.partition(".")[0] if len(rows) else ""
    return {"torch": "pt", "numpy": "np"}.get(package)


def _rows(
    sequences: list[Sequence],
    options: Options,
    fit: Fit,
    marks: tuple[int, int] | None,
    side: Side,
    to_tokens: Callable[[list[int]], list[str]],
) -> list[Encoding]:
    """Return the row of an example, followed by its other windows."""
    around = 0 if marks is None else 1 + len(sequences)
    room, truncates = fit.max_length - around, fit.truncation != "do_not_truncate"
    if truncates and (room < 0 or (room == 0 and options.return_overflowing_tokens)):
        raise TokenizerError(
            f"max_length={fit.max_length} leaves no room for text, because a row has {around} special tokens"
        )
    if truncates and room == 0 and (len(sequences) == 1 or fit.truncation == "longest_first"):
        window = Window(range(0), range(0) if len(sequences) == 2 else None)
        return [Encoding(_ids(sequences, window, marks), window, marks is not None, sequences, to_tokens)]
    fitting = windows(
        len(sequences[0].ids),
        len(sequences[1].ids) if len(sequences) == 2 else None,
        room=room,
        strategy=fit.truncation,
        stride=options.stride,
        side=side,
    )
    return [
        Encoding(_ids(sequences, window, marks), window, marks is not None, sequences, to_tokens)
        for window in fitting
    ]


def _ids(sequences: list[Sequence], window: Window, marks: tuple[int, int] | None) -> list[int]:
    start, end = ([], []) if marks is None else ([marks[0]], [marks[1]])
    ids = [*start, *_within(sequences[0].ids, window.first), *end]
    if window.second is not None:
        ids += [*_within(sequences[1].ids, window.second), *end]
    return ids


def _within(ids: list[int], window: range) -> list[int]:
    # Most windows contain the whole text and need no copy.
    return ids if len(window) == len(ids) else ids[window.start : window.stop]


def _width(longest: int, fit: Fit, multiple_of: int | None) -> int:
    """Return the length to which all rows are padded."""
    width = longest if fit.padding == "longest" else fit.max_length
    return width if not multiple_of else -(-width // multiple_of) * multiple_of


def _pad(row: Encoding, width: int, side: Side, padding_id: int) -> None:
    missing = width - len(row)
    if missing > 0:
        fill = [padding_id] * missing
        if side == "right":
            row.ids, row.padding_right = [*row.ids, *fill], missing
        else:
            row.ids, row.padding_left = [*fill, *row.ids], missing


def _columns(rows: list[Encoding], samples: list[int], options: Options) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"input_ids": [row.ids for row in rows]}
    if options.return_token_type_ids is not False:
        columns["token_type_ids"] = [row.type_ids for row in rows]
    if options.return_attention_mask is not False:
        columns["attention_mask"] = [row.attention_mask for row in rows]
    if options.return_special_tokens_mask:
        columns["special_tokens_mask"] = [row.special_tokens_mask for row in rows]
    if options.return_offsets_mapping:
        columns["offset_mapping"] = [row.offsets for row in rows]
    if options.return_length:
        columns["length"] = [len(row) for row in rows]
    if options.return_overflowing_tokens:
        columns["overflow_to_sample_mapping"] = samples
    return columns


def _as_lists(values: Any) -> list[Any]:
    """Return a column, whose rows may be lists, arrays or tensors, as new lists of numbers."""
    values = values.tolist() if hasattr(values, "tolist") else values
    rows = [value.tolist() if hasattr(value, "tolist") else value for value in values]
    return [list(row) if isinstance(row, (list, tuple)) else row for row in rows]


def windows(
    first: int,
    second: int | None,
    *,
    room: int | None,
    strategy: Strategy,
    stride: int = 0,
    side: Side = "right",
) -> list[Window]:
    """Return the windows over a text or a pair that fit into `room` tokens; the first is the row itself.

    The other windows cover the truncated tokens. Each repeats `stride` tokens of the previous window. If both
    texts of a pair are truncated, the result contains every combination of their windows, in the order of
    `transformers`: combinations with the first window of the first text come last.

    Args:
        first: Number of tokens of the first text.
        second: Number of tokens of the second text, or None.
        room: Maximum number of tokens without special tokens; None for no limit.
        strategy: The text that is truncated.
        stride: Number of tokens that consecutive windows share.
        side: The side from which tokens are removed.

    Raises:
        TokenizerError: The strategy cannot make the pair fit, or the stride leaves no room for new tokens.
    """
    everything = Window(range(first), None if second is None else range(second))
    if strategy == "do_not_truncate" or room is None or first + (second or 0) <= room:
        return [everything]
    if strategy == "longest_first":
        if second is None:
            return [Window(part) for part in _slide(first, room, stride, side)]
        room_first, room_second = _share(first, second, room)
        row, *others = _slide(first, room_first, stride, side)
        seconds = list(_slide(second, room_second, stride, side))
        later = [Window(part, second_part) for part in others for second_part in seconds]
        return [Window(row, seconds[0]), *later, *(Window(row, second_part) for second_part in seconds[1:])]
    if strategy == "only_first":
        cut, kept = first, second or 0
    else:
        if second is None:
            raise TokenizerError(
                "truncation='only_second' needs a second text: pass text_pair, or use 'only_first'"
            )
        cut, kept = second, first
    if room <= kept:
        raise TokenizerError(
            f"truncation={strategy!r} cannot fit {kept} + {cut} tokens into {room}: the text that is not "
            f"truncated has {kept}. Raise max_length or use truncation='longest_first'."
        )
    ranges = _slide(cut, room - kept, stride, side)
    if strategy == "only_first":
        return [Window(part, everything.second) for part in ranges]
    return [Window(everything.first, part) for part in ranges]


def _share(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of each text to keep: all of the shorter text if it fits into half the room."""
    short_room = min(first, second, room // 2)
    long_room = room - short_room
    return (short_room, long_room) if first <= second else (long_room, short_room)


def _slide(length: int, size: int, stride: int, side: Side) -> Iterator[range]:
    """Yield ranges of at most `size` that cover `length`; consecutive ranges share `stride` positions."""
    if length <= size:
        yield range(length)
        return
    if size == 0:
        raise TokenizerError(
            "max_length leaves no room for one of the texts after the special tokens and the other text. "
            "Increase max_length."
        )
    if stride >= size:
        raise TokenizerError(
            f"stride={stride} is too large: after the special tokens and the other text, a window has room "
            f"for {size} tokens of this text. Decrease stride or increase max_length."
        )
    for step in range(0, length, size - stride):
        stop = min(step + size, length)
        yield range(step, stop) if side == "right" else range(length - stop, length - step)
        if stop == length:
            return


def truncate(
    ids: list[int], pair_ids: list[int] | None, *, room: int, strategy: Strategy, stride: int, side: Side
) -> tuple[list[int], list[int] | None, list[int]]:
    """Return both texts truncated to `room` tokens, and the removed tokens, with `stride` before them.

    Raises:
        TokenizerError: `room` is negative, or the strategy cannot make the texts fit.
    """
    if room < 0:
        length = len(ids) + len(pair_ids or ())
        raise TokenizerError(
            f"cannot remove {length - room} tokens from {length} tokens. Expected at most {length}."
        )
    lengths = len(ids), None if pair_ids is None else len(pair_ids)
    (first, second), *_ = windows(*lengths, room=room, strategy=strategy, side=side)
    removed = _removed(ids, first, stride, side)
    if pair_ids is None or second is None:
        return ids[first.start : first.stop], pair_ids, removed
    removed += _removed(pair_ids, second, stride, side)
    return ids[first.start : first.stop], pair_ids[second.start : second.stop], removed


def _removed(ids: list[int], window: range, stride: int, side: Side) -> list[int]:
    if len(window) == len(ids):
        return []
    return ids[max(0, window.stop - stride) :] if side == "right" else ids[: window.start + stride]
