"""Removes the files of a deleted log step by step. Freeing much space at once takes long. During
that time it blocks the file system's journal, and so other writers. A file that a snapshot shares
stays in the snapshot.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kstore.log.segments.shared_files import is_shared

if TYPE_CHECKING:
    from kstore.env import FileSystem

__all__ = ["remove_step"]

STEP_BYTES = 64 << 20
"""The number of bytes that are freed at once."""


def remove_step(fs: FileSystem, folder: str) -> bool:
    """Free that many bytes of a folder's files, or the rest with the folder. Returns True if some
    are left.
    """
    most = STEP_BYTES
    for name in fs.listdir(folder):
        path = os.path.join(folder, name)
        size_bytes = 0 if is_shared(path) else fs.file_size(path)
        if size_bytes > most:
            fs.truncate(path, size_bytes - most)
            return True
        fs.unlink(path)
        most -= size_bytes
    fs.rmdir(folder)
    return False
