"""The inner loops of compaction: which records survive, and how the batches around them look."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from crcmod.predefined import mkPredefinedCrcFun
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.log.compaction import BatchCleaner
from kstore._fast.log.key_index import index_batches
from kstore._fast.log.offset_map import OffsetMap
from kstore.record import ControlType, InvalidBatchError, batches, build_batch, decode
from tests.record.producer_batches import marker, produced

CRC = mkPredefinedCrcFun("crc-32c")
NOW, RETENTION = 1_000_000, 500
Decide = Callable[[int, int, int], bool]


@dataclass(frozen=True)
class Kept:
    """What is compared of a record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Any, ...]


def nobody(producer_id: int, last_offset: int, control_type: int) -> bool:
    """No transaction was aborted; markers have to stay."""
    return False


def map_of(data: bytes, decide: Decide = nobody) -> OffsetMap:
    """The map of all of ``data``."""
    found = OffsetMap(1 << 20, bytes(16))
    done, full = index_batches(data, found, 0, decide)
    assert (done, full) == (len(data), False)
    return found


def cleaner(offsets: OffsetMap, **changes: Any) -> BatchCleaner:
    arguments: dict[str, Any] = {
        "now_ms": NOW, "delete_retention_ms": RETENTION, "upper_bound_offset": -1,
        "last_records": {}, "decide": nobody,
    }  # fmt: skip
    return BatchCleaner(offsets, **{**arguments, **changes})


def clean(data: bytes, **changes: Any) -> bytes:
    """``data`` compacted with its own map."""
    offsets = map_of(data, changes.get("decide", nobody))
    done, out = cleaner(offsets, **changes).clean(data)
    assert done == len(data)
    return bytes(out)


def records(data: bytes) -> list[Kept]:
    return [Kept(r.offset, r.timestamp, r.key, r.value, r.headers) for r in decode(data)]


def log_of(
    groups: list[list[tuple[bytes | None, bytes | None, int]]], compressions: list[int]
) -> bytes:
    """A batch per group, offsets going on from one to the next."""
    out, offset = b"", 0
    for number, group in enumerate(groups):
        out += build_batch(
            [(k, v, t, (("h", b"x"),) if t % 3 == 0 else ()) for k, v, t in group],
            base_offset=offset, leader_epoch=number // 3,
            compression=compressions[number % len(compressions)],
        )  # fmt: skip
        offset += len(group)
    return out


KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d" * 300])
VALUES = st.sampled_from([None, b"", b"1", b"22" * 50])
GROUP = st.lists(st.tuples(KEYS, VALUES, st.integers(0, 2000)), min_size=1, max_size=6)
COMPRESSIONS = st.lists(st.integers(0, 4), min_size=1, max_size=3)


@given(st.lists(GROUP, min_size=1, max_size=12), COMPRESSIONS)
def test_the_last_record_of_each_key_survives_as_it_was(groups: Any, compressions: Any) -> None:
    data = log_of(groups, compressions)
    before = records(data)
    last: dict[bytes | None, int] = {r.key: r.offset for r in before}
    expected = [r for r in before if last.get(r.key) == r.offset and r.key is not None]
    after = clean(data)
    assert records(after) == expected
    offsets = [r.offset for r in expected]
    source = [b for b in batches(data) if any(b.base_offset <= o <= b.last_offset for o in offsets)]
    for old, new in zip(source, batches(after, verify=True), strict=True):
        same = ("base_offset", "last_offset", "leader_epoch", "compression", "producer_id")
        assert [getattr(old, name) for name in same] == [getattr(new, name) for name in same]


@given(st.lists(GROUP, min_size=1, max_size=12), COMPRESSIONS)
def test_cleaning_twice_changes_nothing_until_the_horizon(groups: Any, compressions: Any) -> None:
    once = clean(log_of(groups, compressions))
    assert clean(once) == once
    later = clean(once, now_ms=NOW + RETENTION - 1)
    assert later == once
    gone = clean(once, now_ms=NOW + RETENTION)
    assert records(gone) == [r for r in records(once) if r.value is not None]


def test_a_tombstone_sets_the_horizon_and_timestamps_stay() -> None:
    data = build_batch([(b"a", b"1", 10), (b"a", None, 20), (b"b", b"2", 15)], base_offset=5)
    (batch,) = batches(clean(data))
    assert batch.delete_horizon_ms == NOW + RETENTION
    assert (batch.base_offset, batch.last_offset, batch.records_count) == (5, 7, 2)
    assert batch.max_timestamp == 20
    assert [(r.offset, r.timestamp) for r in records(clean(data))] == [(6, 20), (7, 15)]


def test_a_batch_that_keeps_all_its_records_keeps_its_bytes() -> None:
    data = build_batch([(b"a", b"1", 10), (b"b", b"2", 11)], base_offset=5)
    assert clean(data) == data


def test_records_beyond_the_map_stay() -> None:
    first = build_batch([(b"a", b"1", 10)], base_offset=0)
    second = build_batch([(b"a", b"2", 10), (None, b"3", 10)], base_offset=1)
    done, out = cleaner(map_of(first)).clean(first + second)
    assert (done, bytes(out)) == (len(first + second), first + second)


