"""The memory of both brokers after all requests of this run. Run it after the rows that load the
pair; alone it says little.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.brokers import Broker
from bench.compare.pair import LESS, Pair, compared
from bench.measure import Figures, Settings, memory_mb
from bench.report import Goal, Row

__all__ = ["rows"]


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Resident and shared memory, some seconds after the last load."""
    time.sleep(settings.pick(5, 1))

    def memory(name: str, broker: Broker) -> Figures:
        del name
        return memory_mb(broker.pid)

    sides = pair.turns("memory", memory, 1)
    note = "after " + (", ".join(pair.loads) or "nothing")
    goal = Goal(200, at_least=False, of="value")
    yield compared("memory", "after the load, resident (RSS)", sides, "Rss", "MB", goal, note)
    yield compared("memory", "after the load, in part (PSS)", sides, "Pss", "MB", LESS, note)
