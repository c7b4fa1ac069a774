"""Entries that a scan makes from record batches: gaps with their reasons, and digests that depend
on content and offset only.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kstore.pipeline.jobs.scans.entries import (
    BLOCK,
    Hole,
    blocks_of,
    content_hashes,
    decode_chunk,
    placed_hashes,
    times_of,
)
from kstore.record import (
    ControlType,
    EndTransactionMarker,
    InvalidBatchError,
    build_batch,
    control_batch,
)

ABORT = EndTransactionMarker(ControlType.ABORT, 0)


def batch(base: int, values: list[bytes], **options: object) -> bytes:
    """A batch of values at consecutive offsets."""
    return build_batch([(b"k", value) for value in values], base_offset=base, **options)


def digest(data: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """The blocks of a buffer."""
    rows = decode_chunk(data, start, end).rows
    offsets = rows.column("offset").to_numpy()
    return blocks_of(offsets, placed_hashes(content_hashes(rows), offsets))


def test_offsets_without_records_are_holes_with_their_reason() -> None:
    aborted = batch(3, [b"x", b"y"], producer_id=9, producer_epoch=0, base_sequence=0,
                    transactional=True)  # fmt: skip
    data = (
        batch(0, [b"a"])
        + aborted
        + control_batch(ABORT, producer_id=9, producer_epoch=0, timestamp=1, base_offset=5)
        + batch(7, [b"b"])
    )
    chunk = decode_chunk(data, 0, 8, [(9, 3)])
    assert chunk.rows.column("offset").to_pylist() == [0, 7]
    assert chunk.holes == [
        Hole(1, 3, "none"), Hole(3, 5, "aborted"), Hole(5, 6, "abort"), Hole(6, 7, "none"),
    ]  # fmt: skip
    assert (chunk.next_offset, chunk.faults) == (8, [])


def test_records_outside_of_the_range_are_left_out() -> None:
    chunk = decode_chunk(batch(0, [b"a", b"b", b"c", b"d"]), 1, 3)
    assert chunk.rows.column("value").to_pylist() == [b"b", b"c"]
    assert (chunk.holes, chunk.next_offset) == ([], 3)


def test_leader_epochs_and_timestamp_types_come_from_the_batches() -> None:
    data = batch(0, [b"a", b"b"], leader_epoch=3) + batch(2, [b"c"], leader_epoch=5)
    rows = decode_chunk(data, 0, 3).rows
    assert rows.column("leaderEpoch").to_pylist() == [3, 3, 5]


def test_a_falling_leader_epoch_is_a_fault() -> None:
    data = batch(0, [b"a"], leader_epoch=5) + batch(1, [b"b"], leader_epoch=4)
    assert decode_chunk(data, 0, 2).faults == [(1, 2, "epoch")]


def test_a_damaged_batch_is_an_error_or_a_fault() -> None:
    bad = bytearray(batch(1, [b"b" * 20]))
    bad[-3] ^= 1
    data = batch(0, [b"a"]) + bytes(bad) + batch(2, [b"c"])
    with pytest.raises(InvalidBatchError):
        decode_chunk(data, 0, 3)
    chunk = decode_chunk(data, 0, 3, tolerant=True)
    assert chunk.rows.column("offset").to_pylist() == [0, 2]
    assert (chunk.faults, chunk.holes) == ([(1, 2, "corrupt")], [])


def test_a_digest_does_not_depend_on_batching_or_compression() -> None:
    together = batch(0, [b"a", b"b", b"c"], compression=4)
    apart = batch(0, [b"a"]) + batch(1, [b"b", b"c"], leader_epoch=7)
    assert digest(together, 0, 3) == digest(apart, 0, 3)


def test_parts_of_a_block_combine_by_xor() -> None:
    (whole,) = digest(batch(0, [b"a", b"b", b"c"]), 0, 3)
    (first,) = digest(batch(0, [b"a", b"b", b"c"]), 0, 1)
    (rest,) = digest(batch(0, [b"a", b"b", b"c"]), 1, 3)
    assert whole == (0, 3, first[2] ^ rest[2])


@pytest.mark.parametrize(
    "other",
    [
        [(b"k", b"b", 5, [("h", b"1")])],
        [(b"l", b"a", 5, [("h", b"1")])],
        [(None, b"a", 5, [("h", b"1")])],
        [(b"k", b"a", 6, [("h", b"1")])],
        [(b"k", b"a", 5, [("h", b"2")])],
        [(b"k", b"a", 5, [("h", None)])],
        [(b"k", b"a", 5, [])],
        [(b"k", b"a", 5, [("h", b"1"), ("h", b"1")])],
        [(b"ka", b"", 5, [("h", b"1")])],
    ],
)
def test_any_change_of_a_record_changes_its_digest(other: list[tuple[object, ...]]) -> None:
    one = digest(build_batch([(b"k", b"a", 5, [("h", b"1")])]), 0, 1)
    assert digest(build_batch(other), 0, 1) != one  # type: ignore[arg-type]


def test_swapped_records_and_swapped_headers_change_the_digest() -> None:
    assert digest(batch(0, [b"a", b"b"]), 0, 2) != digest(batch(0, [b"b", b"a"]), 0, 2)
    one = build_batch([(b"k", b"v", 1, [("a", b"1"), ("b", b"2")])])
    two = build_batch([(b"k", b"v", 1, [("b", b"2"), ("a", b"1")])])
    assert digest(one, 0, 1) != digest(two, 0, 1)


def test_hashes_of_a_slice_are_those_of_its_rows() -> None:
    values = [(b"k%d" % n, b"v" * n, n, [("h", b"x")] * (n % 3)) for n in range(40)]
    rows = decode_chunk(build_batch(values), 0, 40).rows
    assert list(content_hashes(rows.slice(7, 9))) == list(content_hashes(rows)[7:16])


def test_blocks_end_at_multiples() -> None:
    offsets = np.array([BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
    found = blocks_of(offsets, np.array([1, 2, 3, 4], np.uint64))
    assert found == [(0, 1, 1), (1, 2, 1), (2, 1, 4)]


def test_times_that_no_calendar_has_are_null() -> None:
    times, dates = times_of(pa.array([-1, 0, 1_700_000_000_000, 2**62]), hourly=False)
    assert dates.to_pylist() == ["none", "1970-01-01", "2023-11-14", "none"]
    assert times.cast(pa.int64()).to_pylist() == [None, 0, 1_700_000_000_000_000, None]
    _, hours = times_of(pa.array([1_700_000_000_000]), hourly=True)
    assert hours.to_pylist() == ["2023-11-14-22"]
