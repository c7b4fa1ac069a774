"""Put a cleaned segment in the place of the segments it was made from, so that a crash at any point
leaves either them or it.

The order is Kafka's: ``.log.cleaned`` while it is written; renamed to ``.log.swap`` when it is
complete and on disk, which decides; then the old files go and it gets its name. ``finish_swaps``
does what a crash left undone, before a log's segments are looked at.
"""

from __future__ import annotations

import os

from kstore._fast.log.segment_file import SegmentFile
from kstore.env import FileSystem
from kstore.log.segments.segment_names import LOG_SUFFIX, segment_bases, segment_path

__all__ = ["CLEANED", "SWAP", "decide_swap", "finish_swaps", "take_place"]

CLEANED = LOG_SUFFIX + ".cleaned"
SWAP = LOG_SUFFIX + ".swap"
_READ_BYTES = 1 << 20


def decide_swap(fs: FileSystem, directory: str, base_offset: int) -> None:
    """From here on the cleaned segment (which was synced) is the truth."""
    fs.replace(
        segment_path(directory, base_offset, CLEANED), segment_path(directory, base_offset, SWAP)
    )
    fs.fsync_dir(directory)


def take_place(fs: FileSystem, directory: str, base_offset: int, replaced: list[int]) -> None:
    """Remove the segments with these base offsets and give the cleaned one its name. The directory
    is the caller's to sync.
    """
    for old in replaced:
        if old != base_offset:
            fs.unlink(segment_path(directory, old))
    fs.replace(segment_path(directory, base_offset, SWAP), segment_path(directory, base_offset))


def finish_swaps(fs: FileSystem, directory: str) -> int:
    """Undo what was not decided and finish what was, after a crash; how many swaps were finished.

    A decided segment replaces those that begin between its first and its last offset. What it had
    emptied behind its last offset may come back: the next cleaning takes it away again.
    """
    names = fs.listdir(directory)
    for name in names:
        if name.endswith(CLEANED):
            fs.unlink(os.path.join(directory, name))
    swaps = sorted(name for name in names if name.endswith(SWAP))
    for name in swaps:
        base_offset = int(name[: -len(SWAP)])
        end = _next_offset(fs, os.path.join(directory, name), base_offset)
        old = [base for base in segment_bases(names) if base_offset <= base < end]
        take_place(fs, directory, base_offset, old)
        fs.fsync_dir(directory)
    return len(swaps)


def _next_offset(fs: FileSystem, path: str, base_offset: int) -> int:
    """The offset after the last batch of a file."""
    from kstore.record import batches

    file = fs.open_segment(SegmentFile, path, writable=False, create=False)
    found, position, wanted = base_offset, 0, _READ_BYTES
    try:
        while position < file.size_bytes:
            data = file.read(wanted, position)
            used = 0
            for batch in batches(data):
                found = batch.next_offset
                used = batch.position + batch.size_bytes
            position += used
            if used == 0 and len(data) < wanted:
                break
            wanted = _READ_BYTES if used else wanted * 4
    finally:
        file.close()
    return found
