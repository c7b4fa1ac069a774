"""A uvloop event loop whose calls are timed; see watched_loop.pyx."""

import uvloop

from kstore._fast.network.loop_watch import LoopWatch

class WatchedLoop(uvloop.Loop):
    """The loop."""

    watch: LoopWatch
    def __init__(self, watch: LoopWatch) -> None:
        """``watch``: its clock."""
