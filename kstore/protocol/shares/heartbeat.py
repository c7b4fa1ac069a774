"""ShareGroupHeartbeat (KIP-932): joins a share group, stays in it, leaves it."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "ShareGroupHeartbeatRequest",
    "ShareGroupHeartbeatResponse",
    "ShareGroupHeartbeatResponseAssignment",
    "ShareGroupHeartbeatResponseTopicPartitions",
]


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    """Joins, stays in or leaves a share group."""

    group_id: String = field("0+", default="")
    member_id: String = field("0+", default="")
    member_epoch: Int32 = field("0+", default=0)
    rack_id: String | None = field("0+", default=None, nullable="0+")
    subscribed_topic_names: list[String] | None = field("0+", default=None, nullable="0+")


class ShareGroupHeartbeatResponseTopicPartitions(Struct):
    """One entry of `topic_partitions` in ShareGroupHeartbeatResponseAssignment."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ShareGroupHeartbeatResponseAssignment(Struct):
    """The field `assignment` of ShareGroupHeartbeatResponse."""

    topic_partitions: list[ShareGroupHeartbeatResponseTopicPartitions] = field("0+", default=[])


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    """The answer to ShareGroupHeartbeatRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    member_id: String | None = field("0+", default=None, nullable="0+")
    member_epoch: Int32 = field("0+", default=0)
    heartbeat_interval_ms: Int32 = field("0+", default=0)
    assignment: ShareGroupHeartbeatResponseAssignment | None = field(
        "0+", default=None, nullable="0+"
    )
