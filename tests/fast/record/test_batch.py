"""Batch validation: what the slow reference accepts, and nothing else; every field, every
truncation, every bound."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record import batch as fast
from kstore._fast.record import batch_view
from tests.reference import record_batch as reference
from tests.reference.record_samples import codecs, encoded_headers, exactly, many_rows, row_lists

ROWS = [
    (b"k", b"value", 1000, ()),
    (None, b"", 900, ((b"h", b"x"), (b"", None))),
    (b"", None, 1000, ()),
]
GOOD = reference.make_batch(ROWS, base_offset=7, leader_epoch=3)
GOOD_BYTES = reference.encode(GOOD)


def status_of(data: bytes, **options: int) -> str:
    """The status that validation of ``data`` ends with."""
    try:
        batch_view.validate(exactly(data), **options)
    except fast.InvalidBatchError as error:
        return error.status
    return "OK"


def is_good(data: bytes) -> bool:
    try:
        reference.decode(data)
    except reference.BadBatchError:
        return False
    return True


@given(row_lists | many_rows, codecs)
def test_good_batches_pass_and_their_headers_are_read(rows, codec) -> None:
    rows = [
        (key, value, timestamp, encoded_headers(pairs)) for key, value, timestamp, pairs in rows
    ]
    expected = reference.make_batch(rows, attributes=codec, base_offset=11, leader_epoch=2)

    (view,) = batch_view.validate(exactly(reference.encode(expected)))

    assert (view.base_offset, view.last_offset, view.next_offset) == (
        11,
        10 + len(rows),
        11 + len(rows),
    )
    assert (view.records_count, view.leader_epoch, view.compression) == (len(rows), 2, codec)
    assert (view.base_timestamp, view.max_timestamp) == (
        expected.base_timestamp,
        expected.max_timestamp,
    )
    assert bytes(view.data) == reference.encode(expected)


@pytest.mark.parametrize("codec", range(5))
def test_every_truncation_is_reported(codec: int) -> None:
    data = reference.encode(replace(GOOD, attributes=codec))
    for cut in range(1, len(data)):
        assert status_of(data[:cut]) == "TRUNCATED"
    assert status_of(data) == "OK"
    assert batch_view.validate(b"") == []


def test_every_damaged_byte_is_detected_or_harmless() -> None:
    for at in range(len(GOOD_BYTES)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(GOOD_BYTES)
            damaged[at] ^= flip
            status = status_of(bytes(damaged))
            harmless = at < 8 or 12 <= at < 16  # base offset and leader epoch are not under the CRC
            assert (status == "OK") == harmless, (at, flip, status)


@given(st.data())
def test_damage_under_a_right_checksum_is_judged_as_the_reference_does(data) -> None:
    records = bytearray(b"".join(reference.encode_record(record) for record in GOOD.records))
    for _ in range(data.draw(st.integers(1, 3))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    damaged = reference.encode(GOOD, payload=bytes(records))

    assert (status_of(damaged) == "OK") == is_good(damaged)


@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 70])
@pytest.mark.parametrize("size", [0, 1, 20, 80])
def test_damage_in_plain_records_is_judged_as_the_reference_does(key, size: int) -> None:
    """For records without headers, which another path reads: every number in them."""
    batch = reference.make_batch([(key, b"v" * size, time, ()) for time in (5, 90_000)])
    first, second = [reference.encode_record(record) for record in batch.records]
    numbers = [*range(7), *range(len(second) - size - 4, len(second) - size), len(second) - 1]
    for at in {at for at in numbers if 0 <= at < len(second)}:
        for byte in (0, 1, 2, 3, 38, 40, 0x7F, 0x80, 0x81, 0xFF):
            damaged = bytearray(second)
            damaged[at] = byte
            data = reference.encode(batch, payload=first + bytes(damaged))
            assert (status_of(data) == "OK") == is_good(data), (at, byte)


@given(st.binary(max_size=120), codecs, st.integers(1, 5))
def test_noise_for_records_is_judged_as_the_reference_does(payload, codec, count) -> None:
    batch = replace(GOOD, attributes=codec, records_count=count, last_offset_delta=count - 1)
    if codec:
        payload = reference.compress(codec, payload)
    data = reference.encode(batch, payload=payload)

    assert (status_of(data) == "OK") == is_good(data)


@given(st.binary(max_size=300))
def test_noise_for_a_buffer_is_never_over_read(data) -> None:
    assert status_of(data) in fast.STATUS_NAMES
    with contextlib.suppress(fast.InvalidBatchError):
        list(batch_view.batches(exactly(data)))


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"records_count": 0, "last_offset_delta": -1}, "BAD_COUNT"),
        ({"records_count": 2}, "BAD_RECORD"),
        ({"records_count": 4}, "BAD_RECORD"),
        ({"records_count": 3, "last_offset_delta": 3}, "BAD_COUNT"),
        ({"records_count": -1, "last_offset_delta": -2}, "BAD_COUNT"),
        ({"records_count": 2**31 - 1}, "BAD_COUNT"),
        ({"attributes": 5}, "BAD_ATTRIBUTES"),
        ({"attributes": -1}, "BAD_ATTRIBUTES"),
        ({"max_timestamp": 999}, "BAD_TIMESTAMP"),
        ({"max_timestamp": 1001}, "BAD_TIMESTAMP"),
        ({"max_timestamp": 5, "attributes": 8}, "OK"),
        ({"attributes": 0x10}, "BAD_PRODUCER"),
        ({"producer_id": -2}, "BAD_PRODUCER"),
        ({"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, "BAD_PRODUCER"),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, "BAD_PRODUCER"),
        (
            {"producer_id": 1, "producer_epoch": 0, "base_sequence": -2, "attributes": 0x10},
            "BAD_PRODUCER",
        ),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}, "OK"),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1, "attributes": 0x10}, "OK"),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1, "attributes": 0x30}, "OK"),
        ({"producer_id": -1, "producer_epoch": 0, "base_sequence": 0}, "OK"),
        ({"attributes": 0x40}, "OK"),
        ({"attributes": 0x80}, "OK"),  # unused bits, as in Kafka
        ({"attributes": -0x8000}, "OK"),
    ],
)
def test_header_fields(change: dict[str, int], status: str) -> None:
    assert status_of(reference.encode(replace(GOOD, **change))) == status


@pytest.mark.parametrize(
    "deltas", [(0, 0, 1), (1, 2, 3), (0, 2, 1), (0, 1, 3), (0, -1, 2), (0, 1, 2**31 - 1)]
)
def test_offset_deltas_must_be_consecutive(deltas: tuple[int, ...]) -> None:
    pairs = zip(GOOD.records, deltas, strict=True)
    records = tuple(replace(record, offset_delta=delta) for record, delta in pairs)
    for codec in range(5):
        data = reference.encode(replace(GOOD, records=records, attributes=codec))
        assert status_of(data) == "BAD_OFFSET_DELTA"


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_wrong_max_timestamp_is_found_inside_compressed_batches(codec: int) -> None:
    assert (
        status_of(reference.encode(replace(GOOD, attributes=codec, max_timestamp=1)))
        == "BAD_TIMESTAMP"
    )


HUGE = [
    b"\xff" * 4 + b"\x0f",
    b"\xff" * 4 + b"\x7f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 12,
    b"\x80" * 40,
]
HUGE += [reference.varint(2**31 - 1), reference.varint(-(2**31)), reference.varint(-2)]


@pytest.mark.parametrize("field", range(8))
@pytest.mark.parametrize("huge", HUGE)
def test_huge_varints_in_any_field_are_refused(field: int, huge: bytes) -> None:
    parts = [b"\x00", b"\x00", b"\x00", reference.varint(1) + b"k", reference.varint(1) + b"v"]
    parts += [reference.varint(1), reference.varint(1) + b"h", reference.varint(1) + b"x"]
    if field == 0:
        record = huge + b"".join(parts)
    else:
        parts[field] = huge
        body = b"".join(parts)
        record = reference.varint(len(body)) + body
    data = reference.encode(replace(GOOD, records_count=1), payload=record)

    assert (status_of(data) == "OK") == is_good(data)
    assert field == 1 or status_of(data) in {"BAD_RECORD", "BAD_OFFSET_DELTA"}


@pytest.mark.parametrize("length", [0, 1, 48, -1, -(2**31), 2**31 - 1, 2**31 - 12])
def test_lengths_that_no_batch_has(length: int) -> None:
    data = GOOD_BYTES[:8] + struct.pack(">i", length) + GOOD_BYTES[12:]
    assert status_of(data) in {"BAD_LENGTH", "TRUNCATED"}


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_formats_are_named(magic: int) -> None:
    data = GOOD_BYTES[:16] + bytes([magic]) + GOOD_BYTES[17:]
    with pytest.raises(fast.InvalidBatchError, match="magic is not 2: use a client") as caught:
        batch_view.validate(data)
    assert (caught.value.status, caught.value.error_code, caught.value.position) == (
        "BAD_MAGIC",
        43,
        0,
    )


@pytest.mark.parametrize("codec", range(1, 5))
def test_decompression_is_bounded(codec: int) -> None:
    rows = [(None, bytes(1000), 5, ())] * 400
    data = reference.encode(reference.make_batch(rows, attributes=codec))

    assert status_of(data, max_decompressed_bytes=1_000_000) == "OK"
    assert status_of(data, max_decompressed_bytes=400_000) == "BAD_COMPRESSION"


def test_raw_snappy_is_accepted_as_kafka_accepts_it() -> None:
    batch = replace(GOOD, attributes=2)
    records = b"".join(reference.encode_record(record) for record in GOOD.records)
    payload = reference.compress(2, records, framed=False)
    assert status_of(reference.encode(batch, payload=payload)) == "OK"


def test_given_offsets_must_rise_from_batch_to_batch() -> None:
    def at(*offsets: int) -> bytes:
        return b"".join(reference.encode(replace(GOOD, base_offset=offset)) for offset in offsets)

    assert status_of(at(7, 10, 13), expected_offset=7) == "OK"
    assert status_of(at(7, 50, 53), expected_offset=0) == "OK"
    assert status_of(at(7), expected_offset=8) == "NOT_MONOTONIC"
    assert status_of(at(7, 9), expected_offset=7) == "NOT_MONOTONIC"
    assert status_of(at(-1), expected_offset=0) == "NOT_MONOTONIC"
    assert status_of(at(2**63 - 2), expected_offset=0) == "NOT_MONOTONIC"
    assert status_of(at(7, 9)) == "OK"


def test_the_position_of_the_bad_batch_is_told() -> None:
    bad = bytearray(GOOD_BYTES)
    bad[-1] ^= 1
    with pytest.raises(
        fast.InvalidBatchError, match=f"at byte {len(GOOD_BYTES)} is invalid .BAD_CRC."
    ):
        batch_view.validate(GOOD_BYTES + bytes(bad))


def test_iteration_ignores_a_partial_batch_and_reports_a_corrupt_one() -> None:
    for cut in range(len(GOOD_BYTES)):
        assert len(list(batch_view.batches(exactly(GOOD_BYTES + GOOD_BYTES[:cut])))) == 1
    bad = bytearray(GOOD_BYTES)
    bad[-1] ^= 1
    assert len(list(batch_view.batches(GOOD_BYTES + bad))) == 2
    views = batch_view.batches(GOOD_BYTES + bad, verify=True)
    assert next(views).position == 0
    with pytest.raises(fast.InvalidBatchError, match="BAD_CRC"):
        next(views)
    behind = batch_view.batches(GOOD_BYTES * 3, position=len(GOOD_BYTES))
    assert [view.position for view in behind] == [len(GOOD_BYTES), 2 * len(GOOD_BYTES)]
    with pytest.raises(ValueError, match="position is -1"):
        list(batch_view.batches(GOOD_BYTES, position=-1))


def test_assignment_keeps_the_batch_good() -> None:
    data = bytearray(GOOD_BYTES)
    batch_view.assign(data, base_offset=99, leader_epoch=4)
    assert reference.decode(bytes(data)) == replace(GOOD, base_offset=99, leader_epoch=4)

    batch_view.assign(data, base_offset=100, leader_epoch=5, log_append_time=123456)
    stamped = reference.decode(bytes(data))
    assert (stamped.base_offset, stamped.attributes, stamped.max_timestamp) == (100, 8, 123456)
    (view,) = batch_view.validate(data)
    assert (view.timestamp_type, view.max_timestamp, view.base_timestamp) == (1, 123456, 1000)
    with pytest.raises(fast.InvalidBatchError, match="TRUNCATED"):
        batch_view.assign(bytearray(10), base_offset=0, leader_epoch=0)


def test_views_tell_what_the_attributes_say() -> None:
    marked = replace(GOOD, attributes=0x70, producer_id=5, producer_epoch=1, base_sequence=9)
    (view,) = batch_view.validate(reference.encode(marked))
    assert (view.is_transactional, view.is_control, view.delete_horizon_ms) == (True, True, 1000)
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (5, 1, 9)
    assert (view.attributes, view.timestamp_type, view.size_bytes) == (0x70, 0, len(GOOD_BYTES))
    assert repr(view) == (
        f"BatchView(offsets 7..9, 3 records, {len(GOOD_BYTES)} bytes, leader epoch 3)"
    )
    with pytest.raises(TypeError, match="made by batches"):
        batch_view.BatchView()


def test_timing_refuses_a_bad_batch() -> None:
    assert fast.seconds_to_validate(GOOD_BYTES, 3) >= 0
    with pytest.raises(fast.InvalidBatchError):
        fast.seconds_to_validate(GOOD_BYTES[:-1], 1)
