"""The share-partitions that this broker leads, and the share sessions of their members (Kafka's
SharePartitionManager): waiting fetches, acknowledgements, ends of sessions.

The handlers check rights (broker/api/shares).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.broker.runtime.shares.share_partition import (
    AcknowledgedRange,
    Acquired,
    SharePartition,
    Unpacker,
    Wanted,
    now_us,
)
from kstore.broker.state.shares.persisted import SharePartitionKey
from kstore.broker.state.shares.share_figures import ShareFigures
from kstore.broker.state.shares.share_limits import ShareLimits, limits_of
from kstore.broker.state.shares.share_sessions import (
    INITIAL_EPOCH,
    ShareSession,
    ShareSessionCache,
    TopicIdPartition,
)
from kstore.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.shares.persister import Persister

__all__ = ["FetchLimits", "Fetched", "SharePartitionManager"]

MAX_SESSIONS = "group.share.max.share.sessions"
MOST_LIMITS = 1000
"""The limit of cached ShareLimits."""


class FetchLimits(NamedTuple):
    """How much a ShareFetch requests, and how long it waits."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    record_limit: bool


class Fetched(NamedTuple):
    """The result of one partition of a fetch."""

    error_code: int
    acquired: Acquired | None = None


class SharePartitionManager:
    """The share-partitions and share sessions of one broker. It is created at the first
    ShareFetch.
    """

    def __init__(
        self,
        node: Node,
        table: PartitionTable,
        configs: DynamicConfigs,
        persister: Callable[[], Persister],
        unpacker: Callable[[], Unpacker],
    ) -> None:
        self.sessions: ShareSessionCache[Connection | None] = ShareSessionCache()
        self.figures = ShareFigures()
        self.waiting = 0
        """How many fetches wait for records."""
        self._node = node
        self._table = table
        self._configs = configs
        self._persister = persister
        self._unpacker = unpacker
        self._partitions: dict[SharePartitionKey, SharePartition] = {}
        self._limits: dict[int, tuple[Mapping[str, Any], ShareLimits]] = {}
        """Cached limits. The key is the settings object, which a change replaces."""

    def limits(self, group_id: str) -> ShareLimits:
        """A group's settings. They are cached, so call this at each use."""
        configs = self._configs.group(group_id)
        known = self._limits.get(id(configs))
        if known is None:
            if len(self._limits) >= MOST_LIMITS:
                self._limits.clear()
            known = self._limits[id(configs)] = configs, limits_of(configs)
        return known[1]

    @property
    def loaded(self) -> list[SharePartition]:
        """The share-partitions that are led here and whose state is loaded."""
        known = self._partitions.values()
        return [each for each in known if each.records is not None and each.is_led]

    # ---- sessions ----

    def begin(
        self, group_id: str, member_id: str, epoch: int, connection: Connection | None
    ) -> ShareSession[Connection | None] | int:
        """The session of a request, or an error code. The initial epoch opens a session."""
        if epoch != INITIAL_EPOCH:
            return self.sessions.take(group_id, member_id, epoch)
        self.end_session(group_id, member_id)
        most: int = self._node.config[MAX_SESSIONS]
        return self.sessions.open(group_id, member_id, connection, most)

    def end_session(self, group_id: str, member_id: str) -> None:
        """End a member's session; the records that it has acquired become available again."""
        session = self.sessions.remove(group_id, member_id)
        if session is not None:
            for key, found in self._partitions.items():
                if key.group_id == group_id:
                    found.release(session.owner)
            for found in [one for key, one in self._partitions.items() if key.group_id == group_id]:
                self._drop_if_unused(found)

    def lost(self, connection: Connection) -> None:
        """A connection was closed: end the sessions that it has opened."""
        for session in self.sessions.of_connection(connection):
            self.figures.evicted += 1
            self.end_session(session.group_id, session.member_id)

    def _drop_if_unused(self, found: SharePartition) -> None:
        """Drop a share-partition whose group has no sessions. The next session reads the state
        again, since offsets may be set or deleted before it.
        """
        if found.is_stored and not self.sessions.has(found.key.group_id):
            found.close()
            if self._partitions.get(found.key) is found:
                del self._partitions[found.key]

    # ---- share-partitions ----

    def partition(self, place: TopicIdPartition) -> Partition | None:
        """A partition that this broker knows."""
        entry = self._table.topic_by_id(place.topic_id.bytes)
        if entry is None or not 0 <= place.partition < len(entry.partitions):
            return None
        return entry.partitions[place.partition]

    def _find(self, group_id: str, place: TopicIdPartition) -> SharePartition | None:
        """The share-partition if it is loaded in the current leader epoch."""
        key = SharePartitionKey(group_id, place.topic_id, place.partition)
        found = self._partitions.get(key)
        if found is not None and not found.is_led:
            del self._partitions[key]
            found.close()
            return None
        return found

    async def _open(self, group_id: str, place: TopicIdPartition) -> SharePartition | int:
        """The share-partition, which is loaded if necessary; or an error code."""
        found = self._find(group_id, place)
        if found is None:
            partition = self.partition(place)
            if partition is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition.failed:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if not partition.online:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            key = SharePartitionKey(group_id, place.topic_id, place.partition)
            limits = partial(self.limits, group_id)
            found = SharePartition(
                self._node, key, partition, self._persister(), limits, self._drop_if_unused,
                self.figures,
            )  # fmt: skip
            self._partitions[key] = found
        if found.records is None:
            try:
                await found.load(self._unpacker)
            except KafkaError as problem:
                if self._partitions.get(found.key) is found:
                    del self._partitions[found.key]
                    found.close()
                return problem.code
        return found

    # ---- fetching ----

    async def fetch(
        self,
        session: ShareSession[Connection | None],
        places: Iterable[TopicIdPartition],
        limits: FetchLimits,
    ) -> dict[TopicIdPartition, Fetched]:
        """Acquire records of partitions for a member, and wait if there are none. The result has
        only partitions with records or errors.
        """
        requested, began_us = list(places), now_us()
        answer = await self._fetch(session, requested, limits)
        acquired = sum(row.acquired is not None for row in answer.values())
        self.figures.fetched(session.group_id, len(requested), acquired, now_us() - began_us)
        failed = {place.topic_id for place, row in answer.items() if row.error_code}
        for topic_id in {place.topic_id for place in requested}:
            self.figures.topic_fetched(topic_id, failed=topic_id in failed)
        return answer

    async def _fetch(
        self,
        session: ShareSession[Connection | None],
        requested: Sequence[TopicIdPartition],
        limits: FetchLimits,
    ) -> dict[TopicIdPartition, Fetched]:
        loop = self._node.loop
        ends = loop.time() + limits.max_wait_ms / 1000
        if limits.max_records <= 0 or limits.batch_size <= 0:
            return {}
        waiter: asyncio.Future[bool] | None = None
        requested_of: list[SharePartition] = []
        try:
            while self.sessions.get(session.group_id, session.member_id) is session:
                errors: dict[TopicIdPartition, Fetched] = {}
                opened = self._opened(session.group_id, requested)
                if opened is None:
                    if waiter is not None:  # another one may acquire them during the reads
                        _end_waits(waiter, requested_of)
                    opened, errors = await self._open_all(session.group_id, requested)
                last = loop.time() >= ends
                answer = await self._acquire(session, opened, limits, waiter, patient=not last)
                if answer or errors or last or not opened:
                    self.figures.expired += waiter is not None and not (answer or errors)
                    return errors | answer
                if waiter is not None:
                    _end_waits(waiter, requested_of)
                waiter, requested_of = loop.create_future(), list(opened.values())
                for found in requested_of:
                    found.wait(waiter, needs_more=limits.min_bytes > 1)
                if not await self._wait(waiter, ends - loop.time()):
                    ends = 0.0
            return {}  # the session has ended
        finally:
            if waiter is not None:
                _end_waits(waiter, requested_of)

    def _opened(
        self, group_id: str, requested: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, SharePartition] | None:
        """The share-partitions, or None if one of them is not loaded."""
        opened: dict[TopicIdPartition, SharePartition] = {}
        for place in requested:
            found = self._find(group_id, place)
            if found is None or found.records is None:
                return None
            opened[place] = found
        return opened

    async def _open_all(
        self, group_id: str, requested: Sequence[TopicIdPartition]
    ) -> tuple[dict[TopicIdPartition, SharePartition], dict[TopicIdPartition, Fetched]]:
        """As `_opened`, but loads the missing ones, all at the same time. Also returns the errors
        of those that cannot be loaded.
        """
        results = await asyncio.gather(*(self._open(group_id, place) for place in requested))
        opened: dict[TopicIdPartition, SharePartition] = {}
        errors: dict[TopicIdPartition, Fetched] = {}
        for place, found in zip(requested, results, strict=True):
            if isinstance(found, SharePartition):
                opened[place] = found
            else:
                errors[place] = Fetched(found)
        return opened, errors

    async def _acquire(
        self,
        session: ShareSession[Connection | None],
        opened: Mapping[TopicIdPartition, SharePartition],
        limits: FetchLimits,
        waiter: asyncio.Future[bool] | None,
        *,
        patient: bool,
    ) -> dict[TopicIdPartition, Fetched]:
        ready = {place: found for place, found in opened.items() if found.can_acquire(waiter)}
        if patient and limits.min_bytes > 1 and not self._has_bytes(ready.values(), limits):
            return {}
        answer: dict[TopicIdPartition, Fetched] = {}
        records, max_bytes = limits.max_records, limits.max_bytes
        for index, (place, found) in enumerate(ready.items()):
            share = max(1, max_bytes // (len(ready) - index))
            wanted = Wanted(session.owner, records, share, limits.batch_size, limits.record_limit)
            acquired = await found.acquire(wanted, waiter)
            if acquired is None:
                continue
            answer[place] = Fetched(ErrorCode.NONE, acquired)
            records -= acquired.size
            max_bytes -= len(acquired.records)
            if records <= 0 or max_bytes <= 0:
                break
        if self.sessions.get(session.group_id, session.member_id) is not session:
            for place in answer:  # the session ended during a read from the disk
                opened[place].release(session.owner)
        return answer

    def _has_bytes(self, ready: Iterable[SharePartition], limits: FetchLimits) -> bool:
        return sum(found.available_bytes(limits.min_bytes) for found in ready) >= limits.min_bytes

    async def _wait(self, waiter: asyncio.Future[bool], timeout_s: float) -> bool:
        """Wait. Returns True if there may be records to acquire, False at the timeout."""
        timer = self._node.loop.call_later(max(0.0, timeout_s), _give_up, waiter)
        self.waiting += 1
        try:
            return await waiter
        finally:
            self.waiting -= 1
            timer.cancel()

    # ---- acknowledging ----

    def acknowledge(
        self,
        session: ShareSession[Connection | None],
        batches: Mapping[TopicIdPartition, Sequence[AcknowledgedRange]],
    ) -> Coroutine[None, None, dict[TopicIdPartition, int]]:
        """Acknowledge ranges of partitions at once. The error codes are returned when all
        successful acknowledgements are stored.
        """
        return self._error_codes(
            {place: self._acknowledge_one(session, place, batches[place]) for place in batches}
        )

    async def _error_codes(
        self, begun: Mapping[TopicIdPartition, int | asyncio.Future[int]]
    ) -> dict[TopicIdPartition, int]:
        codes = {
            place: code if isinstance(code, int) else await code for place, code in begun.items()
        }
        failed = {place.topic_id for place, code in codes.items() if code}
        for topic_id in {place.topic_id for place in codes}:
            self.figures.topic_acknowledged(topic_id, failed=topic_id in failed)
        return codes

    def _acknowledge_one(
        self,
        session: ShareSession[Connection | None],
        place: TopicIdPartition,
        batches: Sequence[AcknowledgedRange],
    ) -> int | asyncio.Future[int]:
        found = self._find(session.group_id, place)
        if found is not None:
            return found.acknowledge(session.owner, batches)
        partition = self.partition(place)
        if partition is not None and not partition.online and not partition.failed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _end_waits(waiter: asyncio.Future[bool], requested_of: Iterable[SharePartition]) -> None:
    for found in requested_of:
        found.end_wait(waiter)


def _give_up(waiter: asyncio.Future[bool]) -> None:
    """Called at the timeout of a waiter."""
    if not waiter.done():
        waiter.set_result(False)
