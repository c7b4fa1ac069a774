"""The leader-epoch cache of one log: which epoch began at which offset (KIP-101, KIP-279)."""

from collections.abc import Iterable

class EpochCache:
    """Entries ascend in epoch and in start offset, whatever is assigned."""

    latest_epoch: int
    """The highest epoch, -1 when empty."""
    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None: ...
    def __len__(self) -> int: ...
    def assign_epoch(self, epoch: int, start_offset: int) -> bool:
        """Says that ``epoch`` begins at ``start_offset``; entries that contradict it go.

        Nothing (False) where it continues the latest epoch. ValueError for negative numbers.
        """
    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not above ``epoch`` and the offset (exclusive) where it ended.

        (-1, -1) when the epoch is above all known, -1, or nothing is known. An epoch below all
        known is answered with itself and the first known start offset.
        """
    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that the record at ``offset`` was written in, if known."""
    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets the epochs that begin at ``end_offset`` or later."""
    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets what ended before ``start_offset``; the epoch that holds it begins there."""
    def clear(self) -> None:
        """Forgets everything."""
    def as_list(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs, ascending."""
