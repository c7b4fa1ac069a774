"""One share-partition on the leader of its partition (Kafka's SharePartition). Its state is read on
first use. Changes take effect once they are stored. Its locks expire.

kstore._fast.shares.in_flight decides which member acquires what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kstore._fast.broker.partition import Partition
from kstore._fast.disk.page_reader import NotInMemory
from kstore._fast.shares.batch_headers import slice_of
from kstore._fast.shares.in_flight import InFlightRecords
from kstore._fast.shares.partition_wait import PartitionWait
from kstore.broker.runtime.log_dirs.cold_reads import finished, read, search_timestamp
from kstore.broker.state.shares.persisted import (
    NO_OFFSET,
    SharePartitionKey,
    ShareWrite,
    StateBatch,
)
from kstore.broker.state.shares.share_figures import PartitionFigures, ShareFigures
from kstore.broker.state.shares.share_limits import EARLIEST, LATEST, ShareLimits
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.log.timestamps import Look

if TYPE_CHECKING:
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.shares.persister import Persister

__all__ = ["AcknowledgedRange", "Acquired", "SharePartition", "Wanted", "now_us"]

T = TypeVar("T")
AcknowledgedRange = tuple[int, int, bytes]
"""First offset, last offset, and the acknowledge types: one for all offsets, or one for each."""
FENCED = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""Errors for a newer epoch in the stored state; the client gets this one and finds the leader."""
LEAST_READ_BYTES = 16 * 1024
MOST_TRIES = 16
"""The limit of reads in one fetch that find only records of aborted transactions."""


class Unpacker(Protocol):
    """The thread that unpacks compressed batches."""

    def look(self, find: Callable[[], T]) -> Awaitable[T]:
        """The result of ``find()``."""


class Wanted(NamedTuple):
    """A member's request for records."""

    owner: int
    max_records: int
    max_bytes: int
    batch_size: int
    record_limit: bool


class Acquired(NamedTuple):
    """Acquired records: whole batches, and which of their records the member has acquired."""

    records: bytes
    rows: list[tuple[int, int, int]]
    """(first offset, last offset, deliveries)."""

    @property
    def size(self) -> int:
        """The number of records."""
        return sum(last - first + 1 for first, last, _ in self.rows)


