"""The leader epochs of the records below a position, as far as the consumer has fetched the
records. A commit has only the last of these epochs.
"""

from __future__ import annotations

__all__ = ["EpochHistory"]

LONGEST = 1000
"""The number of entries that are kept; the oldest are dropped."""


class EpochHistory:
    """The leader epochs of one partition's records, each with its first offset. Both increase from
    entry to entry. The epochs below the first entry are unknown.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def note(self, leader_epoch: int, start_offset: int) -> None:
        """Note records from an offset on, which follow the earlier ones."""
        if not self.entries or leader_epoch > self.entries[-1][0]:
            self.entries.append((leader_epoch, start_offset))
            del self.entries[:-LONGEST]

    def cut(self, end_offset: int) -> None:
        """Drop the entries at or above an offset."""
        while self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at an offset; -1: unknown."""
        return next((epoch for epoch, start in reversed(self.entries) if start <= offset), -1)
