"""kill -9 of a partition's leader, twenty times, as clients see it: how long the producers of
librdkafka, Java and kstore get no acknowledgement, with the LMDB store and with a real ZooKeeper,
if the leader is also the controller and if it is not. Kafka has no column: its brokers wait for the
end of a session (9 s), which `cluster` shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.compare.failover.clients import (
    BROKERS,
    OTHERS,
    TOPIC,
    Client,
    Make,
    usable_clients,
)
from bench.compare.pair import Pair
from bench.measure import Settings, percentile, progress
from bench.report import Goal, Row
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.conformance.kafka_jars import KafkaUnavailableError
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.zookeeper_server import ZooKeeperServer, zookeeper_classpath

__all__ = ["rows"]

GROUP = "failover"
KNOWN_LATE_S = 5.0
"""The bench waits no longer for a client that has had no acknowledgement for this time."""
CALM_S = 0.5
"""How long everything must be well before the next kill."""
GOAL_S = 0.3
SAME = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}


def _silence_s(client: Client, killed_at: float) -> float:
    """The longest time without an acknowledgement since the kill. If none has arrived: the time
    until now.
    """
    after = [at for at in list(client.acks) if at > killed_at]
    if not after:
        return time.monotonic() - killed_at
    return max(late - early for early, late in zip([killed_at, *after], after, strict=False))


def _lead(cluster: KstoreCluster, leader: int) -> None:
    """Make a broker lead the partition, and each of the others one other partition."""
    others = [each for each in cluster.brokers if each != leader]
    place = TopicPartition(TOPIC, 0)
    with cluster.admin() as admin:
        admin.alter_partition_reassignments({place: [leader, *others]})
        until(lambda: not admin.list_partition_reassignments([place]), "the order is changed")
        admin.elect_leaders()
    until(lambda: cluster.leader(TOPIC) == leader, f"broker {leader} leads")


def _kills(
    cluster: KstoreCluster, kinds: Mapping[str, Make], count: int, *, controller: bool
) -> dict[str, list[float]]:
    """Each client's longest time without an acknowledgement, for each kill."""
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(count):
        until(lambda: cluster.all_in_sync(TOPIC, 1), "all replicas are in sync")
        first = cluster.wait_for_controller()
        victim = first if controller else [i for i in cluster.brokers if i != first][number % 2]
        _lead(cluster, victim)
        with ExitStack() as stack:
            running = {name: make(cluster.bootstrap) for name, make in kinds.items()}
            for client in running.values():
                stack.callback(client.close)
            killed_at = _kill(cluster, victim, list(running.values()))
            for name, client in running.items():
                found[name].append(_silence_s(client, killed_at))
        progress(f"    {number}: " + ", ".join(f"{n} {found[n][-1] * 1e3:.0f}" for n in found))
        cluster.start(victim)
    return found


def _kill(cluster: KstoreCluster, victim: int, running: list[Client]) -> float:
    """Kill a broker while all clients send, and wait until they send again. Returns the time of the
    kill.
    """
    until(lambda: all(len(client.acks) > 20 for client in running), "all clients send")
    time.sleep(CALM_S)
    killed_at = time.monotonic()
    cluster.kill(victim)
    end = killed_at + KNOWN_LATE_S
    while time.monotonic() < end:
        time.sleep(0.05)
        later = [sum(at > killed_at + 0.05 for at in client.acks[-50:]) for client in running]
        if min(later) > 20:
            break
    return killed_at


@contextmanager
def _cluster(folder: Path, store: str) -> Iterator[KstoreCluster]:
    with ExitStack() as stack:
        connect = None
        if store == "ZooKeeper":
            server = stack.enter_context(ZooKeeperServer(folder / "zookeeper"))
            connect = f"{server.bootstrap}/bench"
        cluster = KstoreCluster(folder / "kstore", BROKERS, overrides=SAME, zookeeper=connect)
        yield stack.enter_context(cluster)


def _stores() -> list[str]:
    try:
        zookeeper_classpath()
    except KafkaUnavailableError as error:
        progress(f"no ZooKeeper: {error}")
        return ["LMDB"]
    return ["LMDB", "ZooKeeper"]


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """For each store, victim and client: the longest and the median time of all kills."""
    del pair
    count = settings.pick(20, 3)
    kinds, missing = usable_clients()
    if missing:
        progress(f"no Java: {missing}")
    for store in _stores():
        for controller in (False, True):
            victim = "leader and controller" if controller else "leader"
            if not settings.wants(f"{store}, {victim}"):
                continue
            progress(f"  {store}: kill -9 of the {victim}, {count} times")
            folder = settings.scratch / f"failover-{store}-{controller}"
            with _cluster(folder, store) as cluster:
                cluster.create_topic(TOPIC)
                led = {node_id - 1: [node_id, node_id % BROKERS + 1] for node_id in cluster.brokers}
                cluster.create_topic(OTHERS, replicas=led)
                found = _kills(cluster, kinds, count, controller=controller)
            for name, silences in found.items():
                yield Row(
                    GROUP,
                    f"{name}, {store}, {victim}",
                    max(silences),
                    "s without an ack, the longest",
                    goal=Goal(GOAL_S, at_least=False, of="value"),
                    note=f"p50 {percentile(silences, 0.5):.3f} s of {count}",
                    spread=(min(silences), max(silences)),
                )
