"""Run one simulation from its seed: brokers, clients and faults for a while, then a time without
faults, then the checks.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import Context
from random import Random
from typing import Any, NamedTuple

from tests.sim.commits import refused_by_brokers
from tests.sim.deliveries import Deliveries
from tests.sim.faults import DAMAGES, Faults
from tests.sim.history import History, Place, Row
from tests.sim.machines.world import World, new_world
from tests.sim.refusals import Refusals
from tests.sim.settings import Options, broker_settings, cluster_settings
from tests.sim.workloads.churning import Administrator
from tests.sim.workloads.client import Client, Workload, make_topic
from tests.sim.workloads.committing import committed_offset
from tests.sim.workloads.copying import SEPARATOR, TransactionalCopy
from tests.sim.workloads.expanding import (
    FIRST_COUNT,
    NARROWED,
    NARROWED_GROUPS,
    SLOW_S,
    WIDE_COUNT,
    Grower,
    KeyedProducer,
    Remover,
    Shrinker,
    ShrinkingProducer,
)
from tests.sim.workloads.grouping import ClassicMember, ConsumerMember, StreamsMember
from tests.sim.workloads.losing import CarelessProducer, Processor
from tests.sim.workloads.mirroring import FIRST_TARGET, MIRRORED, Mirror
from tests.sim.workloads.owning import Owner
from tests.sim.workloads.producing import IdempotentProducer, OffsetGiver
from tests.sim.workloads.reading import Reader, local_batches, read_partition
from tests.sim.workloads.recreating import Recreator, Visitor
from tests.sim.workloads.share_state import ShareLeader, ShareLedger
from tests.sim.workloads.sharing import ShareMember, begin_at_the_beginning

TOPIC, COPIES, ORDERED, PHOENIX = "records", "copies", "ordered", "phoenix"
LOOSE, EQUAL = "loose", "equal"
GROUPS: dict[str, type[Owner]] = {
    "group": ConsumerMember,
    "classic": ClassicMember,
    "streams": StreamsMember,
}
"""The workloads that are groups of members on the topic; the group is called like its workload."""
RESTLESS = {f"{name} {number}": kind for name, kind in GROUPS.items() for number in range(2)}
"""The groups of the workload "churn", whose members come and go all the time."""
RESTLESS_LEAVES, RESTLESS_REST_S = 0.15, 3.0
ORDERLY, VISITORS, SHARERS, WORKERS = "orderly", "visitors", "sharers", "workers"
SINKING = "tests.pipeline.sink.simulated_sink"  # it imports PySpark, so only on demand
ALWAYS = ("produce", "read")
SOMETIMES = (
    "copy", "group", "topics", "classic", "streams", "expand", "recreate", "share", "sharing",
    "contract",
)  # fmt: skip
ON_REQUEST = ("lose", "churn", "give", "mirror", "sink")
WORKLOADS = ALWAYS + SOMETIMES + ON_REQUEST
NOT_ON_TOPIC = ("topics", "expand", "recreate", "contract")
"""Those that have topics of their own, which no damage hits."""
DAMAGED_SHARE = 0.3
"""Of the seeds, where damage of files is among the faults."""
MIRRORED_SHARE = 0.1
"""Of the seeds without given workloads, where there is another cluster with an exact copy."""
AT_ONCE = 3
"""How many of those that are not always there a seed has."""
PEACE_S = 60.0
"""How long everything may take to be as it should be, once the faults are over."""
WATCH_S = 0.025


class Report(NamedTuple):
    """The result of a simulation."""

    seed: int
    violations: tuple[str, ...]
    trace: tuple[str, ...]
    digest: str
    """Equal for two runs of a seed on the same sources."""
    counts: dict[str, int]
    cpu_s: float = 0.0
    """What it cost."""


def simulate(seed: int, options: Options, plant: Callable[[Any], None] | None = None) -> Report:
    """Run one simulation; ``plant`` puts a bug into kstore (mutations.py)."""
    # Free the previous world now, then disable garbage collection, which took a sixth of the time.
    gc.collect()
    gc.freeze()
    gc.disable()
    began = time.process_time()
    try:
        report = _simulate(seed, options, plant)
    finally:
        gc.enable()
    return report._replace(cpu_s=round(time.process_time() - began, 3))


def _simulate(seed: int, options: Options, plant: Callable[[Any], None] | None) -> Report:
    history = History()
    if "sink" in options.workloads:
        importlib.import_module(SINKING)  # the world has to patch what it imports
    with new_world(seed, plant) as world:
        run = _Run(world, history, options)
        driver = world.loop.create_task(run.drive())

        def end(rule: str) -> None:
            if rule == options.until:  # not as the process that runs now, which may die
                world.loop.call_soon(driver.cancel, context=Context())

        history.when_broken = end
        try:
            world.loop.run_until_complete(driver)
        except asyncio.CancelledError:
            if not options.until:
                raise
            world.note(f"{options.until} is broken")
        except RuntimeError as problem:
            history.break_rule("liveness", str(problem))
        for problem_ in world.loop.problems:
            history.break_rule("crash", problem_)
        world.note(f"{len(world.loop.problems)} problems")
        world.note(f"{world.loop.steps} steps")
        trace = tuple(world.trace)
        digest = hashlib.sha256("\n".join(trace).encode()).hexdigest()[:16]
    found = tuple(str(violation) for violation in history.violations)
    struck: Counter[str] = Counter()
    for each in run.all_faults():
        struck.update({f"fault {kind}": count for kind, count in each.struck.items()})
    counts = dict(history.counts) | dict(struck)
    return Report(seed, found, trace, digest, counts)


class _Run:
    def __init__(self, world: World, history: History, options: Options) -> None:
        self.world = world
        self.history = history
        self.options = options
        random = world.random
        flush = options.flush or random.choice(["always", "os", "interval"])
        kinds = [k for k in options.faults if flush == "always" or k != "power"]
        # Some seeds only damage files: they may lose records that other seeds must not lose.
        damages = [kind for kind in kinds if kind in DAMAGES]
        if damages and (len(damages) == len(kinds) or random.random() < DAMAGED_SHARE):
            sometimes = tuple(k for k in SOMETIMES if k in NOT_ON_TOPIC)
            kinds = [kind for kind in kinds if kind != "index"]
        else:
            sometimes = SOMETIMES
            kinds = [kind for kind in kinds if kind not in DAMAGES]
        if "restored" in kinds:  # it undoes a contraction, which clients cannot repeat
            sometimes = tuple(kind for kind in sometimes if kind != "contract")
        self.may_lose = False
        # The longest pause of producers: short pauses cost most of the time of a run.
        self.rest_s = random.choice([0.2, 0.5, 1.0])
        self.kinds = options.workloads or (*ALWAYS, *random.sample(sometimes, AT_ONCE))
        if not options.workloads and Random(f"{world.seed}/mirror").random() < MIRRORED_SHARE:
            self.kinds += ("mirror",)
        asked = "sink" in self.kinds
        self.sinks = (importlib.import_module(SINKING).Sink,) if asked else ()
        self.delivery_limit = Random(f"{world.seed}/sharing").choice([2, 3, 5])
        roll_ms = random.choice([1500, 10_000, 1 << 40])
        self.settings = broker_settings(flush, roll_ms, self.delivery_limit)
        if options.brokers > 1:
            self.settings |= cluster_settings(world, options.brokers)
        for node_id in range(options.brokers):
            world.add_node(node_id, self.settings)
            if "mirror" in self.kinds:
                theirs = cluster_settings(world, options.brokers, "target")
                theirs = self.settings | (theirs if options.brokers > 1 else {})
                world.add_target_node(FIRST_TARGET + node_id, theirs)
        world.note(f"{options.brokers} brokers, flush {flush}, {', '.join(self.kinds)}")
        self.faults = Faults(world, tuple(kinds), pause_s=(0.2, 2.2))
        self.faults.damaged_topic = TOPIC
        history.damaged = self.faults.damaged
        history.is_told = self._is_told
        self.groups = {name: kind for name, kind in GROUPS.items() if name in self.kinds}
        if "churn" in self.kinds:
            self.groups |= RESTLESS
            self.rest_s = RESTLESS_REST_S
        self.work: list[tuple[Client, Any]] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.places = [Place(TOPIC, index) for index in range(options.partitions)]

    def _is_told(self, place: Place) -> bool:
        name = f"{place.topic}-{place.partition}"
        return any(name in told for told in self.world.complaints)

    async def drive(self) -> None:
        """The whole simulation."""
        world = self.world
        for node in (*world.nodes.values(), *world.target.values()):
            node.start()
        admin = Client(world, "admin", self.options.brokers)
        if not await self._in_time(admin.spawn(self._prepare(admin)), "topics are made"):
            return
        watcher = asyncio.ensure_future(self._watch())
        self._make_workloads()
        self.faults.clients = sorted({client.name for client, _ in self.work})
        self.faults.workloads = self._workloads_of(Workload)
        faults = self.all_faults()
        striking = asyncio.gather(*(each.run() for each in faults))
        self.tasks = [client.spawn(work.run()) for client, work in self.work]
        for task in self.tasks:
            task.add_done_callback(self._tell_defect)
        await asyncio.sleep(self.options.seconds)
        for each in faults:
            each.stop()
        await striking
        await self._end(admin)
        watcher.cancel()
        for task in self.tasks:
            task.cancel()

    def all_faults(self) -> list[Faults]:
        """The values of each cluster."""
        return [self.faults, *(work.faults for work in self._workloads_of(Mirror))]

    def _tell_defect(self, task: asyncio.Task[Any]) -> None:
        """A client that ends with an exception is a defect of the simulation."""
        if not task.cancelled() and task.exception() is not None:
            lines = traceback.format_exception(task.exception())
            self.world.loop.problems.append("a client failed: " + "".join(lines[-4:]))

    def _replicas(self, workload: str) -> int:
        """How many replicas the topic of a workload has. One alone may lose what is not synced."""
        replicas = Random(f"{self.world.seed}/{workload}").choice([1, 3, 3])
        return 3 if "unsynced" in self.faults.kinds else replicas

    async def _end(self, admin: Client) -> None:
        """Let every workload finish, those that feed others first; then check."""
        if not await self._finish(IdempotentProducer, "producers end"):
            return
        for work in self._workloads_of(TransactionalCopy):
            work.goal = await admin.spawn(self._end_of(admin, work.source))
        stages = (
            (Grower, "partitions are added"),
            (Shrinker, "partitions are taken away"),
            (KeyedProducer, "producers of keys end"),
            (Remover, "retired partitions are deleted, and others made"),
            (TransactionalCopy, "copies end"),
            (CarelessProducer, "careless producers end"),
            (Processor, "processors rest"),
            (Reader, "readers end"),
            (Owner, "members end"),
            (ShareLeader, "leaders of share-partitions end"),
            (ShareMember, "share members end"),
            ((Mirror, *self.sinks), "producers have moved to the copy, and the sink rests"),
            (Administrator, "topics rest"),
            (Recreator, "the topic is there"),
            (Visitor, "visitors end"),
        )
        for kind, what in stages:
            if not await self._finish(kind, what):
                return
        await self._in_time(admin.spawn(self._check(admin)), "everything can be read")
        self.history.counts["refused by brokers"] = refused_by_brokers(self.world)
        for work in self._workloads_of(ShareMember)[:1]:
            work.check()
        for work in self._workloads_of(Administrator):
            await work.check()
        for work in self._workloads_of(Visitor)[:1]:
            work.check()

    def _workloads_of(self, kind: type[Any]) -> list[Any]:
        return [work for _, work in self.work if isinstance(work, kind)]

    async def _finish(self, kind: type[Any] | tuple[type[Any], ...], what: str) -> bool:
        tasks = []
        for task, (_, work) in zip(self.tasks, self.work, strict=True):
            if isinstance(work, kind):
                work.stopping = True
                tasks.append(task)
        ended = [self._workloads_of(kind)[0].ended] if tasks and kind is ShareMember else []
        return not tasks or await self._in_time(asyncio.gather(*tasks), what, *ended)

    async def _end_of(self, admin: Client, place: Place) -> int:
        rows = await read_partition(admin, place, committed=False)
        return rows[-1].offset + 1 if rows else 0

    async def _in_time(
        self, work: Awaitable[Any], what: str, ended: Callable[[], int] = lambda: 0
    ) -> bool:
        """Wait for it; a violation if it takes too long and no more than ``ended`` have ended by
        then.
        """
        task = asyncio.ensure_future(work)
        before, now = -1, ended()
        while not task.done() and now > before:
            await asyncio.wait({task}, timeout=PEACE_S)
            before, now = now, ended()
        if not task.done():
            self.history.break_rule("liveness", f"not within {PEACE_S} s: {what}")
            task.cancel()
            return False
        await task
        self.world.note(what)
        return True

    async def _prepare(self, admin: Client) -> None:
        nodes = [*self.world.nodes.values(), *self.world.target.values()]
        while not all(node.ready for node in nodes):
            await asyncio.sleep(0.05)
        for name in (TOPIC, COPIES):
            await make_topic(admin, self.options.brokers, name, self.options.partitions)
        if "sharing" in self.kinds:
            await begin_at_the_beginning(admin, WORKERS)
        ordered = {"kstore.ordered.expansion": "true", "kstore.partition.count.required": "true"}
        if "contract" in self.kinds:
            replicas = self._replicas("contract")
            await make_topic(admin, self.options.brokers, NARROWED, WIDE_COUNT, ordered, replicas)
        if "expand" in self.kinds:
            replicas = self._replicas("expand")
            await make_topic(admin, self.options.brokers, ORDERED, FIRST_COUNT, ordered, replicas)
        if "give" in self.kinds:
            await make_topic(admin, self.options.brokers, EQUAL, 1)
        if "mirror" in self.kinds:
            await make_topic(admin, self.options.brokers, MIRRORED, 2)
        for sink in self.sinks:
            for name, count in sink.TOPICS:
                await make_topic(admin, self.options.brokers, name, count)
        if "lose" in self.kinds:
            loose = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
            await make_topic(admin, self.options.brokers, LOOSE, 1, loose)

    def _make_workloads(self) -> None:
        kinds = self.kinds
        if "produce" in kinds:
            for number in range(self.options.producers):
                self._add(f"producer{number}", *map(self._producer, self.places))
        if "give" in kinds:
            self._add("giver", self._producer(Place(EQUAL, 0), OffsetGiver))
        if "read" in kinds:
            self._add("reader", *(lambda c, h, p=p: Reader(c, h, p, 0) for p in self.places))
            if set(DAMAGES) & set(self.faults.kinds):
                again = (lambda c, h, p=p: Reader(c, h, p, 0, again=True) for p in self.places)
                self._add("rereader", *again)
        if "copy" in kinds:
            source, width = self.places[0], self.options.partitions
            self._add("copier", lambda c, h: TransactionalCopy(c, h, source, COPIES, width))
        replicas = min(self.options.brokers, 3)
        if "topics" in kinds:
            self._add("churner", lambda c, h: Administrator(c, h, replicas))
        for group, kind in self.groups.items():
            self._add_members(group, kind, TOPIC)
        if "expand" in kinds:
            refusals = Refusals(self.history, self.world, ORDERED)
            self._add("keyed", lambda c, h: KeyedProducer(c, h, ORDERED, refusals))
            self._add("grower", lambda c, h: Grower(c, h, ORDERED))
            self._add_members(ORDERLY, ConsumerMember, ORDERED)
        if "contract" in kinds:
            answers = Refusals(self.history, self.world, NARROWED)
            self._add("narrow", lambda c, h: ShrinkingProducer(c, h, NARROWED, answers))
            self._add("shrinker", lambda c, h: Shrinker(c, h, NARROWED))
            (_, narrow), (_, shrinker) = self.work[-2:]
            self._add("remover", lambda c, h: Remover(c, h, shrinker, narrow, NARROWED_GROUPS))
            for group, kind in NARROWED_GROUPS.items():
                self._add_members(group, kind, NARROWED)
        if "lose" in kinds:
            self._add("careless", lambda c, h: CarelessProducer(c, h, Place(LOOSE, 0)))
            self._add("processor", lambda c, h: Processor(c, h, Place(LOOSE, 0)))
        if "mirror" in kinds:
            after_s = self.options.seconds * Random(f"{self.world.seed}/switch").uniform(0.3, 0.7)
            self._add("operator", lambda c, h: Mirror(c, h, tuple(self.faults.kinds), after_s))
        for sink in self.sinks:
            self._add("sinker", sink)
        if "share" in kinds:
            for partition in range(2):
                ledger = ShareLedger(self.history)
                for number in range(2):
                    self._add(
                        f"sharer{partition}{number}",
                        lambda c, h, p=partition, kept=ledger: ShareLeader(
                            c, kept, SHARERS, TOPIC, p
                        ),
                    )
        if "sharing" in kinds:
            deliveries = Deliveries(self.history, TOPIC, self.delivery_limit)
            for number in range(self.options.members):
                self._add(
                    f"worker{number}",
                    lambda c, h: ShareMember(c, h, deliveries, WORKERS, self.places),
                )
        if "recreate" in kinds:
            self._add("recreator", lambda c, h: Recreator(c, h, PHOENIX, replicas))
            for number in range(2):
                self._add(f"visitor{number}", lambda c, h: Visitor(c, h, PHOENIX, VISITORS))

    def _add(self, name: str, *makes: Callable[[Client, History], Any]) -> None:
        """A client and its workload."""
        client = Client(self.world, name, self.options.brokers)
        self.work += [(client, make(client, self.history)) for make in makes]

    def _producer(
        self, place: Place, kind: type[IdempotentProducer] = IdempotentProducer
    ) -> Callable[[Client, History], IdempotentProducer]:
        return lambda c, h: kind(c, h, place, 100_000, may_lose=self.may_lose, rest_s=self.rest_s)

    def _add_members(self, group: str, kind: type[Owner], topic: str) -> None:
        retires = group in NARROWED_GROUPS
        for number in range(self.options.members):
            name = f"member{number}" if group == "group" else f"{group}{number}"
            self._add(name, lambda c, h: kind(c, h, group, topic))
        for _, member in self.work[-self.options.members :]:
            member.leaves = RESTLESS_LEAVES if group in RESTLESS else member.leaves
            member.rest_s = SLOW_S if retires else member.rest_s

    async def _watch(self) -> None:
        """Watch the brokers all the time."""
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
        visible = {}
        copies = [Place(COPIES, place.partition) for place in self.places]
        ordered = await self._ordered_places(admin)
        given = [work.place for work in self._workloads_of(OffsetGiver)]
        await self._agree(given)
        for place in (*self.places, *copies, *ordered, *given):
            history = self.history if place in self.faults.damaged else None
            logs[place] = await read_partition(admin, place, committed=False, history=history)
        logs |= self.history.gone
        for place in copies:
            visible[place] = await read_partition(admin, place, committed=True)
        moved: dict[Place, list[Row]] = {}
        for work in self._workloads_of(Mirror):
            mirrored, moved = await work.check()
            logs |= mirrored
        self.history.check_logs(logs)
        self.history.check_visible(visible | moved)
        for copy in self._workloads_of(TransactionalCopy):
            self.history.check_copy(
                [row.value for row in logs[copy.source] if row.offset < copy.end],
                [row.value.partition(SEPARATOR)[0] for each in visible.values() for row in each],
            )
        for work in self._workloads_of(Processor):
            rows = await read_partition(admin, work.place, committed=False)
            await work.client.spawn(work.finish({row.offset: row.value for row in rows}))
        for work in self._workloads_of(KeyedProducer):
            written = [r.value for p, rows in logs.items() if p.topic == work.topic for r in rows]
            self.history.check_keys(written, work.next)
        checked = [(group, place) for group in self.groups for place in self.places]
        for place in ordered:
            groups = [ORDERLY] if place.topic == ORDERED else NARROWED_GROUPS
            checked += [(group, place) for group in groups]
        for group, place in checked:
            asked = self.history.asks_commit(group, place)
            found = await committed_offset(admin, group, place)
            self.history.found_commit(group, place, found, asked)
        for place in (*self.places, *copies, *ordered, *given):
            replicas = {node.host: local_batches(node, place) for node in self.world.brokers()}
            self.history.check_replicas(place, replicas)
        sizes = Counter({f"{p.topic}-{p.partition}": len(rows) for p, rows in logs.items()})
        self.world.note(f"records {dict(sizes)}")
        self.history.counts["records"] = sum(sizes.values())

    async def _agree(self, places: list[Place]) -> None:
        """Wait until no broker acts in an old leader epoch: a process that was stopped may report
        an old end.
        """
        for place in places:
            while True:
                tables = [node.broker.table for node in self.world.brokers() if node.broker]
                found = [t.partition(place.topic.encode(), place.partition) for t in tables]
                if len({each.leader_epoch for each in found if each is not None}) == 1:
                    break
                await asyncio.sleep(WATCH_S)

    async def _ordered_places(self, admin: Client) -> list[Place]:
        """The final partitions of the growing topic and the shrinking one, if they exist."""
        topics = {"expand": ORDERED, "contract": NARROWED}
        names = [name for kind, name in topics.items() if kind in self.kinds]
        for name in names:
            while not await admin.refresh(name):
                await admin.pause()
        places = [Place(*key) for key in sorted(admin.leaders) if key[0] in names]
        return [place for place in places if not self.history.is_gone(place)]
