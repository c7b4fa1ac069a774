"""Reads segment files from outside: their batches and their damage, without a log, an index or a
lock.

dump, verify and repair use it, so they name the same damage. It reads pieces of a megabyte,
whatever the files' sizes, and trusts nothing that a file claims.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kstore.log.segments.damage import Bad, Bounds, Damage, Good, judge, piece_at, walk
from kstore.log.segments.segment_names import only_zeros
from kstore.record import BatchView, InvalidBatchError, batches
from kstore.types import TopicPartition

__all__ = [
    "ScannedBatch", "SegmentPath", "Survey", "scan_segment", "segment_paths", "survey_segments",
]  # fmt: skip

SUFFIX = ".log"
_NAME_DIGITS = 20
_LARGEST_OFFSET_DELTA = 2**31 - 1
_EPOCH_AT, _EPOCH_END = 12, 16  # a batch's leader epoch

Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class SegmentPath:
    """A segment file, the partition of its directory (if it has such a name), and the offset in its
    name.
    """

    path: Path
    topic_partition: TopicPartition | None
    base_offset: int
    following: Path | None = None
    """The partition's next segment."""

    @property
    def is_last(self) -> bool:
        """The last of its partition: the one that a writer appends to."""
        return self.following is None


@dataclass(frozen=True, slots=True)
class ScannedBatch:
    """A batch and its position in the file. Its memory is a piece of the file, which it keeps
    alive.
    """

    position: int
    batch: BatchView


@dataclass(frozen=True, slots=True)
class Survey:
    """The damage of a segment."""

    segment: SegmentPath
    bounds: Bounds
    end: int
    """The end of its data, without zeros that its writer has preallocated."""
    damages: tuple[Damage, ...] = ()
    rows: tuple[Good | Bad, ...] = ()
    """The content of a damaged segment."""
    last_epoch: int = -1
    """Of its last valid batch; before that, of the segment before."""

    def is_torn_tail(self, damage: Damage) -> bool:
        """Whether it is the beginning of a batch that a crash left: opening the log truncates
        it.
        """
        at_end = damage.end_position == self.end
        return self.segment.is_last and at_end and damage.kind == "TRUNCATED"


def segment_paths(path: str | os.PathLike[str]) -> list[SegmentPath]:
    """The segments of a file, of a partition's directory, or of a log dir; in order.

    Raises FileNotFoundError, and ValueError if there are none.
    """
    root = Path(path)
    if root.is_file():
        beside = sorted(file for file in _segments_in(root.parent) if file.name > root.name)
        return [_segment(root, beside[0] if beside and _is_segment(root) else None)]
    found = sorted(_segments_in(root))
    if not found:
        for folder in sorted(entry for entry in root.iterdir() if entry.is_dir()):
            if partition_of(folder) is not None:
                found += sorted(_segments_in(folder))
    if not found:
        raise ValueError(
            f"{root} has no segment files: use a .log file, a partition's folder or a log dir"
        )
    behind = [*found[1:], None]
    return [
        _segment(file, after if after is not None and after.parent == file.parent else None)
        for file, after in zip(found, behind, strict=True)
    ]


def partition_of(folder: Path) -> TopicPartition | None:
    """The partition that a directory is named after, or None."""
    topic, dash, index = folder.name.rpartition("-")
    if not dash or not topic or not (index.isascii() and index.isdigit()):
        return None
    return TopicPartition(topic, int(index))


def _segments_in(folder: Path) -> Iterator[Path]:
    return (entry for entry in folder.iterdir() if _is_segment(entry))


def _is_segment(file: Path) -> bool:
    return file.suffix == SUFFIX and len(file.stem) == _NAME_DIGITS and file.stem.isdigit()


def _segment(file: Path, following: Path | None) -> SegmentPath:
    base_offset = int(file.stem) if file.stem.isdigit() else 0
    return SegmentPath(file, partition_of(file.resolve().parent), base_offset, following)


def survey_segments(segments: Iterable[SegmentPath]) -> Iterator[Survey]:
    """The damage of each of these segments, judged with its neighbours. If they are not all of a
    partition's, less is known about the first one.
    """
    epoch = -1
    folder = None
    for segment in segments:
        if segment.path.parent != folder:
            folder, epoch = segment.path.parent, -1
        surveyed = _survey(segment, epoch)
        epoch = surveyed.last_epoch
        yield surveyed


