"""Disk space behind an LMDB file, for a disk that becomes full.

LMDB writes changed pages to other places, so also a deletion needs space, and files are removed
only when the deletion is committed. Without such space nothing could be deleted on a full disk.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kstore._fast.log.segment_file import SegmentFile

__all__ = ["keep_room"]


def keep_room(path: str, least_bytes: int, share: float) -> None:
    """Reserve space behind the file: this share of its size, but at least ``least_bytes``. Does
    nothing while half of that is left, and if the disk is full or its file system cannot reserve
    space.
    """
    with suppress(OSError):
        status = os.stat(path)
        room = status.st_blocks * 512 - status.st_size
        wanted = max(least_bytes, int(status.st_size * share))
        if room < wanted // 2:
            file = SegmentFile(path, writable=True, create=False)
            file.share()  # closing it does not give the space back
            file.preallocate(status.st_size + wanted)
            file.close()
