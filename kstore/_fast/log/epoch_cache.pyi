"""The leader epoch cache of one log: the start offset of each epoch (KIP-101, KIP-279)."""

from collections.abc import Iterable

class EpochCache:
    """Entries ascend in epoch and in start offset, whatever is assigned."""

    latest_epoch: int
    """The highest epoch, -1 when empty."""
    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None: ...
    def __len__(self) -> int: ...
    def assign_epoch(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` begins at ``start_offset``; contradicting entries are removed.

        Returns False, and changes nothing, if it continues the latest epoch. Raises ValueError for
        negative numbers.
        """
    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not above ``epoch``, and its end offset (exclusive).

        (-1, -1) if the epoch is above all known ones, -1, or nothing is known. For an epoch below
        all known ones: the epoch itself and the first known start offset.
        """
    def epoch_for_offset(self, offset: int) -> int | None:
        """The leader epoch of the record at ``offset``, if known."""
    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at ``end_offset`` or later."""
    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended before ``start_offset``; the epoch that contains it begins
        there.
        """
    def clear(self) -> None:
        """Remove everything."""
    def as_list(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs, ascending."""
