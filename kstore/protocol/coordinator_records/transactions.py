"""Keys and values of the records in __transaction_state. framing.py has the format of a key and a
value.

Record type 0 of this topic is not related to record type 0 of __consumer_offsets.
"""

from __future__ import annotations

from kstore.errors import ProtocolError
from kstore.protocol.coordinator_records.framing import Buffer, encode_key, encode_value
from kstore.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "PartitionsSchema",
    "TransactionLogKey",
    "TransactionLogValue",
    "decode_transaction_key",
    "decode_transaction_value",
    "encode_key",
    "encode_value",
]

PREFIX_BYTES = 2


class TransactionLogKey(Message, record_type=0, versions="0"):
    """The key of a transaction's state."""

    transactional_id: String = field("0", default="")


class PartitionsSchema(Struct):
    """One entry of `transaction_partitions` in TransactionLogValue."""

    topic: String = field("0+", default="")
    partition_ids: list[Int32] = field("0+", default=[])


class TransactionLogValue(Message, record_type=0, versions="0-1", flexible="1+"):
    """A transaction's state; a record without a value deletes the transactional id."""

    producer_id: Int64 = field("0+", default=0)
    previous_producer_id: Int64 = field("1+", default=-1, tag=0)
    next_producer_id: Int64 = field("1+", default=-1, tag=1)
    producer_epoch: Int16 = field("0+", default=0)
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32 = field("0+", default=0)
    transaction_status: Int8 = field("0+", default=0)
    transaction_partitions: list[PartitionsSchema] | None = field("0+", default=[], nullable="0+")
    transaction_last_update_timestamp_ms: Int64 = field("0+", default=0)
    transaction_start_timestamp_ms: Int64 = field("0+", default=0)
    client_transaction_version: Int16 = field("1+", default=0, tag=2)


def decode_transaction_key(data: Buffer) -> TransactionLogKey | None:
    """The key of a record; None for an unknown type."""
    if _prefix(data, "key") != TransactionLogKey.RECORD_TYPE:
        return None
    return TransactionLogKey.decode(data, 0, offset=PREFIX_BYTES)


def decode_transaction_value(data: Buffer) -> TransactionLogValue:
    """The value of a record. Raises ProtocolError for an unknown version."""
    version = _prefix(data, "value")
    if not TransactionLogValue.MIN_VERSION <= version <= TransactionLogValue.MAX_VERSION:
        raise ProtocolError(
            f"a transaction's state has version {version}; known are "
            f"{TransactionLogValue.MIN_VERSION} to {TransactionLogValue.MAX_VERSION}"
        )
    return TransactionLogValue.decode(data, version, offset=PREFIX_BYTES)


def _prefix(data: Buffer, what: str) -> int:
    if len(data) < PREFIX_BYTES:
        raise ProtocolError(f"the {what} of a transaction's record has only {len(data)} bytes")
    return int.from_bytes(data[:PREFIX_BYTES], "big", signed=True)
