"""Appends that may have to wait for the disk, left to threads."""

from collections.abc import Callable

from typing_extensions import Buffer

from kstore._fast.log.dir_calm import DirCalm
from kstore._fast.log.log_core import LogCore
from kstore._fast.log.segment_file import SegmentFile

class AppendJob:
    """One append that a thread does."""

    problem: Exception | None
    """What the append raised."""

    @property
    def error_code(self) -> int:
        """Why nothing was appended, as Kafka says it; without a problem."""
    @property
    def base_offset(self) -> int:
        """The offset of the first record."""
    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
    @property
    def duplicate(self) -> bool:
        """Whether the log had it already."""
    @property
    def log_end_offset(self) -> int:
        """Where the log ended after the append."""

class CallbackJob(AppendJob):
    """An append that calls back."""

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
        run_later: Callable[[Callable[[], bool]], object] | None = None,
    ) -> None:
        """Take appends from the loop of this call_soon_threadsafe. ``run_later(run)``, for
        simulations: has ``run()`` called once for each job, where there are no threads."""
    def append(
        self,
        core: LogCore,
        data: Buffer,
        leader_epoch: int,
        origin: str,
        callback: Callable[[CallbackJob], object],
    ) -> None:
        """Append ready batches, of which a copy is made; ``callback(job)`` is called on the loop
        when that is done, or has failed."""
    def hold(self, core: LogCore) -> None:
        """From now on appends to a log wait, and nobody else's, until ``release``."""
    def release(self, core: LogCore) -> None:
        """Those that waited are done now, in their order."""
    def reserve(self, file: SegmentFile) -> None:
        """Have a thread ask for disk space, so that the loop's appends never have to."""
    def start(self, name: str, run: Callable[..., None], *args: object) -> None:
        """Begin a thread that ends with the process."""
    def run_done(self) -> None:
        """Say what is done to those who asked for it."""
    def run_lane(self, number: int) -> None:
        """A lane's thread."""
    def run_space(self) -> None:
        """The thread that asks for disk space."""
    def run_next(self) -> bool:
        """Do one job here: the first of the lane that has any; False if none has."""
    def run_watch(self) -> None:
        """The thread that says what hangs, though everybody else may have to wait for it."""
    def forget(self) -> None:
        """There are no threads and no jobs: as at the start, or in a child process."""
    def close(self, seconds: float) -> None:
        """Do what is queued, for at most so long; the loop is told of nothing from now on. What
        takes longer goes on in its thread."""
