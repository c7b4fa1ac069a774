"""A log with its lock, among the threads of this process and, if other processes also write to the
log, among the processes.
"""

from types import TracebackType
from typing import Self

from kstore._fast.log.log_segment import LogSegment
from kstore._fast.log.log_view import LogView
from kstore._fast.shared.shared_page import SharedPage

class LockedLog(LogView):
    """A log's view and lock. As a context manager it holds the lock (recursive); the holder has
    applied the changes of other processes.
    """

    closed: bool
    """Appends are refused."""
    page: SharedPage | None
    """The shared state of the processes that write to the log."""
    generation: int
    """The version of the page that this process has applied."""
    def share(self, page: SharedPage | None) -> None:
        """Other processes also append, and use this page; None: not any more."""
    def forget_all(self) -> None:
        """Load the log again when its lock is taken next."""
    def look(self) -> None:
        """Apply what other processes have appended, if anything."""
    def forget_end(self, segments: list[LogSegment], shorter: LogSegment) -> None:
        """The last of these segments is about to be truncated to the size of this copy of it, and
        the ones after it are about to be deleted: concurrent readers see all that stays, nothing
        else, and no damage.
        """
    def shift_segments(self, segments: list[LogSegment]) -> None:
        """As ``set_segments`` after a roll, or if the first or the last segments are missing."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def after_fork(self) -> None:
        """In a child process: refuse appends, and release a lock that another thread held."""
    def close(self) -> None:
        """Refuse appends from now on."""
