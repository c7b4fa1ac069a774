"""Changes of a topic's partition count by the controller. It prepares the change, and then commits
it or rolls it back within `kstore.expansion.timeout.ms`.

Prepare: the controller writes a node with the current leader epochs to the store. The partitions
begin new leader epochs, and their leaders receive these and the planned change. growth.py and
shrinking.py define commit and rollback. All brokers with replicas must answer within half of the
time. A leader that has not answered by then is fenced: another in-sync replica is elected with a
new leader epoch, so no replica follows the former leader. If a partition has no other candidate,
and its leader does not answer within the whole time, the topic keeps its partitions: the node is
deleted, and the leaders receive the old count.

After a crash between any two steps the node remains, and the next controller continues from it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from kstore.broker.runtime.controller.topics import answered, partitions_of
from kstore.broker.state.controller import events
from kstore.broker.state.controller.election import NO_LEADER
from kstore.broker.state.controller.state import (
    NOT_KNOWN,
    Contraction,
    Expansion,
    PartitionChange,
    TopicId,
)
from kstore.broker.state.metadata.contraction_rules import TIMEOUT, deleted_meanwhile, left_ms
from kstore.broker.state.metadata.topic_rules import TopicError
from kstore.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from kstore.broker.runtime.controller.decisions import Decisions
    from kstore.broker.runtime.node import Node

__all__ = ["Preparing", "brokers"]

LOGGER = logging.getLogger("kstore.controller")
RESUME_S = 0.5
"""How often an interrupted change checks whether the store is available again."""
P = TypeVar("P", Expansion, Contraction)


class Preparing(ABC, Generic[P]):
    """The part of one controller that changes partition counts."""

    def __init__(self, controller: Decisions, node: Node) -> None:
        self.rolled_back = 0
        self.last_ms = 0
        """How long the last change took from its first step to its result."""
        self._controller = controller
        self._node = node
        self._deadlines: dict[P, float] = {}
        self._since: dict[P, float] = {}
        self._undone: dict[TopicId, str] = {}
        """Topic to the reason why its requested change was rolled back."""

    @property
    @abstractmethod
    def in_progress(self) -> Mapping[str, P]:
        """Topic to its change, if that is prepared, or decided but not complete."""

    @abstractmethod
    def is_decided(self, change: P) -> bool:
        """Whether the change can no longer be rolled back."""

    @abstractmethod
    async def obstacle(self, change: P, silent: Collection[int]) -> str:
        """Why a prepared change cannot be committed when its time is over; "" if it can.
        ``silent``: brokers that have not answered.
        """

    @abstractmethod
    async def commit(self, change: P, generation: int, silent: set[int]) -> bool:
        """Commit. Returns False if leaders must be notified again first."""

    @abstractmethod
    def stands(self, change: P, silent: Collection[int]) -> bool:
        """Whether the obstacle to a change no longer exists."""

    @abstractmethod
    async def forget(self, name: str) -> None:
        """Roll back: the topic keeps its partitions."""

    # ---- steps ----

    async def wait_for_end(self, topic: TopicId) -> None:
        """Complete a topic's prepared change. Raises TopicError if it was rolled back."""
        await answered(self.finish(topic.name))
        why = self._undone.get(topic)
        if why is not None:
            raise TopicError(ErrorCode.REQUEST_TIMED_OUT, why)
        known = self._controller.state.topics.get(topic.name)
        if known is None or known.topic_id != topic.topic_id:
            raise deleted_meanwhile(topic.name)

    async def finish(self, name: str) -> None:
        """Complete a prepared change: commit it or roll it back. Raises KafkaError if the store is
        unavailable; the change is then completed once the store is available again.
        """
        controller = self._controller
        try:
            await self._finish(name)
        except KafkaError:
            if controller.active and name in self.in_progress:
                controller.spawn(self._finish_when_back, name)
            raise

    async def _finish_when_back(self, name: str) -> None:
        """Complete the change later. It must be completed, since leaders already refuse producers
        with the old count.
        """
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
            change = self.in_progress.get(name)
            if change is None:
                return
            self._since.setdefault(change, self._node.loop.time())
            generation = controller.generation
            silent: set[int] = set()
            why = ""
            if not self.is_decided(change):
                silent = await self._silent_brokers(change)
                why = await self.obstacle(change, silent)
            if why:
                done = await controller.exclusively(self._roll_back, change, silent, why)
            else:
                done = await controller.exclusively(self.commit, change, generation, silent)
            if done:
                return

    def begin(self, topic: TopicId) -> None:
        """Begin a change of a topic: forget the results of earlier changes."""
        in_progress = self.in_progress
        for each in [e for e in self._since if in_progress.get(e.topic.name) != e]:
            self._deadlines.pop(each, None)
            del self._since[each]
        state = self._controller.state
        for topic_id in list(self._undone):
            known = state.topics.get(topic_id.name)
            if known is None or known.topic_id != topic_id.topic_id:
                del self._undone[topic_id]
        self._undone.pop(topic, None)

    def ended(self, change: P) -> None:
        """Called when the change was committed."""
        self._deadlines.pop(change, None)
        since = self._since.pop(change, self._node.loop.time())
        self.last_ms = round((self._node.loop.time() - since) * 1000)

    def undone(self, change: P, why: str) -> None:
        """Called when the change was rolled back: sends the current count to the leaders."""
        self.ended(change)
        self._undone[change.topic] = why
        self.rolled_back += 1
        LOGGER.warning("%s", why)
        topic = self._controller.state.topics[change.topic.name]
        self._controller.channels.send_partitions(partitions_of(topic))

    def is_outdated(self, change: P, generation: int, silent: Collection[int]) -> bool:
        """Whether the state was read again since leaders were notified, or a new leader has not
        answered.
        """
        leaders = self.leaders(change.topic.name)
        return self._controller.generation != generation or not leaders.isdisjoint(silent)

    def left_s(self, change: P) -> float:
        """The remaining time."""
        return self._deadline(change) - self._node.loop.time()

    def _deadline(self, change: P) -> float:
        """When the change must be decided, by the loop's clock."""
        known = self._deadlines.get(change)
        if change not in self._since:
            return self._node.loop.time()  # it has ended meanwhile
        if known is None:
            timeout_ms, now_ms = self._controller.config[TIMEOUT], self._node.now_ms()
            begun_ms = now_ms if change.begun_ms == NOT_KNOWN else change.begun_ms
            known = self._since[change] + left_ms(timeout_ms, begun_ms, now_ms) / 1000
            self._deadlines[change] = known
        return known

    async def _roll_back(self, change: P, silent: set[int], why: str) -> bool:
        """Roll back, and notify the leaders. Returns False if the change should continue
        instead.
        """
        name = change.topic.name
        if self.in_progress.get(name) != change:
            return True
        if self.stands(change, silent):
            return False
        await self.forget(name)
        self.undone(change, why)
        return True

    async def _begin_epochs(self, name: str) -> None:
        """Begin new leader epochs, unless that has happened since the preparation, and send the
        planned change to all replicas.
        """
        state = self._controller.state
        change = self.in_progress.get(name)
        if change is None:
            return
        topic = state.topics[name]
        changes = []
        for index, epoch in change.prior_leader_epochs:
            partition = topic.partitions[index]
            if partition.leader_epoch <= epoch:
                begun = partition._replace(leader_epoch=epoch + 1)
                changes.append(PartitionChange(name, index, begun))
        await self._controller.commit(changes)
        self._controller.channels.send_partitions(partitions_of(topic))

    async def _silent_brokers(self, change: P) -> set[int]:
        """Wait for the brokers' responses. Returns the live brokers that have not answered in
        time.
        """
        controller = self._controller
        name = change.topic.name
        topic = controller.state.topics.get(name)
        if topic is None:
            return set()
        self._deadline(change)
        recipients = {node for each in topic.partitions for node in each.replicas}
        recipients |= {node for replicas in change.added for node in replicas}
        silent = await self._wait_for(recipients, self.left_s(change) / 2)
        if silent & self.leaders(name):
            await controller.exclusively(self._fence, name, silent)
            late = await self._wait_for(self.leaders(name), self.left_s(change))
            silent = silent - self.leaders(name) | late
        return silent

    async def _wait_for(self, recipients: set[int], seconds: float) -> set[int]:
        """Wait until all of these brokers have answered. Returns those that have not in this
        time.
        """
        answers = self._controller.channels.when_answered_by(recipients)
        if answers:
            await asyncio.wait(answers.values(), timeout=max(seconds, 0.0))
        return {node for node, answer in answers.items() if not answer.done()}

    def leaders(self, name: str) -> set[int]:
        """The leaders of a topic's partitions."""
        topic = self._controller.state.topics.get(name)
        found = set() if topic is None else {each.leader for each in topic.partitions}
        return found - {NO_LEADER}

    def silent_leaders(self, name: str, silent: Collection[int]) -> str:
        """The message that these leaders did not answer and cannot be replaced. "" if none of them
        leads.
        """
        controller = self._controller
        topic = controller.state.topics.get(name)
        nodes = self.leaders(name).intersection(silent)
        if topic is None or not nodes:
            return ""
        led = [i for i, each in enumerate(topic.partitions) if each.leader in silent]
        return (
            f"'{name}' keeps its {len(topic.partitions)} partitions: {brokers(nodes)}, with all "
            f"in-sync replicas of partition {', '.join(map(str, led))}, did not answer the "
            f"controller within {TIMEOUT}={controller.config[TIMEOUT]}. Try again when it does."
        )

    async def _fence(self, name: str, silent: Collection[int]) -> None:
        """Move leadership away from brokers that do not answer."""
        controller = self._controller
        if name not in self.in_progress:
            return
        changed = await controller.read_settings(silent)
        changes = events.taken_from(controller.state, name, silent)
        if changes:
            LOGGER.warning(
                "the number of partitions of '%s' changes, but %s did not answer: other brokers now"
                " lead %s of its partitions",
                name, brokers(silent), len(changes),
            )  # fmt: skip
        await controller.commit(changes)
        await controller.commit(await controller.changes(changed))


def brokers(nodes: Collection[int]) -> str:
    """The brokers as text."""
    plural = "s" if len(nodes) > 1 else ""
    return f"broker{plural} {', '.join(map(str, sorted(nodes)))}"
