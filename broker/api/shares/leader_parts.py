"""What the handlers of ShareFetch and ShareAcknowledge share: the parts of a broker that they use,
and the checks of partitions and acknowledgements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.security.access import HasAuthorizer, allowed
from kstore.broker.state.shares.share_sessions import TopicIdPartition
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.api import RequestContext
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.quotas.client_throttles import ClientThrottles
    from kstore.broker.runtime.shares.share_partition import AcknowledgedRange
    from kstore.broker.runtime.shares.share_partition_manager import SharePartitionManager
    from kstore.broker.state.metadata.image import Endpoint, MetadataImage
    from kstore.config import BrokerConfig

__all__ = [
    "Acknowledgement", "ShareLeaderParts", "acknowledge_message", "check_acknowledgements",
    "check_member", "endpoint_of", "leader_of", "place_error",
]  # fmt: skip

MAX_MEMBER_ID = 36
RENEW = 4
REJECT = 3
MESSAGES = {
    ErrorCode.INVALID_RECORD_STATE: "A record of a range is not acquired by this member.",
    ErrorCode.INVALID_REQUEST: "A range is out of order, has unknown acknowledgement types, or"
    " goes past what was acquired.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The group has acquired no records of this partition on "
    "this broker.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "Another broker leads this partition.",
}


class ShareLeaderParts(HasAuthorizer, Protocol):
    """The parts of a broker that ShareFetch and ShareAcknowledge use."""

    @property
    def table(self) -> PartitionTable:
        """The partitions that this broker knows."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings."""

    @property
    def throttles(self) -> ClientThrottles | None:
        """Applies the quotas of clients; None while there are none."""

    @property
    def share_partitions(self) -> Lazy[SharePartitionManager]:
        """The share-partitions that this broker leads."""


class Acknowledgement(Protocol):
    """An acknowledged range in either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def check_member(group_id: str | None, member_id: str | None) -> int:
    """Check the group and member id. Returns an error code."""
    if group_id is None or not member_id or len(member_id) > MAX_MEMBER_ID:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def check_acknowledgements(
    batches: Iterable[Acknowledgement], *, renews: bool
) -> Sequence[AcknowledgedRange] | int:
    """Check that ranges are ascending and disjoint. Returns them, or an error code. ``renews``:
    locks may be renewed.
    """
    most = RENEW if renews else REJECT
    found: list[AcknowledgedRange] = []
    end = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first <= end or last < first or not types or min(types) < 0 or max(types) > most:
            return ErrorCode.INVALID_REQUEST
        if len(types) not in (1, last - first + 1):
            return ErrorCode.INVALID_REQUEST
        found.append((first, last, bytes(types)))
        end = last
    return found


def place_error(
    broker: ShareLeaderParts, ctx: RequestContext, place: TopicIdPartition, rights: dict[UUID, bool]
) -> int:
    """The error for a partition that the member may not use, else NONE. ``rights`` caches checked
    rights.
    """
    entry = broker.table.topic_by_id(place.topic_id.bytes)
    if entry is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    may = rights.get(place.topic_id)
    if may is None:
        name = entry.name.decode()
        may = allowed(broker, ctx, AclOperation.READ, AclResourceType.TOPIC, name)
        rights[place.topic_id] = may
    if not may:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    index = place.partition
    if not 0 <= index < len(entry.partitions) or entry.partitions[index] is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def acknowledge_message(code: int) -> str | None:
    """The message for an error of an acknowledgement."""
    return MESSAGES.get(code)


def leader_of(broker: ShareLeaderParts, place: TopicIdPartition) -> tuple[int, int]:
    """The leader of a partition, and its leader epoch."""
    partition = broker.share_partitions().partition(place)
    return (-1, -1) if partition is None else (partition.leader_id, partition.leader_epoch)


def endpoint_of(
    broker: ShareLeaderParts, ctx: RequestContext, node_id: int
) -> tuple[Endpoint, str | None] | None:
    """The address of a broker for clients of this listener, and its rack."""
    known = broker.image.brokers.get(node_id)
    end = None if known is None else known.endpoint(ctx.listener)
    return None if known is None or end is None else (end, known.rack)
