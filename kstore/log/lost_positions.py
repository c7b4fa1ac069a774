"""Corrects positions of queues and cursors that are beyond the end of their log.

A power failure can remove the last records of a log although a queue or a cursor has passed them.
The next records get the same offsets, so the queue or cursor would skip them. Therefore, when a log
is opened for the first time since the machine started, such positions are moved back to its end
before anything is appended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kstore.log.errors import LogError
from kstore.log.segments.segment_names import CURSORS_FOLDER, QUEUE_PREFIX

if TYPE_CHECKING:
    from logging import Logger

    from kstore.log.log import Log
    from kstore.types import TopicPartition

__all__ = ["cursor_names", "cut_positions"]


def cursor_names(directory: str) -> dict[TopicPartition, list[str]]:
    """The names of the cursors in a log dir, by their logs."""
    if not os.path.isdir(os.path.join(directory, CURSORS_FOLDER)):
        return {}
    from kstore.log.cursors.cursor_file import cursor_files

    found: dict[TopicPartition, list[str]] = {}
    for tp, name in cursor_files(directory):
        found.setdefault(tp, []).append(name)
    return found


def cut_positions(log: Log, cursors: Iterable[str]) -> None:
    """Move the positions of the log's queues, and of these cursors, to its end if they are beyond
    it. A cursor that is in use stays as it is.
    """
    names = log.local.env.fs.listdir(log.path)
    if any(name.startswith(QUEUE_PREFIX) for name in names):
        for name in log.queues():
            with _errors_logged(log, f"the position of queue {name!r} was not checked"):
                _cut_queue(log, name)
    for name in cursors:
        with _errors_logged(log, f"the position of cursor {name!r} was not checked"):
            _cut_cursor(log, name)


@contextmanager
def _errors_logged(log: Log, what: str) -> Iterator[None]:
    """Log an error instead of raising it, because the log must open. Opening the queue or the
    cursor raises it.
    """
    try:
        yield
    except (LogError, OSError, ValueError) as error:
        _logger().warning("%s: %s: %s", log.topic_partition, what, error)


def _cut_queue(log: Log, name: str) -> None:
    from kstore.log.queue.queue_files import open_table

    open_table(log, name).close()


def _cut_cursor(log: Log, name: str) -> None:
    offsets = log.log_dir.committed_offsets
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
