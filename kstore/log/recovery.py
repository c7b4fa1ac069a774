"""What opening a log finds: which segments there are, how far their bytes are good, what has to be
cut, and what is damaged. It changes files only to cut a torn tail.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kstore._fast.log_core import LogCore
from kstore._fast.log_segment import LogSegment
from kstore._fast.segment_file import SegmentFile

__all__ = ["Damage", "RecoveryReport", "scan_segment"]

_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Damage:
    """A part of a segment that holds no whole, valid batch although later bytes do."""

    segment: str
    position: int
    end_position: int

    @property
    def size_bytes(self) -> int:
        """How many bytes are damaged."""
        return self.end_position - self.position


@dataclass
class RecoveryReport:
    """What opening a log did and found."""

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    segments: int = 0
    clean: bool = False
    damages: list[Damage] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{self.segments} segments, {self.scanned_bytes} bytes scanned"]
        if self.truncated_bytes:
            parts.append(f"{self.truncated_bytes} bytes of a torn tail cut off")
        parts += [
            f"{d.size_bytes} damaged bytes at {d.position} of {d.segment}" for d in self.damages
        ]
        return "; ".join(parts)


def scan_segment(
    core: LogCore, segment: LogSegment, position: int, report: RecoveryReport, producers_from: int
) -> int:
    """Scan a segment from ``position`` to the end of its file, over damaged parts where good
    batches follow; return the end of the last good batch. Damage is added to the report.
    """
    file = segment.handle_or_open()
    end = file.size_bytes
    while True:
        start = position
        position, _status = core.scan(segment, position, end, producers_from=producers_from)
        report.scanned_bytes += position - start
        if position >= end:
            return position
        found = find_batch(core, segment, file, position + 1, end)
        if found is None:
            return position
        report.damages.append(Damage(segment.path, position, found))
        segment.corrupt = True
        core.mark_entry(segment, found)
        position = found


def find_batch(
    core: LogCore, segment: LogSegment, file: SegmentFile, position: int, end: int
) -> int | None:
    """Where the next whole, valid batch lies at or behind ``position``, or None."""
    while position < end:
        found = core.find_batch(segment, position, min(position + _BYTES_AT_ONCE, end), end)
        if found >= 0:
            return int(found)
        position += _BYTES_AT_ONCE
    return None
