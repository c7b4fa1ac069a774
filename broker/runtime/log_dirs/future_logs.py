"""Future logs (KIP-113): the copies that moves between log dirs make. Until a copy is complete, its
folder has a mark, so that a start after a crash knows which of two logs is the partition.

The functions block; they run in the threads of the log dirs, and at the start.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.log import LogDir
    from kstore.log.log import Directory
    from kstore.types import TopicPartition

__all__ = ["drop_future", "is_future", "mark_future", "take_origin", "unmark"]

FUTURE_MARK = "kstore.future"
"""A file in the folder of a partition that is being copied from another log dir."""


def _mark(log_dir: LogDir | Directory, key: TopicPartition) -> str:
    return os.path.join(log_dir.path, str(key), FUTURE_MARK)


def mark_future(log_dir: LogDir, key: TopicPartition) -> None:
    """Create the partition's folder in another log dir, with the mark of an unfinished copy."""
    from kstore.log.log_dir import REMOVED_SUFFIX

    folder = os.path.join(log_dir.path, str(key))
    if os.path.exists(folder):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder)
    # It gets its name with the mark inside, as a folder without one would be a log. A start deletes
    # what a crash leaves under the other name.
    making = f"{folder}.{uuid.uuid4().hex}{REMOVED_SUFFIX}"
    mark = os.path.join(making, FUTURE_MARK)
    os.mkdir(making)
    try:
        with open(mark, "xb"):
            pass
        os.rename(making, folder)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(mark)
        os.rmdir(making)
        raise


def is_future(log_dir: LogDir | Directory, key: TopicPartition) -> bool:
    """Whether the next start takes the log here for an unfinished copy."""
    return os.path.exists(_mark(log_dir, key))


def take_origin(log_dir: LogDir, key: TopicPartition) -> list[str]:
    """The copy of a log is complete: take the log away, durably, as appends to the copy follow."""
    taken = log_dir.take_away(key)
    log_dir.env.fs.fsync_dir(log_dir.path)
    return taken


def unmark(log_dir: LogDir, key: TopicPartition) -> None:
    """The copy is the partition. Durably: a copy of it may get a mark next, and an attempt before
    this one may have failed in between.
    """
    mark = _mark(log_dir, key)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(mark)
    with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
        log_dir.env.fs.fsync_dir(os.path.dirname(mark))


def drop_future(log_dir: LogDir, key: TopicPartition) -> bool:
    """Delete the copy of an unfinished move; False if this is none."""
    if not is_future(log_dir, key):
        return False
    log_dir.delete(key)
    return True
