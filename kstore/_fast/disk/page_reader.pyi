"""The thread that reads cold parts of one log dir's files into the page cache."""

from collections.abc import Callable

class ColdRead:
    """One stretch that is read in."""

    done: bool
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
    ) -> None:
        """From now on a loop reads here, which must not wait: these are its functions."""
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
