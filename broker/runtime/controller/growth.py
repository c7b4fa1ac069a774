"""How the controller lets a topic grow (KIP-253): it prepares, and then commits or rolls back,
within `kstore.expansion.timeout.ms`.

Prepare: a marker in the store keeps the leader epochs that the partitions have; they begin new
ones, and their leaders are told these and the new count, which they ask of producers from then on.
Commit, once every leader has answered or has lost its registration: the new partitions are made.
Half the time is for all brokers with replicas to answer. Who leads and has not answered by then is
fenced: another replica in sync leads, in another leader epoch, so nobody follows the silent one. A
partition that nobody else can lead, and whose leader is silent to the end, makes the topic keep
what it has: the marker goes, and the leaders are told the old count.

A crash between any two steps leaves the marker, from which the next controller goes on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kstore.broker.runtime.controller.topics import answered, partitions_of
from kstore.broker.state.controller import events
from kstore.broker.state.controller.election import NO_LEADER
from kstore.broker.state.controller.state import NOT_KNOWN, Expansion, PartitionChange, TopicId
from kstore.broker.state.metadata.topic_rules import NewPartitions, TopicError, plan_partitions
from kstore.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from kstore.broker.runtime.controller.decisions import Decisions
    from kstore.broker.runtime.node import Node

__all__ = ["TIMEOUT", "ControllerGrowth"]

LOGGER = logging.getLogger("kstore.controller")
TIMEOUT = "kstore.expansion.timeout.ms"
RESUME_S = 0.5
"""How often an expansion that was interrupted looks whether the store is back."""
LEAST_LEFT = 1 / 4
"""The share of the time that a controller has at least that takes an expansion over."""


class ControllerGrowth:
    """The part of one controller that concerns topics on their way to more partitions."""

    def __init__(self, controller: Decisions, node: Node) -> None:
        self.rolled_back = 0
        self.last_ms = 0
        """How long the last expansion took from its first step to its result."""
        self._controller = controller
        self._node = node
        self._deadlines: dict[Expansion, float] = {}
        self._since: dict[Expansion, float] = {}
        self._undone: dict[TopicId, str] = {}
        """Why topics that somebody lets grow have kept what they had."""

    async def add_partitions(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Let a topic grow; returns when its new partitions are made. TopicError: it is refused, or
        rolled back and may be asked for again (REQUEST_TIMED_OUT).
        """
        controller = self._controller
        topic = await answered(controller.exclusively(self._prepare, new, validate_only))
        if topic is None:
            return
        await answered(self.finish(new.name))
        why = self._undone.get(topic)
        if why is not None:
            raise TopicError(ErrorCode.REQUEST_TIMED_OUT, why)
        known = controller.state.topics.get(new.name)
        if known is None or known.topic_id != topic.topic_id:
            gone = f"'{new.name}' was deleted meanwhile."
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone)
        have = len(known.partitions)
        if have < new.total_count:  # another expansion began before this was looked at
            why = f"'{new.name}' kept its {have} partitions: a leader did not answer. Try again."
            raise TopicError(ErrorCode.REQUEST_TIMED_OUT, why)

    async def _prepare(self, new: NewPartitions, validate_only: bool) -> TopicId | None:
        controller = self._controller
        state = controller.state
        known = state.expansions.get(new.name)
        if known is not None:
            if new.assignments is None and state.count(new.name) == new.total_count:
                return None if validate_only else known.topic  # asked for again: wait for its end
            raise TopicError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"'{new.name}' is growing already: try again when that is done.",
            )
        added = plan_partitions(state.image, new, start=state.partition_epoch)
        if validate_only:
            return None
        topic = state.topics[new.name]
        priors = tuple((i, p.leader_epoch) for i, p in enumerate(topic.partitions))
        topic_id = TopicId(topic.name, topic.topic_id)
        expansion = Expansion(topic_id, added, priors, self._node.now_ms())
        self._forget_gone()
        self._undone.pop(topic_id, None)
        await controller.in_store(controller.store.begin_expansion, topic, expansion)
        controller.state = controller.state.with_expansion(expansion)
        return topic_id

    # ---- its other steps ----

    async def finish(self, name: str) -> None:
        """Take an expansion that is prepared to its end, one or the other. KafkaError where the
        store is away: it is taken there once the store is back.
        """
        controller = self._controller
        try:
            await self._finish(name)
        except KafkaError:
            if controller.active and name in controller.state.expansions:
                controller.spawn(self._finish_when_back, name)
            raise

    async def _finish_when_back(self, name: str) -> None:
        """Leaders know the new count by now and refuse the old one: somebody has to finish."""
        controller = self._controller
        while controller.active:
            await asyncio.sleep(RESUME_S)
            if not controller.coordination.away:
                await self.finish(name)
                return

    async def _finish(self, name: str) -> None:
        controller = self._controller
        while True:
            await controller.exclusively(self._begin_epochs, name)
            expansion = controller.state.expansions.get(name)
            if expansion is None:
                return
            self._since.setdefault(expansion, self._node.loop.time())
            generation = controller.generation
            silent: set[int] = set()
            if not controller.state.is_decided(expansion):
                silent = await self._silent_brokers(expansion)
            step = self._roll_back if silent & self._leaders(name) else self._commit
            if await controller.exclusively(step, expansion, generation, silent):
                return

    def _deadline(self, expansion: Expansion) -> float:
        """When it has to be decided, by the loop's clock."""
        known = self._deadlines.get(expansion)
        if known is None:
            timeout = self._controller.config[TIMEOUT]
            left = timeout
            if expansion.begun_ms != NOT_KNOWN:
                # Clocks may differ, or be set: neither more than a whole time is left, nor nothing.
                left += expansion.begun_ms - self._node.now_ms()
            left = min(max(left, timeout * LEAST_LEFT), timeout)
            known = self._since[expansion] + left / 1000
            self._deadlines[expansion] = known
        return known

    def _forget_gone(self) -> None:
        """Of topics that were deleted, and of expansions that the store had ended."""
        state = self._controller.state
        for each in [e for e in self._since if state.expansions.get(e.topic.name) != e]:
            self._deadlines.pop(each, None)
            del self._since[each]
        for topic_id in list(self._undone):
            known = state.topics.get(topic_id.name)
            if known is None or known.topic_id != topic_id.topic_id:
                del self._undone[topic_id]

    def _decided(self, expansion: Expansion) -> None:
        self._deadlines.pop(expansion, None)
        since = self._since.pop(expansion, self._node.loop.time())
        self.last_ms = round((self._node.loop.time() - since) * 1000)

    async def _begin_epochs(self, name: str) -> None:
        """Begin new leader epochs where that has not happened since the expansion began, and let
        all replicas hear the new count.
        """
        state = self._controller.state
        expansion = state.expansions.get(name)
        if expansion is None:
            return
        topic = state.topics[name]
        changes = []
        for index, epoch in expansion.prior_leader_epochs:
            partition = topic.partitions[index]
            if partition.leader_epoch <= epoch:
                begun = partition._replace(leader_epoch=epoch + 1)
                changes.append(PartitionChange(name, index, begun))
        await self._controller.commit(changes)
        self._controller.channels.tell_partitions(partitions_of(topic))

    async def _silent_brokers(self, expansion: Expansion) -> set[int]:
        """Wait for the brokers' answers; who of those that are alive has given none in time."""
        controller = self._controller
        name = expansion.topic.name
        deadline = self._deadline(expansion)
        topic = controller.state.topics.get(name)
        if topic is None:
            return set()
        rows = (*(each.replicas for each in topic.partitions), *expansion.added)
        brokers = {node for replicas in rows for node in replicas}
        silent = await self._wait_for(brokers, (deadline - self._node.loop.time()) / 2)
        if silent & self._leaders(name):
            await controller.exclusively(self._fence, name, silent)
            left = deadline - self._node.loop.time()
            silent = silent - self._leaders(name) | await self._wait_for(self._leaders(name), left)
        return silent

    async def _wait_for(self, brokers: set[int], seconds: float) -> set[int]:
        """Wait until all have answered what they were told so far; who has not by then."""
        told = self._controller.channels.told_by(brokers)
        if told:
            await asyncio.wait(told.values(), timeout=max(seconds, 0.0))
        return {node for node, answer in told.items() if not answer.done()}

    def _leaders(self, name: str) -> set[int]:
        topic = self._controller.state.topics.get(name)
        leaders = set() if topic is None else {each.leader for each in topic.partitions}
        return leaders - {NO_LEADER}

    async def _fence(self, name: str, silent: Collection[int]) -> None:
        """Let others lead what brokers lead that do not answer."""
        controller = self._controller
        if name not in controller.state.expansions:
            return
        changes = events.taken_from(controller.state, name, silent)
        if changes:
            LOGGER.warning(
                "'%s' grows, and %s did not answer: others lead %s of its partitions now",
                name, _brokers(silent), len(changes),
            )  # fmt: skip
        await controller.commit(changes)

    # ---- its end ----

    async def _commit(self, expansion: Expansion, generation: int, silent: set[int]) -> bool:
        """Make the new partitions; False if what was waited for has to be told anew, since the
        state was read anew, or another leads that has not answered.
        """
        controller = self._controller
        state = controller.state
        name = expansion.topic.name
        if state.expansions.get(name) != expansion:
            return True
        if controller.generation != generation or silent & self._leaders(name):
            return False
        topic = state.topics[name]
        first = len(topic.partitions)
        new = tuple(events.new_partition(state, each, silent) for each in expansion.added)
        grown = topic._replace(partitions=topic.partitions + new)
        first_epoch = state.partition_epoch + 1
        grown = await controller.in_store(
            controller.store.end_expansion, grown, expansion, first_epoch
        )
        state = controller.state.with_topics(grown).without_expansion(name)
        controller.state = state._replace(partition_epoch=first_epoch - 1 + len(new))
        self._decided(expansion)
        LOGGER.info(
            "'%s' has %d partitions now: %s=%d, and it took %d ms",
            name, len(grown.partitions), TIMEOUT, controller.config[TIMEOUT], self.last_ms,
        )  # fmt: skip
        controller.channels.tell_partitions(
            (name, index) for index in range(first, len(grown.partitions))
        )
        return True

    async def _roll_back(self, expansion: Expansion, generation: int, silent: set[int]) -> bool:
        """Let the topic keep what it has, and its leaders hear so; False where new partitions are
        made already, or who is silent leads no more.
        """
        controller = self._controller
        state = controller.state
        name = expansion.topic.name
        if state.expansions.get(name) != expansion:
            return True
        topic = state.topics[name]
        led = [i for i, each in enumerate(topic.partitions) if each.leader in silent]
        if state.is_decided(expansion) or not led:
            return False
        await controller.in_store(controller.store.cancel_expansion, topic)
        controller.state = controller.state.without_expansion(name)
        self._decided(expansion)
        leaders = silent & self._leaders(name)
        why = (
            f"'{name}' keeps its {len(topic.partitions)} partitions: {_brokers(leaders)}, alone in"
            f" sync of partition {', '.join(map(str, led))}, did not answer the controller within"
            f" {TIMEOUT}={controller.config[TIMEOUT]}. Try again when it does."
        )
        self._undone[expansion.topic] = why
        self.rolled_back += 1
        LOGGER.warning("%s", why)
        controller.channels.tell_partitions(partitions_of(topic))
        return True


def _brokers(nodes: Collection[int]) -> str:
    plural = "s" if len(nodes) > 1 else ""
    return f"broker{plural} {', '.join(map(str, sorted(nodes)))}"
