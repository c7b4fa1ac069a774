"""The meaning of a ShareFetch response: acquired records, gaps, and broken batches."""

from __future__ import annotations

from kstore.clients.core.share.acknowledgements import GAP, AcknowledgeType
from kstore.clients.core.share.arrivals import Arrivals, arrivals
from kstore.errors import CorruptMessageError
from kstore.protocol.shares.fetch import AcquiredRecords
from kstore.types import TopicPartition
from tests.reference.record_batch import encode, make_batch

TP = TopicPartition("t", 0)


def read(data: bytes | None, *spans: tuple[int, int, int]) -> Arrivals:
    """An answer with these (first, last, delivery count)."""
    acquired = [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in spans
    ]
    return arrivals(TP, data, acquired, node_id=1, expires_ms=9, verify=True)


def batch(base: int, *values: bytes) -> bytes:
    """A batch, by the slow reference encoder."""
    return encode(make_batch([(None, value, 0, ()) for value in values], base_offset=base))


def shown(found: Arrivals) -> list[tuple[int, bytes | None, int]]:
    """Offset, value and delivery count."""
    return [
        (row.offset, None if row.record is None else row.record.value, row.delivery_count)
        for row in found.rows
    ]


def test_only_what_was_acquired_is_taken_with_its_delivery_count() -> None:
    data = batch(10, b"a", b"b", b"c", b"d")
    found = read(data, (13, 13, 4), (10, 11, 1))
    assert shown(found) == [(10, b"a", 1), (11, b"b", 1), (13, b"d", 4)]
    assert found.error is None


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    found = read(batch(10, b"a") + batch(13, b"d"), (10, 14, 1))
    assert shown(found) == [
        (10, b"a", 1), (11, None, 1), (12, None, 1), (13, b"d", 1), (14, None, 1),
    ]  # fmt: skip
    assert {row.type for row in found.rows} == {GAP}
    assert shown(read(None, (5, 5, 2))) == [(5, None, 2)]
    assert read(data := batch(0, b"a")) == Arrivals([], None), data


def test_a_broken_batch_is_rejected_and_what_follows_released() -> None:
    broken = bytearray(batch(11, b"b", b"c"))
    broken[-1] ^= 1
    found = read(batch(10, b"a") + bytes(broken) + batch(13, b"d"), (10, 13, 1))
    assert isinstance(found.error, CorruptMessageError)
    assert [(row.offset, row.type) for row in found.rows] == [
        (10, GAP), (11, AcknowledgeType.REJECT), (12, AcknowledgeType.REJECT),
        (13, AcknowledgeType.RELEASE),
    ]  # fmt: skip
    assert found.rows[0].record.value == b"a"
