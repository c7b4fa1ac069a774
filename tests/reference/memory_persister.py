"""A Persister that keeps the state of share-partitions in memory: for tests of what uses one."""

from __future__ import annotations

import asyncio
from itertools import count

from kstore.broker.runtime.shares.persister import Persister
from kstore.broker.state.shares.persisted import (
    SharePartitionKey,
    ShareState,
    ShareSummary,
    ShareWrite,
)
from kstore.broker.state.shares.share_shard import Refusal, ShareRecord, ShareShard
from kstore.errors import KafkaError, error_for


class MemoryPersister(Persister):
    """The rules are those of the share coordinator; topics and time are ignored."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.shard = ShareShard(updates_per_snapshot)
        self.records: list[ShareRecord] = []
        """What a coordinator would have appended."""
        self.refusals: list[KafkaError] = []
        """The next calls fail with these."""
        self._now_ms = count(1)

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        await self._begin()
        self._take(self.shard.initialize(key, state_epoch, start_offset, next(self._now_ms)))

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        await self._begin()
        self._take(self.shard.read(key, leader_epoch, next(self._now_ms)))
        return self.shard.state_of(key)

    async def write(self, key: SharePartitionKey, change: ShareWrite) -> None:
        await self._begin()
        self.write_now(key, change)

    def write_now(self, key: SharePartitionKey, change: ShareWrite) -> None:
        """As write, before this returns."""
        self._take(self.shard.write(key, change, next(self._now_ms)))

    async def delete(self, key: SharePartitionKey) -> None:
        await self._begin()
        self._take(self.shard.delete(key))

    async def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> ShareSummary:
        await self._begin()
        return self.shard.summary_of(key)

    async def _begin(self) -> None:
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)

    def _take(self, decided: ShareRecord | Refusal | None) -> None:
        if isinstance(decided, Refusal):
            raise error_for(decided.error_code, decided.message)
        if decided is not None:
            self.shard.replay(decided, len(self.records))
            self.records.append(decided)
