"""Put a cleaned segment in the place of the segments it was made from, so that a crash or a failing
call at any point leaves either them or it.

The order is Kafka's: ``.log.cleaned`` while it is written; renamed to ``.log.swap`` when it is
complete and on disk; then the old files go and it gets its name. Until the first of them is gone
the swap can be taken back, afterwards it can only be finished. So that this can be seen, the name
of the ``.swap`` file says how many segments it replaces, and where the last of them ends.
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
    """A cleaned segment that replaces the segments which begin in [base offset, end offset)."""

    base_offset: int
    end_offset: int
    replaces: int
    """How many they are. 0: of an older version, whose names did not say it."""

    @property
    def name(self) -> str:
        """Its file's name while it waits for its place."""
        base = f"{self.base_offset:0{OFFSET_DIGITS}d}"
        if self.replaces == _UNKNOWN:
            return base + SWAP
        return f"{base}-{self.end_offset:0{OFFSET_DIGITS}d}-{self.replaces}{SWAP}"

    def replaced(self, bases: Iterable[int]) -> list[int]:
        """Those of these segments that it replaces."""
        end = max(self.end_offset, self.base_offset + 1)
        return [base for base in bases if self.base_offset <= base < end]


def decide(fs: FileSystem, directory: str, swap: Swap) -> None:
    """Give the cleaned segment, which was synced, the name under which a start finds it."""
    cleaned = segment_path(directory, swap.base_offset, CLEANED)
    fs.replace(cleaned, os.path.join(directory, swap.name))
    fs.fsync_dir(directory)


def finish(
    fs: FileSystem, directory: str, swap: Swap, group: Collection[int] | None = None
) -> None:
    """Remove what the swap replaces and give the cleaned segment its name. It can be called again
    after it has failed. The directory is the caller's to sync.

    ``group``: the base offsets of what it replaces, if they are known; nothing else is removed.
    """
    names = fs.listdir(directory)
    if swap.name not in names:  # nothing would be left of what is removed
        path = os.path.join(directory, swap.name)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    for base in swap.replaced(segment_bases(names)):
        if base == swap.base_offset or (group is not None and base not in group):
            continue
        fs.unlink(segment_path(directory, base))
    if swap.replaces != 1:
        fs.fsync_dir(directory)  # else the disk may know the new name, and still the old ones
    place = segment_path(directory, swap.base_offset)
    fs.replace(os.path.join(directory, swap.name), place)


def take_back(fs: FileSystem, directory: str, swap: Swap) -> None:
    """Remove the cleaned segment: what it was made from stays. It is gone when this returns, also
    after a power cut; so it never replaces what comes later.
    """
    with suppress(FileNotFoundError):
        fs.unlink(os.path.join(directory, swap.name))
    fs.fsync_dir(directory)


def find_swaps(names: Iterable[str]) -> list[Swap]:
    """The decided swaps among a directory's names, ascending. The end offset of those of an older
    version is not known.
    """
    found = [match for name in names if (match := _NAME.fullmatch(name)) is not None]
    return sorted(Swap(int(m[1]), int(m[2] or 0), int(m[3] or _UNKNOWN)) for m in found)


def is_needed(fs: FileSystem, directory: str, swap: Swap, names: list[str]) -> bool:
    """Whether a swap has to be finished: some or all of what it replaces is gone, and the rest, and
    what follows, is as it was. Else it is taken back.
    """
    bases = segment_bases(names)
    if swap.name not in names:
        return False
    if max(bases, default=-1) < max(swap.end_offset, swap.base_offset + 1):
        return False  # the log was cut or began elsewhere since
    if swap.replaces == _UNKNOWN:
        return swap.base_offset in bases and _is_newest(fs, directory, swap, bases)
    return len(swap.replaced(bases)) < swap.replaces


def _is_newest(fs: FileSystem, directory: str, swap: Swap, bases: list[int]) -> bool:
    """Whether nothing that an older version's swap replaces was written after it: it forgot swaps
    that had failed.
    """
    written = fs.modified_ns(os.path.join(directory, swap.name))
    paths = [segment_path(directory, base) for base in swap.replaced(bases)]
    return all(fs.modified_ns(path) <= written for path in paths)


def with_end(fs: FileSystem, directory: str, swap: Swap) -> Swap:
    """A swap whose end is known. One of an older version replaces what begins before its last
    offset; what it had emptied behind that comes back until the next cleaning.
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
