"""The records of coordinators in __consumer_offsets: their classes, and how they are framed.

A key begins with its record type, a value with its version, both int16. The classes are declared in
log_records_classic; what a record does to a group's state is not decided here.
"""

from __future__ import annotations

from typing import TypeAlias

from kstore.errors import ProtocolError
from kstore.protocol.log_records_classic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kstore.protocol.schema import Message

__all__ = [
    "RECORD_TYPES",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

# Record type -> key class, value class. Type 0 is the OffsetCommitKey of old brokers, which has the
# same fields as type 1.
RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}


def encode_key(key: Message) -> bytes:
    """A record's key: its type, then the message in its only version."""
    return key.RECORD_TYPE.to_bytes(2, "big") + key.encode(0)


def encode_value(value: Message, version: int) -> bytes:
    """A record's value: its version, then the message."""
    return version.to_bytes(2, "big") + value.encode(version)


def decode_key(data: Buffer) -> Message:
    """The key of a record. ProtocolError for a type that this version of kstore does not know."""
    record_type = _prefix(data, "key")
    classes = RECORD_TYPES.get(record_type)
    if classes is None:
        raise ProtocolError(f"coordinator records of type {record_type} are not known")
    return classes[0].decode(data, 0, offset=2)


def decode_value(key: Message, data: Buffer) -> tuple[Message, int]:
    """The value that belongs to a key, and the version in which it was written."""
    version = _prefix(data, "value")
    return RECORD_TYPES[key.RECORD_TYPE][1].decode(data, version, offset=2), version


def _prefix(data: Buffer, what: str) -> int:
    if len(data) < 2:
        raise ProtocolError(f"a coordinator record's {what} has only {len(data)} bytes")
    return int.from_bytes(data[:2], "big", signed=True)