def test_the_end_of_the_cleaned_part_stays_as_an_empty_batch() -> None:
    data = log_of([[(b"a", b"1", 10)], [(None, b"x", 10), (None, b"y", 10)]], [1])
    (kept, empty) = batches(clean(data, upper_bound_offset=3), verify=True)
    assert kept.base_offset == 0
    assert (empty.base_offset, empty.last_offset, empty.records_count) == (1, 2, 0)
    assert (empty.compression, empty.base_timestamp, empty.max_timestamp) == (0, -1, 10)


def test_the_last_batch_of_an_active_producer_stays_for_its_sequence() -> None:
    first = build_batch(
        [(b"a", b"1", 10)] * 3, base_offset=0, producer_id=7, producer_epoch=2, base_sequence=40
    )
    data = first + build_batch([(b"a", b"2", 10)], base_offset=3)
    (empty, kept) = batches(clean(data, last_records={7: (2, 2)}))
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (7, 2, 40)
    assert (empty.records_count, empty.last_offset, kept.base_offset) == (0, 2, 3)
    assert [b.base_offset for b in batches(clean(data, last_records={7: (9, 2)}))] == [3]
    assert [b.base_offset for b in batches(clean(data))] == [3]


def test_decisions_are_asked_for_in_order_and_aborted_records_do_not_count() -> None:
    data = (
        build_batch([(b"k", b"good", 10)], base_offset=0)
        + produced((b"k", b"v", 10), producer=9, transactional=True, base_offset=1)
        + marker(ControlType.ABORT, 9, 2, timestamp=10)
    )
    asked = []

    def aborts_nine(producer_id: int, last_offset: int, control_type: int) -> bool:
        asked.append((producer_id, last_offset, control_type))
        return control_type == -2

    found = OffsetMap(4096, bytes(16))
    assert index_batches(data, found, 0, aborts_nine) == (len(data), False)
    assert asked == [(9, 1, -2), (9, 2, 0)]
    assert (found.get(b"k"), found.latest_offset) == (0, 2)
    _, out = cleaner(found, decide=aborts_nine).clean(data)
    assert [b.base_offset for b in batches(out)] == [0, 2]


def test_a_marker_goes_only_after_its_horizon() -> None:
    data = marker(ControlType.COMMIT, 9, 2, timestamp=10)
    found = map_of(data)

    def done(producer_id: int, last_offset: int, control_type: int) -> bool:
        return True

    _, stays = cleaner(found).clean(data)
    assert bytes(stays) == data
    _, horizon = cleaner(found, decide=done).clean(data)
    (batch,) = batches(horizon, verify=True)
    assert (batch.delete_horizon_ms, batch.is_control, batch.max_timestamp) == (
        NOW + RETENTION, True, 10,
    )  # fmt: skip
    _, still = cleaner(found, decide=done, now_ms=NOW + RETENTION - 1).clean(horizon)
    assert bytes(still) == bytes(horizon)
    _, gone = cleaner(found, decide=done, now_ms=NOW + RETENTION).clean(horizon)
    assert gone == b""


def test_a_full_map_says_where_it_stopped() -> None:
    data = b"".join(
        build_batch([(b"%d" % (i + j), b"", 1) for j in range(10)], base_offset=i)
        for i in range(0, 100, 10)
    )
    found = OffsetMap(24 * 40, bytes(16))
    done, full = index_batches(data, found, 0, nobody)
    assert (full, found.latest_offset) == (True, 29)
    assert next(b.base_offset for b in batches(data, position=done)) == 30


def test_damaged_batches_are_refused_with_their_position() -> None:
    good = build_batch([(b"a", b"1", 1)], base_offset=0)
    bad = bytearray(build_batch([(b"a", b"1", 1)], base_offset=1))
    bad[-1] ^= 1
    for call in (
        lambda: map_of(good + bytes(bad)),
        lambda: cleaner(map_of(good)).clean(good + bytes(bad)),
    ):
        with pytest.raises(InvalidBatchError) as caught:
            call()
        assert (caught.value.status, caught.value.position) == ("BAD_CRC", len(good))


def test_a_partial_batch_at_the_end_is_left_for_the_next_call() -> None:
    first, second = (build_batch([(b"a", b"1", 1)], base_offset=i) for i in (0, 1))
    data = first + second[:-5]
    found = OffsetMap(4096, bytes(16))
    assert index_batches(data, found, 0, nobody) == (len(first), False)
    done, out = cleaner(found).clean(data)
    assert (done, bytes(out)) == (len(first), first)


@given(GROUP, st.integers(0, 4), st.data())
def test_mutated_batches_never_escape_their_bytes(group: Any, codec: int, data: Any) -> None:
    raw = bytearray(log_of([group], [codec]))
    raw[data.draw(st.integers(57, len(raw) - 1))] = data.draw(st.integers(0, 255))
    # This tests the walk itself, not the CRC before it: correct the CRC.
    raw[17:21] = CRC(bytes(raw[21:])).to_bytes(4, "big")
    found = OffsetMap(1 << 16, bytes(16))
    with suppress(InvalidBatchError):
        index_batches(raw, found, 0, nobody)
        cleaner(found).clean(raw)
