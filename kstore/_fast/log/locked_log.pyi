"""One log with its lock, among the threads of this process and, where other processes write to the
log as well, among them."""

from types import TracebackType
from typing import Self

from kstore._fast.log.log_segment import LogSegment
from kstore._fast.log.log_view import LogView
from kstore._fast.shared.shared_page import SharedPage

class LockedLog(LogView):
    """A log's view and lock. As a context manager it holds the lock (recursive); who has it has
    taken in what other processes have done."""

    closed: bool
    """Appends are refused."""
    page: SharedPage | None
    """What other processes say of the log that write to it as well."""
    generation: int
    """Of the page, up to where this process has followed."""
    def share(self, page: SharedPage | None) -> None:
        """Other processes append as well, and say so on this page; None: not any more."""
    def forget_all(self) -> None:
        """Has the log loaded anew when its lock is taken next."""
    def look(self) -> None:
        """Takes in what other processes have appended, if anything."""
    def forget_end(self, segments: list[LogSegment], position: int) -> None:
        """The last of these segments is about to be cut at a position, and what was behind it is
        about to be removed: who reads meanwhile sees less, and no damage. Its index entries have to
        be in memory.
        """
    def shift_segments(self, segments: list[LogSegment]) -> None:
        """As ``set_segments`` after a roll, or for want of the first segments."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def after_fork(self) -> None:
        """In a child process: refuses appends, and frees a lock that another thread held."""
    def close(self) -> None:
        """Refuses appends from now on."""
