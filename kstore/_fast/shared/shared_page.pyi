"""The page that the writing processes of one log have mapped: their lock, which survives its
holder, and where the log ends. Linux only."""

class SharedPage:
    """A mapped page. Its lock is taken by the log's core, with its own lock."""

    path: str
    """Of its file."""
    keeper: bool
    """This process does the log's maintenance."""
    generation: int
    """Grows when more than appends and rolls was done: others load the log anew."""
    log_start_offset: int
    """As who had the lock last left it; so are the next four."""
    log_end_offset: int
    active_base: int
    position: int
    durable_offset: int
    holder: int
    """The process that has or had the lock last."""
    needs_recovery: bool
    """A process was killed that had the lock: what lies behind ``position`` is not known."""
    deleted: bool
    """The log is gone."""
    @property
    def keeper_died(self) -> bool:
        """Whether the process that was killed did the maintenance."""
    text: bytes
    """What its users write there for each other; at most 3 KB."""
    def __init__(self, fd: int, path: str, incarnation: bytes) -> None:
        """Maps a file. A page of another incarnation is begun anew: its users are all dead, and no
        two processes may do this at once. OSError where that can't be, ENOSYS for lack of Linux."""
    def mark_deleted(self) -> None:
        """The log is gone: whoever uses it is told."""
    def watch(self) -> int:
        """What ``sleep`` is to be told; look at the log between the two."""
    def sleep(self, seen: int, timeout_ms: int) -> None:
        """Sleeps until the log changes, or so long; without the GIL."""
    def wake(self) -> None:
        """Has all who sleep look again."""
