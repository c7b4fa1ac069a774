"""The thread that sees a loop that is held; see loop_guard.pyx."""

from collections.abc import Callable

from kstore._fast.network.loop_watch import LoopWatch

def guard(watch: LoopWatch, stop_fd: int, stuck_ms: int, on_stuck: Callable[[int], None]) -> None:
    """Until ``stop_fd`` can be read, write a line to stderr about each hold that lasts longer than
    ``stuck_ms``, while it lasts; then call ``on_stuck(began_us)`` as soon as Python can.
    """
