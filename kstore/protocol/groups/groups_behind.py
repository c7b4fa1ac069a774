"""GroupsBehind (KIP-253), kstore's own API 25302, between brokers: the groups that have not read
the retiring partitions of a topic.
"""

from __future__ import annotations

from kstore.protocol.schema import ZERO_UUID, Int16, Int32, Message, String, Uuid, field

__all__ = ["GroupsBehindRequest", "GroupsBehindResponse"]


class GroupsBehindRequest(Message, api_key=25302, versions="0", flexible="0+"):
    """The controller asks a coordinator about a contraction that it has prepared."""

    topic_name: String = field("0+", default="")
    topic_id: Uuid = field("0+", default=ZERO_UUID)
    retired_from: Int32 = field("0+", default=0)
    retired_epoch: Int32 = field("0+", default=0)
    retired_partition_epoch: Int32 = field("0+", default=0)


class GroupsBehindResponse(Message, api_key=25302, versions="0", flexible="0+"):
    """The groups that read remaining partitions and have not committed the others to their end;
    `partitions` are those of __consumer_offsets whose groups were checked.
    """

    error_code: Int16 = field("0+", default=0)
    partitions: list[Int32] = field("0+", default=[])
    groups: list[String] = field("0+", default=[])
