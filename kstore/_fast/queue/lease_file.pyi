"""The file that holds a queue's state, mapped by all who use the queue."""

class LeaseFileError(Exception):
    """The file can't be used as a queue's state; says why."""

class LeaseFile:
    """The mapped file, with one owner's lock on it."""

    closed: bool
    """Whether it was closed."""
    def __init__(self, fd: int, topic_id: bytes, boot_id: bytes, start_offset: int) -> None: ...
    lock_ms: int
    """TimeoutError where another process has the lock for longer: it must be stopped."""
    watched: bool
    """Whether somebody waits for a message."""
    wake_ups: int
    """How often those who wait were woken."""
    def watch(self) -> None:
        """Have whoever gives a message back wake those who wait, by a write to the file: look at
        the table after this.
        """
    def free_dead_owners(self) -> bool:
        """Whether there were owners whose process has ended: others get what they had leased."""
    def close(self) -> None:
        """Give back what is leased, and the file."""
    def abandon(self) -> None:
        """Close the file and change nothing: in a child process the table is the parent's."""
