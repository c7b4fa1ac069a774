"""The thread that notices when the loop is held; see loop_guard.pyx."""

from collections.abc import Callable

from kstore._fast.network.loop_watch import LoopWatch

def guard(watch: LoopWatch, stop_fd: int, stuck_ms: int, on_stuck: Callable[[int], None]) -> None:
    """Until ``stop_fd`` is readable, write a line to stderr during each hold that lasts longer than
    ``stuck_ms``; then call ``on_stuck(began_us)`` as soon as Python can run.
    """
