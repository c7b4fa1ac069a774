"""Keys and values of the records in __share_group_state: snapshots of a share-partition, and the
updates after them. framing.py has the format of a key and a value.

Both types of keys have the same fields. A snapshot without a value deletes the share-partition's
state.
"""

from __future__ import annotations

from kstore.errors import ProtocolError
from kstore.protocol.coordinator_records.framing import Buffer, encode_key, encode_value
from kstore.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "StateBatchValue",
    "decode_share_key",
    "decode_share_value",
    "encode_key",
    "encode_value",
]

PREFIX_BYTES = 2


class ShareSnapshotKey(Message, record_type=0, versions="0"):
    """The key of a snapshot."""

    group_id: String = field("0", default="")
    topic_id: Uuid = field("0", default=ZERO_UUID)
    partition: Int32 = field("0", default=0)


class ShareUpdateKey(Message, record_type=1, versions="0"):
    """The key of an update."""

    group_id: String = field("0", default="")
    topic_id: Uuid = field("0", default=ZERO_UUID)
    partition: Int32 = field("0", default=0)


class StateBatchValue(Struct):
    """Offsets that have the same delivery state (0 available, 2 acknowledged, 4 archived)."""

    first_offset: Int64 = field("0+", default=0)
    last_offset: Int64 = field("0+", default=0)
    delivery_state: Int8 = field("0+", default=0)
    delivery_count: Int16 = field("0+", default=0)


class ShareSnapshotValue(Message, record_type=0, versions="0", flexible="0+"):
    """The whole state of a share-partition."""

    snapshot_epoch: Int32 = field("0+", default=0)
    state_epoch: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)
    start_offset: Int64 = field("0+", default=0)
    delivery_complete_count: Int32 = field("0+", default=-1, tag=0)
    create_timestamp: Int64 = field("0+", default=0)
    write_timestamp: Int64 = field("0+", default=0)
    state_batches: list[StateBatchValue] = field("0+", default=[])


class ShareUpdateValue(Message, record_type=1, versions="0", flexible="0+"):
    """Changes of a share-partition; a start offset of -1 means no change."""

    snapshot_epoch: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)
    start_offset: Int64 = field("0+", default=0)
    delivery_complete_count: Int32 = field("0+", default=-1, tag=0)
    state_batches: list[StateBatchValue] = field("0+", default=[])


def decode_share_key(data: Buffer) -> ShareSnapshotKey | ShareUpdateKey | None:
    """The key of a record; None for an unknown type."""
    record_type = _prefix(data, "key")
    if record_type == ShareSnapshotKey.RECORD_TYPE:
        return ShareSnapshotKey.decode(data, 0, offset=PREFIX_BYTES)
    if record_type == ShareUpdateKey.RECORD_TYPE:
        return ShareUpdateKey.decode(data, 0, offset=PREFIX_BYTES)
    return None


def decode_share_value(record_type: int, data: Buffer) -> ShareSnapshotValue | ShareUpdateValue:
    """The value of a record of that type. Raises ProtocolError for an unknown version."""
    version = _prefix(data, "value")
    if version != 0:
        raise ProtocolError(f"a share-partition's state has version {version}; known is 0")
    if record_type == ShareSnapshotValue.RECORD_TYPE:
        return ShareSnapshotValue.decode(data, version, offset=PREFIX_BYTES)
    return ShareUpdateValue.decode(data, version, offset=PREFIX_BYTES)


def _prefix(data: Buffer, what: str) -> int:
    if len(data) < PREFIX_BYTES:
        raise ProtocolError(f"the {what} of a share-partition's record has only {len(data)} bytes")
    return int.from_bytes(data[:PREFIX_BYTES], "big", signed=True)
