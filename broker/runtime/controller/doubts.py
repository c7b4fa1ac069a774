"""What brokers report about the ends of logs that are ahead of the coordination store. The rules
are in state/controller/doubts.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kstore.broker.state.controller import doubts

if TYPE_CHECKING:
    from kstore.broker.runtime.controller.decisions import Decisions
    from kstore.broker.state.controller.doubts import LogEnd
    from kstore.broker.state.controller.state import PartitionChange
    from kstore.broker.state.metadata.image import BrokerImage

__all__ = ["ControllerDoubts"]

LOGGER = logging.getLogger("kstore.controller")
Place = tuple[str, int]


class ControllerDoubts:
    """The part of one controller that decides about doubted partitions."""

    def __init__(self, controller: Decisions) -> None:
        self._controller = controller
        self._ends: dict[Place, dict[int, tuple[int, LogEnd]]] = {}
        """Doubted partition to broker to its broker epoch and the end of its log."""

    def hear(self, broker: BrokerImage, ends: Mapping[Place, LogEnd]) -> None:
        """A broker has answered where these logs end."""
        self._controller.spawn(self._controller.in_the_end, self._take, broker, ends)

    async def _take(self, broker: BrokerImage, ends: Mapping[Place, LogEnd]) -> None:
        changes = [self._decide(broker, place, end) for place, end in ends.items()]
        await self._controller.commit([change for change in changes if change is not None])

    def _decide(self, broker: BrokerImage, place: Place, end: LogEnd) -> PartitionChange | None:
        state = self._controller.state
        partition = state.partition(*place)
        if partition is None or partition.leader_epoch != end.role_epoch:
            return None  # it answers the current role, too
        if end.refused:
            self._ends.pop(place, None)
            change = doubts.doubted(state, *place, end.latest_epoch)
            if change is None:
                return None
            LOGGER.error(
                "the log of %s-%d on broker %d has leader epoch %d, but the coordination store only"
                " %d: was it restored from an older copy? The partition has no leader until all of"
                " its replicas, on brokers %s, have reported the ends of their logs, or"
                " `kstore elect --unclean` is used",
                *place, broker.node_id, end.latest_epoch, end.role_epoch, list(partition.replicas),
            )  # fmt: skip
            return change
        if not doubts.is_doubted(partition):
            return None
        heard = self._ends.setdefault(place, {})
        heard[broker.node_id] = broker.epoch, end
        current = {
            node: each
            for node, (epoch, each) in heard.items()
            if node in state.brokers and state.brokers[node].epoch == epoch
        }
        change = doubts.most_complete(state, *place, current)
        if change is not None:
            del self._ends[place]
            LOGGER.warning(
                "all replicas of %s-%d have reported the ends of their logs: broker %d leads it,"
                " from offset %d on",
                *place, change.image.leader, current[change.image.leader].log_end_offset,
            )  # fmt: skip
        elif current.keys() >= set(partition.replicas):
            LOGGER.error(
                "all replicas of %s-%d have reported the ends of their logs (broker: leader epoch,"
                " offset): %s. Only one has the latest epoch, and another one is longer: one of"
                " them is damaged or was not in sync. Choose with `kstore elect --unclean`",
                *place, {node: each.place for node, each in sorted(current.items())},
            )  # fmt: skip
        return change
