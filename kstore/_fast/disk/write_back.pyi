"""Early write-back of what was written to the files of one log dir, with a budget."""

from collections.abc import Callable

class WriteBack:
    """Notes of unwritten stretches, and the thread that has the system write them."""

    possible: bool
    noted_bytes: int
    def __init__(self, find_budget: Callable[[], int] | None = None) -> None: ...
    def set_budget(self, size_bytes: int, find_budget: Callable[[], int] | None = None) -> None:
        """How many bytes may be unwritten; below 0: what ``find_budget`` says now and then; 0: no
        write begins early."""
    def add(self, fd: int, position: int, size_bytes: int, owner: int = 0) -> bool:
        """Note a stretch of a file; False: it was not taken."""
    def drop(self, owner: int) -> None:
        """Forget an owner's notes that have not begun."""
    def wait(self, timeout_ms: int) -> bool:
        """Wait until the budget is kept; False: not within the time."""
    @property
    def over_budget(self) -> bool:
        """More is unwritten than the budget allows."""
    @property
    def budget_bytes(self) -> int:
        """How much may be unwritten."""
    @property
    def unwritten_bytes(self) -> int:
        """What was noted and is not written yet."""
    @property
    def written_bytes(self) -> int:
        """What the thread has seen written."""
    @property
    def busy_ms(self) -> int:
        """For how long the thread's system call has been under way; 0: none is."""
    def close(self) -> None:
        """Write nothing early any more; what the thread is at it ends by itself."""
