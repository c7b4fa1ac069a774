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
        """What a token has changed is kept."""
    def roll_back(self, token: int) -> None:
        """What a token has changed could not be kept: it is acquired as before, but for what was
        released by time or with its member.
        """
    def set_log_start(self, offset: int) -> None:
        """The log begins at an offset: what lies below it is not in flight."""
