"""Three brokers compared with three of Kafka 4.3.1: start, memory, replicated throughput and its
CPU, the latency of one replicated request, and failover after kill -9 of a leader. Each side runs
alone on the machine, because six brokers are too many for few cores. Bare nodes (bare_nodes.py)
take turns with kstore's: they show what the same bytes cost the kernel on this machine at this
time.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import frames
from bench.brokers import KAFKA, KSTORE
from bench.compare import perf_tools
from bench.compare.cluster.bare_nodes import BareNodes
from bench.compare.pair import LESS, MORE, Pair, compared
from bench.measure import (
    Figures,
    Settings,
    Side,
    cpu_seconds,
    memory_mb,
    percentile,
    progress,
    system_seconds,
    take_turns,
    touch_memory,
)
from bench.report import Goal, Row
from tests.conformance.kafka_broker import SERVER_FLAGS
from tests.conformance.kafka_cluster import KafkaCluster
from tests.conformance.kafka_jars import KafkaUnavailableError, fetch_jars, java_program
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.wire import exchange

__all__ = ["Cluster", "cluster_makers", "rows"]

SIZE = 3
SAME = {
    "log.segment.bytes": str(1 << 30),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}
RECORD_BYTES = 1000
PARTITIONS = 3
FAILOVER_S = 60.0
NONE = 0
BARE = "bare nodes"
PRODUCER = "Java producer, 1 KB, 3 replicas, acks=all"
Cluster = KstoreCluster | KafkaCluster
Make = Callable[[Path], Cluster]


def cluster_makers(settings: Settings, overrides: Mapping[str, str]) -> dict[str, Make]:
    """By the side's name: a function that creates its cluster with these settings in a folder."""
    makers: dict[str, Make] = {
        # Like a user's Python, the first start writes byte code for the next ones.
        KSTORE: lambda folder: KstoreCluster(
            folder, SIZE, overrides=overrides, environment={"PYTHONDONTWRITEBYTECODE": ""}
        )
    }
    if not settings.alone:
        try:
            java_program()
            fetch_jars()
            makers[KAFKA] = lambda folder: KafkaCluster(
                folder, SIZE, overrides=overrides, jvm=SERVER_FLAGS
            )
        except KafkaUnavailableError as error:
            progress(f"no Kafka to compare with: {error}")
    return makers


def _admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _start(cluster: Cluster) -> Figures:
    """Seconds from the first exec until every broker knows all others, and their memory."""
    begin = time.monotonic()
    cluster.start()
    for broker in cluster.brokers.values():
        admin = _admin(broker.bootstrap)
        while len(admin.list_topics(timeout=30).brokers) < SIZE:
            time.sleep(0.005)
    seconds = time.monotonic() - begin
    time.sleep(1)
    used = sum(memory_mb(broker.pid)["Pss"] for broker in cluster.brokers.values())
    return {"seconds": seconds, "MB": used}


def _create_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewTopic

    admin = _admin(cluster.bootstrap)
    admin.create_topics([NewTopic(topic, partitions, SIZE)])[topic].result(60)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=30).topics[topic]
        replicated = [len(p.isrs) == SIZE for p in found.partitions.values()]
        if found.error is None and len(replicated) == partitions and all(replicated):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{topic} has not all its replicas in sync within a minute")


def _leader(cluster: Cluster, topic: str) -> int:
    found = _admin(cluster.bootstrap).list_topics(topic, timeout=30).topics[topic]
    leader: int = found.partitions[0].leader
    return leader


def _stored(cluster: Cluster, topic: str, partitions: int) -> int:
    """The sum of log end offsets."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "b", "log_level": 0})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60)[1]
            for p in range(partitions)
        ]
    finally:
        consumer.close()
    return sum(ends)


def _load(served: perf_tools.Served, pids: list[int], topic: str, records: int) -> Figures:
    """Java's producer with acks=all: its rate, and the CPU of these processes."""
    before = sum(map(cpu_seconds, pids)), sum(map(system_seconds, pids))
    found = perf_tools.produce(served, topic, records, RECORD_BYTES, {"acks": "all"})
    used = sum(map(cpu_seconds, pids)) - before[0]
    system = sum(map(system_seconds, pids)) - before[1]
    size_gb = records * RECORD_BYTES / 1e9
    return {"MB/s": found["MB/s"], "CPU-s/GB": used / size_gb, "system-s/GB": system / size_gb}


