"""Controllers, one after another, through random histories: brokers stop, start and propose ISRs,
topics are created, grown, moved and deleted, and writes fail before or after they took effect. At
the end the store, the controller and all brokers agree.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from kstore.broker.coordination.store import Op, Store, StoreClosedError, StoreUnavailableError
from kstore.broker.runtime.controller import channels as controller_channels
from kstore.broker.runtime.controller.store import ControllerStore
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from kstore.errors import KafkaError
from kstore.types import TopicPartition
from tests.beside.waiting import reached, turns
from tests.reference.controller_host import Cluster

NAMES = ("a", "b", "c")
NODES = 4


class Flaky:
    """A session whose writes fail now and then, before or after they took effect."""

    def __init__(self, store: Store, history: History) -> None:
        self._store = store
        self._history = history

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def multi(self, ops: Sequence[Op]) -> list[Any]:
        history = self._history
        chance = history.random.random() if history.breaks else 1.0
        if chance < 0.02:
            history.broken += 1
            raise StoreClosedError("its process ends before the write")
        done = self._store.multi(ops)
        if chance < 0.06:
            history.broken += 1
            raise StoreUnavailableError("the answer is lost")
        return done


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(range(NODES))
        self.breaks = False
        self.broken = 0
        self.asked: list[asyncio.Future[Any]] = []
        self.leaders: dict[tuple[Any, int, int], int] = {}

    async def run(self, steps: int) -> None:
        await self.elect()
        doings = [
            self.create, self.create, self.delete, self.grow, self.move, self.elect_leaders,
            self.start_or_stop, self.start_or_stop, self.propose, self.propose, self.propose,
            self.mute, self.shut_down, self.elect, self.wait, self.wait,
        ]  # fmt: skip
        for _ in range(steps):
            await self.random.choice(doings)()
        await self.heal()
        self.check()

    # ---- what happens ----

    async def elect(self) -> None:
        """Another controller starts, because its process has ended or it was deposed."""
        cluster = self.cluster
        self.breaks = False
        if hasattr(cluster, "controller"):
            await cluster.controller.close()
            await cluster.elect(Flaky(cluster.store.new_session(), self))
        else:
            await cluster.start()
            await self.elect()
        self.breaks = True

    def ask(self, work: Any) -> None:
        async def answered() -> None:
            # KeyError: it no longer leads the partition.
            with suppress(TopicError, KafkaError, KeyError):
                await work

        self.asked.append(asyncio.ensure_future(answered()))

    @property
    def controller(self) -> Any:
        return self.cluster.controller

    async def create(self) -> None:
        count, factor = self.random.randint(1, 3), self.random.randint(1, 3)
        self.ask(self.controller.create_topic(NewTopic(self.random.choice(NAMES), count, factor)))

    async def delete(self) -> None:
        self.ask(self.controller.delete_topic(self.random.choice(NAMES)))

    async def grow(self) -> None:
        name = self.random.choice(NAMES)
        topic = self.controller.state.topics.get(name)
        if topic is not None and len(topic.partitions) < 6:
            self.ask(self.controller.add_partitions(NewPartitions(name, len(topic.partitions) + 1)))

    async def move(self) -> None:
        target = self.random.sample(range(NODES), self.random.randint(1, 3))
        place = TopicPartition(self.random.choice(NAMES), 0)
        asked = None if self.random.random() < 0.3 else target
        self.ask(self.controller.alter_reassignments([(place, asked)]))

    async def elect_leaders(self) -> None:
        self.ask(self.controller.elect_leaders(0, None))

    async def start_or_stop(self) -> None:
        node = self.cluster.nodes[self.random.randrange(NODES)]
        if node.session is not None:
            node.stop()
        if self.random.random() < 0.6 and node.session is None:
            node.start()

    async def mute(self) -> None:
        node = self.cluster.nodes[self.random.randrange(NODES)]
        node.mute = not node.mute

    async def shut_down(self) -> None:
        node = self.cluster.nodes[self.random.randrange(NODES)]
        self.ask(self.controller.controlled_shutdown(node.node_id, node.epoch))

    async def propose(self) -> None:
        for node in self.cluster.nodes.values():
            led = [
                place for place, known in node.hosted.items()
                if known.leader == node.node_id and place[0] in self.controller.state.topics
            ]  # fmt: skip
            if node.session is not None and led:
                name, index = self.random.choice(led)
                replicas = node.hosted[name, index].replicas
                isr = {each for each in replicas if self.random.random() < 0.8} | {node.node_id}
                self.ask(node.propose(name, index, sorted(isr)))

    async def wait(self) -> None:
        await turns(self.random.randint(1, 30))
        if not self.controller.active:
            await self.elect()

    # ---- the end ----

    async def heal(self) -> None:
        """No more faults: all operations in progress end."""
        self.breaks = False
        for node in self.cluster.nodes.values():
            node.mute = False
            if node.session is None:
                node.start()
        if not self.controller.active:
            await self.elect()
            self.breaks = False
        if self.asked:
            _, pending = await asyncio.wait(self.asked, timeout=30)
            assert not pending, "what was asked for is never answered"
        await self.cluster.settle()
        if not self.controller.active:
            await self.elect()
            self.breaks = False
        await reached(lambda: not self.controller.state.expansions)
        await reached(lambda: not self.controller.state.deletions)
        await self.cluster.settle()

    def check(self) -> None:
        state = self.controller.state
        controller = self.controller
        fresh = ControllerStore(self.cluster.store, controller.epoch, controller._epoch_version)
        found = fresh.load()
        assert {topic.name: topic for topic in found.topics} == state.topics
        assert (found.partition_epoch, found.half_deleted) == (state.partition_epoch, [])
        assert (found.deletions, found.expansions) == ({}, [])
        epochs = [partition.partition_epoch for _, _, partition in state.partitions()]
        assert len(set(epochs)) == len(epochs)
        assert all(0 < epoch <= state.partition_epoch for epoch in epochs)
        for name, index, partition in state.partitions():
            for node in self.cluster.nodes.values():
                told = node.metadata[name, index]
                assert (told.leader, told.leader_epoch) == partition[:2]
                assert tuple(told.isr) == partition.isr
                assert told.offline_replicas == []
                assert (node.node_id in partition.replicas) == ((name, index) in node.hosted)
            for replica in partition.replicas:
                hosted = self.cluster.nodes[replica].hosted[name, index]
                assert (hosted.leader, hosted.leader_epoch) == partition[:2]
            if partition.leader == -1:  # the broker that could lead is about to stop
                assert set(partition.elr) <= state.leaving.keys()
                continue
            assert partition.leader in partition.isr
        known = {(name, index) for name, index, _ in state.partitions()}
        for node in self.cluster.nodes.values():
            assert set(node.metadata) == known
            assert set(node.hosted) <= known
            for key, leader in node.leaders.items():
                assert self.leaders.setdefault(key, leader) == leader, "two leaders in one epoch"


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("seed", range(20))
def test_in_the_end_store_controller_and_brokers_say_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(controller_channels, "MOST_LEADERSHIPS", 2)

    async def story() -> None:
        history = History(seed)
        try:
            await history.run(60)
        finally:
            await history.cluster.close()

    asyncio.run(story())
