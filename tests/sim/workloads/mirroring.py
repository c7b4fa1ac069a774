"""A simulated topic, its exact copy in another cluster, and the switch from one to the other.

Producers write to the source while `kstore.clients.replicator` copies it, in a process that is
killed now and then. Then they stop, the copy is switched, and they continue there with their
transactional ids. Observations about a partition of either cluster are recorded for one partition,
because the copy is exact.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kstore.clients.replicator import Event, ReplicationError, ReplicationOptions, Replicator
from kstore.errors import KafkaError
from tests.sim.faults import DAMAGES, Faults
from tests.sim.history import History, Place, Row
from tests.sim.machines.loop import Life
from tests.sim.machines.world import PORT
from tests.sim.workloads.client import Client, UnansweredError, Workload
from tests.sim.workloads.producing import IdempotentProducer, init_producer
from tests.sim.workloads.reading import Reader, local_batches, read_partition
from tests.sim.workloads.transacting import FailedTransaction, Transactional

MIRRORED = "mirrored"
PARTITIONS = 2
FIRST_TARGET = 10
"""The target's brokers are numbered from here on."""
MOVERS = 2
AFTERWARDS = 3
"""The number of transactions that each producer must reach after the switch."""
SETTINGS = {
    "request.timeout.ms": "3000",
    "default.api.timeout.ms": "10000",
    "metadata.max.age.ms": "2000",
    "reconnect.backoff.max.ms": "200",
    "socket.connection.setup.timeout.ms": "2000",
    "socket.connection.setup.timeout.max.ms": "2000",
    "retry.backoff.max.ms": "200",
}
LIVES_S = (0.3, 1.0, 3.0)
"""How long a replicator may live before it is killed."""


class Mover(Transactional):
    """Writes its own values in transactions, first to the source and then to the target."""

    def __init__(self, client: Client, history: History, name: str) -> None:
        super().__init__(client, name)
        self.history = history
        self.stopping = False
        self.committed = 0
        self._number = 0

    async def run(self) -> None:
        """Write until stopped; no transaction is left open then."""
        while True:
            await self._begin()
            try:
                while not self.stopping:
                    await self._one()
            except (FailedTransaction, UnansweredError):
                await self.client.pause()
            else:
                return

    def moved(self, client: Client) -> None:
        """Continue at another cluster."""
        self.client, self.stopping, self.committed = client, False, 0

    async def _one(self) -> None:
        self._number += 1
        name = f"{self.name}#{self._number}"
        parts: dict[int, list[bytes]] = {}
        for index in range(self.client.random.randint(1, 6)):
            value = f"{name}/{index}".encode()
            parts.setdefault(self.client.random.randrange(PARTITIONS), []).append(value)
        for index, some in parts.items():
            self.history.all_sent[Place(MIRRORED, index)].update(some)
        commits = self.client.random.random() < 0.75
        outcome = "aborted"
        try:
            await self._write(MIRRORED, parts)
            outcome = "unknown" if commits else "aborted"
            await self._end(commits)
            outcome = "committed" if commits else "aborted"
        finally:
            values = [value for some in parts.values() for value in some]
            self.history.transaction(name, values, outcome)
        self.committed += commits
        await self.client.pause(0.0, 0.3)


