"""The thread that reads cold parts of one log dir's files into the page cache."""

from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

class NotInMemory(Exception):
    """Who must not wait reads what is not in memory."""

class ColdRead:
    """One stretch that is read in."""

    done: bool
    problem: Exception | None
    """What ended it, where that is known."""
    position: int
    size_bytes: int
    def when_done(self, tell: Callable[[], object]) -> None:
        """Have ``tell()`` called on the loop when it is read, or could not be."""

class PageReader:
    """What of one log dir's files is read before the loop reads it."""

    serving: bool
    """There is a loop that must not wait."""
    cold_reads: int
    """How often something was not in the page cache."""
    cold_bytes: int
    def serve(
        self,
        add_reader: Callable[[int, Callable[[], None]], object],
        remove_reader: Callable[[int], object],
        run: Callable[[str, Callable[[], object]], Future[object]] | None = None,
    ) -> None:
        """From now on this thread's loop reads here, which must not wait: these are its functions.
        ``run(what, call)`` has another thread call.
        """
    loop_thread: int
    """Who must not wait; 0: nobody that could be helped."""
    def brought_in(self, key: object, done: Future[object]) -> None:
        """On the loop: tell those who lacked it."""
    def aside(self, what: str, call: Callable[[], _T]) -> Future[_T] | None:
        """Have a thread call; None: there is none, or whoever asks may wait."""
    def collect(self) -> None:
        """On the loop: tell those whose stretch is read."""
    @property
    def ahead_bytes(self) -> int:
        """What was read before anybody wanted it."""
    @property
    def asks_by(self) -> str:
        """How the page cache is asked: by "cachestat", by "nowait", or, where neither can be
        believed, by "nothing": then all counts as there."""
    @asks_by.setter
    def asks_by(self, way: str) -> None: ...
    def end(self) -> None:
        """Read no more; what the thread is at ends by itself."""
