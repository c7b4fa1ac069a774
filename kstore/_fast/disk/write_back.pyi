"""Early write-back of data in the files of one log dir, with a budget."""

from collections.abc import Callable

class WriteBack:
    """Notes of unwritten ranges, and the thread that makes the system write them."""

    possible: bool
    noted_bytes: int
    def __init__(self, find_budget: Callable[[], int] | None = None) -> None: ...
    def set_budget(self, size_bytes: int, find_budget: Callable[[], int] | None = None) -> None:
        """The maximum number of unwritten bytes; below 0: the result of ``find_budget``, which is
        called now and then; 0: no early write-back.
        """
    def add(self, fd: int, position: int, size_bytes: int, owner: int = 0) -> bool:
        """Note a range of a file; False: it was refused."""
    def drop(self, owner: int) -> None:
        """Drop an owner's notes that have not been started."""
    def wait(self, timeout_ms: int) -> bool:
        """Wait until the budget is met; False: not in time."""
    @property
    def over_budget(self) -> bool:
        """More is unwritten than the budget allows."""
    @property
    def budget_bytes(self) -> int:
        """The budget."""
    @property
    def unwritten_bytes(self) -> int:
        """The bytes that were noted and are not written yet."""
    @property
    def written_bytes(self) -> int:
        """The bytes that the thread has written."""
    @property
    def busy_ms(self) -> int:
        """How long the thread's system call has been running; 0: none is."""
    def close(self) -> None:
        """Stop early write-back; the current write ends on its own."""
