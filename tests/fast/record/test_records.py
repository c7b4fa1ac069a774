"""Decoding: the records that were built, in order; offsets, times, aborted transactions,
corruption."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record.batch import InvalidBatchError
from kstore._fast.record.builder import build_batch
from kstore._fast.record.records import Record, decode
from kstore.record.control import ControlType
from tests.record.producer_batches import marker, produced
from tests.reference import record_batch as reference
from tests.reference.record_samples import codecs, exactly, many_rows, row_lists


def plain(record: Record):
    """A record as a row."""
    return (record.key, record.value, record.timestamp, [tuple(pair) for pair in record.headers])


@given(st.lists(st.tuples(row_lists | many_rows, codecs), max_size=3))
def test_records_read_back_in_order(batches) -> None:
    data, expected = b"", []
    for rows, codec in batches:
        data += build_batch(rows, compression=codec, base_offset=len(expected), leader_epoch=8)
        expected += rows

    found = decode(exactly(data))

    assert [plain(record) for record in found] == expected
    assert [record.offset for record in found] == list(range(len(expected)))
    assert len(found) == len(expected)
    assert bool(found) == bool(expected)
    assert found.values() == [row[1] for row in expected]
    assert found.next_offset == (len(expected) or None)
    assert all(record.leader_epoch == 8 for record in found)


@given(row_lists, codecs, st.data())
def test_a_range_of_offsets(rows, codec, data) -> None:
    both = build_batch(rows, compression=codec) + build_batch(rows, base_offset=len(rows))
    start = data.draw(st.integers(0, 2 * len(rows) + 1))
    end = data.draw(st.none() | st.integers(0, 2 * len(rows) + 1))

    found = decode(both, start_offset=start, end_offset=end)

    assert [record.offset for record in found] == list(range(2 * len(rows)))[start:end]
    assert len(decode(both, start_offset=start, end_offset=end)) == len(found[:])


def test_indexing_keeps_the_records() -> None:
    records = decode(build_batch([b"a", b"b", b"c"]))
    assert records[1].value == b"b"
    assert records[-1].value == b"c"
    assert records[1] is records[1]
    assert [record.value for record in records[:2]] == [b"a", b"b"]
    with pytest.raises(IndexError):
        records[3]
    assert len(records) == 3


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    data = build_batch([b"a", b"b"])
    for cut in range(len(data)):
        assert decode(exactly(data + data[:cut])).values() == [b"a", b"b"]


def test_corruption_is_reported_after_the_good_records() -> None:
    data = build_batch([b"a"])
    bad = bytearray(build_batch([b"b"], base_offset=1))
    bad[-2] ^= 0xFF
    records = iter(decode(data + bad))
    assert next(records).value == b"a"
    with pytest.raises(InvalidBatchError, match=f"at byte {len(data)} is invalid .BAD_CRC."):
        next(records)
    assert len(decode(data + bad, verify=False)) == 2


@given(st.data())
def test_damaged_records_are_reported_or_decoded_never_over_read(data) -> None:
    rows = [(b"k", b"value", 1000, ((b"h", b"x"), (b"", None))), (None, b"", 900, ())]
    batch = reference.make_batch(rows)
    records = bytearray(b"".join(reference.encode_record(record) for record in batch.records))
    for _ in range(data.draw(st.integers(1, 3))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    damaged = reference.encode(batch, payload=bytes(records))
    try:
        found = [plain(record) for record in decode(exactly(damaged))]
    except InvalidBatchError:
        with pytest.raises(reference.BadBatchError):
            reference.decode(damaged)
    else:
        assert len(found) == 2


@given(st.binary(max_size=200), codecs, st.integers(0, 2**31 - 1))
def test_noise_is_reported_or_decoded(payload, codec, count) -> None:
    batch = reference.ReferenceBatch((), attributes=codec, records_count=count, last_offset_delta=0)
    data = reference.encode(batch, payload=payload)
    for verify in (True, False):
        try:
            for record in decode(exactly(data), verify=verify, max_decompressed_bytes=10_000):
                plain(record)
        except InvalidBatchError:
            pass


def test_a_batch_that_decompresses_past_the_bound_is_refused() -> None:
    data = build_batch([bytes(100_000)], compression=4)
    with pytest.raises(InvalidBatchError, match="BAD_COMPRESSION"):
        list(decode(data, max_decompressed_bytes=1000))


def test_compacted_batches_keep_their_offsets() -> None:
    batch = reference.make_batch([(b"a", b"1", 5, ()), (b"b", b"2", 6, ())], base_offset=100)
    gaps = tuple(
        replace(record, offset_delta=delta)
        for record, delta in zip(batch.records, (3, 7), strict=True)
    )
    data = reference.encode(replace(batch, records=gaps, last_offset_delta=9))
    empty = reference.encode(
        reference.ReferenceBatch((), base_offset=110, records_count=0, last_offset_delta=4)
    )
    found = decode(data + empty)
    assert [record.offset for record in found] == [103, 107]
    assert found.next_offset == 115


def test_log_append_time_is_every_records_time() -> None:
    batch = reference.make_batch([(None, b"1", 5, ()), (None, b"2", 6, ())], attributes=8)
    found = decode(reference.encode(replace(batch, max_timestamp=777)))
    assert [(record.timestamp, record.timestamp_type) for record in found] == [(777, 1), (777, 1)]


LOG = b"".join(
    [
        produced(b"gone", b"gone too", producer=1, base_offset=0, transactional=True),
        produced(b"kept", producer=2, base_offset=2, transactional=True),
        build_batch([b"plain"], base_offset=3),
        marker(ControlType.ABORT, 1, 4),
        produced(b"second try", producer=1, base_offset=5, transactional=True),
        marker(ControlType.COMMIT, 2, 6),
        marker(ControlType.COMMIT, 1, 7),
        produced(b"gone again", producer=1, base_offset=8, transactional=True),
    ]
)
ABORTED = [(1, 8), (1, 0)]


def test_aborted_transactions_are_left_out() -> None:
    assert decode(LOG, aborted=ABORTED).values() == [b"kept", b"plain", b"second try"]
    assert len(decode(LOG, aborted=[])) == 6
    assert len(decode(LOG)) == 6
    assert len(decode(LOG, control=True)) == 9


@pytest.mark.parametrize("start", range(9))
def test_aborted_transactions_with_a_start_inside_them(start: int) -> None:
    kept = {2: b"kept", 3: b"plain", 5: b"second try"}
    found = decode(LOG, aborted=ABORTED, start_offset=start)
    assert {record.offset: record.value for record in found} == {
        offset: value for offset, value in kept.items() if offset >= start
    }


def test_records_outlive_their_record_set_and_buffer() -> None:
    for codec in range(5):
        kept = list(decode(build_batch([(b"k", b"v" * 1000)] * 20, compression=codec)))
        gc.collect()
        assert all(record.value == b"v" * 1000 for record in kept)


def test_records_compare_and_print() -> None:
    first, again = decode(build_batch([(b"k", b"v", 5, [("h", None)])])), None
    again = decode(build_batch([(b"k", b"v", 5, [("h", None)])], compression=1))
    assert first[0] == again[0]
    assert first[0] != "record"
    assert repr(first[0]) == (
        "Record(offset=0, timestamp=5, key=b'k', value=b'v', headers=[Header(key='h', value=None)])"
    )
    assert (first[0].key_size, first[0].value_size, first[0].batch.records_count) == (1, 1, 1)
    assert repr(first) == f"RecordSet({first.size_bytes} bytes, next offset 1)"
    with pytest.raises(TypeError, match=r"made by decode"):
        Record()


def test_buffers_of_any_kind() -> None:
    data = build_batch([b"a"])
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"xx" + data)[2:]):
        assert decode(buffer).values() == [b"a"]
    with pytest.raises(ValueError, match="not contiguous"):
        decode(memoryview(data)[::2])
    assert decode(b"").next_offset is None
