"""More brokers use more cores for small requests: the total rate of small Produce and Fetch
requests, and the cost of one, with 1, 2, 4, ... brokers, up to one for each core; and the share of
the cores that the load generators use.

Each cluster runs alone on the machine. As a program, the module is one load generator: it waits for
a command, then does its task, given as JSON.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench import frames
from bench.brokers import KAFKA, KSTORE, exchange_once
from bench.compare.pair import MORE, Pair, compared
from bench.load import Load
from bench.measure import Figures, Settings, Side, cpu_seconds, progress, take_turns
from bench.report import Goal, Row
from kstore.cli.cluster.machine import usable_cores
from tests.conformance.broker_process import BrokerProcess
from tests.conformance.kafka_broker import SERVER_FLAGS
from tests.conformance.kafka_cluster import KafkaCluster
from tests.conformance.kafka_jars import KafkaUnavailableError, fetch_jars, java_program
from tests.conformance.kstore_cluster import KstoreCluster

__all__ = ["broker_counts", "rows"]

SAME = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "broker.rack": "bench",
}
CONNECTIONS = 32
"""For each load generator."""
PARTITIONS = 16
"""For each broker."""
DEPTHS = {1: "one in flight", 5: "5 in flight"}
TIMEOUT_S = 120.0
ROOT = Path(__file__).parents[2]
Cluster = KstoreCluster | KafkaCluster
_VALUES = random.Random(1)
PRODUCED_BATCH = frames.record_batch([_VALUES.randbytes(100)])
FETCHED_BATCH = frames.record_batch([_VALUES.randbytes(1024)])


class Api(NamedTuple):
    """A kind of request: its topic, and the limit of its CPU in ratio to Kafka's."""

    topic: str
    goal: float


APIS = {"Produce 100 B": Api("scale-produce", 1 / 3), "Fetch 1 KB": Api("scale-fetch", 1 / 4)}


def broker_counts(cores: int) -> list[int]:
    """1, 2, 4, ... and one broker for each core."""
    found = []
    count = 1
    while count < cores:
        found.append(count)
        count *= 2
    return [*found, cores]


def _leads(broker: int, brokers: int) -> list[int]:
    """The partitions that a broker leads (they are numbered from 1 on)."""
    return list(range(broker - 1, PARTITIONS * brokers, brokers))


def _check_produced(topic: str) -> Callable[[bytes], None]:
    def check(answer: bytes) -> None:
        if code := frames.produce_error(answer, topic):
            raise RuntimeError(f"Produce was answered with error {code}")

    return check


def _check_fetched(answer: bytes) -> None:
    # Another process created the batch, with another timestamp; the value is the same.
    if FETCHED_BATCH[-1000:] not in answer:
        raise RuntimeError("Fetch was not answered with the batch that was stored")


def _create(cluster: Cluster, size: int) -> None:
    """The topics, each partition on its broker. The fetched topic has 200 batches in each
    partition.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    where = [[partition % size + 1] for partition in range(PARTITIONS * size)]
    topics = [NewTopic(api.topic, len(where), replica_assignment=where) for api in APIS.values()]
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)
    fetched = APIS["Fetch 1 KB"].topic
    for number, broker in cluster.brokers.items():
        for api in APIS.values():
            _ends(broker, api.topic, _leads(number, size))
        for partition in _leads(number, size):
            request = frames.produce(fetched, partition, FETCHED_BATCH)
            address = (broker.host, broker.port)
            with Load(address, [request], _check_produced(fetched)) as load:
                load.run(TIMEOUT_S, at_most=200)


def _ends(broker: BrokerProcess, topic: str, partitions: Sequence[int]) -> int:
    """The sum of log end offsets, when all of them are known."""
    frame = frames.latest_offsets(topic, partitions)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = frames.latest_offsets_answer(exchange_once(broker, frame))  # type: ignore[arg-type]
        codes = {code for code, _ in found.values()} - {0}
        if not codes:
            return sum(offset for _, offset in found.values())
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} answers with errors {codes}")


class _Generator:
    """One process that loads one broker; it is warmed up when it is created."""

    def __init__(self, broker: BrokerProcess, task: Mapping[str, object]) -> None:
        requested = json.dumps({"host": broker.host, "port": broker.port, **task})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.compare.scale", requested],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def read(self) -> dict[str, Any]:
        """The next line of JSON that it prints. Raises RuntimeError with its error."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            output = self.process.stderr.read().strip().splitlines()[-1:]
            raise RuntimeError(f"a load generator failed: {''.join(output) or 'no output'}")
        found: dict[str, Any] = json.loads(line)
        return found

    def go(self) -> None:
        """Start it."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def __enter__(self) -> _Generator:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process as process:
            process.kill()


def _measure(
    cluster: Cluster, name: str, depth: int, cores: int, seconds: Mapping[str, float]
) -> Figures:
    """As many load generators as cores, distributed over the brokers."""
    size, api = len(cluster.brokers), APIS[name]
    numbers = [index % size + 1 for index in range(max(cores, size))]
    with ExitStack() as stack:
        generators = []
        for number in numbers:
            task = {"api": name, "partitions": _leads(number, size), "depth": depth, **seconds}
            made = _Generator(cluster.brokers[number], task)
            generators.append(stack.enter_context(made))
        for each in generators:
            each.read()  # warmed up
        pids = [broker.pid for broker in cluster.brokers.values()]
        stored = _stored(cluster, api.topic)
        before, begin = sum(map(cpu_seconds, pids)), time.monotonic()
        for each in generators:
            each.go()
        found = [each.read() for each in generators]
        used, elapsed = sum(map(cpu_seconds, pids)) - before, time.monotonic() - begin
        stored = _stored(cluster, api.topic) - stored
    answers = sum(each["answers"] for each in found)
    if name.startswith("Produce") and stored != answers:
        raise RuntimeError(f"{answers} answers, {stored} records by log end offsets")
    theirs = sum(each["cpu"] for each in found)
    return {
        "rate": sum(each["answers"] / each["seconds"] for each in found),
        "cost": used / answers * 1e6,
        "generator cost": theirs / answers * 1e6,
        "generator share": theirs / (theirs + used),
        "busy": (used + theirs) / (elapsed * cores),
    }


def _stored(cluster: Cluster, topic: str) -> int:
    size = len(cluster.brokers)
    return sum(_ends(b, topic, _leads(number, size)) for number, b in cluster.brokers.items())


def _makers(settings: Settings) -> dict[str, Callable[[Path, int], Cluster]]:
    made: dict[str, Callable[[Path, int], Cluster]] = {
        KSTORE: lambda folder, size: KstoreCluster(folder, size, overrides=SAME)
    }
    if not settings.alone:
        try:
            java_program()
            fetch_jars()
            made[KAFKA] = lambda folder, size: KafkaCluster(
                folder, size, overrides=SAME, jvm=SERVER_FLAGS
            )
        except KafkaUnavailableError as error:
            progress(f"no Kafka to compare with: {error}")
    return made


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Rate and CPU for each kind, depth and number of brokers; Kafka with one, and one for each
    core.
    """
    del pair
    cores = usable_cores()
    counts = broker_counts(cores)
    found: dict[tuple[str, int, int], dict[str, Side]] = {}
    for side, make in _makers(settings).items():
        for size in counts if side == KSTORE else sorted({1, cores}):
            folder = settings.scratch / f"scale-{side.split()[0]}-{size}"
            cluster = make(folder, size)
            try:
                cluster.start()
                _create(cluster, size)
                for name in APIS:
                    for depth in DEPTHS:
                        if settings.wants(name):
                            case = f"{side}, {size} brokers, {name}, {DEPTHS[depth]}"
                            done = _turns(cluster, case, name, depth, cores, settings, side)
                            found.setdefault((name, depth, size), {})[side] = done
            finally:
                cluster.stop()
    for (name, depth, size), sides in found.items():
        alone = found[name, depth, 1].get(KSTORE, Side())
        yield from _rows_of(name, depth, size, sides, alone, cores)


