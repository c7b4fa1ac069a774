"""What opening a log found, as values: scanned and cut-off data, damaged parts, lost offsets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.log.segments.damage import Damage

__all__ = ["Loss", "RecoveryReport"]


@dataclass(frozen=True)
class Loss:
    """Offsets that the index knows and the files no longer have: the end of a file, or a whole
    file, was lost.
    """

    segment: str
    first_offset: int
    next_offset: int
    """The offsets ``first_offset`` to ``next_offset`` - 1 are lost."""

    def __str__(self) -> str:
        return f"offsets {self.first_offset} to {self.next_offset - 1} are lost from {self.segment}"


@dataclass
class RecoveryReport:
    """What opening a log did and found. Sizes are in bytes."""

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    """Bytes of an incomplete batch that were cut off at the end of the log."""
    segments: int = 0
    missing_segments: list[int] = field(default_factory=list)
    """The base offsets of segments whose files are missing."""
    damages: list[Damage] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    """Offsets that were assigned and are lost. They are not assigned again."""

    @property
    def lost_offsets(self) -> int:
        """The number of lost offsets."""
        return sum(loss.next_offset - loss.first_offset for loss in self.losses)

    def __str__(self) -> str:
        parts = [f"{self.segments} segments, {self.scanned_bytes} bytes scanned"]
        if self.truncated_bytes:
            parts.append(f"{self.truncated_bytes} bytes of a torn tail cut off")
        parts += [f"the segment of offset {base} is missing" for base in self.missing_segments]
        parts += [str(damage) for damage in self.damages]
        parts += [str(loss) for loss in self.losses]
        return "; ".join(parts)
