"""A simulated Spark sink (kstore.pipeline.sink). Tasks stage batches, and drivers have leaders copy
them. Drivers are killed at any moment, or are considered dead and continue while the next one runs.

Every driver of a version has its own attempts, as when Spark computes a micro-batch again. For each
version, the target has the staged records of exactly one driver, once and in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from kstore.clients.io.cluster import ClusterClient
from kstore.config.client.configs import client_settings
from kstore.errors import ErrorCode, KafkaError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.commit import _Commit
from kstore.pipeline.sink.stager import wrapped
from kstore.pipeline.sink.staging import key_of, topic_of
from kstore.pipeline.sink.written import StagedRun, Written
from kstore.protocol.logs.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kstore.record import build_batch
from tests.sim.history import History, Place
from tests.sim.machines.loop import Life
from tests.sim.workloads.client import Client, UnansweredError
from tests.sim.workloads.reading import read_partition

SUNK, SUNK_PARTITIONS = "sunk", 2
NAME = "sink"
STAGED, STAGED_PARTITIONS = topic_of(NAME), 3
LIVES_S = (0.1, 0.4, 1.5, None)
"""How long a driver may live; None: to its end."""
SETTINGS = {
    "request.timeout.ms": "3000",
    "delivery.timeout.ms": "20000",
    "max.block.ms": "10000",
    "metadata.max.age.ms": "2000",
    "reconnect.backoff.max.ms": "200",
    "socket.connection.setup.timeout.ms": "2000",
    "socket.connection.setup.timeout.max.ms": "2000",
    "retry.backoff.max.ms": "200",
}
Values = dict[int, list[bytes]]
"""By partition of the target."""


class Sink:
    """Writes version after version until it is stopped. Then the result is checked."""

    TOPICS = ((SUNK, SUNK_PARTITIONS), (STAGED, STAGED_PARTITIONS))

    def __init__(self, client: Client, history: History) -> None:
        self.client = client
        self.history = history
        self.stopping = False
        self._attempts: list[list[Values]] = []
        """What each driver of each version has had staged."""
        self._lives: list[Life] = []
        self._done = asyncio.Event()

    async def run(self) -> None:
        while not self.stopping or not self._attempts:
            version = len(self._attempts)
            self._attempts.append([])
            self._done.clear()
            while not self._done.is_set():
                await self._drive_once(version)
            self.history.counts["versions sunk"] += 1
        for life in self._lives:
            self._kill(life)
        await self._check()

    async def _drive_once(self, version: int) -> None:
        """One driver: it stages, and then commits for as long as it lives."""
        random = self.client.random
        messages = await self._staged(version)
        life = self.client.world.live(f"driver.{version}.{len(self._lives)}")
        self._lives.append(life)
        life.spawn(self._commit(version, messages))
        with suppress(TimeoutError):
            async with asyncio.timeout(random.choice(LIVES_S)):
                await self._done.wait()
        if random.random() < 0.7:  # otherwise it continues beside the next driver
            self._kill(life)

    async def _commit(self, version: int, messages: list[Written]) -> None:
        given = SETTINGS | {"bootstrap.servers": self._servers()}
        cluster = ClusterClient(client_settings("producer", given))
        try:
            await _Commit(cluster, NAME, version, 20_000).run(messages)
        except (KafkaError, PipelineError) as problem:
            self.client.world.note(f"the driver of {version} ends: {problem}")
        else:
            if version == len(self._attempts) - 1:
                self._done.set()
        finally:
            await cluster.close()

    def _servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.client.addresses.values())

    def _kill(self, life: Life) -> None:
        if not life.dead:
            life.dead = True
            self.client.world.note(f"{life.name} is no more")
            self.client.world.network.host_died(life, silently=False)

    # ---- tasks ----

    async def _staged(self, version: int) -> list[Written]:
        """The records that the tasks of a driver's attempts have staged."""
        random = self.client.random
        number = len(self._attempts[version])
        values: Values = {}
        self._attempts[version].append(values)
        messages = []
        for task in range(random.randint(1, 2)):
            attempt = random.randbytes(16)
            made = Written(NAME, version, attempt.hex())
            for partition in range(SUNK_PARTITIONS):
                run = StagedRun(random.randrange(1, STAGED_PARTITIONS))
                for piece in range(random.randint(1, 3)):
                    front = f"{version}.{number}.{task}.{piece}"
                    rows = [f"{front}.{row}".encode() for row in range(random.randint(1, 4))]
                    key = key_of(attempt, SUNK, partition)
                    cut = len(rows) // 2
                    now_ms = self.client.life.now_ms()
                    data = [build_batch(p, timestamp=now_ms) for p in (rows[:cut], rows[cut:]) if p]
                    run.offsets.append(await self._stage(run.partition, key, data))
                    run.counts.append(len(rows))
                    values.setdefault(partition, []).extend(rows)
                made.staged[SUNK, partition] = run
            messages.append(made)
        return messages

    async def _stage(self, partition: int, key: bytes, values: list[bytes]) -> int:
        """Append until acknowledged; if an answer is lost, the record is there twice."""
        client = self.client
        records = b"".join(wrapped(key, values, client.life.now_ms()))
        while True:
            node = await client.leader(STAGED, partition)
            data = PartitionProduceData(index=partition, records=records)
            topic = TopicProduceData(name=STAGED, partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[topic])
            try:
                answer = await client.ask(node, request, newest=12)
                row = answer.responses[0].partition_responses[0]
                if row.error_code == ErrorCode.NONE:
                    return int(row.base_offset)
            except UnansweredError:
                pass
            client.forget_leader(STAGED, partition)
            await client.pause()

    # ---- the check ----

    async def _check(self) -> None:
        """Each version has the records that one of its drivers staged."""
        found: list[Values] = [{} for _ in self._attempts]
        for partition in range(SUNK_PARTITIONS):
            rows = await read_partition(self.client, Place(SUNK, partition), committed=False)
            for row in rows:
                version = int(row.value.partition(b".")[0])
                found[version].setdefault(partition, []).append(row.value)
        for version, (values, attempts) in enumerate(zip(found, self._attempts, strict=True)):
            if values not in attempts:
                counted: Counter[Any] = Counter(v for some in values.values() for v in some)
                twice = [value for value, count in counted.items() if count > 1]
                self.history.break_rule(
                    "exactly_once",
                    f"version {version} of the sink is in its target as nobody had staged it: "
                    f"{len(attempts)} drivers, {counted.total()} records, twice: {twice[:3]}",
                )
