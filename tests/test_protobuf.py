"""Tests of protocol buffers: written messages can be read, and errors have a position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albertkit.protobuf import MalformedError, fixed32, message, number, read_fields, read_varint, varint

pytestmark = pytest.mark.light

fields = st.tuples(st.integers(1, 1000), st.one_of(st.integers(0, 2**64 - 1), st.binary(max_size=300)))


@given(st.lists(fields, max_size=5))
def test_written_fields_can_be_read(written: list[tuple[int, int | bytes]]) -> None:
    content = b"".join(
        number(field, value) if isinstance(value, int) else message(field, value) for field, value in written
    )
    positions = []
    for data in (content, memoryview(content)):
        read = list(read_fields(data))
        assert [(field, value) for field, value, _ in read] == written
        positions = [position for _, _, position in read]
    assert positions == sorted(positions)
    assert positions[-1:] in ([], [len(content)])


def test_numbers_of_four_bytes() -> None:
    content = fixed32(6, b"\x01\0\0\x80") + number(1, 7)
    assert list(read_fields(content)) == [(6, 0x80000001, 5), (1, 7, 7)]


@pytest.mark.parametrize(
    ("content", "fault", "place"),
    [
        (b"\x08", "ends within a number", 1),
        (b"\x08\x80", "ends within a number", 2),
        (b"\xff" * 11, "should be a number of at most 10 bytes", 10),
        (b"\x12\x05abc", "should have 5 bytes, and 3 are left", 2),
        (b"\x12" + varint(1 << 60), "should have 1,152,921,504,606,846,976 bytes, and 0 are left", 10),
        (b"\x35abc", "should have 4 bytes, and 3 are left", 1),
        (b"\x08\x01\x0b", "has a field of the unknown wire type 3", 3),
    ],
)
def test_faults_have_a_position(content: bytes, fault: str, place: int) -> None:
    with pytest.raises(MalformedError) as error:
        list(read_fields(content))
    assert (error.value.fault, error.value.place) == (fault, place)


def test_a_number_in_the_middle() -> None:
    assert read_varint(b"\0" + varint(300) + b"\xff", 1) == (300, 3)
