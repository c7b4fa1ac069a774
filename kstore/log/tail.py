"""Wait for a log to grow, in the process that writes it or in another one.

In the writer's process an append wakes the waiters through the core's ``on_append``, which is set
only while there are waiters; with flush="always" the log does it when the records are durable. In
another process that also writes, appends and syncs wake them through the shared page. In one that
only reads, inotify reports that the partition's directory changed, and the log is checked again;
without inotify, it is checked every few milliseconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kstore._fast.shared.notify import Watch
from kstore._fast.shared.shared_page import SharedPage
from kstore.log.errors import LogClosedError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog

__all__ = ["Tail"]

POLL_SECONDS = 0.02
# inotify may miss a change (a network file system, a queue overflow): also check periodically.
LOOK_SECONDS = 1.0
KEPT_WATCHES = 4


class Tail:
    """The waiters of one log. Any number of threads may call ``wait``."""

    def __init__(self, log: LocalLog, refresh: Callable[[], object]) -> None:
        """``refresh`` looks for records that another process has written."""
        self._log = log
        self._refresh = refresh
        self._changed = threading.Condition()
        self._waiting = 0
        self._installed: Callable[[], object] | None = None
        self._before: Callable[[], object] | None = None
        self._closed = False
        self._watches: list[Watch] = []

    def wait(self, offset: int, timeout: float | None, *, committed: bool = False) -> bool:
        """Whether a record at or after ``offset`` can be read within ``timeout`` seconds (None: no
        limit).

        Raises OffsetOutOfRangeError if ``offset`` was deleted or the log was truncated below it,
        and LogClosedError if the log is closed in the meantime.
        """
        if self._log.read_only or self._log.core.page is not None:
            self._refresh()
        if self._there(offset, committed):
            return True
        if timeout is not None and timeout <= 0:
            return False
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._log.read_only:
            return self._wait_for_files(offset, deadline, committed)
        if self._log.core.page is not None:
            return self._wait_for_page(self._log.core.page, offset, deadline, committed)
        return self._wait_for_appends(offset, deadline, committed)

    def wait_beside(
        self, offset: int, timeout: float, due: Callable[[], float], *, committed: bool
    ) -> bool:
        """As ``wait``, for callers that also wait for another file in the log's folder: ``due``
        returns the number of seconds to wait, and is called again when a file has changed.
        """
        deadline = time.monotonic() + timeout
        watch = self._watch()
        try:
            while True:
                # After the watch began: writes from here on wake it.
                left = min(due(), deadline - time.monotonic())
                pause = min(left, POLL_SECONDS) if watch is None else 0
                if self.wait(offset, pause, committed=committed):
                    return True
                if left <= 0:
                    return False
                if watch is not None:
                    watch.wait(max(1, int(left * 1000)))
        finally:
            if watch is not None:
                self._put_back(watch)

    def wake(self) -> None:
        """Let every waiter check again: after a truncation, a deletion, a higher high watermark."""
        page = self._log.core.page
        if page is not None:
            page.wake()
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def close(self) -> None:
        """Wake all waiters permanently; they raise LogClosedError."""
        self._closed = True
        self.wake()
        while self._watches:
            self._watches.pop().close()

    def _there(self, offset: int, committed: bool) -> bool:
        log, core = self._log, self._log.core
        if self._closed or log.closed:
            raise LogClosedError(f"{log.topic_partition} was closed: open it again")
        if not core.log_start_offset <= offset <= core.log_end_offset:
            raise OffsetOutOfRangeError(
                str(log.topic_partition), offset, core.log_start_offset, core.log_end_offset
            )
        end = core.last_stable_offset if committed else core.high_watermark
        return offset < end and not self._is_last_gap(offset)

    def _is_last_gap(self, offset: int) -> bool:
        """Whether no record follows, although the log end is above the offset: a log that was
        truncated in a gap between offsets ends there, and not after its last record.
        """
        for segment in reversed(self._log.core.segments):
            if segment.size_bytes:
                return offset >= segment.next_offset
        return True

    def _wait_for_appends(self, offset: int, deadline: float | None, committed: bool) -> bool:
        with self._changed:
            self._enter()
            try:
                while not self._there(offset, committed):
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._changed.wait(left)
                return True
            finally:
                self._leave()

    def _enter(self) -> None:
        self._waiting += 1
        if self._waiting == 1 and not self._log.core.shows_durable:
            core = self._log.core
            self._before = core.on_append
            self._installed = self._appended
            core.on_append = self._installed

    def _leave(self) -> None:
        self._waiting -= 1
        core = self._log.core
        if self._waiting == 0 and core.on_append is self._installed:
            core.on_append = self._before

    def _appended(self) -> None:
        before = self._before
        if before is not None:
            before()
        self.wake()

    def _wait_for_page(
        self, page: SharedPage, offset: int, deadline: float | None, committed: bool
    ) -> bool:
        while True:
            seen = page.watch()
            self._refresh()
            if self._there(offset, committed):
                return True
            left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            page.sleep(seen, max(1, int(min(left, LOOK_SECONDS) * 1000)))

    def _wait_for_files(self, offset: int, deadline: float | None, committed: bool) -> bool:
        watch = self._watch()
        try:
            while True:
                # After the watch began: writes from here on wake it.
                self._refresh()
                if self._there(offset, committed):
                    return True
                left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                if watch is None:
                    time.sleep(min(left, POLL_SECONDS))
                else:
                    watch.wait(max(1, int(min(left, LOOK_SECONDS) * 1000)))
        finally:
            if watch is not None:
                self._put_back(watch)

    def _watch(self) -> Watch | None:
        with contextlib.suppress(IndexError):
            return self._watches.pop()
        try:
            return Watch(self._log.path)
        except OSError:
            # inotify is not available, or its instances are used up.
            return None

    def _put_back(self, watch: Watch) -> None:
        """Keep it for the next wait: closing one takes the kernel some 10 ms."""
        if self._closed or self._log.closed or len(self._watches) >= KEPT_WATCHES:
            watch.close()
        else:
            self._watches.append(watch)
