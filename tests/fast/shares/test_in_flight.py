"""The records in flight of a share-partition, against a model with an entry per offset."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from kstore._fast.shares.batch_headers import count_of, slice_of
from kstore._fast.shares.in_flight import InFlightRecords
from tests.reference.shares.share_partition_model import LogBatch, ShareModel

LIMITS = {"batch_size": 500, "max_in_flight": 2000, "max_deliveries": 5, "deadline": 1000}
TRANSACTIONAL = 0x10
HEADER = struct.Struct(">qiibIhiqqqhii")


def batch(log: LogBatch) -> bytes:
    """A batch without records: what acquiring looks at is its header."""
    attributes = 0 if log.producer_id < 0 else TRANSACTIONAL
    return HEADER.pack(
        log.first, HEADER.size - 12, 0, 2, 0, attributes, log.last - log.first, 0, 0,
        log.producer_id, 0, 0, log.last - log.first + 1,
    )  # fmt: skip


def data(*ranges: tuple[int, int]) -> bytes:
    """Batches of these offsets."""
    return b"".join(batch(LogBatch(first, last)) for first, last in ranges)


def test_new_records_are_acquired_in_ranges_that_end_with_batches() -> None:
    records = InFlightRecords(0)
    rows = records.acquire(
        1, data((0, 9), (10, 19), (20, 29)), 0, max_records=15, **{**LIMITS, "batch_size": 5}
    )
    assert rows == [(0, 9, 1), (10, 19, 1)]
    assert (records.next_fetch_offset(), records.count()) == (20, 20)


def test_a_record_limit_is_kept_inside_a_batch() -> None:
    records = InFlightRecords(0)
    rows = records.acquire(1, data((0, 9)), 0, max_records=3, record_limit=True, **LIMITS)
    assert rows == [(0, 2, 1)]
    assert records.next_fetch_offset() == 3


def test_what_is_accepted_moves_the_start_once_it_is_kept() -> None:
    records = InFlightRecords(0)
    records.acquire(1, data((0, 9)), 0, max_records=100, **LIMITS)
    assert records.acknowledge(1, [(0, 4, b"\1")], 7, max_deliveries=5, deadline=0) == 0
    assert (records.start_offset, records.start_after(7)) == (0, 5)
    assert records.changes(7) == []
    records.commit(7)
    assert records.start_offset == 5


def test_a_hole_before_what_is_accepted_keeps_the_start() -> None:
    records = InFlightRecords(0)
    records.acquire(1, data((0, 9)), 0, max_records=100, **LIMITS)
    assert records.acknowledge(1, [(4, 9, b"\1\1\2\2\3\1")], 7, max_deliveries=5, deadline=0) == 0
    assert records.start_after(7) == 0
    assert records.changes(7) == [(4, 5, 2, 1), (6, 7, 0, 1), (8, 8, 4, 1), (9, 9, 2, 1)]
    assert records.complete_after(7) == 4


def test_nobody_acknowledges_what_another_holds_or_what_is_being_kept() -> None:
    records = InFlightRecords(0)
    records.acquire(1, data((0, 9)), 0, max_records=100, **LIMITS)
    assert records.acknowledge(2, [(0, 0, b"\1")], 7, max_deliveries=5, deadline=0) == 121
    assert records.acknowledge(1, [(3, 3, b"\1")], 7, max_deliveries=5, deadline=0) == 0
    assert records.acknowledge(1, [(0, 4, b"\1")], 8, max_deliveries=5, deadline=0) == 121
    assert records.acknowledge(1, [(9, 10, b"\1")], 8, max_deliveries=5, deadline=0) == 42
    assert records.changes(8) == []


def test_what_could_not_be_kept_is_acquired_as_before() -> None:
    records = InFlightRecords(0)
    records.acquire(1, data((0, 9)), 0, max_records=100, **LIMITS)
    records.acknowledge(1, [(0, 4, b"\1")], 7, max_deliveries=5, deadline=0)
    records.roll_back(7)
    assert records.rows() == [(0, 9, 1, 1, 1, 1000, 0)]


def test_what_could_not_be_kept_after_a_release_is_acquired_as_before() -> None:
    records = InFlightRecords(0)
    records.acquire(1, data((0, 9)), 0, max_records=100, **LIMITS)
    records.release(1, 7, max_deliveries=5)
    records.commit(7)
    records.acquire(1, data((0, 9)), 0, max_records=100, **LIMITS)
    records.acknowledge(1, [(0, 9, b"\1")], 8, max_deliveries=5, deadline=0)
    records.roll_back(8)
    assert records.rows() == [(0, 9, 1, 2, 1, 1000, 0)]


def test_a_lock_that_ends_makes_its_records_available_and_the_last_delivery_archives_them() -> None:
    records = InFlightRecords(0)
    for count in (1, 2):
        assert records.acquire(
            1, data((0, 9)), 0, max_records=100, **{**LIMITS, "max_deliveries": 2}
        ) == [(0, 9, count)]
        assert records.next_deadline() == 1000
        assert records.expire(1000, count, max_deliveries=2)
        records.commit(count)
    assert (records.start_offset, len(records)) == (10, 0)


def test_records_near_the_limit_come_in_halves_and_the_last_time_alone() -> None:
    records = InFlightRecords(0)
    sizes = []
    for token in range(1, 5):
        rows = records.acquire(1, data((0, 9)), 0, max_records=100, **LIMITS)
        sizes.append(rows)
        records.release(1, token, max_deliveries=5)
        records.commit(token)
    assert sizes == [[(0, 9, 1)], [(0, 9, 2)], [(0, 9, 3)], [(0, 4, 4)]]
    assert records.acquire(1, data((0, 9)), 0, max_records=100, **LIMITS) == [(0, 0, 5)]
    assert records.acquire(2, data((0, 9)), 1, max_records=100, **LIMITS) == [(1, 1, 5)]


def test_offsets_that_the_log_does_not_have_are_left_out() -> None:
    records = InFlightRecords(0)
    assert records.acquire(1, data((5, 9)), 0, max_records=100, **LIMITS) == [(5, 9, 1)]
    assert records.start_offset == 5
    assert records.acquire(1, data((12, 14)), 10, max_records=100, **LIMITS) == [(12, 14, 1)]
    assert records.changes(0)[1] == (10, 11, 4, 0)


def test_what_was_kept_is_taken_up_and_holes_in_it_are_available() -> None:
    records = InFlightRecords(3, [(3, 4, 2, 1), (7, 8, 0, 2), (9, 9, 4, 5)])
    assert records.start_offset == 5
    assert [row[:4] for row in records.rows()] == [(5, 6, 0, 0), (7, 8, 0, 2), (9, 9, 4, 5)]
    assert records.next_fetch_offset() == 5


def test_the_slice_of_acquired_records_is_whole_batches() -> None:
    found = data((0, 9), (10, 19), (20, 29))
    size = HEADER.size
    assert slice_of(found, 12, 13) == (size, 2 * size)
    assert slice_of(found, 9, 20) == (0, 3 * size)
    assert slice_of(found, 30, 31) == (0, 0)
    assert count_of(found + b"x" * 30) == (30, 29)


LOG = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 2), st.sampled_from([-1, 5, 6])), max_size=12
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), st.integers(1, 3), st.integers(1, 12), st.booleans()),
        st.tuples(
            st.just("acknowledge"),
            st.integers(1, 3),
            st.integers(0, 40),
            st.integers(0, 6),
            st.lists(st.integers(0, 4), min_size=1, max_size=7),
        ),
        st.tuples(
            st.sampled_from(["release", "expire", "end", "undo", "start"]), st.integers(1, 40)
        ),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(LOG, OPERATIONS, st.integers(2, 6), st.integers(3, 30), st.booleans())
def test_it_decides_as_the_model(
    shape: list[tuple[int, int, int]],
    operations: list[tuple],
    max_deliveries: int,
    max_in_flight: int,
    has_aborted: bool,
) -> None:
    log: list[LogBatch] = []
    end = 0
    for size, hole, producer in shape:
        log.append(LogBatch(end + hole, end + hole + size - 1, producer))
        end += hole + size
    aborted = [(5, 0, 20)] if has_aborted else []
    records, model = InFlightRecords(0), ShareModel(0)
    token = 1
    for now, (name, *values) in enumerate(operations, 1):
        if name == "acquire":
            owner, most, record_limit = values
            offset = records.next_fetch_offset()
            found = [one for one in log if one.last >= offset]
            given_limits = {
                "deadline": now + 5,
                "max_records": most,
                "batch_size": 4,
                "max_in_flight": max_in_flight,
                "max_deliveries": max_deliveries,
                "record_limit": record_limit,
                "aborted": aborted,
            }
            rows = records.acquire(owner, b"".join(map(batch, found)), offset, **given_limits)
            got = model.acquire(owner, found, offset, **given_limits)
            assert [o for first, last, _ in rows for o in range(first, last + 1)] == got
            assert all(model.entries[first].deliveries == count for first, _, count in rows)
        elif name == "acknowledge":
            owner, first, more, types = values
            first = min(first, records.end_offset + 1) if first % 4 else first
            last = max(first, min(first + more, records.end_offset + more % 2))
            kinds = bytes(types[:1]) if len(types) != last - first + 1 else bytes(types)
            asked = [(first, last, kinds)]
            limits = {"max_deliveries": max_deliveries, "deadline": now + 9}
            code = records.acknowledge(owner, asked, token, **limits)
            assert code == model.acknowledge(owner, asked, token, **limits)
        elif name == "release":
            assert records.release(
                values[0] % 3 + 1, token, max_deliveries=max_deliveries
            ) == model.release(values[0] % 3 + 1, token, max_deliveries=max_deliveries)
        elif name == "expire":
            assert records.expire(now, token, max_deliveries=max_deliveries) == model.expire(
                now, token, max_deliveries=max_deliveries
            )
        elif name == "start":
            if values[0] % 4 == 0 and values[0] <= end:
                records.set_log_start(values[0])
                model.set_log_start(values[0])
        else:
            _end(records, model, token, name)
            token += 1
        _compare(records, model)


def _end(records: InFlightRecords, model: ShareModel, token: int, name: str) -> None:
    changed = [
        (offset, state, count)
        for first, last, state, count in records.changes(token)
        for offset in range(first, last + 1)
    ]
    start = records.start_after(token)
    expected = [
        (offset, entry.state, entry.deliveries)
        for offset, entry in sorted(model.entries.items())
        if entry.token == token and offset >= start
    ]
    assert changed == expected
    if name == "end":
        records.commit(token)
        model.commit(token)
        assert records.start_offset == start
    else:
        records.roll_back(token)
        model.roll_back(token)


def _compare(records: InFlightRecords, model: ShareModel) -> None:
    assert records.start_offset == model.start
    states = [
        (offset, state, deliveries, token)
        for first, last, state, deliveries, _, _, token in records.rows()
        for offset in range(first, last + 1)
    ]
    assert states == model.states()
    if model.entries:
        assert records.end_offset == model.end
    assert records.next_fetch_offset() == (
        model.next_fetch_offset() if model.entries else records.end_offset + 1
    )
    assert records.count() == model.count()
    held = [e.deadline for e in model.entries.values() if e.state == 1]
    assert records.next_deadline() == min(held, default=-1)
