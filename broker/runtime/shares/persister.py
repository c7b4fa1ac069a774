"""The interface to the stored state of share-partitions, for partition leaders and the group
coordinator (Kafka's Persister). coordinator_persister.py implements it.
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
    """The stored state of share-partitions, on whichever brokers their coordinators are (KIP-932).

    Use ``asyncio.gather`` for many share-partitions: those with the same coordinator are sent in
    few requests. All methods raise KafkaError: FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH (a newer
    epoch exists), INVALID_REQUEST (it is not initialized), UNKNOWN_TOPIC_OR_PARTITION, and, after
    some attempts, COORDINATOR_NOT_AVAILABLE and similar errors.
    """

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Initialize the state, or reset it. The state epoch must not be lower than the stored one.
        ``start_offset`` may be NO_OFFSET.
        """

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """Read the state for the leader of this epoch. From now on, leaders of lower epochs are
        fenced.
        """

    async def write(self, key: SharePartitionKey, change: ShareWrite) -> None:
        """Write a change. It is durable when this returns."""

    def begin_write(self, key: SharePartitionKey, change: ShareWrite) -> Awaitable[None] | None:
        """Begin a `write`; None if it is already durable."""
        return self.write(key, change)

    async def delete(self, key: SharePartitionKey) -> None:
        """Delete the state. It is no error if there is none."""

    async def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> ShareSummary:
        """Read the progress. Without a state, the summary has NO_OFFSET. ``leader_epoch`` may be
        NO_EPOCH.
        """
