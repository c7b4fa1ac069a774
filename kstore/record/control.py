"""Control records: the markers that end a transaction. Their keys and values have fixed formats,
without a schema.

Source: Kafka's protocol guide, "Control Batches" and ``EndTxnMarker``.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kstore._fast.record.builder import build_batch

if TYPE_CHECKING:
    from kstore._fast.record.records import Record

__all__ = ["ControlType", "EndTransactionMarker", "control_batch", "read_control"]

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_CURRENT_VERSION = 0


class ControlType(IntEnum):
    """The type in a control record's key. Readers skip unknown types."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The content of a transaction marker: commit or abort, and the coordinator's epoch."""

    type: ControlType
    coordinator_epoch: int


def control_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends ``producer_id``'s transaction on one partition; ``timestamp`` in
    ms."""
    key = _KEY.pack(_CURRENT_VERSION, marker.type)
    value = _VALUE.pack(_CURRENT_VERSION, marker.coordinator_epoch)
    return build_batch(
        [(key, value)],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control(record: Record) -> EndTransactionMarker | None:
    """The marker in a control batch's record, or None for a type or version that is not a marker's.

    Raises ValueError for a key or value that is too short.
    """
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size:
        raise ValueError(
            f"control record at offset {record.offset} has the key {key!r}: it needs 4 bytes"
        )
    version, kind = _KEY.unpack_from(key)
    if version < 0 or kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise ValueError(
            f"transaction marker at offset {record.offset} has {value!r}: it needs 6 bytes"
        )
    return EndTransactionMarker(ControlType(kind), _VALUE.unpack_from(value)[1])
