"""The threads of a process of a shared LMDB store. They detect changes, ends and stalls of other
processes, and show that this process is alive.

The first thread waits in poll(2) for the folder's inotify, the other processes' descriptors (pidfd)
and the next check. It passes what it finds to the tree. The second thread touches this process's
files.
"""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore._fast.shared.notify import Watch
from kstore.broker.coordination.store import StoreUnavailableError

if TYPE_CHECKING:
    from kstore.broker.coordination.liveness import SessionFiles
    from kstore.broker.coordination.tree import SharedTree

__all__ = ["PeerWatcher"]

CANT_SEE_MS = 50
"""How often to check if there are no pidfds (an old kernel, another PID namespace)."""


class PeerWatcher:
    """Watches until `stop`."""

    def __init__(self, folder: str, tree: SharedTree, files: SessionFiles) -> None:
        self._tree = tree
        self._files = files
        self._interval_s = files.interval_s
        self._watch = Watch(folder)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._processes: dict[int, int] = {}  # pid -> pidfd
        self._seen: dict[int, tuple[int, float]] = {}  # session -> last touch, and when it was seen
        self._blind = False
        self._stopping = False
        self._waking = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kstore-peers", daemon=True)
        self._thread.start()
        threading.Thread(target=self._beat, name="kstore-beat", daemon=True).start()

    def stop(self) -> None:
        """End the thread. Can be called from any thread, including this one."""
        with self._waking, suppress(BlockingIOError):  # the thread closes the pipe after this
            self._stopping = True
            os.write(self._wake_write, b"!")
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def look(self) -> None:
        """Check the other processes now. Can be called from any thread."""
        with self._waking, suppress(BlockingIOError):  # the pipe is full, so the thread is awake
            if not self._stopping:
                os.write(self._wake_write, b".")

    def _run(self) -> None:
        next_look = 0.0
        exited: set[int] = set()
        while not self._stopping:
            now = time.monotonic()
            if now >= next_look:
                if now - next_look > 2 * self._interval_s:
                    # This thread itself was stalled, maybe with the whole machine. The timeouts of
                    # the other processes begin again.
                    self._seen.clear()
                next_look = now + self._interval_s
                with suppress(StoreUnavailableError):  # a full disk: the next check tries again
                    self._expire_silent(now)
            with suppress(StoreUnavailableError):
                self._look_at_sessions(exited)
            wait_ms = max(1, int((next_look - now) * 1000))
            exited = self._sleep(min(wait_ms, CANT_SEE_MS) if self._blind else wait_ms)
            self._watch.drain()
            if not self._stopping:
                with suppress(StoreUnavailableError):
                    self._tree.catch_up()  # a process that ended may not have woken this one
        self._close()

    def _sleep(self, timeout_ms: int) -> set[int]:
        """Wait for an event. Returns the processes that have exited."""
        poll = select.poll()
        for descriptor in (self._watch.fd, self._wake_read, *self._processes.values()):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(timeout_ms)}
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        return {process for process, pidfd in self._processes.items() if pidfd in ready}

    def _look_at_sessions(self, exited: set[int]) -> None:
        """End the sessions of dead processes, and watch the processes of the others."""
        own = set(self._tree.own_sessions)  # read first: a session that begins now is in both
        with self._tree.backend.read() as txn:
            sessions = txn.sessions()
        self._tree.note_lost(own - set(sessions))
        others = [each for each in sessions if each not in self._tree.own_sessions]
        living: set[int] = set()
        self._blind = False
        for session_id in others:
            process = self._files.process(session_id)
            # A forked child may still hold the lock of a process that has ended.
            if process in exited or self._files.is_dead(session_id):
                self._expire(session_id)
                self._files.remove(session_id)
            elif process is not None:
                living.add(process)
        for gone in self._processes.keys() - living:
            os.close(self._processes.pop(gone))
        for process in living - self._processes.keys():
            try:
                self._processes[process] = os.pidfd_open(process)
            except (OSError, AttributeError):
                self._blind = True

    def _expire_silent(self, now: float) -> None:
        """End the sessions of processes that have not touched their files for too long."""
        with self._tree.backend.read() as txn:
            sessions = txn.sessions()
        for session_id in sessions:
            if session_id in self._tree.own_sessions:
                continue
            touched = self._files.touched_ns(session_id)
            last, since = self._seen.get(session_id, (-1, now))
            if touched != last:
                self._seen[session_id] = (touched, now)
            elif now - since >= self._files.timeout_s(session_id):
                self._expire(session_id)
        for session_id in self._seen.keys() - set(sessions):
            del self._seen[session_id]

    def _expire(self, session_id: int) -> None:
        """End a session. This waits for the current transaction of any process."""
        done = threading.Event()
        threading.Thread(target=self._make_way, args=(done,), daemon=True).start()
        try:
            self._tree.expire(session_id)
        finally:
            done.set()

    def _make_way(self, done: threading.Event) -> None:
        """Kill a process that is stalled in a transaction. No other process could write until it
        continues, and its session would have ended by then.
        """
        seen: dict[int, tuple[int, float]] = {}
        while not done.wait(self._interval_s):
            now = time.monotonic()
            for session_id in self._files.all_sessions():
                touched = self._files.touched_ns(session_id)
                last, since = seen.get(session_id, (-1, now))
                if touched != last:
                    seen[session_id] = (touched, now)
                elif now - since >= self._files.timeout_s(session_id):
                    self._files.kill(session_id)

    def _beat(self) -> None:
        """Show that this process is alive, from a thread that never waits for another process."""
        while not self._ended.wait(self._interval_s):
            self._files.touch()

    def _close(self) -> None:
        self._watch.close()
        with self._waking:
            for descriptor in (self._wake_read, self._wake_write, *self._processes.values()):
                with suppress(OSError):
                    os.close(descriptor)
