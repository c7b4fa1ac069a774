"""The thread that reads missing parts of one log dir's files into the page cache."""

from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

class NotInMemory(Exception):
    """A reader that must not wait for the disk."""

class ColdRead:
    """A range that is being read."""

    done: bool
    problem: Exception | None
    """The error, if known."""
    position: int
    size_bytes: int
    def when_done(self, tell: Callable[[], object]) -> None:
        """Call ``tell()`` on the loop when it was read, or could not be."""

class PageReader:
    """Reads parts of one log dir's files before the loop needs them."""

    serving: bool
    """A loop is attached that must not wait."""
    cold_reads: int
    """How often something was not in the page cache."""
    cold_bytes: int
    def serve(
        self,
        add_reader: Callable[[int, Callable[[], None]], object],
        remove_reader: Callable[[int], object],
        run: Callable[[str, Callable[[], object]], Future[object]] | None = None,
    ) -> None:
        """The loop of this thread reads here from now on, and must not wait; these are its
        functions. ``run(what, call)`` runs a call in another thread.
        """
    loop_thread: int
    """The thread that must not wait; 0: none."""
    def brought_in(self, key: object, done: Future[object]) -> None:
        """On the loop: notify the readers that lacked it."""
    def aside(self, what: str, call: Callable[[], _T]) -> Future[_T] | None:
        """Run a call in a thread; None: there is no thread, or the caller may wait."""
    def collect(self) -> None:
        """On the loop: notify the readers of ranges that were read."""
    @property
    def ahead_bytes(self) -> int:
        """The bytes that were read ahead."""
    @property
    def asks_by(self) -> str:
        """How the page cache is queried: by "cachestat", by "nowait", or, if neither is reliable,
        by "nothing": then everything counts as present.
        """
    @asks_by.setter
    def asks_by(self, way: str) -> None: ...
    def end(self) -> None:
        """Stop reading; the current read ends on its own."""
