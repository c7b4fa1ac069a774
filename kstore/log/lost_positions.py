"""Positions of queues and cursors beyond the end of their log.

After a power loss a log may have lost its last records, while a position behind them was written.
The next records get the lost offsets, and would be skipped. So such positions move to the log's
end when the log is opened for the first time since the machine started, before anything is
appended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kstore.log.errors import LogError
from kstore.log.segments.segment_names import CURSORS_FOLDER, QUEUE_PREFIX

if TYPE_CHECKING:
    from logging import Logger

    from kstore.log.cursors.committed_offsets import CommittedOffsets
    from kstore.log.log import Log

__all__ = ["cursor_names", "cut_positions"]


def cursor_names(directory: str) -> dict[str, list[str]]:
    """The names of the cursors in a log dir, by the folder of their log."""
    try:
        files = os.listdir(os.path.join(directory, CURSORS_FOLDER))
    except FileNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for file in files:
        folder, _, name = file.partition(":")
        found.setdefault(folder, []).append(unquote(name))
    return found


def cut_positions(log: Log, offsets: CommittedOffsets, cursors: Iterable[str]) -> None:
    """Move the positions of the log's queues, and of these cursors, to its end if they are beyond
    it. What another process uses is left as it is.
    """
    names = log.local.env.fs.listdir(log.path)
    if any(name.startswith(QUEUE_PREFIX) for name in names):
        for name in log.queues():
            with _told(log, f"the position of queue {name!r} was not checked"):
                _cut_queue(log, name)
    for name in cursors:
        with _told(log, f"the position of cursor {name!r} was not checked"):
            _cut_cursor(log, offsets, name)


@contextmanager
def _told(log: Log, what: str) -> Iterator[None]:
    """Log an error: one file must not keep the log from opening. Whoever uses it gets the error."""
    try:
        yield
    except (LogError, OSError, ValueError) as error:
        _logger().warning("%s: %s: %s", log.topic_partition, what, error)


def _cut_queue(log: Log, name: str) -> None:
    from kstore.log.queue.queue_files import open_table

    open_table(log, name).close()


def _cut_cursor(log: Log, offsets: CommittedOffsets, name: str) -> None:
    file = offsets.file(name, log.topic_partition)
    found = file.load()
    end = log.log_end_offset
    if found is None or found.offset <= end or file.is_taken():  # taken: the group's commit counts
        return
    file.acquire()
    try:
        file.store(end, found.metadata, offsets.now_ms())
    finally:
        file.release()
    _logger().warning(
        "%s: cursor %r was at offset %d, and records before it are lost: it continues at %d",
        log.topic_partition, name, found.offset, end,
    )  # fmt: skip


def _logger() -> Logger:
    from logging import getLogger

    return getLogger("kstore.log")
