"""Control markers as Kafka writes them, and the compression table."""

from __future__ import annotations

import pytest

from kstore.record import (
    COMPRESSIONS,
    ControlType,
    EndTransactionMarker,
    build_batch,
    compression_for,
    control_batch,
    decode,
    read_control,
    validate,
)


@pytest.mark.parametrize("kind", ControlType)
def test_a_marker_reads_back(kind: ControlType) -> None:
    data = control_batch(
        EndTransactionMarker(kind, 7), producer_id=9, producer_epoch=3, timestamp=55, base_offset=12
    )
    (view,) = validate(data)
    (record,) = decode(data, control=True)

    assert (view.is_control, view.is_transactional, view.base_sequence) == (True, True, -1)
    assert (view.producer_id, view.producer_epoch, record.offset, record.timestamp) == (
        9,
        3,
        12,
        55,
    )
    assert record.key == b"\x00\x00\x00" + bytes([kind])
    assert record.value == b"\x00\x00\x00\x00\x00\x07"
    assert read_control(record) == EndTransactionMarker(kind, 7)
    assert len(decode(data)) == 0


@pytest.mark.parametrize(
    ("key", "value", "outcome"),
    [
        (b"\x00\x00\x00\x02", b"", None),
        (
            b"\x00\x05\x00\x01\x99",
            b"\x00\x00\x00\x00\x00\x01\x99",
            EndTransactionMarker(ControlType.COMMIT, 1),
        ),
        (b"\xff\xff\x00\x01", b"", None),
    ],
)
def test_other_types_and_later_versions(key: bytes, value: bytes, outcome: object) -> None:
    (record,) = decode(build_batch([(key, value)]))
    assert read_control(record) == outcome


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\x00\x00\x00", b""), (b"\x00\x00\x00\x01", b"\x00")]
)
def test_short_control_records_are_explained(key: bytes | None, value: bytes) -> None:
    (record,) = decode(build_batch([(key, value)]))
    with pytest.raises(ValueError, match="at offset 0 has"):
        read_control(record)


def test_compression_types_by_name_and_number() -> None:
    for number, row in enumerate(COMPRESSIONS):
        assert row.id == number
        assert compression_for(number) is compression_for(row.name) is row
    assert compression_for("uncompressed").id == 0
    for unknown in ("brotli", 5, -1):
        with pytest.raises(ValueError, match="use one of none, gzip, snappy, lz4, zstd"):
            compression_for(unknown)
