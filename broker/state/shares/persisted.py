"""The values in the stored state of a share-partition, for the share coordinator and its callers.
This file has no rules.
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
    """A partition of a topic in one share group."""

    group_id: str
    topic_id: UUID
    partition: int

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """Parse the result of `str`. Raises ValueError if it is invalid."""
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
        """The form of FindCoordinator: group, topic id (in Kafka's format) and partition."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """A range of offsets, including the last, with equal delivery state and delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """AVAILABLE, ACKNOWLEDGED or ARCHIVED."""
    delivery_count: int


class ShareState(NamedTuple):
    """The state that a partition's new leader reads."""

    state_epoch: int
    start_offset: int
    """NO_OFFSET if the group has none yet."""
    batches: tuple[StateBatch, ...]
    """Sorted and disjoint. Offsets outside them were never delivered."""


class ShareSummary(NamedTuple):
    """The progress of a share-partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """NO_OFFSET if the group has none yet."""
    delivery_complete_count: int
    """The number of completed deliveries from the start offset on. NO_COUNT if unknown."""


class ShareWrite(NamedTuple):
    """A change by a partition's leader."""

    state_epoch: int
    leader_epoch: int
    start_offset: int = NO_OFFSET
    """NO_OFFSET if unchanged."""
    delivery_complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()
