"""A named work queue over a log. Its messages are the records of the log. A file beside the log's
segments, which all processes map into memory (kstore/_fast/queue), says which worker has which
message.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
import time
import weakref
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kstore.items import check_int, check_number
from kstore.log.errors import LeaseLostError, OffsetOutOfRangeError, ReadOnlyLogError
from kstore.log.queue.message import DeadLetter, QueueMessage
from kstore.log.queue.queue_files import dead_path, open_dead_letters, open_table, queue_floors

if TYPE_CHECKING:
    import uuid

    from typing_extensions import Buffer

    from kstore.items import Headers, Items
    from kstore.record import Record, RecordSet
    from kstore.types import TopicPartition

__all__ = ["Queue", "QueueLog", "QueueStats"]

READ_BYTES = 1 << 18
# Waiters are not notified when a worker is killed: they check this often.
IDLE_LOOK_SECONDS = 0.2
DEAD_OWNERS_SECONDS = 0.2
FOREVER_MS = 2**62

_open_queues: weakref.WeakSet[Queue] = weakref.WeakSet()


class QueueLog(Protocol):
    """The log under a queue; a ``Log``."""

    topic_partition: TopicPartition
    path: str
    topic_id: uuid.UUID | None
    read_only: bool

    @property
    def closed(self) -> bool:
        """True after ``close``."""

    @property
    def log_start_offset(self) -> int:
        """The log start offset."""

    @property
    def log_end_offset(self) -> int:
        """The log end offset."""

    @property
    def last_stable_offset(self) -> int:
        """The end of committed records."""

    def read(self, offset: int, max_bytes: int = ..., *, isolation: str = ...) -> RecordSet:
        """The records from ``offset`` on."""

    def wait_beside(
        self, offset: int, timeout: float, due: Callable[[], float], *, isolation: str = ...
    ) -> bool:
        """Wait until a record at or after ``offset`` can be read, or until something is due."""

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> int:
        """Append one record; return its offset."""

    def append_many(self, records: Items[Any]) -> Any:
        """Append records with one write."""

    def delete_before(self, offset: int) -> None:
        """Make ``offset`` the log start offset."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The number of messages in each state, and totals since the queue was created."""

    ready: int
    """Messages that were never delivered. Too high if the log has gaps in its offsets."""
    leased: int
    """Messages that a worker has now."""
    waiting: int
    """Messages that were given back and will be delivered again, now or later."""
    dead: int
    """Dead letters."""
    acknowledged: int
    """Messages that were done, since the queue was created."""
    leases_ended: int
    """Leases that expired before the worker settled the message, since the queue was created."""
    lost: int
    """Messages that were deleted from the log before they were done, since the queue was created.
    """


