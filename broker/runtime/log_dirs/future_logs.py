"""Future logs (KIP-113): the copies that a move between log dirs creates. Until a copy is complete,
its folder has a mark, so that after a crash the next start knows which of the two logs to use.

The functions block; they run in the threads of the log dirs, and at the start.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.log import LogDir
    from kstore.log.log import Directory
    from kstore.types import TopicPartition

__all__ = ["drop_future", "is_future", "mark_future", "take_origin", "unmark"]

FUTURE_MARK = "kstore.future"
"""The mark: a file in the folder of a partition that is being copied from another log dir."""


def _mark(log_dir: LogDir | Directory, key: TopicPartition) -> str:
    return os.path.join(log_dir.path, str(key), FUTURE_MARK)


def mark_future(log_dir: LogDir, key: TopicPartition) -> None:
    """Create the partition's folder in another log dir, with the mark of an unfinished copy."""
    from kstore.log.segments.segment_names import REMOVED_SUFFIX, unique_path

    folder = os.path.join(log_dir.path, str(key))
    if os.path.exists(folder):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder)
    # The folder has another name until the mark is in it, since a folder without a mark would be a
    # log. After a crash, the next start deletes a folder with that other name.
    making = unique_path(folder, REMOVED_SUFFIX)
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
    """Whether the next start would treat the log in this log dir as an unfinished copy."""
    return os.path.exists(_mark(log_dir, key))


def take_origin(log_dir: LogDir, key: TopicPartition) -> list[str]:
    """Take the log away after its copy is complete. This is durable, since appends to the copy
    follow.
    """
    taken = log_dir.take_away(key)
    log_dir.env.fs.fsync_dir(log_dir.path)
    return taken


def unmark(log_dir: LogDir, key: TopicPartition) -> None:
    """Remove the mark: the copy is the partition's log now. This is durable, since the next move
    may create another copy with a mark. An earlier attempt may have failed halfway.
    """
    mark = _mark(log_dir, key)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(mark)
    with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
        log_dir.env.fs.fsync_dir(os.path.dirname(mark))


def drop_future(log_dir: LogDir, key: TopicPartition) -> bool:
    """Delete the copy of an unfinished move. Returns False if this log has no mark."""
    if not is_future(log_dir, key):
        return False
    log_dir.delete(key)
    return True
