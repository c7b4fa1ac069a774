"""Metadata and DescribeTopicPartitions: brokers, topics, partitions and their leaders. Topic ids
(KIP-516) exist from version 10 on, leader epochs (KIP-320) from version 7 on.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsRequestCursor",
    "DescribeTopicPartitionsResponse",
    "DescribeTopicPartitionsResponseCursor",
    "DescribeTopicPartitionsResponsePartition",
    "DescribeTopicPartitionsResponseTopic",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
    "TopicRequest",
]


class MetadataRequestTopic(Struct):
    """One entry of `topics` in MetadataRequest."""

    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    name: String | None = field("0+", default="", nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    """Asks for the named topics (null: all; empty: none, from version 1 on) and for the brokers."""

    topics: list[MetadataRequestTopic] | None = field("0+", default=[], nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


class MetadataResponseBroker(Struct):
    """One entry of `brokers` in MetadataResponse."""

    node_id: Int32 = field("0+", default=0)
    host: String = field("0+", default="")
    port: Int32 = field("0+", default=0)
    rack: String | None = field("1+", default=None, nullable="1+", ignorable=True)


class MetadataResponsePartition(Struct):
    """One entry of `partitions` in MetadataResponseTopic."""

    error_code: Int16 = field("0+", default=0)
    partition_index: Int32 = field("0+", default=0)
    leader_id: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = field("0+", default=[])
    isr_nodes: list[Int32] = field("0+", default=[])
    offline_replicas: list[Int32] = field("5+", default=[], ignorable=True)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("9+", default=-1, tag=23200, ignorable=True)


class MetadataResponseTopic(Struct):
    """One entry of `topics` in MetadataResponse."""

    error_code: Int16 = field("0+", default=0)
    name: String | None = field("0+", default="", nullable="12+")
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field("0+", default=[])
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)
    # KIP-253, kstore only: the topic shrinks, and producers use only its first partitions.
    partition_count: Int32 = field("9+", default=-1, tag=25300, ignorable=True)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    """The answer to MetadataRequest."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = field("0+", default=[])
    cluster_id: String | None = field("2+", default=None, nullable="2+", ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field("0+", default=[])
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", default=0, ignorable=True)
    # KIP-232, kstore only.
    max_partition_epoch: Int32 = field("9+", default=-1, tag=23201, ignorable=True)


class TopicRequest(Struct):
    """One entry of `topics` in DescribeTopicPartitionsRequest."""

    name: String = field("0+", default="")


class DescribeTopicPartitionsRequestCursor(Struct):
    """The field `cursor` of DescribeTopicPartitionsRequest."""

    topic_name: String = field("0+", default="")
    partition_index: Int32 = field("0+", default=0)


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    """Asks for partitions of topics, a page at a time (KIP-966)."""

    topics: list[TopicRequest] = field("0+", default=[])
    response_partition_limit: Int32 = field("0+", default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = field("0+", default=None, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    """One entry of `partitions` in DescribeTopicPartitionsResponseTopic."""

    error_code: Int16 = field("0+", default=0)
    partition_index: Int32 = field("0+", default=0)
    leader_id: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = field("0+", default=[])
    isr_nodes: list[Int32] = field("0+", default=[])
    eligible_leader_replicas: list[Int32] | None = field("0+", default=None, nullable="0+")
    last_known_elr: list[Int32] | None = field("0+", default=None, nullable="0+")
    offline_replicas: list[Int32] = field("0+", default=[], ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    """One entry of `topics` in DescribeTopicPartitionsResponse."""

    error_code: Int16 = field("0+", default=0)
    name: String | None = field("0+", default="", nullable="0+")
    topic_id: Uuid = field("0+", default=ZERO_UUID, ignorable=True)
    is_internal: Bool = field("0+", default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field("0+", default=[])
    topic_authorized_operations: Int32 = field("0+", default=-2147483648)


class DescribeTopicPartitionsResponseCursor(Struct):
    """The field `next_cursor` of DescribeTopicPartitionsResponse."""

    topic_name: String = field("0+", default="")
    partition_index: Int32 = field("0+", default=0)


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    """The answer to DescribeTopicPartitionsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field("0+", default=[])
    next_cursor: DescribeTopicPartitionsResponseCursor | None = field(
        "0+", default=None, nullable="0+"
    )
