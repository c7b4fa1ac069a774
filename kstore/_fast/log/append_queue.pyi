"""Appends that may have to wait for the disk, left to threads."""

from collections.abc import Callable

from kstore._fast.log.dir_calm import DirCalm

class AppendJob:
    """One append that a thread does."""

    problem: Exception | None
    """What the append raised."""

class Lane:
    """The jobs of one thread."""

class AppendQueue:
    """The appends to the logs of one log dir that are left to threads."""

    path: str
    """The log dir."""
    calm: DirCalm
    """Its disk."""
    appends: int
    """How many appends were left to threads."""
    def __init__(self, path: str, calm: DirCalm, warn: Callable[[str], object]) -> None: ...
    def serve(
        self,
        call_threadsafe: Callable[..., object],
        run_later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """Take appends from the loop of this call_soon_threadsafe. ``run_later(run)``, for
        simulations: has ``run()`` called once for each job, where there are no threads."""
    def start(self, name: str, run: Callable[..., None], *args: object) -> None:
        """Begin a thread that ends with the process."""
    def run_done(self) -> None:
        """Say what is done to those who asked for it."""
    def run_lane(self, number: int) -> None:
        """A lane's thread."""
    def run_next(self) -> None:
        """Do one job here: the first of the lane that has any."""
    def run_watch(self) -> None:
        """The thread that says what hangs, though everybody else may have to wait for it."""
    def forget(self) -> None:
        """There are no threads and no jobs: as at the start, or in a child process."""
    def close(self, seconds: float) -> None:
        """Do what is queued, for at most so long; the loop is told of nothing from now on. What
        takes longer goes on in its thread."""
