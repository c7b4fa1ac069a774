"""What is kept of a share-partition: its values, as the share coordinator and who asks it have
them. No rule is here.
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64encode
from typing import NamedTuple
from uuid import UUID

__all__ = [
    "ACKNOWLEDGED",
    "ARCHIVED",
    "AVAILABLE",
    "NO_COUNT",
    "NO_EPOCH",
    "NO_OFFSET",
    "SharePartitionKey",
    "ShareState",
    "ShareSummary",
    "ShareWrite",
    "StateBatch",
]

AVAILABLE = 0
ACKNOWLEDGED = 2
ARCHIVED = 4
NO_OFFSET = -1
"""No start offset is known, or it has not changed."""
NO_EPOCH = -1
NO_COUNT = -1
"""The count of completed deliveries is not known."""


PARTITION = re.compile(r"-?[0-9]{1,10}", re.ASCII)


class SharePartitionKey(NamedTuple):
    """A partition of a topic as one share group has it."""

    group_id: str
    topic_id: UUID
    partition: int

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """What `str` gives, back. ValueError for what is no such key."""
        group_id, *rest = text.rsplit(":", 2)
        try:
            topic_id, partition = rest
            if not group_id or not PARTITION.fullmatch(partition):
                raise ValueError
            decoded = b64decode(topic_id + "==", altchars=b"-_", validate=True)
            return cls(group_id, UUID(bytes=decoded), int(partition))
        except ValueError:
            form = "group:topic id:partition, the id as Kafka writes it"
            raise ValueError(f"{text!r} is not a share-partition: it must be {form}") from None

    def __str__(self) -> str:
        """As FindCoordinator has it: group, topic id (as Kafka writes ids) and partition."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """Offsets, the last included, that have the same delivery state and the same number of
    deliveries.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    """AVAILABLE, ACKNOWLEDGED or ARCHIVED."""
    delivery_count: int


class ShareState(NamedTuple):
    """What a partition's new leader reads."""

    state_epoch: int
    start_offset: int
    """NO_OFFSET: the group has none yet."""
    batches: tuple[StateBatch, ...]
    """In order and apart; offsets in none of them were never delivered."""


class ShareSummary(NamedTuple):
    """How far a share-partition is."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """NO_OFFSET: the group has none yet."""
    delivery_complete_count: int
    """Of the offsets from the start offset on; NO_COUNT: not known."""


class ShareWrite(NamedTuple):
    """What a partition's leader has changed."""

    state_epoch: int
    leader_epoch: int
    start_offset: int = NO_OFFSET
    """NO_OFFSET: not changed."""
    delivery_complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()
