"""Walk segment files from outside: their batches, and what is wrong with them, without a log, an
index or a lock.

Used by dump and verify. It reads pieces of a megabyte, whatever the files' sizes, and takes nothing
that a file claims for granted: a length is only believed as far as the file reaches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kstore.log.segment import only_zeros
from kstore.record import BatchView, InvalidBatchError, batches
from kstore.types import TopicPartition

__all__ = ["Damage", "ScannedBatch", "SegmentPath", "scan_segment", "segment_paths"]

SUFFIX = ".log"
_NAME_DIGITS = 20
_PREFIX_BYTES = 12
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SegmentPath:
    """A segment file, the partition whose directory it lies in (if it is named so), and its name's
    offset.
    """

    path: Path
    topic_partition: TopicPartition | None
    base_offset: int
    is_last: bool = True
    """Of its partition's: the one that a writer appends to."""


@dataclass(frozen=True, slots=True)
class ScannedBatch:
    """A batch and its first byte in the file. Its memory is a piece of the file, kept as long as it
    is.
    """

    position: int
    batch: BatchView


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no good batch: where, how (a name of ``STATUS_NAMES``), and how many bytes
    were skipped.

    ``next_position`` is None where the walk of this segment had to end: nothing says where the next
    batch begins.
    """

    segment: Path
    position: int
    kind: str
    detail: str
    next_position: int | None
    batch: BatchView | None = None


def segment_paths(path: str | os.PathLike[str]) -> list[SegmentPath]:
    """The segments of a file, of a partition's directory, or of a log dir; in order.

    Raises FileNotFoundError, and ValueError where there is nothing to find.
    """
    root = Path(path)
    if root.is_file():
        return [_segment(root, is_last=True)]
    found = sorted(_segments_in(root))
    if not found:
        for folder in sorted(entry for entry in root.iterdir() if entry.is_dir()):
            if partition_of(folder) is not None:
                found += sorted(_segments_in(folder))
    if not found:
        raise ValueError(
            f"{root} holds no segment files: name a .log file, a partition's directory or a log dir"
        )
    last = {file.parent: file for file in found}
    return [_segment(file, is_last=last[file.parent] == file) for file in found]


def partition_of(folder: Path) -> TopicPartition | None:
    """The partition that a directory is named after, or None."""
    topic, dash, index = folder.name.rpartition("-")
    if not dash or not topic or not (index.isascii() and index.isdigit()):
        return None
    return TopicPartition(topic, int(index))


def _segments_in(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.suffix == SUFFIX and len(entry.stem) == _NAME_DIGITS and entry.stem.isdigit():
            yield entry


def _segment(file: Path, *, is_last: bool) -> SegmentPath:
    base_offset = int(file.stem) if file.stem.isdigit() else 0
    return SegmentPath(file, partition_of(file.resolve().parent), base_offset, is_last)


def scan_segment(segment: SegmentPath) -> Iterator[ScannedBatch | Damage]:
    """Every batch of the file, CRC checked, and every damage.

    A batch with a wrong CRC is stepped over by its length; bytes that are no batch end the walk.
    The last segment of a partition may end in zeros: its writer takes space ahead of the data.
    """
    path = segment.path
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        position = 0

        def read(size_bytes: int, at: int) -> bytes:
            return os.pread(file.fileno(), size_bytes, at)

        while position < size:
            piece = _piece(file.fileno(), position, size)
            done = 0
            try:
                for view in batches(piece, verify=True):
                    yield ScannedBatch(position + view.position, view)
                    done = view.position + view.size_bytes
            except InvalidBatchError as error:
                if segment.is_last and only_zeros(read, position + done, size):
                    return  # space that the writer has taken ahead of its data
                damage = _damage(path, position, piece, error)
                yield damage
                if damage.next_position is None:
                    return
                position = damage.next_position
                continue
            if done == 0:
                left = size - position
                if segment.is_last and only_zeros(read, position, size):
                    return
                yield Damage(path, position, "TRUNCATED", f"{left} bytes at the end", None)
                return
            position += done


def _piece(descriptor: int, position: int, size: int) -> bytes:
    """A megabyte from ``position``, or more where one batch needs it and the file has it."""
    piece = os.pread(descriptor, _PIECE_BYTES, position)
    if len(piece) < _PREFIX_BYTES:
        return piece
    wanted = int.from_bytes(piece[8:_PREFIX_BYTES], "big", signed=True) + _PREFIX_BYTES
    if len(piece) < wanted <= size - position:
        piece = os.pread(descriptor, wanted, position)
    return piece


def _damage(path: Path, position: int, piece: bytes, error: InvalidBatchError) -> Damage:
    at = error.position
    if error.status != "BAD_CRC":
        return Damage(path, position + at, error.status, str(error), None)
    view = next(batches(piece, position=at))
    detail = f"offsets {view.base_offset}..{view.last_offset}, stored CRC {view.crc:#010x}"
    after = position + at + view.size_bytes
    return Damage(path, position + at, error.status, detail, after, view)