class Copying:
    """The replicator: one process after the other, until the copy is switched."""

    def __init__(self, client: Client, servers: tuple[str, str]) -> None:
        self.switched = False
        self._switching = False
        self._client, self._world = client, client.world
        self._servers = servers
        self._lives = 0
        self._life: Life | None = None
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Copy; when asked to finish, copy to the end."""
        random = self._client.random
        while not self.switched:
            self._lives += 1
            self._life = life = self._world.live(f"replicator.{self._lives}")
            self._ended.clear()
            life.spawn(self._copy(switch=self._switching))
            # Some processes are not killed, so that a switch completes.
            with suppress(TimeoutError):
                async with asyncio.timeout(random.choice([*LIVES_S, None])):
                    await self._ended.wait()
            self._kill(life)
            await self._client.pause(0.05, 0.5)

    def switch(self) -> None:
        """From now on, copy until it is done."""
        self._switching = True
        if self._life is not None:
            self._kill(self._life)

    def _kill(self, life: Life) -> None:
        """SIGKILL, unless it has ended."""
        if not life.dead:
            life.dead = True
            self._world.note(f"{life.name} is no more")
            self._world.network.host_died(life, silently=False)
        self._ended.set()

    async def _copy(self, *, switch: bool) -> None:
        source, target = ({"bootstrap.servers": each} | SETTINGS for each in self._servers)
        options = ReplicationOptions(
            re.compile(MIRRORED), exact=True, sync_interval_ms=1000, fetch_bytes=4096
        )
        made = Replicator(source, target, options, self._tell)
        try:
            await made.run(switch=switch)
            self.switched = True
        except (KafkaError, ReplicationError) as problem:
            self._world.note(f"the replicator ends: {problem}")
            # It was killed between the switch and the end of its process.
            self.switched = switch and "not an exact copy" in str(problem)
        self._ended.set()

    def _tell(self, event: Event) -> None:
        self._world.note(f"the replicator: {event.kind}: {event.text}")


class Mirror(Workload):
    """The operator: has the topic copied and moves its producers to the copy."""

    def __init__(
        self, client: Client, history: History, kinds: tuple[str, ...], switch_after_s: float
    ) -> None:
        super().__init__(client, history)
        self._switch_after_s = switch_after_s
        world = client.world
        kinds = tuple(kind for kind in kinds if kind not in (*DAMAGES, "restored"))
        self.faults = Faults(world, kinds, pause_s=(0.2, 2.2), target=True)
        self.faults.clients = [client.name, "replicator"]
        self._there = Client(world, "mover", len(world.nodes))
        self._there.addresses = {
            node_id: (node.host, PORT) for node_id, node in world.target.items()
        }
        self._movers = [Mover(client, history, f"mover-{number}") for number in range(MOVERS)]
        self._places = [Place(MIRRORED, index) for index in range(PARTITIONS)]
        self._copying = Copying(client, (_servers(client), _servers(self._there)))
        self._readers = [Reader(self._there, history, place, 1) for place in self._places]

    async def run(self) -> None:
        """Wait until the producers have moved and have finished something there."""
        client, there, loop = self.client, self._there, self.client.world.loop
        switch_at = loop.time() + self._switch_after_s
        if client.random.random() < 0.5:  # they were producers of the other cluster before
            for mover in self._movers:
                await init_producer(there, mover.name)
        copying = client.spawn(self._copying.run())
        readers = [there.spawn(self._read(reader)) for reader in self._readers]
        producers = [*self._movers, *self._plain(client)]
        writing = [client.spawn(each.run()) for each in producers]
        while not self.stopping and loop.time() < switch_at:
            await client.pause()
        await _end(producers, writing)
        client.world.note("the source rests")
        self._copying.switch()
        await copying
        client.world.note("the copy is switched")
        for mover in self._movers:
            mover.moved(there)
        producers = [*self._movers, *self._plain(there)]
        writing = [there.spawn(each.run()) for each in producers]
        while not self.stopping or any(each.committed < AFTERWARDS for each in self._movers):
            await client.pause()
        await _end(producers, writing)
        await _end(self._readers, readers)
        self.history.counts["transactions of the copy"] += sum(m.committed for m in self._movers)

    def _plain(self, client: Client) -> list[IdempotentProducer]:
        return [
            IdempotentProducer(client, self.history, place, 100_000, may_lose=False, rest_s=0.5)
            for place in self._places[:1]
        ]

    async def _read(self, reader: Reader) -> None:
        """Read the copy as a consumer of committed records, from the time it exists."""
        reader.whole = False
        await reader.run()

    async def check(self) -> tuple[dict[Place, list[Row]], dict[Place, list[Row]]]:
        """Compare the copy with its source: all records, and those that consumers of committed
        records see.
        """
        world, history = self.client.world, self.history
        whole: dict[Place, list[Row]] = {}
        visible: dict[Place, list[Row]] = {}
        for place in self._places:
            before = await read_partition(self.client, place, committed=True)
            whole[place] = await read_partition(self._there, place, committed=False)
            visible[place] = await read_partition(self._there, place, committed=True)
            rows = [row for row in visible[place] if before and row.offset <= before[-1].offset]
            history.check_exact(place, before, rows, "a consumer")
            ours = max((local_batches(n, place) for n in world.nodes.values()), key=len)
            theirs = {n.host: local_batches(n, place) for n in world.target.values()}
            history.check_replicas(place, theirs)
            history.counts["batches copied"] += len(ours)
            for host, found in theirs.items():
                history.check_exact(place, ours, found[: len(ours)], host)
        return whole, visible


async def _end(workloads: Iterable[Any], tasks: Iterable[asyncio.Task[None]]) -> None:
    for each in workloads:
        each.stopping = True
    await asyncio.gather(*tasks)


def _servers(client: Client) -> str:
    return ",".join(f"{host}:{port}" for host, port in client.addresses.values())
