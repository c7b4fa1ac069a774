"""Checks whether the disk of a folder still answers."""

class DiskProbe:
    """A thread that checks a disk with a small write that bypasses the page cache, while data is
    being written.
    """

    def __init__(self, folder: str) -> None: ...
    interval_ms: int
    """How often it checks, and how long a check may take; 0: no checks."""
    def use(self) -> None:
        """Data is being written to the folder: check the disk from now on, for a second."""
    @property
    def overdue_ms(self) -> int:
        """How long a check has been overdue; 0: it is not."""
    @property
    def answers(self) -> int:
        """The number of checks that were answered."""
    @property
    def error(self) -> int:
        """The errno of the last check."""
    @property
    def resting(self) -> bool:
        """No checks run until data is written."""
    def close(self) -> None:
        """Stop checking; a check that hangs ends on its own."""