def _throughput(cluster: Cluster, topic: str, records: int) -> Figures:
    """Java's producer with acks=all; each record is on three brokers."""
    _create_topic(cluster, topic, PARTITIONS)
    touch_memory(2 * SIZE * records * RECORD_BYTES, cluster.folder)
    running = [broker.pid for i, broker in cluster.brokers.items() if cluster.runs(i)]
    found = _load(cluster, running, topic, records)
    stored = _stored(cluster, topic, PARTITIONS)
    if stored != records:
        raise RuntimeError(f"{stored} of {records} records were stored, by log end offsets")
    return found


def _bare_throughput(folder: Path, records: int) -> Figures:
    """The same by nodes that only receive, write, send on and acknowledge."""
    with BareNodes(folder) as nodes:
        _load(nodes, nodes.pids, "warm", records // 5)
        touch_memory(2 * SIZE * records * RECORD_BYTES, folder)
        return _load(nodes, nodes.pids, "load", records)


def _produce(connection: socket.socket, topic: str, batch: bytes) -> int:
    return frames.produce_error(exchange(connection, frames.produce(topic, 0, batch)), topic)


def _connect(cluster: Cluster, node_id: int) -> socket.socket:
    broker = cluster.brokers[node_id]
    connection = socket.create_connection((broker.host, broker.port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _latency(cluster: Cluster, topic: str, requests: int) -> Figures:
    """One request at a time, acks=all, a record of 100 B."""
    _create_topic(cluster, topic, 1)
    batch = frames.record_batch([bytes(range(100))])
    taken = []
    with _connect(cluster, _leader(cluster, topic)) as connection:
        for number in range(requests + requests // 4):
            begin = time.perf_counter()
            if code := _produce(connection, topic, batch):
                raise RuntimeError(f"Produce was answered with error {code}")
            if number >= requests // 4:
                taken.append(time.perf_counter() - begin)
    return {"p50": percentile(taken, 0.5) * 1e3, "p99": percentile(taken, 0.99) * 1e3}


def _failover(cluster: Cluster, topic: str) -> Figures:
    """Seconds from kill -9 of the leader until another leader acknowledges a write with acks=all.
    Nothing that was acknowledged before may be missing.
    """
    _create_topic(cluster, topic, 1)
    leader = _leader(cluster, topic)
    batch = frames.record_batch([bytes(range(100))])
    acknowledged = 0
    with _connect(cluster, leader) as connection:
        for _ in range(500):
            acknowledged += _produce(connection, topic, batch) == NONE
    others = {i: _connect(cluster, i) for i in cluster.brokers if i != leader}
    # Only the signal: the time starts with it, not with the end of the process.
    begin = time.monotonic()
    os.kill(cluster.brokers[leader].pid, 9)
    try:
        for node_id in itertools.cycle(others):
            if _produce(others[node_id], topic, batch) == NONE:
                break
            if time.monotonic() - begin > FAILOVER_S:
                raise TimeoutError(f"no write was acknowledged within {FAILOVER_S:g} s")
            time.sleep(0.002)
        seconds = time.monotonic() - begin
    finally:
        for connection in others.values():
            connection.close()
        cluster.kill(leader)
    stored = _stored(cluster, topic, 1)
    if stored < acknowledged + 1:
        raise RuntimeError(f"{acknowledged + 1} records were acknowledged, {stored} are there")
    cluster.start(leader)
    return {"seconds": seconds}


def _load_with_failover(cluster: Cluster, topic: str, records: int) -> Figures:
    """Java's producer as above. The leader of a partition is killed after two seconds."""
    _create_topic(cluster, topic, PARTITIONS)
    leader = _leader(cluster, topic)
    timer = threading.Timer(2.0, cluster.kill, [leader])
    timer.start()
    try:
        found = perf_tools.produce(cluster, topic, records, RECORD_BYTES, {"acks": "all"})
    finally:
        timer.join()
    stored = _stored(cluster, topic, PARTITIONS)
    if stored != records:
        raise RuntimeError(f"{stored} of {records} records were stored, by log end offsets")
    cluster.start(leader)
    return {"MB/s": found["MB/s"]}


class _Run:
    """All cases on one side's cluster, one after the other, each as often as requested."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._numbers = itertools.count()
        self.sides: dict[str, dict[str, Side]] = {}

    def _case(
        self,
        side: str,
        case: str,
        work: Callable[[str], Figures],
        rounds: int,
        beside: Mapping[str, Callable[[], Figures]] | None = None,
    ) -> None:
        """`beside`: the peer that takes turns."""
        if not self._settings.wants(case):
            return
        progress(f"  {side}: {case}")
        topics = (f"bench-{next(self._numbers)}" for _ in itertools.count())
        turns = {side: lambda: work(next(topics)), **(beside or {})}
        self.sides.setdefault(case, {}).update(take_turns(f"cluster, {case}", turns, rounds))

    def side(self, name: str, make: Make) -> None:
        """All cases on one side."""
        pick = self._settings.pick
        folder = self._settings.scratch / f"cluster-{name.split()[0]}"
        warm = make(folder / "warm")
        try:
            _start(warm)  # byte code and page cache, also of Kafka's jars
        finally:
            warm.stop()
        cluster = make(folder / "cluster")
        records = pick(300_000, 60_000)
        try:
            self._case(name, "start", lambda _: _start(cluster), 1)
            if not any(map(cluster.runs, cluster.brokers)):
                cluster.start()
            _throughput(cluster, f"warm-{name.split()[0]}", pick(200_000, 20_000))
            bare = {BARE: lambda: _bare_throughput(folder / "bare", records)}
            self._case(
                name,
                PRODUCER,
                lambda topic: _throughput(cluster, topic, records),
                pick(3, 1),
                bare if name == KSTORE else None,
            )
            self._case(
                name,
                "one request of 100 B at a time, 3 replicas, acks=all",
                lambda topic: _latency(cluster, topic, pick(5000, 1000)),
                pick(3, 1),
            )
            self._case(
                name, "kill -9 of a leader", lambda topic: _failover(cluster, topic), pick(3, 1)
            )
            self._case(
                name,
                "Java producer, 1 KB, its leader killed",
                lambda topic: _load_with_failover(cluster, topic, 2 * records),
                1,
            )
        finally:
            cluster.stop()


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Start, memory, throughput with its CPU, latency, failover, and throughput during failover."""
    del pair
    run = _Run(settings)
    for name, make in cluster_makers(settings, SAME).items():
        run.side(name, make)
    second = Goal(1.0, at_least=False, of="value")
    half = Goal(0.5, at_least=False)
    shown: dict[str, tuple[tuple[str, str, Goal], ...]] = {
        "start": (
            ("seconds", "s until all know all", second),
            ("MB", "MB together (PSS)", Goal(200, at_least=False, of="value")),
        ),
        PRODUCER: (
            ("MB/s", "MB/s", Goal(4.0)),
            ("CPU-s/GB", "CPU-s/GB of all brokers", Goal(0.25, at_least=False)),
            ("system-s/GB", "of these in system calls", LESS),
        ),
        "one request of 100 B at a time, 3 replicas, acks=all": (
            ("p50", "ms p50", half),
            ("p99", "ms p99", LESS),
        ),
        "kill -9 of a leader": (
            ("seconds", "s to the next ack", Goal(0.5, at_least=False, of="value")),
        ),
        "Java producer, 1 KB, its leader killed": (("MB/s", "MB/s", MORE),),
    }
    for case, figures in shown.items():
        for figure, unit, goal in figures:
            if case in run.sides:
                sides = run.sides[case]
                bare = sides.get(BARE, Side()).median(figure)
                note = "" if bare is None else f"three {BARE}: {bare:.3g}"
                yield compared("cluster", case, sides, figure, unit, goal, note)
