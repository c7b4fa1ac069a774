"""Removes the files of a deleted log step by step. Freeing much space at once takes long, and
blocks the file system's journal, and with it other writers, for that time. A file that a snapshot
shares is kept there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kstore.log.segments.shared_files import is_shared

if TYPE_CHECKING:
    from kstore.env import FileSystem

__all__ = ["remove_step"]

STEP_BYTES = 64 << 20
"""How much is freed at once."""


def remove_step(fs: FileSystem, folder: str) -> bool:
    """Free so much of a folder's files, or the rest and the folder; whether some are left."""
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
