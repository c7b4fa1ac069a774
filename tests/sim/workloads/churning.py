"""A simulated administrator: topics are created, grown and deleted while brokers stop and start."""

from __future__ import annotations

import asyncio
from typing import Any

from kstore.errors import ErrorCode
from tests.plain_messages import Ask
from tests.sim.history import History
from tests.sim.workloads.client import Client, UnansweredError, Workload

LIMIT_S = 20.0


class Administrator(Workload):
    """Creates, grows and deletes its own topics, one after the other."""

    def __init__(self, client: Client, history: History, replicas: int) -> None:
        super().__init__(client, history)
        self._replicas = replicas
        self._made = 0
        self._topics: dict[str, set[int]] = {}
        """Topic to how many partitions it may have; 0: it may not exist."""
        self._dying: set[str] = set()
        """Topics whose deletion was asked for: without an answer it may still arrive, whatever else
        is answered before.
        """
        self._in_flight = ""
        """The topic whose change was asked for and not answered yet."""
        self._copied: dict[str, set[int]] = {}
        """As `_topics`, when the store was copied."""
        self._restores = 0

    def store_copied(self) -> None:
        self._copied = {name: set(counts) for name, counts in self._topics.items()}

    def store_restored(self) -> None:
        """Topics are as they were in the copy. A request that was sent before may arrive later."""
        self._restores += 1
        for name, counts in self._topics.items():
            late = counts if name == self._in_flight else set()
            self._topics[name] = self._copied.get(name, {0}) | late

    async def run(self) -> None:
        while not self.stopping:
            await self.client.pause(0.1, 1.0)
            there = [name for name, counts in self._topics.items() if counts != {0}]
            choice = self.client.random.random()
            if choice < 0.5 or not there:
                await self._create()
            elif choice < 0.75:
                await self._grow(self.client.random.choice(there))
            else:
                await self._delete(self.client.random.choice(there))

    async def _create(self) -> None:
        self._made += 1
        name, count = f"topic{self._made}", self.client.random.randint(1, 3)
        topic = {"name": name, "num_partitions": count, "replication_factor": self._replicas}
        self._topics[name] = {0, count}
        await self._do(Ask.CreateTopics(topics=[topic]), name, {count})

    async def _grow(self, name: str) -> None:
        count = max(self._topics[name]) + 1
        before = set(self._topics[name])
        self._topics[name] = before | {count}
        topic = {"name": name, "count": count, "assignments": None}
        then = {count, 0} if name in self._dying else {count}
        await self._do(Ask.CreatePartitions(topics=[topic], timeout_ms=10_000), name, then)

    async def _delete(self, name: str) -> None:
        self._topics[name] = self._topics[name] | {0}
        self._dying.add(name)
        await self._do(Ask.DeleteTopics(topics=[{"name": name}], timeout_ms=10_000), name, {0})

    async def _do(self, request: Any, name: str, then: set[int]) -> None:
        """Send a request once. An acknowledged change is done; all others may be done or not."""
        self._in_flight, restores = name, self._restores
        try:
            answer = await self.client.ask_anyone(request, timeout_s=LIMIT_S)
        except UnansweredError:
            return
        finally:
            self._in_flight = ""
        rows = getattr(answer, "topics", None) or getattr(answer, "results", None)
        row = (rows or answer.responses)[0]
        if row.error_code == ErrorCode.NONE:
            self.history.counts["topic changes"] += 1
            undone = self._topics[name] if self._restores != restores else set()
            self._topics[name] = then | undone

    async def check(self) -> None:
        """Every broker shows the acknowledged changes, and all show the same."""
        deadline = self.client.world.loop.time() + LIMIT_S
        while problems := self._problems():
            if self.client.world.loop.time() > deadline:
                for problem in problems:
                    self.history.break_rule("topics", problem)
                return
            await asyncio.sleep(0.2)

    def _problems(self) -> list[str]:
        found = []
        for name, counts in self._topics.items():
            shown = {}
            for node in self.client.world.brokers():
                topic = node.broker.image.topics.get(name)
                shown[node.host] = 0 if topic is None else len(topic.partitions)
            if len(set(shown.values())) > 1:
                found.append(f"brokers do not agree on {name}: {shown}")
            elif not set(shown.values()) <= counts:
                found.append(f"{name} has {shown} partitions, not one of {sorted(counts)}")
        return found
