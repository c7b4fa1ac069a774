"""64-bit hashes over an Arrow column: MurmurHash64A of each value, nulls apart, bounds checked."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record.murmur2 import hash64_column

MASK = 2**64 - 1
M = 0xC6A4A7935BD1E995


def murmur64(data: bytes, seed: int) -> int:
    """The slow reference."""
    h = seed ^ (len(data) * M & MASK)
    whole = len(data) - len(data) % 8
    for at in range(0, whole, 8):
        k = int.from_bytes(data[at : at + 8], "little") * M & MASK
        k = (k ^ (k >> 47)) * M & MASK
        h = (h ^ k) * M & MASK
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * M & MASK
    h = (h ^ (h >> 47)) * M & MASK
    return h ^ (h >> 47)


def column(values: list[bytes | None]) -> tuple[bytes, bytes, bytes]:
    """Offsets, data and validity in Arrow's layout."""
    offsets, data = [0], b""
    valid = bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        data += value or b""
        offsets.append(len(data))
        if value is not None:
            valid[row >> 3] |= 1 << (row & 7)
    return array("i", offsets).tobytes(), data, bytes(valid)


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20), st.integers(0, MASK), st.data())
def test_each_value_has_its_hash(
    values: list[bytes | None], seed: int, data: st.DataObject
) -> None:
    offsets, flat, valid = column(values)
    first = data.draw(st.integers(0, len(values)))
    found = array("Q", bytes(hash64_column(offsets, flat, valid, first, len(values) - first, seed)))
    assert list(found) == [
        murmur64(b"", ~seed & MASK) if value is None else murmur64(value, seed)
        for value in values[first:]
    ]


def test_without_validity_nothing_is_null() -> None:
    offsets, flat, _ = column([b"a", b""])
    assert array("Q", bytes(hash64_column(offsets, flat, None, 0, 2, 7))).tolist() == [
        murmur64(b"a", 7), murmur64(b"", 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("offsets", "valid", "first", "count"),
    [
        ([0, 1], None, 0, 2), ([0, 1], None, -1, 1), ([0, 1], None, 1, 1), ([0, 9], None, 0, 1),
        ([0, -1], None, 0, 1), ([3, 1], None, 0, 1), ([0] * 12, b"\xff", 0, 11),
        ([0, 1], None, 0, 2**62), ([0, 1], None, 2**62, 1),
    ],
)  # fmt: skip
def test_buffers_that_do_not_fit_are_refused(
    offsets: list[int], valid: bytes | None, first: int, count: int
) -> None:
    with pytest.raises(ValueError, match=r"fit|lies at|too few"):
        hash64_column(array("i", offsets).tobytes(), b"abc", valid, first, count, 0)