class Queue:
    """A log as a work queue. Created by ``Log.queue``. Any number of threads and processes may use
    it.

    Delivery is at least once. A message is delivered again if its lease of ``lease_s`` seconds
    expires or its worker's process ends. During a lease no other worker receives it. First
    deliveries follow the log's order. Closing the queue gives leased messages back.
    """

    def __init__(
        self, log: QueueLog, name: str, *, lease_s: float = 30.0, max_deliveries: int = 5
    ) -> None:
        check_number("lease_s", lease_s, 0.001, 10**9)
        check_int("max_deliveries", max_deliveries, 1, (1 << 20) - 1)
        self.name = name
        self.log = log
        self.lease_s = lease_s
        self.max_deliveries = max_deliveries
        self._lease_ms = max(1, int(lease_s * 1000))
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._is_full = False
        """Whether there is no slot for the next message until an older one is done."""
        self._looked_for_dead_owners = 0.0
        self._table = open_table(log, name)
        _open_queues.add(self)

    # -- put

    def put(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        *,
        headers: Headers = (),
    ) -> int:
        """Append a message to the log and return its offset. Errors are as for ``Log.append``."""
        return self.log.append(value, key, None, headers)

    def put_many(self, messages: Items[Any]) -> int:
        """Append messages with one write and return the offset of the first. Messages and errors
        are as for ``Log.append_many``.
        """
        return int(self.log.append_many(messages).base_offset)

    # -- get

    def get(self, timeout: float | None = None) -> QueueMessage | None:
        """Lease the next message. Waits up to ``timeout`` seconds (None: without limit; 0: not at
        all) and returns None if none arrives in time.

        Raises LogClosedError, and CorruptLogError if the next record is damaged.
        """
        found = self.get_many(1, timeout)
        return found[0] if found else None

    def get_many(self, limit: int, timeout: float | None = None) -> list[QueueMessage]:
        """Lease up to ``limit`` messages. Waits only for the first one, as ``get`` does. Returns an
        empty list if none arrives in time.
        """
        if limit < 1:
            raise ValueError(f"limit is {limit}: it must be 1 or more")
        found = self._take(limit)
        if found or timeout == 0:
            return found
        deadline = None if timeout is None else time.monotonic() + timeout
        while not found:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
            found = self._take(limit)
        return found

    async def get_async(self, timeout: float | None = None) -> QueueMessage | None:
        """Like ``get``, for asyncio. A thread of the loop's default executor does the waiting."""
        found = await self.get_many_async(1, timeout)
        return found[0] if found else None

    async def get_many_async(self, limit: int, timeout: float | None = None) -> list[QueueMessage]:
        """Like ``get_many``, for asyncio. The other methods do not wait; call them directly."""
        import asyncio

        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.get_many(limit, 0)
            left = None if deadline is None else deadline - time.monotonic()
            if found or (left is not None and left <= 0):
                return found
            await asyncio.get_running_loop().run_in_executor(None, self.wait, left)

    async def __aiter__(self) -> AsyncIterator[QueueMessage]:
        """Iterate over messages forever. Each message is leased when the loop asks for it."""
        while True:
            message = await self.get_async()
            if message is not None:
                yield message

    def wait(self, timeout: float | None = None) -> None:
        """Wait until there may be a message: at most ``timeout`` seconds, and never longer than a
        fifth of a second.
        """
        seconds = IDLE_LOOK_SECONDS if timeout is None else min(timeout, IDLE_LOOK_SECONDS)
        if self._is_full:  # the next message is there, and cannot be delivered yet
            time.sleep(seconds)
            return
        offset = self._table.next_offset
        try:
            self.log.wait_beside(offset, seconds, self._due_s, isolation="read_committed")
        except OffsetOutOfRangeError:
            return  # corrected by _take

    def _due_s(self) -> float:
        """Seconds until a lease expires or a message that was given back becomes available."""
        table = self._table
        table.watch()
        leased, waiting, *_ = table.counts()
        if not (leased or waiting):
            return math.inf
        due_ms = min(table.next_lease_end_ms - _now_ms(), table.next_retry_ms - _wall_ms())
        return due_ms / 1000

    def _take(self, limit: int) -> list[QueueMessage]:
        with self._lock:
            found = self._take_again(limit)
            if len(found) < limit:
                found += self._take_new(limit - len(found))
            if not found and self._free_dead_owners():
                found = self._take_again(limit)
        return found

    def _take_again(self, limit: int) -> list[QueueMessage]:
        now, wall = _now_ms(), _wall_ms()
        lease_end = now + self._lease_ms
        taken = self._table.take_again(limit, now, wall, lease_end, self.max_deliveries)
        if taken is None:
            self._open_dead_letters()
            taken = self._table.take_again(limit, now, wall, lease_end, self.max_deliveries)
        found = []
        for offset, deliveries in taken or ():
            record = self._read(offset)
            if record is None:
                self._table.ack(offset, deliveries)
            else:
                found.append(QueueMessage(self, record, deliveries))
        return found

    def _take_new(self, limit: int) -> list[QueueMessage]:
        table, seen = self._table, -1
        self._is_full = False
        while True:
            first, count = table.take_new(limit, _now_ms() + self._lease_ms)
            if count:
                records = self._records[first : first + count]
                return [QueueMessage(self, record, 1) for record in records]
            if table.next_offset == seen:
                self._is_full = True
                return []
            seen = table.next_offset
            if not self._look_ahead():
                return []

    def _look_ahead(self) -> bool:
        """Continue at the first message that was never taken; returns False at the end of the
        log.
        """
        table, log = self._table, self.log
        cuts, offset = table.cuts, table.next_offset
        if offset < log.log_start_offset:
            table.drop_before(log.log_start_offset)
            offset = table.next_offset
        read = log.read(offset, READ_BYTES, isolation="read_committed")
        if read.next_offset is None:
            return False
        self._records = list(read)
        offsets = array("q", [record.offset for record in self._records])
        table.look_ahead(offset, offsets, read.next_offset, cuts)
        return True

    def _read(self, offset: int) -> Record | None:
        """One record; None if the log no longer has it."""
        if offset < self.log.log_start_offset:
            self._table.drop_before(self.log.log_start_offset)
            return None
        for record in self.log.read(offset, 1, isolation="read_committed"):
            return record if record.offset == offset else None
        return None

    def _free_dead_owners(self) -> bool:
        now = time.monotonic()
        if now - self._looked_for_dead_owners < DEAD_OWNERS_SECONDS:
            return False
        self._looked_for_dead_owners = now
        return bool(self._table.free_dead_owners())

    # -- settle

    def ack(self, *messages: QueueMessage) -> None:
        """Mark messages as done: they are not delivered again. Raises LeaseLostError for messages
        whose lease has ended, because another worker may have them; all others are done.
        """
        _check_messages(messages)
        lost = [
            message
            for message in messages
            if not self._table.ack(message.record.offset, message.deliveries)
        ]
        if lost:
            raise LeaseLostError(self.name, [message.offset for message in lost])

    def nack(self, *messages: QueueMessage, delay_s: float = 0.0, reason: str = "") -> None:
        """Give messages back. They are delivered again, after ``delay_s`` seconds at the earliest.
        A message without deliveries left becomes a dead letter with ``reason``. Raises
        LeaseLostError.
        """
        if delay_s < 0:
            raise ValueError(f"delay_s is {delay_s}: it must not be negative")
        text = reason or "its worker gave it back"
        self._give_back(messages, int(delay_s * 1000), self.max_deliveries, text)

    def reject(self, *messages: QueueMessage, reason: str = "") -> None:
        """Make messages dead letters now, because another delivery would not help. Raises
        LeaseLostError.
        """
        self._give_back(messages, 0, 0, reason or "its worker rejected it")

    def _give_back(
        self, messages: Sequence[QueueMessage], delay_ms: int, tries: int, reason: str
    ) -> None:
        _check_messages(messages)
        lost = []
        wall = _wall_ms()
        text = reason.encode()[:96]
        for message in messages:
            offset, deliveries = message.record.offset, message.deliveries
            done = self._table.nack(offset, deliveries, wall, wall + delay_ms, tries, text)
            if done is None:
                self._open_dead_letters()
                done = self._table.nack(offset, deliveries, wall, wall + delay_ms, tries, text)
            if not done:
                lost.append(offset)
        if lost:
            raise LeaseLostError(self.name, lost)

    def extend(self, *messages: QueueMessage, lease_s: float | None = None) -> None:
        """Extend the leases of messages to ``lease_s`` seconds from now (default: the queue's).
        Raises LeaseLostError.
        """
        lease_ms = self._lease_ms if lease_s is None else max(1, int(lease_s * 1000))
        until = _now_ms() + lease_ms
        _check_messages(messages)
        lost = [
            message.offset
            for message in messages
            if not self._table.extend(message.offset, message.deliveries, until)
        ]
        if lost:
            raise LeaseLostError(self.name, lost)

    # -- inspect

    def stats(self) -> QueueStats:
        """Count the messages in each state."""
        self._table.free_dead_owners()
        leased, waiting, dead, acked, ended, lost = self._table.counts()
        end = self.log.log_end_offset
        ready = max(0, end - max(self._table.next_offset, self.log.log_start_offset))
        return QueueStats(ready, leased, waiting, dead, acked, ended, lost)

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters, oldest first."""
        if not os.path.exists(dead_path(self.log, self.name)):
            return []
        self._open_dead_letters()
        return [
            DeadLetter(offset, deliveries, at, reason.decode(errors="replace"), self._read(offset))
            for offset, deliveries, at, reason in self._table.dead_letters()
        ]

    def _open_dead_letters(self) -> None:
        self._table.open_dead(open_dead_letters(self.log, self.name))

    def redrive(self) -> int:
        """Append the dead letters to the log as new messages and forget them. Returns their number.
        If the process is killed meanwhile, some are appended twice. Raises ReadOnlyLogError.
        """
        if self.log.read_only:
            raise ReadOnlyLogError(
                f"queue {self.name!r} of {self.log.topic_partition} can't append: its log is open "
                "for reading only; redrive in a process that writes"
            )
        with self._handling_dead_letters() as letters:
            count = 0
            for letter in letters:
                record = letter.record
                if record is not None:
                    self.log.append(record.value, record.key, None, record.headers)
                    count += 1
        return count

    def forget_dead_letters(self) -> int:
        """Remove the dead letters. Their messages count as done. Returns their number."""
        with self._handling_dead_letters() as letters:
            return len(letters)

    @contextlib.contextmanager
    def _handling_dead_letters(self) -> Iterator[list[DeadLetter]]:
        """The dead letters as of now, which are removed at the end. One process at a time."""
        if not os.path.exists(dead_path(self.log, self.name)):
            yield []
            return
        file = open_dead_letters(self.log, self.name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            letters = self.dead_letters()
            yield letters
            self._table.forget_dead([(x.offset, x.deliveries, x.timestamp) for x in letters])
        finally:
            os.close(file)

    def delete_done(self) -> int:
        """Delete the messages that every queue of the log is done with, up to the oldest dead
        letter. Space is freed by whole segments. Returns the log start offset.
        """
        offset = min(queue_floors(self.log))
        if offset > self.log.log_start_offset:
            self.log.delete_before(offset)
        return self.log.log_start_offset

    # -- close

    def close(self) -> None:
        """Give back the messages that are leased here. The log stays open."""
        with self._lock:
            self._table.close()

    def abandon(self) -> None:
        """In a child process: stop using the queue, which belongs to the parent."""
        self._table.abandon()

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return bool(self._table.closed)

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Queue({self.name!r} of {self.log.topic_partition})"


def _now_ms() -> int:
    """From a clock that all processes share and that is never set."""
    return time.monotonic_ns() // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _after_fork() -> None:
    for queue in tuple(_open_queues):
        queue.abandon()


os.register_at_fork(after_in_child=_after_fork)


def _check_messages(given: Sequence[object]) -> None:
    """Raise TypeError for something that is not a message, such as a list of them."""
    for each in given:
        if not isinstance(each, QueueMessage):
            raise TypeError(
                f"the {type(each).__name__} {each!r} is not a message: pass the messages one by "
                "one, as in queue.ack(*messages)"
            )
