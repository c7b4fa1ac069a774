"""OffsetDelete (KIP-496): removes committed offsets of topics that the group does not consume."""

from __future__ import annotations

from kstore.protocol.schema import (
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "OffsetDeleteRequest",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponse",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
]


class OffsetDeleteRequestPartition(Struct):
    """One entry of `partitions` in OffsetDeleteRequestTopic."""

    partition_index: Int32 = field("0+", default=0)


class OffsetDeleteRequestTopic(Struct):
    """One entry of `topics` in OffsetDeleteRequest."""

    name: String = field("0+", default="")
    partitions: list[OffsetDeleteRequestPartition] = field("0+", default=[])


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    """Deletes a group's committed offsets of the given partitions."""

    group_id: String = field("0+", default="")
    topics: list[OffsetDeleteRequestTopic] = field("0+", default=[])


class OffsetDeleteResponsePartition(Struct):
    """One entry of `partitions` in OffsetDeleteResponseTopic."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)


class OffsetDeleteResponseTopic(Struct):
    """One entry of `topics` in OffsetDeleteResponse."""

    name: String = field("0+", default="")
    partitions: list[OffsetDeleteResponsePartition] = field("0+", default=[])


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    """The answer to OffsetDeleteRequest."""

    error_code: Int16 = field("0+", default=0)
    throttle_time_ms: Int32 = field("0+", default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field("0+", default=[])
