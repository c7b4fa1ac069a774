"""Appends that may have to wait for the disk, done by threads."""

from collections.abc import Callable

from typing_extensions import Buffer

from kstore._fast.log.dir_calm import DirCalm
from kstore._fast.log.log_core import LogCore
from kstore._fast.log.segment_file import SegmentFile

class AppendJob:
    """An append that a thread does."""

    problem: Exception | None
    """The exception of the append."""

    @property
    def error_code(self) -> int:
        """Kafka's error code if nothing was appended without an exception."""
    @property
    def base_offset(self) -> int:
        """The offset of the first record."""
    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
    @property
    def duplicate(self) -> bool:
        """Whether the log already had it."""
    @property
    def log_end_offset(self) -> int:
        """The log end offset after the append."""

class CallbackJob(AppendJob):
    """An append with a callback."""

class Lane:
    """The jobs of one thread."""

class AppendQueue:
    """The appends of threads to the logs of one log dir."""

    path: str
    """The log dir."""
    calm: DirCalm
    """Its disk."""
    appends: int
    """The number of appends that were passed to threads."""
    def __init__(self, path: str, calm: DirCalm, warn: Callable[[str], object]) -> None: ...
    def serve(
        self,
        call_threadsafe: Callable[..., object],
        run_later: Callable[[Callable[[], bool]], object] | None = None,
    ) -> None:
        """Accept appends from the loop of this call_soon_threadsafe. ``run_later(run)``, for
        simulations: calls ``run()`` once for each job, because there are no threads.
        """
    def append(
        self,
        core: LogCore,
        data: Buffer,
        leader_epoch: int,
        origin: str,
        callback: Callable[[CallbackJob], object],
    ) -> None:
        """Append a copy of ready batches; ``callback(job)`` is called on the loop after success or
        failure.
        """
    def hold(self, core: LogCore) -> None:
        """From now on appends to this log wait, until ``release``; appends to others do not."""
    def release(self, core: LogCore) -> None:
        """Do the waiting appends now, in order."""
    def reserve(self, file: SegmentFile) -> None:
        """Let a thread allocate disk space, so that the loop's appends never have to."""
    def start(self, name: str, run: Callable[..., None], *args: object) -> None:
        """Start a daemon thread."""
    def run_done(self) -> None:
        """Report finished jobs to their callers."""
    def run_lane(self, number: int) -> None:
        """A lane's thread."""
    def run_space(self) -> None:
        """The thread that allocates disk space."""
    def run_next(self) -> bool:
        """Do one job here: the first of the first lane that has any; returns False if there is
        none.
        """
    def run_watch(self) -> None:
        """The thread that reports hanging appends, even if all other threads must wait."""
    def forget(self) -> None:
        """Reset: no threads and no jobs, as at the start or in a child process."""
    def close(self, seconds: float) -> None:
        """Finish the queued jobs, for at most so long; the loop is not notified from now on. Jobs
        that take longer continue in their thread.
        """
