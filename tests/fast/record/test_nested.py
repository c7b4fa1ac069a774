"""Batches in a record of another are found by offset and key, checked, and signed in place."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record.builder import build_batch
from kstore._fast.record.crc32c import checksum
from kstore._fast.record.nested import combined_checksum, find_nested
from kstore.record import InvalidBatchError, batches, decode

KEY = b"k"


def inner(*values: Any, **fields: Any) -> bytes:
    return build_batch(list(values), timestamp=7, **fields)


def outer(*rows: tuple[bytes | None, bytes | None], **fields: Any) -> bytes:
    return build_batch(list(rows), timestamp=9, base_offset=100, **fields)


@given(st.binary(), st.binary())
def test_checksums_of_parts_are_combined(first: bytes, second: bytes) -> None:
    made = combined_checksum(checksum(first), checksum(second), len(second))
    assert made == checksum(first + second)


def test_a_part_may_have_any_size() -> None:
    """To lie before 2^29 bytes, and again before as many, is to lie before 2^30."""
    for power in range(40):
        once = combined_checksum(0x12345678, 0, 1 << power)
        assert combined_checksum(once, 0, 1 << power) == combined_checksum(
            0x12345678, 0, 2 << power
        )


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@given(values=st.lists(st.binary(max_size=50), min_size=1, max_size=20), place=st.integers(0, 2))
def test_a_batch_is_found_and_signed(codec: int, values: list[bytes], place: int) -> None:
    batch = inner(*values, base_offset=5)
    rows = [(KEY, inner(b"other")) for _ in range(3)]
    rows[place] = KEY, batch
    found = find_nested(outer(*rows, compression=codec), 100 + place, KEY)
    assert found is not None
    assert (found.records, bytes(found)) == (len(values), batch)
    found.sign(77, 12, 3, 9)
    (view,) = batches(bytes(found), verify=True)
    signed = view.base_offset, view.producer_id, view.producer_epoch, view.base_sequence
    assert signed == (77, 12, 3, 9)
    assert [record.value for record in decode(bytes(found))] == values


@pytest.mark.parametrize("codec", [0, 1])
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    offset=st.integers(0, 2**62),
    sequence=st.integers(0, 2**31 - 1),
)
def test_batches_behind_one_another_are_numbered_on(
    codec: int, sizes: list[int], offset: int, sequence: int
) -> None:
    values = [[b"%d.%d" % (n, row) for row in range(size)] for n, size in enumerate(sizes)]
    made = [inner(*rows, base_offset=n) for n, rows in enumerate(values)]
    found = find_nested(outer((KEY, b"".join(made)), compression=codec), 100, KEY)
    assert found is not None
    assert (found.count, found.records) == (len(sizes), sum(sizes))
    assert (found.size_bytes, found.largest_bytes) == (sum(map(len, made)), max(map(len, made)))
    found.sign(offset, 12, 3, sequence)
    for view, rows in zip(batches(bytes(found), verify=True), values, strict=True):
        assert (view.base_offset, view.records_count) == (offset, len(rows))
        signed = view.producer_id, view.producer_epoch, view.base_sequence
        assert signed == (12, 3, sequence)
        offset, sequence = offset + len(rows), (sequence + len(rows)) % 2**31
    assert [record.value for record in decode(bytes(found))] == [v for rows in values for v in rows]


def test_large_batches_are_signed_where_they_lie() -> None:
    data = outer((KEY, inner(b"x" * 100_000) * 2), (KEY, inner(b"y")))
    found = find_nested(data, 100, KEY)
    assert found is not None
    found.sign(1, 2, 3, 4)
    assert bytes(found) in data
    with pytest.raises(InvalidBatchError):  # it has other bytes now than its checksum says
        find_nested(data, 101, KEY)
    assert bytes(find_nested(data, 101, KEY, verify=False) or b"") == inner(b"y")


@pytest.mark.parametrize(
    ("row", "offset", "key"),
    [
        ((KEY, inner(b"x")), 99, KEY),
        ((KEY, inner(b"x")), 101, KEY),
        ((KEY, inner(b"x")), 100, b"kk"),
        ((None, inner(b"x")), 100, KEY),
        ((KEY, None), 100, KEY),
        ((KEY, b""), 100, KEY),
        ((KEY, b"no batch" * 20), 100, KEY),
        ((KEY, inner(b"x") + b"?"), 100, KEY),
        ((KEY, inner(b"x") + inner(b"y")[:-1]), 100, KEY),
        ((KEY, inner(b"x", transactional=True, producer_id=1, base_sequence=0)), 100, KEY),
    ],
)
def test_what_is_no_batch_is_not_found(
    row: tuple[bytes | None, bytes | None], offset: int, key: bytes
) -> None:
    assert find_nested(outer(row), offset, key) is None


@pytest.mark.parametrize("at", [21, 40, 60, 65, -1])
@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_batch_is_no_batch(at: int, place: int) -> None:
    damaged = bytearray(inner(b"some value"))
    damaged[at] ^= 1
    value = [inner(b"another")] * 2
    value[place] = bytes(damaged)
    with pytest.raises(InvalidBatchError):
        find_nested(outer((KEY, b"".join(value))), 100, KEY)


@pytest.mark.parametrize("codec", [0, 1])
@given(st.data())
def test_one_changed_byte_anywhere_behind_the_checksum_is_noticed(
    codec: int, data: st.DataObject
) -> None:
    made = bytearray(outer((b"o", b"other"), (KEY, inner(b"a") + inner(b"b")), compression=codec))
    made[data.draw(st.integers(21, len(made) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidBatchError):
        find_nested(bytes(made), 101, KEY)


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_without_harm(data: bytes) -> None:
    batch = bytearray(outer((KEY, inner(b"x"))))
    batch[61 : 61 + len(data)] = data
    with contextlib.suppress(InvalidBatchError):
        find_nested(bytes(batch), 100, KEY)
