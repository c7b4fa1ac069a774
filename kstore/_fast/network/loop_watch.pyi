"""What holds the loop; see loop_watch.pyx."""

from collections.abc import Callable
from typing import Any

class LoopWatch:
    """The clock of one loop."""

    began_us: int
    """When what is called now began, on the monotonic clock; 0: nothing is called."""
    thread_id: int
    """The kernel's number of the loop's thread; 0: none."""
    writes_json: bool
    """Whether the line that is written while the loop is held is a JSON object."""
    on_hold: Callable[[int, Any, int, int, int, int, int], None] | None
    """Called for each hold of a millisecond or more: API key (-1: none), callback (None: a
    connection was read), and in microseconds how long it took, on a core (-1: this kernel does not
    tell), waiting for one, stopped with the whole process, and collecting garbage.
    """
    def __init__(self, names: dict[int, bytes] | None = None) -> None:
        """``names``: of API keys, for the line that is written while the loop is held."""

    def attach(self) -> None:
        """The calling thread runs the loop."""

    def run(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call it, on the clock."""

    def running(self) -> Any:
        """The callback that is called now; None if there is none, or a connection is read."""

    def on_gc(self, phase: str, info: dict[str, int]) -> None:
        """For gc.callbacks: a collection is told as what it is."""