def _turns(
    cluster: Cluster,
    case: str,
    name: str,
    depth: int,
    cores: int,
    settings: Settings,
    side: str,
) -> Side:
    progress(f"  {case}")
    seconds = {
        "warm_seconds": settings.pick(4, 1) if side == KAFKA else 1,  # the JVM compiles at run time
        "seconds": settings.pick(5, 1),
    }
    work = {side: lambda: _measure(cluster, name, depth, cores, seconds)}
    return take_turns(case, work, settings.pick(3, 1))[side]


def _rows_of(
    name: str, depth: int, size: int, sides: Mapping[str, Side], alone: Side, cores: int
) -> Iterator[Row]:
    ours = sides.get(KSTORE, Side())
    case = f"{name}, {DEPTHS[depth]}, {size} broker{'s' * (size > 1)} on {cores} cores"
    rate, first = ours.median("rate"), alone.median("rate")
    times = f"{rate / first:.2f} times one broker's; " if rate and first and size > 1 else ""
    share, cost = ours.median("generator share"), ours.median("generator cost")
    busy = ours.median("busy")
    note = ""
    if share is not None and cost is not None and busy is not None:
        note = (
            f"{times}load generators: {cost:.3g} us/request, {share:.0%} of the CPU used; "
            f"{busy:.0%} of the cores were busy with both"
        )
    whole = {KSTORE: ours} | {side: found for side, found in sides.items() if side != KSTORE}
    yield compared("scale", case, whole, "rate", "requests/s in all", MORE, note)
    goal = Goal(APIS[name].goal, at_least=False)
    yield compared("scale", case, whole, "cost", "us CPU of all brokers/request", goal)


def _generate(
    host: str,
    port: int,
    api: str,
    partitions: Sequence[int],
    depth: int,
    warm_seconds: float,
    seconds: float,
) -> None:
    topic = APIS[api].topic
    spread = [partitions[i % len(partitions)] for i in range(CONNECTIONS)]
    if api.startswith("Produce"):
        check = _check_produced(topic)
        requests = [frames.produce(topic, partition, PRODUCED_BATCH) for partition in spread]
    else:
        check = _check_fetched
        requests = [
            frames.fetch(topic, partition, 100 + i, max_bytes=1024)
            for i, partition in enumerate(spread)
        ]
    with Load((host, port), requests, check, depth=depth) as load:
        load.run(warm_seconds)
        print(json.dumps({"ready": True}), flush=True)
        if not sys.stdin.readline():
            return  # the bench has ended
        begin = time.process_time()
        answers, elapsed = load.run(seconds)
        used = time.process_time() - begin
    print(json.dumps({"answers": answers, "seconds": elapsed, "cpu": used}), flush=True)


if __name__ == "__main__":
    _generate(**json.loads(sys.argv[1]))
