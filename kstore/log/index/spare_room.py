"""Disk space behind an LMDB file, for a disk that becomes full.

LMDB writes changed pages to other places, so even a deletion needs space, and files are removed
only after the deletion is committed. Without such space nothing could be deleted on a full disk.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kstore._fast.log.segment_file import SegmentFile

__all__ = ["keep_room"]


def keep_room(path: str, least_bytes: int, share: float, most_bytes: int = 1 << 62) -> None:
    """Reserve space behind the file: this share of its size, but at least ``least_bytes``, and no
    more than the file may grow to ``most_bytes``. Does nothing while half of that is left, and if
    its file system cannot reserve space. On a disk that is nearly full it reserves less.
    """
    with suppress(OSError):
        status = os.stat(path)
        room = status.st_blocks * 512 - status.st_size
        wanted = min(max(least_bytes, int(status.st_size * share)), most_bytes - status.st_size)
        if room >= wanted // 2:
            return
        file = SegmentFile(path, writable=True, create=False)
        file.share()  # closing it does not give the space back
        for part in (wanted, wanted // 2, wanted // 4):
            with suppress(OSError):
                file.preallocate(status.st_size + part)
                break
        file.close()
