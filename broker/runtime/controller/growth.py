"""The controller's expansions of topics (KIP-253). See preparing.py.

Once an expansion is prepared, leaders require producers to know the new count. It is committed when
every leader has answered or has lost its registration. Then the new partitions are created, and
they store the leader epochs that the old partitions had before the expansion.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kstore.broker.runtime.controller.preparing import Preparing
from kstore.broker.runtime.controller.topics import answered
from kstore.broker.state.controller import events
from kstore.broker.state.controller.state import Expansion, TopicId
from kstore.broker.state.metadata.contraction_rules import TIMEOUT, shrinks_yet
from kstore.broker.state.metadata.topic_rules import NewPartitions, TopicError, plan_partitions
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kstore.broker.state.controller.state import ControllerState

__all__ = ["ControllerGrowth"]

LOGGER = logging.getLogger("kstore.controller")


class ControllerGrowth(Preparing[Expansion]):
    """The part of one controller that handles expansions."""

    @property
    def in_progress(self) -> Mapping[str, Expansion]:
        """The expansions that are prepared but not complete."""
        return self._controller.state.expansions

    def is_decided(self, change: Expansion) -> bool:
        """Whether the new partitions exist already."""
        return self._controller.state.is_decided(change)

    async def add_partitions(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Expand a topic. Returns when its new partitions exist. Raises TopicError if the expansion
        is refused, or was rolled back and may be requested again (REQUEST_TIMED_OUT).
        """
        controller = self._controller
        topic = await answered(controller.exclusively(self._prepare, new, validate_only))
        if topic is None:
            return
        await self.wait_for_end(topic)
        have = len(controller.state.topics[new.name].partitions)
        if have < new.total_count:  # another expansion began before this check
            why = f"'{new.name}' kept its {have} partitions: a leader did not answer. Try again."
            raise TopicError(ErrorCode.REQUEST_TIMED_OUT, why)

    async def _prepare(self, new: NewPartitions, validate_only: bool) -> TopicId | None:
        controller = self._controller
        state = controller.state
        known = state.expansions.get(new.name)
        if known is not None:
            if new.assignments is None and state.count(new.name) == new.total_count:
                return None if validate_only else known.topic  # a repeated request: wait
            raise TopicError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"'{new.name}' is already growing: try again when that is done.",
            )
        added = plan_partitions(state.image, new, start=state.partition_epoch)
        _refuse_after_contraction(state, new.name)
        if validate_only:
            return None
        topic = state.topics[new.name]
        priors = tuple((i, p.leader_epoch) for i, p in enumerate(topic.partitions))
        topic_id = TopicId(topic.name, topic.topic_id)
        expansion = Expansion(topic_id, added, priors, self._node.now_ms())
        self.begin(topic_id)
        await controller.in_store(controller.store.begin_expansion, topic, expansion)
        controller.state = controller.state.with_expansion(expansion)
        return topic_id

    async def obstacle(self, change: Expansion, silent: Collection[int]) -> str:
        """Only a leader that does not answer is an obstacle."""
        return self.silent_leaders(change.topic.name, silent)

    async def commit(self, change: Expansion, generation: int, silent: set[int]) -> bool:
        """Create the new partitions."""
        controller = self._controller
        state = controller.state
        name = change.topic.name
        if state.expansions.get(name) != change:
            return True
        if self.is_outdated(change, generation, silent):
            return False
        topic = state.topics[name]
        first = len(topic.partitions)
        # Clients ignore a leader epoch that is smaller than the one they know, and partitions with
        # these numbers may have existed before a contraction.
        epoch = max(each.leader_epoch for each in topic.partitions) + 1
        new = tuple(
            events.new_partition(state, each, silent)._replace(leader_epoch=epoch)
            for each in change.added
        )
        grown = topic._replace(partitions=topic.partitions + new)
        first_epoch = state.partition_epoch + 1
        grown = await controller.in_store(
            controller.store.end_expansion, grown, change, first_epoch
        )
        state = controller.state.with_topics(grown).without_expansion(name)
        controller.state = state._replace(partition_epoch=first_epoch - 1 + len(new))
        self.ended(change)
        LOGGER.info(
            "'%s' now has %d partitions, after %d ms (%s=%d)",
            name, len(grown.partitions), self.last_ms, TIMEOUT, controller.config[TIMEOUT],
        )  # fmt: skip
        controller.channels.send_partitions(
            (name, index) for index in range(first, len(grown.partitions))
        )
        return True

    def stands(self, change: Expansion, silent: Collection[int]) -> bool:
        """Whether the expansion is decided, or the brokers that do not answer are no longer
        leaders.
        """
        return self.is_decided(change) or not self.silent_leaders(change.topic.name, silent)

    async def forget(self, name: str) -> None:
        """Roll back: the new partitions are not created."""
        controller = self._controller
        await controller.in_store(controller.store.cancel_expansion, controller.state.topics[name])
        controller.state = controller.state.without_expansion(name)


def _refuse_after_contraction(state: ControllerState, name: str) -> None:
    """Raise TopicError if new partitions would have the numbers of retired partitions whose logs
    are not deleted yet.
    """
    topic = state.topics[name]
    have = len(topic.partitions)
    contraction = state.contractions.get(name)
    if contraction is not None:
        raise shrinks_yet(name, contraction.first, have)
    deleted = state.deletions.get(TopicId(name, topic.topic_id), {})
    left = {node for index, nodes in deleted.items() if index >= have for node in nodes}
    if left:
        raise TopicError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"'{name}' has shrunk, and brokers {sorted(left)} have not deleted the logs of the "
            "removed partitions yet: it can grow after that.",
        )
