"""The records of coordinators in __consumer_offsets: their classes, and their format.

A key begins with its record type, a value with its version, both int16. The other modules of this
room declare the classes; broker.state applies records to a group's state.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TypeAlias

from kstore.errors import ProtocolError
from kstore.protocol.schema import Message

__all__ = [
    "RECORD_TYPES",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
    "record_classes",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

# Record type -> module and name; the classes are <name>Key and <name>Value, imported on first use.
# Type 0 is the OffsetCommitKey of old brokers, with the same fields as type 1.
RECORD_TYPES: dict[int, tuple[str, str]] = {
    0: ("coordinator_records.classic", "OffsetCommit"),
    1: ("coordinator_records.classic", "OffsetCommit"),
    2: ("coordinator_records.classic", "GroupMetadata"),
    3: ("coordinator_records.consumer", "ConsumerGroupMetadata"),
    4: ("coordinator_records.consumer", "ConsumerGroupPartitionMetadata"),
    5: ("coordinator_records.consumer", "ConsumerGroupMemberMetadata"),
    6: ("coordinator_records.consumer", "ConsumerGroupTargetAssignmentMetadata"),
    7: ("coordinator_records.consumer", "ConsumerGroupTargetAssignmentMember"),
    8: ("coordinator_records.consumer", "ConsumerGroupCurrentMemberAssignment"),
    10: ("coordinator_records.share_groups", "ShareGroupMemberMetadata"),
    11: ("coordinator_records.share_groups", "ShareGroupMetadata"),
    12: ("coordinator_records.share_groups", "ShareGroupTargetAssignmentMetadata"),
    13: ("coordinator_records.share_groups", "ShareGroupTargetAssignmentMember"),
    14: ("coordinator_records.share_groups", "ShareGroupCurrentMemberAssignment"),
    15: ("coordinator_records.share_groups", "ShareGroupStatePartitionMetadata"),
    16: ("coordinator_records.consumer", "ConsumerGroupRegularExpression"),
    17: ("coordinator_records.streams", "StreamsGroupMetadata"),
    19: ("coordinator_records.streams", "StreamsGroupMemberMetadata"),
    20: ("coordinator_records.streams", "StreamsGroupTargetAssignmentMetadata"),
    21: ("coordinator_records.streams", "StreamsGroupTargetAssignmentMember"),
    22: ("coordinator_records.streams", "StreamsGroupCurrentMemberAssignment"),
    23: ("coordinator_records.streams", "StreamsGroupTopology"),
}


@cache
def record_classes(record_type: int) -> tuple[type[Message], type[Message]]:
    """The classes of a record type's key and value. Raises ProtocolError for an unknown type."""
    row = RECORD_TYPES.get(record_type)
    if row is None:
        raise ProtocolError(f"coordinator records of type {record_type} are not known")
    module = import_module(f"kstore.protocol.{row[0]}")
    return getattr(module, f"{row[1]}Key"), getattr(module, f"{row[1]}Value")


def encode_key(key: Message) -> bytes:
    """A record's key: its type, then the message in its only version."""
    return key.RECORD_TYPE.to_bytes(2, "big") + key.encode(0)


def encode_value(value: Message, version: int) -> bytes:
    """A record's value: its version, then the message."""
    return version.to_bytes(2, "big") + value.encode(version)


def decode_key(data: Buffer) -> Message:
    """The key of a record. Raises ProtocolError for an unknown type."""
    return record_classes(_prefix(data, "key"))[0].decode(data, 0, offset=2)


def decode_value(key: Message, data: Buffer) -> tuple[Message, int]:
    """The value for a key, and the version in which it was written."""
    version = _prefix(data, "value")
    return record_classes(key.RECORD_TYPE)[1].decode(data, version, offset=2), version


def _prefix(data: Buffer, what: str) -> int:
    if len(data) < 2:
        raise ProtocolError(f"a coordinator record's {what} has only {len(data)} bytes")
    return int.from_bytes(data[:2], "big", signed=True)
