"""The runs of offsets of a share-partition that are alike."""

from collections.abc import Iterable

NO_DEADLINE: int

class Runs:
    """From the start offset to the end offset, each offset is in one run."""

    start_offset: int
    """The first offset in flight."""
    end_offset: int
    """The last one; the one before the start offset while there is none."""
    def __init__(
        self, start_offset: int, batches: Iterable[tuple[int, int, int, int]] = ()
    ) -> None: ...
    def __len__(self) -> int: ...
    def rows(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """(first offset, last offset, state, deliveries, owner, deadline, token) of each run."""
    def commit(self, token: int) -> None:
        """Keep a token's changes."""
    def roll_back(self, token: int) -> None:
        """A token's changes could not be stored: its records are acquired as before, except those
        that were released by time or with their member.
        """
    def set_log_start(self, offset: int) -> None:
        """The log now begins at an offset: records below it are not in flight."""
