"""Replaces segments with the cleaned segment that was written from them. A crash or a failed call
at any point leaves either the old segments or the cleaned one.

The order is Kafka's. The file is named ``.log.cleaned`` while it is written, and is renamed to
``.log.swap`` when it is complete and on disk. Then the old files are removed, and it gets its final
name. The swap can be undone until the first old file is removed; afterwards it can only be
finished. To show which applies, the name of the ``.swap`` file contains the number of segments that
it replaces, and the end offset of the last one.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from kstore._fast.log.segment_file import SegmentFile
from kstore.env import FileSystem
from kstore.log.segments.segment_names import (
    LOG_SUFFIX,
    OFFSET_DIGITS,
    segment_bases,
    segment_path,
)

__all__ = [
    "CLEANED", "SWAP", "Swap", "decide", "find_swaps", "finish", "is_needed", "take_back",
    "with_end",
]  # fmt: skip

CLEANED = LOG_SUFFIX + ".cleaned"
SWAP = LOG_SUFFIX + ".swap"
_READ_BYTES = 1 << 20
_NAME = re.compile(r"(\d{20})(?:-(\d{20})-(\d+))?\.log\.swap")
_UNKNOWN = 0


class Swap(NamedTuple):
    """A cleaned segment. It replaces segments with base offsets in [base offset, end offset)."""

    base_offset: int
    end_offset: int
    replaces: int
    """The number of these segments; 0: unknown, because an older version wrote the file."""

    @property
    def name(self) -> str:
        """The name of its file until it gets its final name."""
        base = f"{self.base_offset:0{OFFSET_DIGITS}d}"
        if self.replaces == _UNKNOWN:
            return base + SWAP
        return f"{base}-{self.end_offset:0{OFFSET_DIGITS}d}-{self.replaces}{SWAP}"

    def replaced(self, bases: Iterable[int]) -> list[int]:
        """Those of the base offsets whose segments it replaces."""
        end = max(self.end_offset, self.base_offset + 1)
        return [base for base in bases if self.base_offset <= base < end]


def decide(fs: FileSystem, directory: str, swap: Swap) -> None:
    """Rename the cleaned segment, which is synced, to the name that a start looks for."""
    cleaned = segment_path(directory, swap.base_offset, CLEANED)
    fs.replace(cleaned, os.path.join(directory, swap.name))
    fs.fsync_dir(directory)


def finish(
    fs: FileSystem, directory: str, swap: Swap, group: Collection[int] | None = None
) -> None:
    """Remove the segments that the swap replaces and give the cleaned segment its final name. This
    can be called again after a failure. The caller must sync the directory.

    ``group``: the base offsets of the replaced segments, if known; no other segment is removed.
    """
    names = fs.listdir(directory)
    if swap.name not in names:  # removing the old files would lose their records
        path = os.path.join(directory, swap.name)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    for base in swap.replaced(segment_bases(names)):
        if base == swap.base_offset or (group is not None and base not in group):
            continue
        fs.unlink(segment_path(directory, base))
    if swap.replaces != 1:
        fs.fsync_dir(directory)  # otherwise the disk may have the new name and old files
    place = segment_path(directory, swap.base_offset)
    fs.replace(os.path.join(directory, swap.name), place)


def take_back(fs: FileSystem, directory: str, swap: Swap) -> None:
    """Undo the swap: remove the cleaned segment, and keep the old ones. The removal is durable when
    this returns, so the cleaned segment never replaces later segments.
    """
    with suppress(FileNotFoundError):
        fs.unlink(os.path.join(directory, swap.name))
    fs.fsync_dir(directory)


def find_swaps(names: Iterable[str]) -> list[Swap]:
    """The swaps whose files are among a directory's names, ascending. Swaps of an older version
    have no end offset.
    """
    found = [match for name in names if (match := _NAME.fullmatch(name)) is not None]
    return sorted(Swap(int(m[1]), int(m[2] or 0), int(m[3] or _UNKNOWN)) for m in found)


def is_needed(fs: FileSystem, directory: str, swap: Swap, names: list[str]) -> bool:
    """Whether a swap must be finished: at least one of the segments that it replaces is removed,
    and the others and the segments after them have not changed. Otherwise it must be undone.
    """
    bases = segment_bases(names)
    if swap.name not in names:
        return False
    if max(bases, default=-1) < max(swap.end_offset, swap.base_offset + 1):
        return False  # the log was truncated or restarted since
    if swap.replaces == _UNKNOWN:
        return swap.base_offset in bases and _is_newest(fs, directory, swap, bases)
    return len(swap.replaced(bases)) < swap.replaces


def _is_newest(fs: FileSystem, directory: str, swap: Swap, bases: list[int]) -> bool:
    """Whether the file of an older version's swap is newer than all segments that it replaces: the
    older version continued after a failed swap without removing this file.
    """
    written = fs.modified_ns(os.path.join(directory, swap.name))
    paths = [segment_path(directory, base) for base in swap.replaced(bases)]
    return all(fs.modified_ns(path) <= written for path in paths)


def with_end(fs: FileSystem, directory: str, swap: Swap) -> Swap:
    """The swap with its end offset. One of an older version replaces segments that begin before its
    last offset; old segments after that, which it had emptied, stay until the next cleaning.
    """
    if swap.replaces != _UNKNOWN:
        return swap
    path = os.path.join(directory, swap.name)
    return swap._replace(end_offset=_next_offset(fs, path, swap.base_offset))


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