class SharePartition:
    """The records of one partition that are in flight in a share group, under one leader epoch."""

    def __init__(
        self,
        node: Node,
        key: SharePartitionKey,
        partition: Partition,
        persister: Persister,
        limits: Callable[[], ShareLimits],
        on_stored: Callable[[SharePartition], object],
        of_all: ShareFigures,
    ) -> None:
        """``on_stored`` is called when all changes are stored."""
        self.key = key
        self.figures = PartitionFigures()
        self.partition = partition
        self.leader_epoch: int = partition.leader_epoch
        self.closed = False
        """Whether it is no longer valid: another leader, another state, or no topic."""
        self.records: InFlightRecords | None = None
        """None until the state is loaded."""
        self._node = node
        self._persister = persister
        self._limits = limits
        self._on_stored = on_stored
        self._of_all = of_all
        self._state_epoch = 0
        self._loading: asyncio.Task[None] | None = None
        self._reading = False
        self._token = 1
        self._unstored: list[asyncio.Future[int]] = []
        self._dirty = False
        self._storing: asyncio.Task[None] | asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0
        self._waiters: dict[asyncio.Future[bool], bool] = {}
        self._next: asyncio.Future[bool] | None = None
        """The waiter that was woken and has not acquired yet: available records are for it."""
        self._wait: PartitionWait | None = None
        self._bytes_per_record = 200.0

    # ---- opening and closing ----

    @property
    def is_led(self) -> bool:
        """Whether this broker leads the partition, in the leader epoch of this object."""
        partition = self.partition
        return (
            not self.closed
            and partition.online
            and not partition.deleted
            and partition.leader_epoch == self.leader_epoch
        )

    async def load(self, unpacker: Callable[[], Unpacker]) -> None:
        """Read the state, once for all callers that wait for it. KafkaError if it is
        unavailable.
        """
        if self.records is None:
            if self._loading is None:
                self._loading = self._node.loop.create_task(self._load(unpacker))
            await asyncio.shield(self._loading)

    async def _load(self, unpacker: Callable[[], Unpacker]) -> None:
        began_us = now_us()
        state = await self._persister.read(self.key, self.leader_epoch)
        self._state_epoch = state.state_epoch
        start = state.start_offset
        is_new = start == NO_OFFSET
        if is_new:
            start = await self._first_offset(unpacker)
            # A group that begins at the log end offset must not lose records that arrive now.
            await self._persister.write(self.key, self._change(start))
        if not self.is_led:
            raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._of_all.load_us.record(now_us() - began_us)
        self.records = InFlightRecords(start, state.batches)
        self.records.set_log_start(self.partition.log_start_offset)

    async def _first_offset(self, unpacker: Callable[[], Unpacker]) -> int:
        """The start offset for a group that has none yet (share.auto.offset.reset)."""
        limits, partition = self._limits(), self.partition
        if limits.reset_ms == EARLIEST:
            return partition.log_start_offset
        if limits.reset_ms != LATEST:
            time_ms = max(0, self._node.now_ms() - limits.reset_ms)
            found = await finished(search_timestamp(partition.log, time_ms))
            while isinstance(found, Look):
                look = found
                found = await unpacker().look(look.find)
                if found is None:
                    found = await finished(
                        search_timestamp(partition.log, look.timestamp_ms, look.next_offset)
                    )
            if found is not None and found[0] < partition.high_watermark:
                return found[0]
        return partition.high_watermark

    @property
    def is_stored(self) -> bool:
        """Whether all changes are stored."""
        return not self._dirty and self._storing is None

    def close(self) -> None:
        """Close the share-partition: this broker serves its records no longer."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._end_wait()
        self._wake_all()

    # ---- acquiring ----

    def _limit_offset(self, limits: ShareLimits) -> int:
        partition = self.partition
        return partition.last_stable_offset if limits.committed else partition.high_watermark

    def can_acquire(self, waiter: asyncio.Future[bool] | None = None) -> bool:
        """Whether there are records to acquire that are not for another waiter."""
        records = self.records
        if records is None or self._reading or self._next not in (None, waiter):
            return False
        if not self.is_led:
            return False
        limits = self._limits()
        offset = records.next_fetch_offset()
        if offset >= self._limit_offset(limits):
            return False
        return offset <= records.end_offset or records.count() < limits.max_record_locks

    def available_bytes(self, enough: int) -> int:
        """About how many bytes can be acquired, counted up to about ``enough``."""
        assert self.records is not None
        offset, end = self.records.next_fetch_offset(), self._limit_offset(self._limits())
        try:
            found = self.partition.log.core.slice_at(offset, end, enough)
        except NotInMemory:
            return enough
        return 0 if found is None else found[2]

    async def acquire(
        self, wanted: Wanted, waiter: asyncio.Future[bool] | None = None
    ) -> Acquired | None:
        """Acquire records for a member; None if there are none. ``waiter``: its woken waiter."""
        records = self.records
        if records is None or not self.can_acquire(waiter):
            return None
        self._reading = True
        began_us = now_us()
        acquired = None
        try:
            records.set_log_start(self.partition.log_start_offset)
            for _ in range(MOST_TRIES):
                offset = records.next_fetch_offset()
                data, limits = await self._read(offset, wanted)
                if not data or not self.is_led:
                    return None
                acquired = self._take(records, wanted, offset, data, limits)
                if acquired is not None:
                    return acquired
            return None
        finally:
            self._reading = False
            self.figures.lock_ended(began_us, now_us())
            if acquired is not None:
                self.wake()  # there may be more records for the next waiter

    async def _read(self, offset: int, wanted: Wanted) -> tuple[bytes, ShareLimits]:
        """Read whole batches with about as many records as the member requests."""
        limits = self._limits()
        size = max(LEAST_READ_BYTES, int(wanted.max_records * self._bytes_per_record * 1.25))
        size = max(1, min(size, wanted.max_bytes))
        end = self._limit_offset(limits)
        if offset >= end:
            return b"", limits
        data, _ = await finished(read(self.partition.log, offset, end, size))
        return data, limits

    def _take(
        self,
        records: InFlightRecords,
        wanted: Wanted,
        offset: int,
        data: bytes,
        limits: ShareLimits,
    ) -> Acquired | None:
        before = records.end_offset
        deadline = self._now_ms() + limits.lock_ms
        rows = records.acquire(
            wanted.owner,
            data,
            offset,
            deadline=deadline,
            max_records=wanted.max_records,
            batch_size=wanted.batch_size,
            max_in_flight=limits.max_record_locks,
            max_deliveries=limits.max_deliveries,
            record_limit=wanted.record_limit,
            aborted=self._aborted(offset) if limits.committed else (),
        )
        if not rows:
            return None
        self._watch_locks(deadline)
        for first, last, deliveries in rows:
            if deliveries == 1:
                self.figures.batch_records.record(last - first + 1)
        start, end = slice_of(data, rows[0][0], rows[-1][1])
        sent = data[start:end]
        acquired = Acquired(sent, rows)
        if records.end_offset > before:
            self._bytes_per_record += (len(sent) / acquired.size - self._bytes_per_record) / 4
        return acquired

    def _aborted(self, offset: int) -> list[tuple[int, int, int]]:
        """(producer id, first offset, last offset) of aborted transactions from this offset on."""
        aborted = self.partition.log.core.producers.aborted
        return [
            (producer_id, first, last) for last, first, producer_id, _ in aborted if last >= offset
        ]

    # ---- acknowledging ----

    def acknowledge(
        self, owner: int, batches: Sequence[AcknowledgedRange]
    ) -> int | asyncio.Future[int]:
        """Acknowledge ranges, ascending and disjoint. Returns an error code, at once or when they
        are stored. Does not apply to records that are acquired later.
        """
        records = self.records
        if records is None or not self.is_led:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        limits = self._limits()
        deadline = self._now_ms() + limits.lock_ms
        error: int = records.acknowledge(
            owner, batches, self._token, max_deliveries=limits.max_deliveries, deadline=deadline
        )
        if error:
            return error
        self._of_all.acknowledge(batches)
        self._watch_locks(records.next_deadline())
        if not any(types.strip(b"\4") for _, _, types in batches):
            return ErrorCode.NONE
        done: asyncio.Future[int] = self._node.loop.create_future()
        self._unstored.append(done)
        self._store()
        return done

    def release(self, owner: int) -> None:
        """Release the records of a member whose session has ended."""
        if self.records is not None and not self.closed:
            limits = self._limits()
            if self.records.release(owner, self._token, max_deliveries=limits.max_deliveries):
                self._store()

    # ---- storing ----

    def _change(
        self, start: int, complete: int = 0, batches: tuple[StateBatch, ...] = ()
    ) -> ShareWrite:
        return ShareWrite(self._state_epoch, self.leader_epoch, start, complete, batches)

    def _store(self) -> None:
        """Store all changes since the last write. There is one write at a time; one that begins now
        has all changes of this turn of the loop.
        """
        self._dirty = True
        if self._storing is None:
            self._storing = self._node.loop.call_soon(self._store_now)

    def _store_now(self) -> None:
        """Write the changes. A task is created only if they become durable later."""
        self._storing = None
        token, waiting, begun, error = self._begin_storing()
        if begun is not None:
            self._storing = self._node.loop.create_task(self._store_later(token, waiting, begun))
            return
        self._stored(token, waiting, error)
        self._on_stored(self)

    async def _store_later(
        self, token: int, waiting: list[asyncio.Future[int]], begun: Awaitable[None]
    ) -> None:
        """Wait until the changes are durable, then store those that came meanwhile."""
        try:
            later: Awaitable[None] | None = begun
            error = 0
            while True:
                if later is not None:
                    error = await _error_of(later)
                self._stored(token, waiting, error)
                if not self._dirty:
                    break
                token, waiting, later, error = self._begin_storing()
        finally:
            self._storing = None
        self._on_stored(self)

    def _begin_storing(
        self,
    ) -> tuple[int, list[asyncio.Future[int]], Awaitable[None] | None, int]:
        """Begin a write: its token, its waiters, and what must be awaited; or an error code."""
        records = self.records
        assert records is not None
        self._dirty = False
        token, self._token = self._token, self._token + 1
        waiting, self._unstored = self._unstored, []
        if not self.is_led:
            return token, waiting, None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        start = records.start_after(token)
        batches = tuple(StateBatch(*row) for row in records.changes(token))
        change = self._change(start, records.complete_after(token), batches)
        return token, waiting, self._persister.begin_write(self.key, change), ErrorCode.NONE

    def _stored(self, token: int, waiting: list[asyncio.Future[int]], error: int) -> None:
        """Called when the changes of a token are durable, or never will be."""
        records = self.records
        assert records is not None
        if error:
            records.roll_back(token)
            if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.close()
            else:
                self._watch_locks(records.next_deadline())
        else:
            records.commit(token)
        self._answer(waiting, error)
        self.wake()

    @staticmethod
    def _answer(waiting: list[asyncio.Future[int]], error: int) -> None:
        for done in waiting:
            if not done.done():
                done.set_result(error)

    # ---- locks ----

    def _now_ms(self) -> int:
        return int(self._node.loop.time() * 1000)

    def _watch_locks(self, deadline: int) -> None:
        """Check the locks when the next one may expire."""
        if deadline < 0 or self.closed:
            return
        if self._timer is not None:
            if self._wakes_at <= deadline:
                return
            self._timer.cancel()
        self._wakes_at = deadline
        self._timer = self._node.loop.call_at(deadline / 1000 + 0.001, self._end_locks)

    def _end_locks(self) -> None:
        self._timer = None
        records = self.records
        if self.closed or records is None:
            return
        limits = self._limits()
        ended = records.expire(self._now_ms(), self._token, max_deliveries=limits.max_deliveries)
        if ended:
            self.figures.lock_timeouts += ended
            self._of_all.lock_timeouts += ended
            self._store()
        self._watch_locks(records.next_deadline())

    # ---- waiting ----

    def wait(self, waiter: asyncio.Future[bool], *, needs_more: bool) -> None:
        """Complete the waiter with True when there may be records to acquire. ``needs_more``: one
        record may not be enough for it, so the next waiter is woken as well.
        """
        self._waiters[waiter] = needs_more
        if self._wait is None and not self.closed:
            self._wait = PartitionWait(self.partition, self.wake)

    def end_wait(self, waiter: asyncio.Future[bool]) -> None:
        """Called when the waiter has acquired, or no longer waits. The next one gets the rest."""
        self._waiters.pop(waiter, None)
        is_next = self._next is waiter
        if is_next:
            self._next = None
        if not self._waiters:
            self._end_wait()
        elif is_next:
            self.wake()

    def wake(self) -> None:
        """Wake the first waiter if there are records, or all waiters if the leader has changed."""
        if self._waiters and not self.is_led:
            self._wake_all()
        while self._waiters and self._next is None and self.can_acquire():
            waiter = next(iter(self._waiters))
            needs_more = self._waiters.pop(waiter)
            if not waiter.done():  # another share-partition woke it, or its timeout is over
                waiter.set_result(True)
                if not needs_more:
                    self._next = waiter

    def _wake_all(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(True)
        self._waiters.clear()

    def _end_wait(self) -> None:
        if self._wait is not None:
            self._wait.close()
            self._wait = None


def now_us() -> int:
    """A monotonic clock, finer than the loop's."""
    return perf_counter_ns() // 1000


async def _error_of(writing: Awaitable[None]) -> int:
    """The error code for the client after a write."""
    try:
        await writing
    except KafkaError as problem:
        return FENCED.get(problem.code, problem.code)
    return ErrorCode.NONE
