"""The files of a queue, in the folder of its log: `queue.NAME` with its state, `queue.NAME.dead`
with its dead letters. They go with the log when that is deleted.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import uuid
from typing import TYPE_CHECKING, Protocol

from kstore._fast.queue.lease_file import LeaseFileError
from kstore._fast.queue.lease_table import LeaseTable
from kstore.items import check_name
from kstore.log.errors import QueueStateError, told
from kstore.log.index.index_store import boot_id
from kstore.log.segments.segment_names import QUEUE_PREFIX
from kstore.private_files import open_private

if TYPE_CHECKING:
    from kstore.types import TopicPartition

__all__ = [
    "cut_queues", "dead_path", "delete_queue", "open_dead_letters", "open_table",
    "queue_floors", "queue_names",
]  # fmt: skip

DEAD_SUFFIX = ".dead"
LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,199}")
FLOOR_AT = 56  # in the state file; see kstore/_fast/queue/lease_file.pxd


class QueueFolder(Protocol):
    """The log that a queue is of."""

    topic_partition: TopicPartition
    path: str
    topic_id: uuid.UUID | None
    read_only: bool

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""


def open_table(log: QueueFolder, name: str) -> LeaseTable:
    """The state of a queue, made where there is none. ValueError for a name that is no file's,
    QueueStateError, LogStorageError.
    """
    check_name("the queue", name)
    if not LEGAL_NAME.fullmatch(name) or name.endswith(DEAD_SUFFIX):
        raise ValueError(
            f"a queue can't be named {name!r}: use up to 200 letters, digits, '.', '_' and '-', "
            f"with no '.' at the start and no {DEAD_SUFFIX!r} at the end"
        )
    path = os.path.join(log.path, QUEUE_PREFIX + name)
    topic_id = (log.topic_id or uuid.UUID(int=0)).bytes
    with told(f"opening the queue {name!r} of {log.topic_partition}"):
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
        own = os.dup(fd)
        try:
            fcntl.flock(own, fcntl.LOCK_EX)
            # Of the descriptors of one file description, one is the table's.
            table = LeaseTable(fd, topic_id, boot_id(), log.log_start_offset)
        except LeaseFileError as error:
            raise QueueStateError(
                f"{path} can't be used as the state of queue {name!r}: {error}. Remove the file to "
                "start over; every message that the log holds is delivered again then"
            ) from error
        finally:
            fcntl.flock(own, fcntl.LOCK_UN)
            os.close(own)
    taken = table.next_offset
    # In this order: others may append and take meanwhile.
    if not log.read_only and taken > log.log_end_offset:
        table.cut_at(log.log_end_offset)
    return table


def dead_path(log: QueueFolder, name: str) -> str:
    """The file of a queue's dead letters."""
    return os.path.join(log.path, QUEUE_PREFIX + name + DEAD_SUFFIX)


def open_dead_letters(log: QueueFolder, name: str) -> int:
    """The descriptor of that file, made where it was not there."""
    path = dead_path(log, name)
    with told(f"opening {path}"):
        return open_private(path, os.O_RDWR | os.O_CREAT)


def queue_names(log: QueueFolder) -> list[str]:
    """The queues that this log has."""
    found = [name for name in os.listdir(log.path) if name.startswith(QUEUE_PREFIX)]
    return sorted(name[len(QUEUE_PREFIX) :] for name in found if not name.endswith(DEAD_SUFFIX))


def queue_floors(log: QueueFolder) -> list[int]:
    """Before which offset all is done, queue by queue."""
    floors = []
    for name in queue_names(log):
        with open(os.path.join(log.path, QUEUE_PREFIX + name), "rb") as file:
            file.seek(FLOOR_AT)
            floors.append(struct.unpack("=q", file.read(8))[0])
    return floors


def cut_queues(log: QueueFolder, end_offset: int) -> None:
    """The log ends at this offset now: what queues gave out behind it will be other messages."""
    for name in queue_names(log):
        table = open_table(log, name)
        table.cut_at(end_offset)
        table.close()


def delete_queue(log: QueueFolder, name: str) -> None:
    """Remove a queue's files. Nobody may have it open; nothing happens where there is none."""
    for path in (os.path.join(log.path, QUEUE_PREFIX + name), dead_path(log, name)):
        if os.path.exists(path):
            os.unlink(path)
