"""DescribeTransactions, ListTransactions and DescribeProducers (KIP-664): for finding hanging
transactions.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribeTransactionsResponseTransactionState",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ListTransactionsResponseTransactionState",
    "PartitionResponse",
    "ProducerState",
    "TopicData",
    "TopicRequest",
    "TopicResponse",
]


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    """Asks a coordinator for the state of transactions."""

    transactional_ids: list[String] = field("0+", default=[])


class TopicData(Struct):
    """One entry of `topics` in DescribeTransactionsResponseTransactionState."""

    topic: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class DescribeTransactionsResponseTransactionState(Struct):
    """One entry of `transaction_states` in DescribeTransactionsResponse."""

    error_code: Int16 = field("0+", default=0)
    transactional_id: String = field("0+", default="")
    transaction_state: String = field("0+", default="")
    transaction_timeout_ms: Int32 = field("0+", default=0)
    transaction_start_time_ms: Int64 = field("0+", default=0)
    producer_id: Int64 = field("0+", default=0)
    producer_epoch: Int16 = field("0+", default=0)
    topics: list[TopicData] = field("0+", default=[])


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    """The answer to DescribeTransactionsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    transaction_states: list[DescribeTransactionsResponseTransactionState] = field("0+", default=[])


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    """Lists a coordinator's transactions, by state, producer, age or name."""

    state_filters: list[String] = field("0+", default=[])
    producer_id_filters: list[Int64] = field("0+", default=[])
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", default=None, nullable="2+")


class ListTransactionsResponseTransactionState(Struct):
    """One entry of `transaction_states` in ListTransactionsResponse."""

    transactional_id: String = field("0+", default="")
    producer_id: Int64 = field("0+", default=0)
    transaction_state: String = field("0+", default="")


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    """The answer to ListTransactionsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    unknown_state_filters: list[String] = field("0+", default=[])
    transaction_states: list[ListTransactionsResponseTransactionState] = field("0+", default=[])


class TopicRequest(Struct):
    """One entry of `topics` in DescribeProducersRequest."""

    name: String = field("0+", default="")
    partition_indexes: list[Int32] = field("0+", default=[])


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    """Asks a leader for the producers whose state it has."""

    topics: list[TopicRequest] = field("0+", default=[])


class ProducerState(Struct):
    """One entry of `active_producers` in PartitionResponse."""

    producer_id: Int64 = field("0+", default=0)
    producer_epoch: Int32 = field("0+", default=0)
    last_sequence: Int32 = field("0+", default=-1)
    last_timestamp: Int64 = field("0+", default=-1)
    coordinator_epoch: Int32 = field("0+", default=0)
    current_txn_start_offset: Int64 = field("0+", default=-1)


class PartitionResponse(Struct):
    """One entry of `partitions` in TopicResponse."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = field("0+", default=[])


class TopicResponse(Struct):
    """One entry of `topics` in DescribeProducersResponse."""

    name: String = field("0+", default="")
    partitions: list[PartitionResponse] = field("0+", default=[])


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    """The answer to DescribeProducersRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[TopicResponse] = field("0+", default=[])
