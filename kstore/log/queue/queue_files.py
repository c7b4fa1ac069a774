"""The files of a queue, in the folder of its log: `queue.NAME` with its state, `queue.NAME.dead`
with its dead letters. They are deleted with the log.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from kstore._fast.queue.lease_file import LeaseFileError
from kstore._fast.queue.lease_table import LeaseTable
from kstore._fast.record.crc32c import checksum as crc32c
from kstore.items import check_name
from kstore.log.errors import QueueStateError, storage_errors
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
_COUNTS = struct.Struct("=q24xq")  # the floor, and the number of dead letters
_DEAD_ENTRY = struct.Struct("=q116xI")  # a dead letter's offset, and a checksum; see lease_table


class QueueFolder(Protocol):
    """The log of a queue."""

    topic_partition: TopicPartition
    path: str
    topic_id: uuid.UUID | None
    read_only: bool

    @property
    def log_start_offset(self) -> int:
        """The log start offset."""

    @property
    def log_end_offset(self) -> int:
        """The log end offset."""


def open_table(log: QueueFolder, name: str) -> LeaseTable:
    """The state of a queue, created if it does not exist. Raises ValueError for a name that is not
    valid for a file, QueueStateError, LogStorageError.
    """
    check_name("the queue", name)
    if not LEGAL_NAME.fullmatch(name) or name.endswith(DEAD_SUFFIX):
        raise ValueError(
            f"{name!r} is not a valid queue name: use up to 200 letters, digits, '.', '_' and '-', "
            f"with no '.' at the start and no {DEAD_SUFFIX!r} at the end"
        )
    path = os.path.join(log.path, QUEUE_PREFIX + name)
    topic_id = (log.topic_id or uuid.UUID(int=0)).bytes
    with storage_errors(f"opening the queue {name!r} of {log.topic_partition}"):
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
        own = os.dup(fd)
        try:
            fcntl.flock(own, fcntl.LOCK_EX)
            # Of the two descriptors of one file description, one belongs to the table.
            table = LeaseTable(fd, topic_id, boot_id(), log.log_start_offset)
        except LeaseFileError as error:
            raise QueueStateError(
                f"{path} can't be used as the state of queue {name!r}: {error}. Remove the file to "
                "start over; every message in the log is then delivered again"
            ) from error
        finally:
            fcntl.flock(own, fcntl.LOCK_UN)
            os.close(own)
    taken = table.next_offset
    # In this order: other processes may append and take messages meanwhile.
    if not log.read_only and taken > log.log_end_offset:
        _cut(log, name, table, log.log_end_offset)
    return table


def _cut(log: QueueFolder, name: str, table: LeaseTable, end_offset: int) -> None:
    """Durable before new records get the offsets: otherwise a power loss would bring the old state
    back, in which these offsets are done.
    """
    table.cut_at(end_offset)
    with open(os.path.join(log.path, QUEUE_PREFIX + name), "rb") as file:
        os.fsync(file.fileno())


def dead_path(log: QueueFolder, name: str) -> str:
    """The file of a queue's dead letters."""
    return os.path.join(log.path, QUEUE_PREFIX + name + DEAD_SUFFIX)


def open_dead_letters(log: QueueFolder, name: str) -> int:
    """The descriptor of that file, created if it did not exist."""
    path = dead_path(log, name)
    with storage_errors(f"opening {path}"):
        return open_private(path, os.O_RDWR | os.O_CREAT)


def queue_names(log: QueueFolder) -> list[str]:
    """The queues that this log has."""
    found = [name for name in os.listdir(log.path) if name.startswith(QUEUE_PREFIX)]
    return sorted(name[len(QUEUE_PREFIX) :] for name in found if not name.endswith(DEAD_SUFFIX))


def queue_floors(log: QueueFolder) -> list[int]:
    """The offset below which everything is done, for each queue. Dead letters are not done."""
    floors = []
    for name in queue_names(log):
        with open(os.path.join(log.path, QUEUE_PREFIX + name), "rb") as file:
            file.seek(FLOOR_AT)
            floor, dead = _COUNTS.unpack(file.read(_COUNTS.size))
        with suppress(FileNotFoundError), open(dead_path(log, name), "rb") as file:
            for _ in range(dead):
                entry = file.read(_DEAD_ENTRY.size)
                if len(entry) == _DEAD_ENTRY.size:
                    offset, checksum = _DEAD_ENTRY.unpack(entry)
                    if checksum == crc32c(entry[:-4]):
                        floor = min(floor, offset)
        floors.append(floor)
    return floors


def cut_queues(log: QueueFolder, end_offset: int) -> None:
    """The log ends at this offset now: messages that queues delivered after it will be other
    messages.
    """
    for name in queue_names(log):
        table = open_table(log, name)
        if table.next_offset > end_offset:
            _cut(log, name, table, end_offset)
        table.close()


def delete_queue(log: QueueFolder, name: str) -> None:
    """Delete a queue's files. No process may have it open. A missing queue is no error."""
    for path in (os.path.join(log.path, QUEUE_PREFIX + name), dead_path(log, name)):
        if os.path.exists(path):
            os.unlink(path)
