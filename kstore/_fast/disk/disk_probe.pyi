"""Whether the disk of a folder still answers."""

class DiskProbe:
    """A thread that asks a disk, by a small write past the page cache, while somebody writes."""

    def __init__(self, folder: str) -> None: ...
    interval_ms: int
    """How often it asks, and for how long an answer may take; 0: it asks nothing."""
    def use(self) -> None:
        """Somebody writes into the folder now: the disk is asked from now on, for a second."""
    @property
    def overdue_ms(self) -> int:
        """For how long the disk has owed an answer; 0: no longer than it may."""
    @property
    def answers(self) -> int:
        """How often it has answered."""
    @property
    def error(self) -> int:
        """The errno of its last answer."""
    @property
    def resting(self) -> bool:
        """No question is asked until somebody writes."""
    def close(self) -> None:
        """Ask nothing any more; a question that hangs ends by itself."""
