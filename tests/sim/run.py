"""One simulation from its seed: brokers, clients and faults for a while, then peace, then the
checks.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable
from typing import Any, NamedTuple

from kstore.errors import ErrorCode
from kstore.protocol.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.sim.client import Client, UnansweredError
from tests.sim.faults import FAULTS, Faults
from tests.sim.history import History, Place
from tests.sim.producing import IdempotentProducer
from tests.sim.reading import Reader, local_batches, read_partition
from tests.sim.world import World, new_world

__all__ = ["Options", "Report", "simulate"]

TOPIC = "records"
PEACE_S = 60.0
"""How long everything may take to be as it should be, once the faults are over."""
WATCH_S = 0.01


class Options(NamedTuple):
    """What a simulation is like, beside its seed."""

    brokers: int = 1
    faults: tuple[str, ...] = tuple(FAULTS)
    seconds: float = 20.0
    partitions: int = 3
    producers: int = 2
    flush: str = ""
    """kstore.flush.policy; empty: drawn from the seed."""


class Report(NamedTuple):
    """What came of it."""

    seed: int
    violations: tuple[str, ...]
    trace: tuple[str, ...]
    digest: str
    """Equal for two runs of a seed on the same sources."""
    counts: dict[str, int]


def simulate(seed: int, options: Options) -> Report:
    """Run one simulation."""
    history = History()
    with new_world(seed) as world:
        run = _Run(world, history, options)
        driver = world.loop.create_task(run.drive())
        try:
            world.loop.run_until_complete(driver)
        except RuntimeError as problem:
            history.break_rule("liveness", str(problem))
        for problem_ in world.loop.problems:
            history.break_rule("crash", problem_)
        world.note(f"{world.loop.steps} steps")
        trace = tuple(world.trace)
        digest = hashlib.sha256("\n".join(trace).encode()).hexdigest()[:16]
    found = tuple(str(violation) for violation in history.violations)
    counts = dict(history.counts) | {f"fault {k}": v for k, v in run.faults.struck.items()}
    return Report(seed, found, trace, digest, counts)


class _Run:
    def __init__(self, world: World, history: History, options: Options) -> None:
        self.world = world
        self.history = history
        self.options = options
        random = world.random
        flush = options.flush or random.choice(["always", "os", "interval"])
        kinds = [k for k in options.faults if flush == "always" or k != "power"]
        self.may_lose = False
        self.settings = {
            "kstore.flush.policy": flush,
            "log.roll.ms": str(random.choice([1500, 10_000, 1 << 40])),
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "100",
            "auto.create.topics.enable": "false",
        }
        if options.brokers > 1:
            self.settings |= cluster_settings(world, options.brokers)
        for node_id in range(options.brokers):
            world.add_node(node_id, self.settings)
        world.note(f"{options.brokers} brokers, flush {flush}")
        self.faults = Faults(world, tuple(kinds), pause_s=(0.3, 3.0))
        self.places = [Place(TOPIC, index) for index in range(options.partitions)]

    async def drive(self) -> None:
        """The whole simulation."""
        world = self.world
        for node in world.nodes.values():
            node.start()
        admin = Client(world, "admin", self.options.brokers)
        if not await self._in_time(admin.spawn(self._prepare(admin)), "topics are made"):
            return
        watcher = asyncio.ensure_future(self._watch())
        clients, workloads = self._workloads()
        self.faults.clients = [client.name for client in clients]
        striking = asyncio.ensure_future(self.faults.run())
        tasks = [client.spawn(work.run()) for client, work in zip(clients, workloads, strict=True)]
        await asyncio.sleep(self.options.seconds)
        self.faults.stop()
        await striking
        for work in workloads:
            if isinstance(work, IdempotentProducer):
                work.stopping = True
        producing = [
            task
            for task, work in zip(tasks, workloads, strict=True)
            if isinstance(work, IdempotentProducer)
        ]
        if await self._in_time(asyncio.gather(*producing), "producers end"):
            for work in workloads:
                work.stopping = True
            await self._in_time(asyncio.gather(*tasks), "consumers end")
            await self._in_time(admin.spawn(self._check(admin)), "everything can be read")
        watcher.cancel()
        for task in tasks:
            task.cancel()

    async def _in_time(self, work: Awaitable[Any], what: str) -> bool:
        """Wait for it; a violation if it takes too long."""
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait({task}, timeout=PEACE_S)
        if not done:
            self.history.break_rule("liveness", f"not within {PEACE_S} s: {what}")
            task.cancel()
            return False
        await task
        self.world.note(what)
        return True

    async def _prepare(self, admin: Client) -> None:
        while not all(node.ready for node in self.world.nodes.values()):
            await asyncio.sleep(0.05)
        replicas = min(self.options.brokers, 3)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=TOPIC,
                    num_partitions=self.options.partitions,
                    replication_factor=replicas,
                    configs=[
                        CreatableTopicConfig(
                            name="min.insync.replicas", value="2" if replicas > 1 else "1"
                        )
                    ],
                )
            ]
        )
        while True:
            try:
                answer = await admin.ask_anyone(request)
            except UnansweredError:
                await admin.pause()
                continue
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await admin.pause()

    def _workloads(self) -> tuple[list[Client], list[Any]]:
        clients: list[Client] = []
        workloads: list[Any] = []
        for number in range(self.options.producers):
            client = Client(self.world, f"producer{number}", self.options.brokers)
            for place in self.places:
                clients.append(client)
                workloads.append(
                    IdempotentProducer(client, self.history, place, 100_000, may_lose=self.may_lose)
                )
        reader = Client(self.world, "reader", self.options.brokers)
        for place in self.places:
            clients.append(reader)
            workloads.append(Reader(reader, self.history, place, 0))
        return clients, workloads

    async def _watch(self) -> None:
        """Look at the brokers all the time."""
        while True:
            for node in self.world.brokers():
                if node.broker is None or node.life is None or not node.ready:
                    continue
                for place in self.places:
                    partition = node.broker.table.partition(place.topic.encode(), place.partition)
                    if partition is not None and partition.online:
                        epoch = partition.leader_epoch
                        self.history.leads(node.host, place, epoch)
                        mark = partition.high_watermark
                        self.history.high_watermark(node.life.name, place, epoch, mark)
            await asyncio.sleep(WATCH_S)

    async def _check(self, admin: Client) -> None:
        logs = {}
        for place in self.places:
            logs[place] = await read_partition(admin, place, committed=False)
        self.history.check_logs(logs)
        for place in self.places:
            replicas = {node.host: local_batches(node, place) for node in self.world.brokers()}
            self.history.check_replicas(place, replicas)
        sizes = Counter({str(place.partition): len(rows) for place, rows in logs.items()})
        self.world.note(f"records {dict(sizes)}")
        self.history.counts["records"] = sum(sizes.values())


def cluster_settings(world: World, brokers: int) -> dict[str, str]:
    """What makes brokers a cluster on the simulated store."""
    return {
        "kstore.coordination.dir": world.folder + "/store",
        "default.replication.factor": str(min(brokers, 3)),
        "offsets.topic.replication.factor": str(min(brokers, 3)),
        "transaction.state.log.replication.factor": str(min(brokers, 3)),
        "transaction.state.log.min.isr": "2",
        "replica.lag.time.max.ms": "3000",
    }
