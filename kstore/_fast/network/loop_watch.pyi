"""What holds the loop; see loop_watch.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.network.stolen_time import StolenTime

def shorten_slice() -> bool:
    """Ask the scheduler for short time slices of the calling thread: when it wakes up, it gets a
    core at once from threads that have longer ones, instead of at their next timer tick (up to 4
    ms). Its share of the core stays the same. Returns whether the system does it: Linux 6.12 and
    newer, unless the thread has another scheduling policy or a negative nice value.
    """

class LoopWatch:
    """The clock of one loop."""

    began_us: int
    """The start of the current call, on the monotonic clock; 0: no call runs."""
    thread_id: int
    """The kernel's id of the loop's thread; 0: none."""
    writes_json: bool
    """Whether the line about a hold is a JSON object."""
    on_hold: Callable[[int, Any, int, int, int, int, int, int], None] | None
    """Called for each hold of a millisecond or more: API key (-1: none), callback (None: a
    connection was read), and in microseconds: in all, on a core (-1: the kernel does not report
    it), waiting for a core, stopped with the whole process, stopped by a hypervisor, and collecting
    garbage.
    """
    def __init__(
        self, names: dict[int, bytes] | None = None, stolen: StolenTime | None = None
    ) -> None:
        """``names``: of API keys, for the line about a hold. ``stolen``: for tests; None: of this
        machine.
        """

    def attach(self) -> None:
        """The calling thread runs the loop."""

    def run(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call it and measure the time."""

    def running(self) -> Any:
        """The callback that runs now; None if none runs, or a connection is read."""

    def on_gc(self, phase: str, info: dict[str, int]) -> None:
        """For gc.callbacks: a hold by a collection is reported as such."""
