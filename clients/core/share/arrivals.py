"""A partition's row of a ShareFetch response: the acquired offsets, with their records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kstore._fast.clients.fetched import ConsumerRecord, FetchedRecords
from kstore._fast.record.batch import InvalidBatchError
from kstore.clients.core.share.acknowledgements import AcknowledgeType
from kstore.clients.core.share.holdings import Held
from kstore.errors import CorruptMessageError, KafkaError
from kstore.protocol.shares.fetch import AcquiredRecords
from kstore.types import TopicPartition

__all__ = ["Arrivals", "arrivals"]


class Arrivals(NamedTuple):
    """Rows by offset, and the errors of batches."""

    rows: list[Held]
    error: KafkaError | None


def arrivals(
    tp: TopicPartition, records: bytes | None, acquired: Iterable[AcquiredRecords], *,
    node_id: int, expires_ms: float, verify: bool,
) -> Arrivals:  # fmt: skip
    """Parse a response. Records that others hold are skipped. A batch that can't be read is
    rejected, and the ones after it are released.
    """
    spans = sorted(acquired, key=lambda each: each.first_offset)
    if not spans:
        return Arrivals([], None)
    found: list[ConsumerRecord] = []
    error, bad_until = None, -1
    fetched = FetchedRecords(tp, records or b"", start_offset=spans[0].first_offset, verify=verify)
    try:
        while fetched.take(found, 2**31 - 1):
            pass
    except InvalidBatchError as problem:
        after = fetched.offset_after_failure
        bad_until = spans[-1].last_offset + 1 if after is None else after
        error = CorruptMessageError(f"{tp}: a batch can't be read and was rejected: {problem}")
    by_offset = {record.offset: record for record in found}
    last_read = found[-1].offset if found else -1
    rows = []
    for span in spans:
        for offset in range(span.first_offset, span.last_offset + 1):
            row = Held(
                tp, offset, by_offset.get(offset), node_id,
                delivery_count=span.delivery_count, expires_ms=expires_ms,
            )  # fmt: skip
            if error is not None and row.record is None and offset > last_read:
                is_bad = offset < bad_until
                row.type = AcknowledgeType.REJECT if is_bad else AcknowledgeType.RELEASE
            rows.append(row)
    return Arrivals(rows, error)
