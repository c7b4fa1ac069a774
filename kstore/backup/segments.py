"""Copies segments to the pool: only data that the previous backup does not have, and only whole
batches below a cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from kstore._fast.record.crc32c import checksum as crc32c
from kstore.backup.capture import Captured, GoneError, Identity, OpenSegment
from kstore.backup.errors import BackupError
from kstore.backup.manifest import Manifest, SegmentBackup, SegmentOrigin
from kstore.backup.objects import ObjectPool

__all__ = ["KnownSegments", "copy_partition", "copy_sealed"]

TAIL_BYTES = 4096


class KnownSegments:
    """What the pool has of files, from the previous backup and from this one."""

    def __init__(self, pool: ObjectPool, before: Manifest | None) -> None:
        self._pool = pool
        self._by_file: dict[Identity, SegmentBackup] = {}
        self._checked: set[Identity] = set()
        """Files that were checked: they still equal their copies."""
        for partition in before.partitions if before is not None else ():
            for segment in partition.segments:
                origin = segment.origin
                identity = Identity(origin.device, origin.inode, segment.base_offset)
                self._by_file[identity] = segment

    def has_all(self, identity: Identity, size_bytes: int) -> bool:
        """Whether the pool has the whole file, and the file was checked."""
        known = self._by_file.get(identity)
        return known is not None and identity in self._checked and known.bytes == size_bytes

    def of(self, segment: OpenSegment) -> SegmentBackup | None:
        """What the pool has of a file; None if it has nothing, or the file is another one."""
        known = self._by_file.get(segment.identity)
        if known is None or segment.identity in self._checked:
            return known
        end = known.bytes
        good = (
            end <= segment.size_bytes
            and _tail_crc(segment, end) == known.origin.tail_crc
            and all(map(self._pool.has, known.parts))
        )
        if not good:
            del self._by_file[segment.identity]
            return None
        self._checked.add(segment.identity)
        return known

    def note(self, identity: Identity, segment: SegmentBackup) -> None:
        """The file was copied."""
        self._by_file[identity] = segment
        self._checked.add(identity)


def copy_sealed(
    captured: Captured,
    upto: int,
    known: KnownSegments,
    pool: ObjectPool,
    tell: Callable[[int], None],
) -> None:
    """Copy the segments that end at ``upto`` or before and are not active, ahead of the moment of
    the backup.
    """
    for segment, following in pairwise(captured.segments):
        if following.base_offset > upto:
            return
        try:
            _copy(segment, known, pool, upto, tell)
        except GoneError:
            continue  # the final capture finds the log without it


def copy_partition(
    captured: Captured,
    end: int,
    known: KnownSegments,
    pool: ObjectPool,
    tell: Callable[[int], None],
) -> tuple[int, tuple[SegmentBackup, ...]]:
    """Copy the data below ``end``; returns the start of the log, and its segments. Raises GoneError
    if even the last segment was deleted.
    """
    start = captured.start
    done: list[SegmentBackup] = []
    for segment in captured.segments:
        if segment.base_offset >= end and done:
            break
        try:
            done.append(_copy(segment, known, pool, end, tell))
        except GoneError:
            if segment is captured.segments[-1]:
                raise
            done.clear()  # retention deletes from the beginning
            continue
        if len(done) == 1:
            start = max(start, segment.base_offset)
    return min(start, end), tuple(done)


def _copy(
    segment: OpenSegment,
    known: KnownSegments,
    pool: ObjectPool,
    end: int,
    tell: Callable[[int], None],
) -> SegmentBackup:
    before = known.of(segment)
    if before is not None and before.next_offset > end:
        before = None
    if before is not None and segment.descriptor < 0:
        return before
    parts = () if before is None else before.parts
    position = 0 if before is None else before.bytes
    batches = _Batches(segment, position, end, tell)
    batches.next_offset = segment.base_offset if before is None else before.next_offset
    first = next(batches, None)
    if first is not None:
        parts += (pool.put(_chained(first, batches)),)
    size = sum(part.bytes for part in parts)
    origin = SegmentOrigin(*segment.identity[:2], _tail_crc(segment, size))
    made = SegmentBackup(segment.base_offset, batches.next_offset, parts, origin)
    known.note(segment.identity, made)
    return made


class _Batches(Iterator[bytes]):
    """The bytes of whole batches below an offset."""

    def __init__(
        self, segment: OpenSegment, position: int, end: int, tell: Callable[[int], None]
    ) -> None:
        if segment.descriptor < 0:
            raise BackupError(f"{segment.path} is not open: this is a defect of kstore")
        self._pieces = segment.pieces(position)
        self._end = end
        self._tell = tell
        self.next_offset = segment.base_offset

    def __next__(self) -> bytes:
        for piece, views in self._pieces:
            while views and views[-1].next_offset > self._end:
                views.pop()
            if not views:
                break
            self.next_offset = views[-1].next_offset
            size = views[-1].position + views[-1].size_bytes
            self._tell(size)
            return piece[:size]
        raise StopIteration


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _tail_crc(segment: OpenSegment, end: int) -> int:
    start = max(0, end - TAIL_BYTES)
    return crc32c(segment.read(end - start, start))
