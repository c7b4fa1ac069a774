"""The controller's contractions of topics, which keep the order of keys (KIP-253). See
preparing.py.

Once a contraction is prepared, the retiring partitions accept no records: producers retry records
with these keys until it is decided. Group coordinators know which partitions retire: a group that
starts to read gets the retiring partitions first. The contraction is committed when every leader
has answered, and every group that reads remaining partitions has committed the retiring ones to
their end. From then on producers use only the remaining partitions. If a group does not get there
in time, the topic keeps its partitions.

The retired partitions remain until retention has deleted all their records; then they are deleted.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kstore.broker.coordination.znodes import CONTRACTIONS_FEATURE
from kstore.broker.runtime.controller.preparing import Preparing, brokers
from kstore.broker.runtime.controller.retired import RetiredLogs
from kstore.broker.runtime.controller.topics import answered, partitions_of
from kstore.broker.state.controller.state import Contraction, PartitionChange, TopicId
from kstore.broker.state.metadata.contraction_rules import (
    ASK_AGAIN_S,
    LOOK_S,
    RETENTION_CHECK,
    TIMEOUT,
    check_contraction,
    check_no_other_contraction,
    keeps_its_partitions,
)
from kstore.broker.state.metadata.topic_rules import NewPartitions, TopicError
from kstore.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kstore.broker.runtime.controller.decisions import Decisions
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import BrokerImage

__all__ = ["ControllerShrinking"]

LOGGER = logging.getLogger("kstore.controller")


class ControllerShrinking(Preparing[Contraction]):
    """The part of one controller that handles contractions."""

    def __init__(self, controller: Decisions, node: Node) -> None:
        super().__init__(controller, node)
        self._logs = RetiredLogs(controller)

    @property
    def in_progress(self) -> Mapping[str, Contraction]:
        """The contractions that are not decided."""
        contractions = self._controller.state.contractions
        return {name: each for name, each in contractions.items() if not each.holds}

    def is_decided(self, change: Contraction) -> bool:
        """False: unfinished contractions are not decided."""
        return change.holds

    async def shrink(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Contract a topic. Returns when producers must know the new count. Raises TopicError if
        the contraction is refused, or was rolled back and may be requested again
        (REQUEST_TIMED_OUT).
        """
        controller = self._controller
        await answered(controller.exclusively(self._check, new))
        await answered(self._logs.check_priors(new.name, new.total_count))
        topic = await answered(controller.exclusively(self._prepare, new, validate_only))
        if topic is None:
            return
        await self.wait_for_end(topic)
        if controller.state.count(new.name) != new.total_count:
            why = f"'{new.name}' kept its partitions. Try again."
            raise TopicError(ErrorCode.REQUEST_TIMED_OUT, why)

    async def _check(self, new: NewPartitions) -> Contraction | None:
        """The contraction if it was requested before. Raises TopicError if it is not allowed."""
        controller = self._controller
        state = controller.state
        check_contraction(state.image, new, controller.config["log.cleanup.policy"])
        if new.name in state.expansions:
            raise TopicError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"'{new.name}' is growing: try again when that is done.",
            )
        known = state.contractions.get(new.name)
        if known is not None:
            check_no_other_contraction(new.name, known.first, new.total_count)
        if not controller.config.sends_epochs:
            raise TopicError(
                ErrorCode.UNSUPPORTED_VERSION,
                "inter.broker.protocol.version is older than what a contraction needs.",
            )
        _refuse_outdated(new.name, state.brokers)
        return known

    async def _keep_away(self, name: str) -> None:
        """Exclude brokers of older versions from now on. Raises TopicError if one takes part; it
        may have just registered.
        """
        controller = self._controller
        if controller.state.contractions:
            return
        await controller.in_store(controller.store.require, CONTRACTIONS_FEATURE)
        _refuse_outdated(name, await controller.in_store(controller.store.brokers))

    async def _let_in(self) -> None:
        """Admit brokers of older versions again, once no contraction is left."""
        controller = self._controller
        if not controller.state.contractions:
            await controller.in_store(controller.store.require)
            controller.brokers_changed.set()

    async def _prepare(self, new: NewPartitions, validate_only: bool) -> TopicId | None:
        controller = self._controller
        known = await self._check(new)
        topic = controller.state.topics[new.name]
        topic_id = TopicId(topic.name, topic.topic_id)
        if validate_only or known is not None:
            return None if validate_only or known is None or known.holds else topic_id
        await self._keep_away(new.name)
        priors = tuple((i, p.leader_epoch) for i, p in enumerate(topic.partitions))
        contraction = Contraction(topic_id, new.total_count, priors, self._node.now_ms())
        self.begin(topic_id)
        await controller.in_store(controller.store.contractions.begin, contraction)
        controller.state = controller.state.with_contraction(contraction)
        return topic_id

    async def obstacle(self, change: Contraction, silent: Collection[int]) -> str:
        """A leader that does not answer, or groups that have not read far enough or are not known
        when the time is over.
        """
        name = change.topic.name
        while True:
            why = self.silent_leaders(name, silent)
            known = self._controller.state.contractions.get(name)
            if why or known != change or not self._controller.active:
                return why
            behind = await self._logs.who_is_behind(change, max(self.left_s(change), 1.0))
            if not behind:
                return ""
            if self.left_s(change) <= 0:
                have = len(self._controller.state.topics[name].partitions)
                timeout_ms = self._controller.config[TIMEOUT]
                return keeps_its_partitions(name, have, behind, timeout_ms)
            await asyncio.sleep(ASK_AGAIN_S)

    async def commit(self, change: Contraction, generation: int, silent: set[int]) -> bool:
        """Decide the contraction: from now on producers use only the remaining partitions."""
        controller = self._controller
        name = change.topic.name
        if controller.state.contractions.get(name) != change:
            return True
        if self.is_outdated(change, generation, silent):
            return False
        decided = change._replace(holds=True)
        await controller.in_store(controller.store.contractions.decide, decided)
        controller.state = controller.state.with_contraction(decided)
        self.ended(change)
        LOGGER.info(
            "'%s' has shrunk to %d partitions in %d ms; the others are deleted once they are empty",
            name, change.first, self.last_ms,
        )  # fmt: skip
        controller.channels.send_partitions(partitions_of(controller.state.topics[name]))
        return True

    def stands(self, change: Contraction, silent: Collection[int]) -> bool:
        """False: no obstacle disappears once the time is over."""
        return False

    async def forget(self, name: str) -> None:
        """Roll back: all partitions accept records."""
        controller = self._controller
        await controller.in_store(controller.store.contractions.cancel, name)
        controller.state = controller.state.without_contraction(name)

    # ---- the end of retired partitions ----

    async def follow_retired(self) -> None:
        """Delete retired partitions once they are empty."""
        controller = self._controller
        while controller.active:
            wait_ms = controller.config[RETENTION_CHECK]
            await asyncio.sleep(min(LOOK_S, wait_ms / 1000))
            for change in list(controller.state.contractions.values()):
                try:
                    if change.holds and await self._logs.are_empty(change):
                        await controller.exclusively(self._delete_retired, change)
                except KafkaError as problem:
                    LOGGER.info("retired partitions are not deleted yet: %s", problem)
            if controller.store.last.needs and not controller.state.contractions:
                try:
                    await controller.exclusively(self._let_in)
                except KafkaError as problem:
                    LOGGER.info("brokers of older versions are still kept out: %s", problem)

    async def _delete_retired(self, change: Contraction) -> None:
        controller = self._controller
        state = controller.state
        name, first = change.topic.name, change.first
        if state.contractions.get(name) != change:
            return
        topic = state.topics[name]
        # Future partitions with these numbers begin with a larger leader epoch (growth.py).
        epochs = [each.leader_epoch for each in topic.partitions]
        if epochs[0] < max(epochs[first:]):
            raised = topic.partitions[0]._replace(leader_epoch=max(epochs[first:]))
            await controller.commit([PartitionChange(name, 0, raised)])
            state = controller.state
            topic = state.topics[name]
        count = len(topic.partitions)
        dropped = {
            index: frozenset(topic.partitions[index].replicas) for index in range(first, count)
        }
        epoch = state.partition_epoch + 1
        left = topic._replace(partitions=topic.partitions[:first])
        await controller.in_store(controller.store.end_contraction, state, left, dropped, epoch)
        state = controller.state.with_topics(left).without_contraction(name)
        controller.state = state.with_deletion(change.topic, dropped)._replace(
            partition_epoch=epoch
        )
        LOGGER.info("'%s' now has %d partitions: the others were empty", name, first)
        # The other partitions' messages contain the new count.
        controller.channels.send_partitions(partitions_of(left))
        for index, nodes in dropped.items():
            controller.channels.send_stop(change.topic, index, nodes, delete=True)


def _refuse_outdated(name: str, registered: Mapping[int, BrokerImage]) -> None:
    """Raise TopicError if a broker does not support contractions."""
    outdated = [node for node, each in registered.items() if not each.knows_contractions]
    if outdated:
        raise TopicError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"'{name}' can't shrink: upgrade {brokers(outdated)}, whose version knows no"
            " contractions.",
        )
