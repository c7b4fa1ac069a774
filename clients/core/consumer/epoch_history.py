"""Under which leader epochs the records below a position were written, as far as a consumer has
fetched them itself. A commit has the last of these epochs only.
"""

from __future__ import annotations

__all__ = ["EpochHistory"]

LONGEST = 1000
"""Entries that are kept; the oldest are forgotten then."""


class EpochHistory:
    """The leader epochs of one partition's records, each with the offset from which on they are in
    it. Both grow from entry to entry. Nothing is known of what lies below the first.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def note(self, leader_epoch: int, start_offset: int) -> None:
        """Records from an offset on, which follow all that were noted before."""
        if not self.entries or leader_epoch > self.entries[-1][0]:
            self.entries.append((leader_epoch, start_offset))
            del self.entries[:-LONGEST]

    def cut(self, end_offset: int) -> None:
        """Forget what lies at or above an offset."""
        while self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at an offset; -1: unknown."""
        return next((epoch for epoch, start in reversed(self.entries) if start <= offset), -1)
