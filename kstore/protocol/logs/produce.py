"""Produce: record batches for partitions. Topics are identified by id from version 13 on (KIP-516).
The fields of KIP-232, KIP-253, KIP-359 and KIP-391 are kstore's.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "BatchIndexAndErrorMessage",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
]


class PartitionProduceData(Struct):
    """One entry of `partition_data` in TopicProduceData."""

    index: Int32 = field("0+", default=0)
    records: Records | None = field("0+", default=None, nullable="0+")
    # KIP-232, kstore only; if topics are named.
    partition_epoch: Int32 = field("9-12", default=-1, tag=23200, ignorable=True)
    # KIP-359, kstore only.
    current_leader_epoch: Int32 = field("9+", default=-1, tag=35900, ignorable=True)


class TopicProduceData(Struct):
    """One entry of `topic_data` in ProduceRequest."""

    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = field("0+", default=[])
    # KIP-253, kstore only.
    partition_count: Int32 = field("9+", default=-1, tag=25300, ignorable=True)


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    """Appends one or more batches to each partition; with acks 0 there is no response."""

    transactional_id: String | None = field("3+", default=None, nullable="3+")
    acks: Int16 = field("0+", default=0)
    timeout_ms: Int32 = field("0+", default=0)
    topic_data: list[TopicProduceData] = field("0+", default=[])
    # KIP-391, kstore only.
    use_offset: Bool = field("9+", default=False, tag=39100, ignorable=True)
    # The batches are from another cluster, and are stored byte for byte; kstore only.
    exact: Bool = field("9+", default=False, tag=39102, ignorable=True)


class BatchIndexAndErrorMessage(Struct):
    """One entry of `record_errors` in PartitionProduceResponse."""

    batch_index: Int32 = field("8+", default=0)
    batch_index_error_message: String | None = field("8+", default=None, nullable="8+")


class LeaderIdAndEpoch(Struct):
    """The field `current_leader` of PartitionProduceResponse."""

    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


class PartitionProduceResponse(Struct):
    """One entry of `partition_responses` in TopicProduceResponse."""

    index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    base_offset: Int64 = field("0+", default=0)
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default=[], ignorable=True)
    error_message: String | None = field("8+", default=None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", default_factory=LeaderIdAndEpoch, tag=0)
    # KIP-391, kstore only.
    log_end_offset: Int64 = field("9+", default=-1, tag=39101, ignorable=True)


class TopicProduceResponse(Struct):
    """One entry of `responses` in ProduceResponse."""

    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field("0+", default=[])


class NodeEndpoint(Struct):
    """One entry of `node_endpoints` in ProduceResponse."""

    node_id: Int32 = field("10+", default=0)
    host: String = field("10+", default="")
    port: Int32 = field("10+", default=0)
    rack: String | None = field("10+", default=None, nullable="10+")


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    """The answer to ProduceRequest."""

    responses: list[TopicProduceResponse] = field("0+", default=[])
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default=[], tag=0)