def _survey(segment: SegmentPath, epoch: int) -> Survey:
    following = segment.following
    if following is None:
        limit, epoch_after = segment.base_offset + _LARGEST_OFFSET_DELTA + 1, -1
    else:
        limit, epoch_after = int(following.stem), _first_epoch(following)
    bounds = Bounds(
        segment.base_offset, limit, following is not None, epoch, epoch_after=epoch_after
    )
    with segment.path.open("rb", buffering=0) as file:
        read = _reader(file.fileno())
        found = Survey(segment, bounds, os.fstat(file.fileno()).st_size, last_epoch=epoch)
        good = _if_good(found, read)
        if good is not None:
            return good
        rows = list(walk(read, 0, found.end, bounds))
        tail = rows[-1]
        if isinstance(tail, Bad) and _is_taken_ahead(found, read, tail):
            rows.pop()
            found = replace(found, end=tail.position)
    damages = judge(str(segment.path), rows, found.end, bounds)
    last = _last_epoch(rows, damages, epoch)
    return replace(found, damages=tuple(damages), rows=tuple(rows), last_epoch=last)


def _last_epoch(rows: list[Good | Bad], damages: list[Damage], otherwise: int) -> int:
    """The leader epoch of the last batch that is not damaged."""
    left = list(damages)
    for row in reversed(rows):
        while left and row.position < left[-1].position:
            left.pop()
        if isinstance(row, Good) and not (left and row.position < left[-1].end_position):
            return row.epoch
    return otherwise


def _if_good(survey: Survey, read: Read) -> Survey | None:
    """The result for a segment without damage, without data of each batch."""
    bounds = survey.bounds
    expected, epoch, end = bounds.expected, bounds.epoch, survey.end
    for row in walk(read, 0, end, bounds):
        if isinstance(row, Bad):
            if not _is_taken_ahead(survey, read, row):
                return None
            end = row.position
            break
        fits = expected <= row.base_offset <= bounds.limit - row.span and row.span > 0
        if not fits or row.epoch < epoch:
            return None
        expected, epoch = row.base_offset + row.span, row.epoch
    if 0 <= bounds.epoch_after < epoch:
        return None
    return replace(survey, end=end, last_epoch=epoch)


def _is_taken_ahead(survey: Survey, read: Read, row: Bad) -> bool:
    """Whether these bytes are space that the writer of the last segment has preallocated."""
    at_end = survey.segment.is_last and row.end_position == survey.end
    return at_end and only_zeros(read, row.position, survey.end)


def _first_epoch(segment: Path) -> int:
    """The leader epoch in a segment's first batch; -1: it has none."""
    with segment.open("rb") as file:
        head = file.read(_EPOCH_END)
    return int.from_bytes(head[_EPOCH_AT:], "big", signed=True) if len(head) == _EPOCH_END else -1


def _reader(descriptor: int) -> Read:
    return lambda size, position: os.pread(descriptor, size, position)


def scan_segment(survey: Survey) -> Iterator[ScannedBatch | Damage]:
    """Every valid batch of a scanned file, and every damage, in file order."""
    with survey.segment.path.open("rb", buffering=0) as file:
        read = _reader(file.fileno())
        position = 0
        for damage in survey.damages:
            yield from _valid(survey, read, position, damage.position)
            yield damage
            position = damage.end_position
        yield from _valid(survey, read, position, survey.end)


def _valid(survey: Survey, read: Read, position: int, end: int) -> Iterator[ScannedBatch | Damage]:
    """The batches of a part that was valid when it was scanned."""
    while position < end:
        piece = piece_at(read, position, end)
        done = 0
        kind = "TRUNCATED"
        try:
            for view in batches(piece, verify=True):
                yield ScannedBatch(position + view.position, view)
                done = view.position + view.size_bytes
        except InvalidBatchError as error:
            kind = error.status
        position += done
        if not done or kind != "TRUNCATED":
            why = "the file was changed while it was read: try again"
            yield Damage(str(survey.segment.path), position, end, kind=kind, reason=why)
            return
