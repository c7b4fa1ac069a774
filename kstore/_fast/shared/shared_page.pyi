"""The page that the writing processes of one log have mapped: their lock, which survives its
holder, and the end of the log. Linux only.
"""

class SharedPage:
    """A mapped page. The log's core takes its lock together with its own."""

    path: str
    """Of its file."""
    keeper: bool
    """This process does the log's maintenance."""
    generation: int
    """Increases after changes other than appends and rolls: other processes then load the log
    again.
    """
    log_start_offset: int
    """The value that the last lock holder left; so are the next four."""
    log_end_offset: int
    active_base: int
    position: int
    durable_offset: int
    holder: int
    """The process that has the lock, or had it last."""
    needs_recovery: bool
    """A process was killed while it had the lock: the data after ``position`` is unknown."""
    deleted: bool
    """The log was deleted."""
    @property
    def keeper_died(self) -> bool:
        """Whether the process that was killed did the maintenance."""
    text: bytes
    """Data that its users store for each other; at most 3 KB."""
    def __init__(self, fd: int, path: str, incarnation: bytes) -> None:
        """Map a file. A page of another incarnation is initialized again: all its users are dead,
        and two processes must not do this at once. Raises OSError if that is not possible, ENOSYS
        on systems other than Linux.
        """
    def mark_deleted(self) -> None:
        """The log was deleted: its users are notified."""
    def watch(self) -> int:
        """The argument for ``sleep``; check the log between the two calls."""
    def sleep(self, seen: int, timeout_ms: int) -> None:
        """Sleep until the log changes, or for so long; without the GIL."""
    def wake(self) -> None:
        """Wake all sleepers."""
