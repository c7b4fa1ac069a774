"""The log start offset in its own file of the partition. DeleteRecords moves it into the middle of
a segment, and no segment contains it: if the index were lost, deleted records would reappear.
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
    """Write the log start offset; ``durable``: it is durable on return."""
    content = start_offset_line(log.core.log_start_offset)
    try:
        path = os.path.join(log.path, START_OFFSET_NAME)
        log.env.fs.write_file(path, content, durable=durable)
    except OSError as error:
        doing = f"writing the log start offset of {log.topic_partition}"
        raise storage_error(error, doing) from error


def start_offset_line(offset: int) -> bytes:
    """The content of the file: the offset, and its checksum."""
    line = b"%d" % offset
    return b"%s %08x\n" % (line, crc32(line))


def read_start_offset(fs: FileSystem, directory: str) -> int:
    """The log start offset in a directory's file, 0 if there is none."""
    try:
        content = fs.read_file(os.path.join(directory, START_OFFSET_NAME))
    except FileNotFoundError:
        return 0
    line, _, checksum = content.strip().partition(b" ")
    if not line.isdigit() or checksum != b"%08x" % crc32(line):
        from logging import getLogger

        getLogger("kstore.log").error(
            "%s in %s and the index are damaged: records that were deleted before their "
            "segment may have reappeared; delete them again", START_OFFSET_NAME, directory,
        )  # fmt: skip
        return 0
    return int(line)
