"""The start offsets of share groups: describe, alter, delete."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
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
    "AlterShareGroupOffsetsRequest",
    "AlterShareGroupOffsetsRequestPartition",
    "AlterShareGroupOffsetsRequestTopic",
    "AlterShareGroupOffsetsResponse",
    "AlterShareGroupOffsetsResponsePartition",
    "AlterShareGroupOffsetsResponseTopic",
    "DeleteShareGroupOffsetsRequest",
    "DeleteShareGroupOffsetsRequestTopic",
    "DeleteShareGroupOffsetsResponse",
    "DeleteShareGroupOffsetsResponseTopic",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsRequestGroup",
    "DescribeShareGroupOffsetsRequestTopic",
    "DescribeShareGroupOffsetsResponse",
    "DescribeShareGroupOffsetsResponseGroup",
    "DescribeShareGroupOffsetsResponsePartition",
    "DescribeShareGroupOffsetsResponseTopic",
]


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """One entry of `topics` in DescribeShareGroupOffsetsRequestGroup."""

    topic_name: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """One entry of `groups` in DescribeShareGroupOffsetsRequest."""

    group_id: String = field("0+", default="")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        "0+", default=[], nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    """Asks for the share-partition start offsets of groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field("0+", default=[])


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """One entry of `partitions` in DescribeShareGroupOffsetsResponseTopic."""

    partition_index: Int32 = field("0+", default=0)
    start_offset: Int64 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)
    lag: Int64 = field("1+", default=-1, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """One entry of `topics` in DescribeShareGroupOffsetsResponseGroup."""

    topic_name: String = field("0+", default="")
    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field("0+", default=[])


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """One entry of `groups` in DescribeShareGroupOffsetsResponse."""

    group_id: String = field("0+", default="")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field("0+", default=[])
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    """The answer to DescribeShareGroupOffsetsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field("0+", default=[])


class AlterShareGroupOffsetsRequestPartition(Struct):
    """One entry of `partitions` in AlterShareGroupOffsetsRequestTopic."""

    partition_index: Int32 = field("0+", default=0)
    start_offset: Int64 = field("0+", default=0)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("0+", default=-1, tag=23200, ignorable=True)


class AlterShareGroupOffsetsRequestTopic(Struct):
    """One entry of `topics` in AlterShareGroupOffsetsRequest."""

    topic_name: String = field("0+", default="")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field("0+", default=[])


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions="0", flexible="0+"):
    """Sets the start offsets of an empty group."""

    group_id: String = field("0+", default="")
    topics: list[AlterShareGroupOffsetsRequestTopic] = field("0+", default=[])


class AlterShareGroupOffsetsResponsePartition(Struct):
    """One entry of `partitions` in AlterShareGroupOffsetsResponseTopic."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")


class AlterShareGroupOffsetsResponseTopic(Struct):
    """One entry of `responses` in AlterShareGroupOffsetsResponse."""

    topic_name: String = field("0+", default="")
    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field("0+", default=[])


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0", flexible="0+"):
    """The answer to AlterShareGroupOffsetsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    responses: list[AlterShareGroupOffsetsResponseTopic] = field("0+", default=[])


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """One entry of `topics` in DeleteShareGroupOffsetsRequest."""

    topic_name: String = field("0+", default="")


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0", flexible="0+"):
    """Deletes the start offsets of topics for a group."""

    group_id: String = field("0+", default="")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field("0+", default=[])


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """One entry of `responses` in DeleteShareGroupOffsetsResponse."""

    topic_name: String = field("0+", default="")
    topic_id: Uuid = field("0+", default=ZERO_UUID)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+"):
    """The answer to DeleteShareGroupOffsetsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field("0+", default=[])
