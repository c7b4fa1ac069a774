"""The log start offset in a file of the partition's own. DeleteRecords moves it into the middle of
a segment, and no segment says so: with the index lost, deleted records would be back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from zlib import crc32

from kstore.log.errors import storage_error

if TYPE_CHECKING:
    from kstore.env import FileSystem
    from kstore.log.local.local_log import LocalLog

__all__ = [
    "START_OFFSET_NAME", "read_start_offset", "start_offset_line", "write_start_offset",
]  # fmt: skip

START_OFFSET_NAME = "log-start-offset"


def write_start_offset(log: LocalLog, *, durable: bool = True) -> None:
    """Write where a log begins; on the disk when this returns, or when the system gets to it."""
    content = start_offset_line(log.core.log_start_offset)
    try:
        path = os.path.join(log.path, START_OFFSET_NAME)
        log.env.fs.write_file(path, content, durable=durable)
    except OSError as error:
        doing = f"writing the log start offset of {log.topic_partition}"
        raise storage_error(error, doing) from error


def start_offset_line(offset: int) -> bytes:
    """What the file says: the offset, and its checksum."""
    line = b"%d" % offset
    return b"%s %08x\n" % (line, crc32(line))


def read_start_offset(fs: FileSystem, directory: str) -> int:
    """Where the log in a directory begins as far as its file says so, 0 if it says nothing."""
    try:
        content = fs.read_file(os.path.join(directory, START_OFFSET_NAME))
    except FileNotFoundError:
        return 0
    line, _, checksum = content.strip().partition(b" ")
    if not line.isdigit() or checksum != b"%08x" % crc32(line):
        from logging import getLogger

        getLogger("kstore.log").error(
            "%s in %s is damaged, and so is the index: records that were deleted before their "
            "segment was may be there again; delete them again", START_OFFSET_NAME, directory,
        )  # fmt: skip
        return 0
    return int(line)
