"""How long a producer is refused that states the current number of partitions of its topic. A
prepared expansion refuses it, and must end in time, committed or rolled back.
"""

from __future__ import annotations

from kstore.broker.coordination.contraction_nodes import read_contraction
from kstore.broker.coordination.store import NoNodeError
from kstore.errors import ErrorCode
from tests.sim.history import History, Place
from tests.sim.machines.world import World

EXPANSION_TIMEOUT_MS = 2000
LONGEST_S = 12.0
"""The time of an expansion, three times at most because controllers fail, whose sessions end after
two seconds; and as long again for a leader that hears nothing to look for itself.
"""


class Refusals:
    """The answers to the producers of one topic of a cluster."""

    def __init__(self, history: History, world: World, topic: str) -> None:
        self._history = history
        self._world = world
        self._topic = topic
        self._path = f"/brokers/topics/{topic}/partitions"
        self._since: dict[Place, float] = {}
        self._attempts: dict[Place, int] = {}
        """Which contraction was prepared when a place refused last: one that is rolled back may be
        asked for again, and then refuses for as long again.
        """

    def count(self) -> int:
        """The number of partitions for producers, from the coordination store; -1 if there is
        none.
        """
        store = self._world.store.root(self._world.folder + "/store")
        try:
            contraction = read_contraction(store, self._topic)
            if contraction is not None and contraction.holds:
                return contraction.first
            return len(store.children(self._path))
        except NoNodeError:
            return -1

    def _prepared(self) -> int | None:
        """When the currently prepared contraction began, if there is one."""
        store = self._world.store.root(self._world.folder + "/store")
        contraction = read_contraction(store, self._topic)
        return None if contraction is None or contraction.holds else contraction.begun_ms

    def _leads(self, node_id: int, place: Place) -> bool:
        broker = self._world.nodes[node_id].broker
        if broker is None:
            return False
        partition = broker.table.partition(place.topic.encode(), place.partition)
        return partition is not None and bool(partition.online)

    def answered(self, place: Place, node_id: int, said: int, before: int, code: int) -> None:
        """A producer stated a count while the topic had this number of partitions, and a broker
        gave this answer. Brokers that do not know yet that they lead the partition are ignored.
        """
        if not self._leads(node_id, place):
            return
        now = self._world.loop.time()
        if code == ErrorCode.NONE:
            self._since.pop(place, None)
        if code != ErrorCode.INVALID_PARTITION_COUNT:
            return
        if not said == before == self.count():
            self._since.pop(place, None)
            return
        attempt = self._prepared()
        if attempt is not None and attempt != self._attempts.get(place):
            self._attempts[place] = attempt
            self._since.pop(place, None)
        if not self._world.store.majority:  # no broker can decide anything
            self._since[place] = now
        passed = now - self._since.setdefault(place, now)
        counts = self._history.counts
        counts["longest refusal (ms)"] = max(counts["longest refusal (ms)"], int(passed * 1000))
        counts["refused while prepared"] += 1
        if passed > LONGEST_S:
            self._history.break_rule(
                "refusals", f"{place} refuses the {said} partitions that it has for {passed:.1f} s"
            )
