"""OffsetCommit and OffsetFetch: the committed offsets of groups, with KIP-232's partition epoch."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
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
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
]


class OffsetCommitRequestPartition(Struct):
    """One entry of `partitions` in OffsetCommitRequestTopic."""

    partition_index: Int32 = field("0+", default=0)
    committed_offset: Int64 = field("0+", default=0)
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    committed_metadata: String | None = field("0+", default="", nullable="0+")
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("8+", default=-1, tag=23200, ignorable=True)


class OffsetCommitRequestTopic(Struct):
    """One entry of `topics` in OffsetCommitRequest."""

    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field("0+", default=[])


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    """Commits offsets for a group, checked against the member's generation or epoch."""

    group_id: String = field("0+", default="")
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("1+", default="", ignorable=True)
    group_instance_id: String | None = field("7+", default=None, nullable="7+")
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field("0+", default=[])


class OffsetCommitResponsePartition(Struct):
    """One entry of `partitions` in OffsetCommitResponseTopic."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)


class OffsetCommitResponseTopic(Struct):
    """One entry of `topics` in OffsetCommitResponse."""

    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field("0+", default=[])


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    """The answer to OffsetCommitRequest."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field("0+", default=[])


class OffsetFetchRequestTopic(Struct):
    """One entry of `topics` in OffsetFetchRequest."""

    name: String = field("0-7", default="")
    partition_indexes: list[Int32] = field("0-7", default=[])
    # KIP-232, kstore only: in the order of the indexes.
    partition_epochs: list[Int32] = field("6-7", default=[], tag=23203, ignorable=True)


class OffsetFetchRequestTopics(Struct):
    """One entry of `topics` in OffsetFetchRequestGroup."""

    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[Int32] = field("8+", default=[])
    # KIP-232, kstore only: in the order of the indexes, if topics are named.
    partition_epochs: list[Int32] = field("8-9", default=[], tag=23203, ignorable=True)


class OffsetFetchRequestGroup(Struct):
    """One entry of `groups` in OffsetFetchRequest."""

    group_id: String = field("8+", default="")
    member_id: String | None = field("9+", default=None, nullable="9+", ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", default=[], nullable="8+")


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    """Asks for committed offsets; of several groups at once from version 8 on (KIP-709)."""

    group_id: String = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", default=[], nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+", default=[])
    require_stable: Bool = field("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    """One entry of `partitions` in OffsetFetchResponseTopic."""

    partition_index: Int32 = field("0-7", default=0)
    committed_offset: Int64 = field("0-7", default=0)
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: String | None = field("0-7", default="", nullable="0-7")
    error_code: Int16 = field("0-7", default=0)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("6+", default=-1, tag=23200, ignorable=True)


class OffsetFetchResponseTopic(Struct):
    """One entry of `topics` in OffsetFetchResponse."""

    name: String = field("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = field("0-7", default=[])


class OffsetFetchResponsePartitions(Struct):
    """One entry of `partitions` in OffsetFetchResponseTopics."""

    partition_index: Int32 = field("8+", default=0)
    committed_offset: Int64 = field("8+", default=0)
    committed_leader_epoch: Int32 = field("8+", default=-1, ignorable=True)
    metadata: String | None = field("8+", default="", nullable="8+")
    error_code: Int16 = field("8+", default=0)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("8+", default=-1, tag=23200, ignorable=True)


class OffsetFetchResponseTopics(Struct):
    """One entry of `topics` in OffsetFetchResponseGroup."""

    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field("8+", default=[])


class OffsetFetchResponseGroup(Struct):
    """One entry of `groups` in OffsetFetchResponse."""

    group_id: String = field("8+", default="")
    topics: list[OffsetFetchResponseTopics] = field("8+", default=[])
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    """The answer to OffsetFetchRequest."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default=[])
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default=[])
