"""What every part of a broker may use: the broker's id, settings, loop and clock, the threads that
wait for disks, and reports to the operator.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from kstore.broker.runtime.dir_threads import DirThreads

if TYPE_CHECKING:
    import asyncio

    from kstore.broker.runtime.log_limit import Report
    from kstore.config import BrokerConfig

__all__ = ["Node"]

T = TypeVar("T")


class Node:
    """One broker's process. It does not depend on the broker's parts."""

    def __init__(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, report: Report
    ) -> None:
        """``report`` reports a sentence to the operator."""
        self.config = config
        self.loop = loop
        self.report = report
        self.node_id: int = config["node.id"]
        self.dirs = DirThreads(loop, report)
        """The threads of the log dirs."""
        self.dir_reads = DirThreads(loop, report, "kstore-read")
        """Separate threads for reads of log data that is not in memory. They do nothing else."""
        self._blocking = ThreadPoolExecutor(1, thread_name_prefix="kstore-store")

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def run_blocking(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call that waits for the disk. One thread runs these calls, in order."""
        return self.loop.run_in_executor(self._blocking, call)

    def close(self) -> None:
        """End the threads, once their calls have ended."""
        self.dirs.close()
        self.dir_reads.close()
        self._blocking.shutdown(wait=True)
