"""The embedded log as a work queue, compared with litequeue and persist-queue: messages of 100 B
are put one at a time, then taken and acknowledged one at a time, without syncs.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from bench.measure import Settings, in_turns
from bench.report import Goal, Row

__all__ = ["rows"]

MESSAGE = b"x" * 100


class WorkQueue(Protocol):
    """One contestant."""

    name: str
    messages: int
    """A run with this number takes about a second."""

    def __init__(self, folder: Path) -> None: ...

    def put(self) -> None:
        """Put one message."""

    def work(self) -> None:
        """Take one message and acknowledge it."""

    def close(self) -> None:
        """Close the queue."""


class KstoreQueue:
    """kstore's queue."""

    name = "kstore"
    messages = 50_000

    def __init__(self, folder: Path) -> None:
        import kstore

        self._log: Any = kstore.open_log(folder)
        self._queue = self._log.queue("bench")

    def put(self) -> None:
        """See WorkQueue."""
        self._queue.put(MESSAGE)

    def work(self) -> None:
        """See WorkQueue."""
        self._queue.get(0).ack()

    def close(self) -> None:
        """See WorkQueue."""
        self._log.close()


class LiteQueueRun:
    """litequeue: SQLite, one table."""

    name = "litequeue"
    messages = 1000

    def __init__(self, folder: Path) -> None:
        import litequeue

        folder.mkdir(parents=True)
        self._queue: Any = litequeue.LiteQueue(str(folder / "queue.db"))

    def put(self) -> None:
        """See WorkQueue."""
        self._queue.put(MESSAGE.decode())

    def work(self) -> None:
        """See WorkQueue."""
        self._queue.done(self._queue.pop().message_id)

    def close(self) -> None:
        """See WorkQueue."""
        self._queue.close()


class PersistAckQueue:
    """persist-queue's queue with acknowledgements, over SQLite."""

    name = "persist-queue"
    messages = 200

    def __init__(self, folder: Path) -> None:
        import persistqueue

        self._queue: Any = persistqueue.SQLiteAckQueue(str(folder), auto_commit=True)

    def put(self) -> None:
        """See WorkQueue."""
        self._queue.put(MESSAGE)

    def work(self) -> None:
        """See WorkQueue."""
        self._queue.ack(self._queue.get())

    def close(self) -> None:
        """See WorkQueue."""
        self._queue.close()


class PersistFileQueue:
    """persist-queue's files. A message that was taken is removed, even if its worker fails."""

    name = "persist-queue (files)"
    messages = 1000

    def __init__(self, folder: Path) -> None:
        import persistqueue

        self._queue: Any = persistqueue.Queue(str(folder))

    def put(self) -> None:
        """See WorkQueue."""
        self._queue.put(MESSAGE)

    def work(self) -> None:
        """See WorkQueue."""
        self._queue.get(block=False)
        self._queue.task_done()

    def close(self) -> None:
        """See WorkQueue."""
        del self._queue


QUEUES: tuple[type[WorkQueue], ...] = (
    KstoreQueue, LiteQueueRun, PersistAckQueue, PersistFileQueue,
)  # fmt: skip


def _rates(kind: type[WorkQueue], folder: Path, count: int) -> tuple[float, float]:
    """Messages put, and messages taken and acknowledged, per second."""
    shutil.rmtree(folder, ignore_errors=True)
    queue = kind(folder)
    try:
        begin = time.perf_counter()
        for _ in range(count):
            queue.put()
        middle = time.perf_counter()
        for _ in range(count):
            queue.work()
        end = time.perf_counter()
    finally:
        queue.close()
        shutil.rmtree(folder, ignore_errors=True)
    return count / (middle - begin), count / (end - middle)


def rows(settings: Settings) -> list[Row]:
    """The cost of a message in each queue."""
    puts: dict[str, list[float]] = {kind.name: [] for kind in QUEUES}

    def case(kind: type[WorkQueue]) -> Callable[[], float]:
        def run() -> float:
            count = max(20, kind.messages // settings.pick(1, 10))
            put, worked = _rates(kind, settings.scratch / "queue", count)
            puts[kind.name].append(put)
            return worked

        return run

    works = in_turns({kind.name: case(kind) for kind in QUEUES}, settings.pick(5, 1))
    put_rates = {name: sorted(found)[len(found) // 2] for name, found in puts.items()}
    return [
        _row("queue: put 100 B", put_rates, None),
        _row("queue: get and acknowledge 100 B", works, Goal(10)),
    ]


def _row(name: str, rates: dict[str, float], goal: Goal | None) -> Row:
    peers = {peer: rate for peer, rate in rates.items() if peer != "kstore"}
    best = max(peers, key=lambda peer: peers[peer])
    note = ", ".join(f"{peer} {rate:,.0f}" for peer, rate in peers.items())
    return Row("embedded", name, rates["kstore"], "messages/s", best, peers[best], goal, note)
