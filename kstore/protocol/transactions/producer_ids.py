"""InitProducerId: a producer id and epoch for idempotence and transactions."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    field,
)

__all__ = [
    "InitProducerIdRequest",
    "InitProducerIdResponse",
]


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    """Asks for a producer id, or for the next epoch of the given one (KIP-360)."""

    transactional_id: String | None = field("0+", default="", nullable="0+")
    transaction_timeout_ms: Int32 = field("0+", default=0)
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+", default=False)
    keep_prepared_txn: Bool = field("6+", default=False)
    # For exact copies, kstore only: no id below this is used any more.
    least_producer_id: Int64 = field("2+", default=-1, tag=39104, ignorable=True)


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    """The answer to InitProducerIdRequest."""

    throttle_time_ms: Int32 = field("0+", default=0, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    producer_id: Int64 = field("0+", default=-1)
    producer_epoch: Int16 = field("0+", default=0)
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
