"""Where the state of share-partitions is kept, as partition leaders and the group coordinator use
it (Kafka's Persister). How it gets there is coordinator_persister.py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kstore.broker.state.shares.persisted import (
        SharePartitionKey,
        ShareState,
        ShareSummary,
        ShareWrite,
    )

__all__ = ["Persister"]


class Persister(Protocol):
    """The state of share-partitions, wherever its coordinators are (KIP-932).

    Ask for many at once with ``asyncio.gather``: what goes to one broker goes in few requests. All
    methods raise KafkaError: FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH (somebody newer was
    here), INVALID_REQUEST (it is not initialized), UNKNOWN_TOPIC_OR_PARTITION, and, after some
    attempts, COORDINATOR_NOT_AVAILABLE and the like.
    """

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Begin, or begin anew with a state epoch that is not lower; ``start_offset`` may be
        NO_OFFSET.
        """

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state, for the leader of that epoch; those of lower ones are fenced from now on."""

    async def write(self, key: SharePartitionKey, change: ShareWrite) -> None:
        """Add a change; when this returns, it lasts."""

    def begin_write(self, key: SharePartitionKey, change: ShareWrite) -> Awaitable[None] | None:
        """As `write`, which is under way when this returns; None if it lasts by then."""
        return self.write(key, change)

    async def delete(self, key: SharePartitionKey) -> None:
        """Forget it; what is not there is no error."""

    async def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> ShareSummary:
        """How far it is; of what is not there, a summary with NO_OFFSET. ``leader_epoch`` may be
        NO_EPOCH.
        """
