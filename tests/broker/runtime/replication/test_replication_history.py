"""Random histories of a replicated partition: appends, elections, brokers that are stopped, killed
and started again, requests of the controller that arrive late. Acknowledged records keep their
place, and two replicas have the same committed bytes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.broker.partition import Partition
from tests.beside.waiting import reached
from tests.broker.runtime.replication.replication_harness import Node, new_image, run

STEPS = 60
NODES = (1, 2, 3)


class Controller:
    """One partition on three nodes. It elects only in-sync replicas."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        image = new_image()
        self.nodes = {i: Node(i, folder / str(i), image, 1, **SETTINGS) for i in NODES}
        self.leader = 1
        self.epoch = 0
        self.version = 0
        self.isr: tuple[int, ...] = NODES
        self.acknowledged: dict[int, bytes] = {}
        self.told: dict[int, asyncio.Task[None]] = {}
        self.appended = 0

    def live(self) -> list[int]:
        return [i for i, node in self.nodes.items() if node.alive]

    async def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        await node.start()
        node.table.on_isr_change = lambda partition, isr: self.isr_change(node, partition, isr)

    # ---- messages to the nodes, sooner or later, in order for each node ----

    def tell(self, node_id: int) -> None:
        node, before = self.nodes[node_id], self.told.get(node_id)
        life = node.table
        said = (self.leader, self.epoch, self.version, self.isr)
        pause_s = self.chance.choice((0, 0, 0.001, 0.005))

        async def later() -> None:
            if before is not None:
                await before
            await asyncio.sleep(pause_s)
            leader, epoch, version, isr = said
            if not node.alive or node.table is not life:
                return
            await node.settle()
            if not node.alive or node.table is not life:
                return
            if leader == node_id:
                node.lead(epoch, version, NODES, isr)
            elif leader != -1:
                node.follow(leader, epoch)

        self.told[node_id] = asyncio.ensure_future(later())

    def elect(self, leader: int) -> None:
        """Elect a leader, or none (-1), in a new epoch."""
        if self.live() or leader == -1:
            self.leader, self.epoch, self.version = leader, self.epoch + 1, self.version + 1
            for node_id in self.chance.sample(self.live(), len(self.live())):
                self.tell(node_id)

    def isr_change(self, node: Node, partition: Partition, isr: tuple[int, ...]) -> None:
        asked_in = partition.leader_epoch

        def decide() -> None:
            if not node.alive:
                return
            if (self.leader, self.epoch) != (node.node_id, asked_in):
                partition.isr_refused()
                return
            self.isr, self.version = isr, self.version + 1
            partition.isr_applied(isr, self.version, asked_in)

        asyncio.get_running_loop().call_later(self.chance.random() * 0.003, decide)

    # ---- what happens ----

    def append(self) -> None:
        leader = self.nodes.get(self.leader)
        if leader is None or not leader.alive or not leader.partition().online:
            return
        for _ in range(self.chance.randint(1, 8)):
            self.appended += 1
            values = [
                b"%d:%d" % (self.appended, i) * self.chance.choice((1, 20, 400))
                for i in range(self.chance.randint(1, 3))
            ]
            base = leader.append(*values)
            leader.partition().when_committed(
                base + len(values), partial(self.committed, base, values)
            )

    def committed(self, base: int, values: list[bytes], code: int) -> None:
        if code == 0:
            for offset, value in enumerate(values, base):
                assert self.acknowledged.setdefault(offset, value) == value

    def lose(self, node_id: int, *, kill: bool) -> None:
        node = self.nodes[node_id]
        node.kill() if kill else node.stop()
        if node_id in self.isr and len(self.isr) > 1:
            self.isr = tuple(i for i in self.isr if i != node_id)
        candidates = [i for i in self.isr if i in self.live()]
        if node_id == self.leader or self.leader == -1:
            self.elect(self.chance.choice(candidates) if candidates else -1)
        else:
            self.elect(self.leader)

    async def bring_back(self, node_id: int) -> None:
        await self.start(node_id)
        if self.leader == -1 and node_id in self.isr:
            self.elect(node_id)
        else:
            self.tell(node_id)

    async def step(self) -> None:
        what = self.chance.random()
        live = self.live()
        if what < 0.6:
            self.append()
        elif what < 0.75:
            candidates = [i for i in self.isr if i in live]
            if candidates:
                self.elect(self.chance.choice(candidates))
        elif what < 0.85 and len(live) > 1:
            self.lose(self.chance.choice(live), kill=self.chance.random() < 0.5)
        elif len(live) < len(NODES):
            await self.bring_back(self.chance.choice([i for i in NODES if i not in live]))
        await asyncio.sleep(self.chance.choice((0, 0.001, 0.004)))

    # ---- what must hold ----

    def check(self) -> None:
        """Two replicas have the same bytes below what both consider committed."""
        for one, other in combinations((self.nodes[i] for i in self.live()), 2):
            end = min(one.partition().high_watermark, other.partition().high_watermark)
            assert one.contents(end=end) == other.contents(end=end)

    async def settle(self) -> None:
        for node_id in NODES:
            if not self.nodes[node_id].alive:
                await self.bring_back(node_id)
        self.elect(self.chance.choice(self.isr))
        leader = self.nodes[self.leader]
        # Records that it appends before it knows that it leads may be truncated.
        await reached(lambda: leader.partition().leader_epoch == self.epoch)
        await reached(lambda: leader.partition().online and len(self.isr) == len(NODES))
        self.append()
        end = leader.partition().log_end_offset
        await reached(lambda: leader.partition().high_watermark == end)


SETTINGS: dict[str, Any] = {"replica.fetch.backoff.ms": 20, "replica.fetch.wait.max.ms": 50}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_what_was_acknowledged_stays_and_replicas_agree(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        controller = Controller(tmp_path, seed)
        for node_id in NODES:
            await controller.start(node_id)
            controller.tell(node_id)
        for _ in range(STEPS):
            await controller.step()
            controller.check()
        await controller.settle()
        controller.check()
        contents = {node.contents() for node in controller.nodes.values()}
        assert len(contents) == 1
        leader = controller.nodes[controller.leader]
        records = {r.offset: r.value for r in leader.partition().log.records()}
        lost = {o: v for o, v in controller.acknowledged.items() if records.get(o) != v}
        assert not lost
        assert len(controller.acknowledged) > 10
        for node in controller.nodes.values():
            assert not [s for s in node.reports if "can't be" in s]
            node.stop()

    with caplog.at_level(logging.WARNING, "kstore.broker"):
        run(story)
    assert not [r for r in caplog.records if "were committed" in r.getMessage()]
