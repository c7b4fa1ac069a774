"""Brokers report the ends of logs that are ahead of the coordination store; this collects the
reports. The rules are in state/controller/doubts.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kstore.broker.runtime.slices import Slices
from kstore.broker.state.controller import doubts
from kstore.broker.state.controller.doubts import LogEnd
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from kstore.broker.runtime.controller.decisions import Decisions
    from kstore.broker.state.controller.state import PartitionChange
    from kstore.broker.state.metadata.image import BrokerImage
    from kstore.protocol.controller.broker_requests import LeaderAndIsrTopic

__all__ = ["ControllerDoubts"]

LOGGER = logging.getLogger("kstore.controller")
PartitionKey = tuple[str, int]


class ControllerDoubts:
    """The part of one controller that decides about doubted partitions."""

    def __init__(self, controller: Decisions, now_ms: Callable[[], int]) -> None:
        """``now_ms`` returns the time of the wall clock."""
        self._controller = controller
        self._now_ms = now_ms
        self._ends: dict[PartitionKey, dict[int, tuple[int, LogEnd]]] = {}
        """Doubted partition to broker id to the broker's epoch and the end of its log."""
        self._is_raised = False
        """Whether new partition epochs are above those that were given out before the restore."""

    def on_roles(
        self, broker: BrokerImage, requested: Sequence[LeaderAndIsrTopic], response: Any
    ) -> None:
        """Apply a broker's report of where logs end."""
        self._controller.spawn(self._controller.in_the_end, self._take, broker, requested, response)

    async def forget(self) -> None:
        """Drop the reports about partitions that are deleted or have a leader."""
        slices = Slices()
        for tp in list(self._ends):
            partition = self._controller.state.partition(*tp)
            if partition is None or not doubts.is_doubted(partition):
                self._ends.pop(tp, None)
            await slices.breathe()

    async def _take(
        self, broker: BrokerImage, requested: Sequence[LeaderAndIsrTopic], response: Any
    ) -> None:
        changes = []
        slices = Slices()
        for tp, end in _ends_in(requested, response):
            change = self._decide(broker, tp, end)
            if change is not None:
                changes.append(change)
            await slices.breathe()
        if any(doubts.is_doubted(change.image) for change in changes) and not self._is_raised:
            await self._raise_partition_epoch()
        await self._controller.commit(changes)
        await self.forget()

    async def _raise_partition_epoch(self) -> None:
        """Topics that the restored store does not know had partition epochs, too (KIP-232). Clients
        that have these would take a topic with the same epochs for theirs.
        """
        controller = self._controller
        known = controller.state.partition_epoch
        epoch = doubts.partition_epoch_after(known, self._now_ms())
        await controller.in_store(controller.store.write_partition_epoch, epoch)
        controller.state = controller.state._replace(partition_epoch=epoch)
        self._is_raised = True

    def _decide(self, broker: BrokerImage, tp: PartitionKey, end: LogEnd) -> PartitionChange | None:
        state = self._controller.state
        partition = state.partition(*tp)
        if partition is None or partition.leader_epoch != end.role_epoch:
            return None  # it is the response to the current role, too
        if end.refused:
            self._ends.pop(tp, None)
            change = doubts.doubted(state, *tp, end.latest_epoch, self._now_ms())
            if change is None:
                return None
            LOGGER.error(
                "the log of %s-%d on broker %d has leader epoch %d, but the coordination store only"
                " %d: was it restored from an older copy? The partition has no leader until all of"
                " its replicas, on brokers %s, have reported the ends of their logs, or"
                " `kstore elect --unclean` is used",
                *tp, broker.node_id, end.latest_epoch, end.role_epoch, list(partition.replicas),
            )  # fmt: skip
            return change
        if not doubts.is_doubted(partition):
            return None
        ends_of_partition = self._ends.setdefault(tp, {})
        ends_of_partition[broker.node_id] = broker.epoch, end
        current = {
            node: each
            for node, (epoch, each) in ends_of_partition.items()
            if node in state.brokers
            and state.brokers[node].epoch == epoch
            and each.role_epoch == end.role_epoch
        }
        change = doubts.most_complete(state, *tp, current)
        if change is not None:
            del self._ends[tp]
            LOGGER.warning(
                "all replicas of %s-%d have reported the ends of their logs: broker %d leads it,"
                " from offset %d on",
                *tp, change.image.leader, current[change.image.leader].log_end_offset,
            )  # fmt: skip
        elif current.keys() >= set(partition.replicas):
            LOGGER.error(
                "all replicas of %s-%d have reported the ends of their logs (broker: leader epoch,"
                " offset): %s. Only one has the latest epoch, and another one is longer: one of"
                " them is damaged or was not in sync. Choose with `kstore elect --unclean`",
                *tp, {node: each.place for node, each in sorted(current.items())},
            )  # fmt: skip
        return change


def _ends_in(
    requested: Sequence[LeaderAndIsrTopic], response: Any
) -> Iterator[tuple[PartitionKey, LogEnd]]:
    """Where logs end by a response: of partitions without a leader, and of logs with later leader
    epochs than their roles.
    """
    topics = {topic.topic_id: topic for topic in requested}
    for topic in response.topics:
        found = [row for row in topic.partition_errors if row.log_end_offset >= 0]
        sent = topics.get(topic.topic_id)
        if not found or sent is None:
            continue
        epochs = {state.partition_index: state.leader_epoch for state in sent.partition_states}
        for row in found:
            refused = row.error_code == ErrorCode.FENCED_LEADER_EPOCH
            epoch = epochs[row.partition_index]
            end = LogEnd(epoch, row.latest_epoch, row.log_end_offset, refused)
            yield (sent.topic_name, row.partition_index), end
