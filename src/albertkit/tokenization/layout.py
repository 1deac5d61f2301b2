"""How tokens become the rows that a model reads: truncation, windows, special tokens, padding.

    single   [CLS] A [SEP]              segments 0
    pair     [CLS] A [SEP] B [SEP]      segments 0 up to the first [SEP], then 1

A row is described by its `Layout`: which tokens of which sequence stand in it, between what. All lists of a
row (segments, masks, offsets ...) follow from that.
"""

from collections.abc import Iterator
from typing import NamedTuple

from albertkit.errors import TokenizerError
from albertkit.tokenization.options import Side, Strategy


class Run(NamedTuple):
    """Neighbouring tokens of one row that come from the same place."""

    length: int
    sequence: int | None = None  # 0 or 1; None for special tokens of the layout and for padding
    start: int = 0  # position of the first token in its sequence


class Window(NamedTuple):
    """The tokens of each sequence that go into one row."""

    first: range
    second: range | None = None


class Layout(NamedTuple):
    """What stands in one row."""

    window: Window
    special_tokens: bool
    padding_left: int = 0
    padding_right: int = 0

    def segments(self) -> list[int]:
        """Return 0 for each token, 1 for those of the second text and its [SEP]."""
        second = self.window.second
        if second is None:
            return [0] * (self.padding_left + self._length() + self.padding_right)
        ones = len(second) + self.special_tokens
        zeros = self.padding_left + self._length() - ones
        return [0] * zeros + [1] * ones + [0] * self.padding_right

    def attention_mask(self) -> list[int]:
        """Return 1 for each token, 0 for padding."""
        ones = [1] * self._length()
        if not self.padding_left and not self.padding_right:  # most rows of a batch that is not padded yet
            return ones
        return [0] * self.padding_left + ones + [0] * self.padding_right

    def _length(self) -> int:
        first, second = self.window
        if second is None:
            return len(first) + 2 * self.special_tokens
        return len(first) + len(second) + 3 * self.special_tokens

    def runs(self) -> tuple[Run, ...]:
        """Return the row's runs in order."""
        first, second = self.window
        around = Run(int(self.special_tokens))
        texts = (around, Run(len(first), 0, first.start), around)
        if second is not None:
            texts += (Run(len(second), 1, second.start), around)
        return (Run(self.padding_left), *texts, Run(self.padding_right))


def windows(
    first: int,
    second: int | None,
    *,
    room: int | None,
    strategy: Strategy,
    stride: int = 0,
    side: Side = "right",
) -> list[Window]:
    """Return the windows over sequences of these lengths that fit into `room` tokens; the first is the row.

    The others are what truncation cut off, each `stride` tokens into the one before. Where both sequences
    of a pair are cut, every window of the one meets every window of the other (in the order that
    `transformers` has them: those with the first window of the first sequence come last).

    Raises TokenizerError where the strategy cannot make the pair fit, or the stride leaves no progress.
    """
    whole = Window(range(first), None if second is None else range(second))
    if strategy == "do_not_truncate" or room is None or first + (second or 0) <= room:
        return [whole]
    if strategy == "longest_first":
        if second is None:
            return [Window(one) for one in _slide(first, room, stride, side)]
        room_first, room_second = _share(first, second, room)
        row, *others = _slide(first, room_first, stride, side)
        seconds = list(_slide(second, room_second, stride, side))
        later = [Window(one, two) for one in others for two in seconds]
        return [Window(row, seconds[0]), *later, *(Window(row, two) for two in seconds[1:])]
    if strategy == "only_first":
        cut, kept = first, second or 0
    else:
        if second is None:
            raise TokenizerError(
                "truncation='only_second' needs a second text; give text_pair, or 'only_first'"
            )
        cut, kept = second, first
    if room <= kept:
        raise TokenizerError(
            f"truncation={strategy!r} cannot fit {kept} + {cut} tokens into {room}: the text that stays "
            f"whole has {kept}. Raise max_length or use truncation='longest_first'"
        )
    ranges = _slide(cut, room - kept, stride, side)
    if strategy == "only_first":
        return [Window(one, whole.second) for one in ranges]
    return [Window(whole.first, two) for two in ranges]


def _share(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of each sequence stay: the shorter one whole where it takes at most half."""
    short_room = min(first, second, room // 2)
    long_room = room - short_room
    return (short_room, long_room) if first <= second else (long_room, short_room)


def _slide(length: int, size: int, stride: int, side: Side) -> Iterator[range]:
    """Yield ranges of at most `size` that cover `length`, each reaching `stride` into the one before."""
    if length <= size:
        yield range(length)
        return
    if size == 0:
        raise TokenizerError(
            "max_length leaves no room for any token of one of the texts beside special tokens and the other "
            "text. Raise max_length"
        )
    if stride >= size:
        raise TokenizerError(
            f"stride={stride} leaves no progress: a window holds {size} tokens of this text beside special "
            f"tokens and the other text. Lower stride or raise max_length"
        )
    for step in range(0, length, size - stride):
        stop = min(step + size, length)
        yield range(step, stop) if side == "right" else range(length - stop, length - step)
        if stop == length:
            return


def padded_length(longest: int, *, multiple_of: int | None) -> int:
    """Return the length that rows are padded to."""
    return longest if not multiple_of else -(-longest // multiple_of) * multiple_of
