"""The file with a queue's state, mapped by all users of the queue."""

class LeaseFileError(Exception):
    """The file can't be used as a queue's state; the message says why."""

class LeaseFile:
    """The mapped file, with one owner's lock on it."""

    closed: bool
    """Whether it was closed."""
    def __init__(self, fd: int, topic_id: bytes, boot_id: bytes, start_offset: int) -> None: ...
    lock_ms: int
    """Raises TimeoutError if another process has the lock for too long: it must be stopped."""
    watched: bool
    """Whether there are waiters for a message."""
    wake_ups: int
    """How often the waiters were woken."""
    def watch(self) -> None:
        """Make a process that gives a message back wake the waiters, with a write to the file:
        check the table after this.
        """
    def free_dead_owners(self) -> bool:
        """Whether there were owners whose process has exited: their leased messages become
        available.
        """
    def close(self) -> None:
        """Give back the leased messages, and close the file."""
    def abandon(self) -> None:
        """Close the file without a change: in a child process the table belongs to the parent."""
