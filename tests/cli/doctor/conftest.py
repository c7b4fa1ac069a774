"""One sick cluster for all checks: three brokers, of which one is killed, and everything else that
can be wrong with topics, groups, transactions and ACLs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.cli.doctor.checks import CLUSTER_CHECKS, examine
from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.doctor.findings import Finding, Limits
from kstore.clients import AdminClient, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from kstore.clients.admin import Acl, AclOperation, AclPatternType, AclResourceType
from kstore.testing.brokers import Cluster
from tests.conformance.broker_process import free_ports
from tests.reference.transactional_producer import Producer as RawProducer

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.leader.rebalance.enable": False,
    "transaction.partition.verification.enable": False,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "log.message.timestamp.after.max.ms": 10**12,
}
IN_AN_EPOCH_MS = 40 * 3_600_000
WAIT_S = 60.0
Find = Callable[..., list[Finding]]


def findings(results: Iterable[tuple[str, Any]]) -> list[Finding]:
    """The checks' results; none of the checks failed."""
    found = [result for _, result in results if result is not None]
    assert all(isinstance(each, Finding) for each in found), found
    return found


class SickCluster:
    """The cluster, its clients, and a function that runs one check."""

    def __init__(self, cluster: Cluster, outside: str) -> None:
        self.cluster = cluster
        self.outside = outside
        """An address whose broker gives clients a name that leads nowhere."""
        self.alive = f"{cluster[1].address},{cluster[2].address}"

    def find(
        self, check: str, limits: Limits | None = None, servers: str | None = None
    ) -> list[Finding]:
        """The results of one check now."""
        servers = servers or self.alive
        with AdminClient(servers, default_api_timeout_ms=20_000) as admin:
            view = ClusterView(admin, servers.split(","))
            results = list(examine(CLUSTER_CHECKS, view, limits or Limits(), [check]))
        assert ("answer", None) in results
        return findings(row for row in results if row[0] == check)


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SickCluster]:
    cluster = Cluster(tmp_path_factory.mktemp("sick"), 3, SETTINGS)
    port = free_ports(2)
    inside, outside = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
    cluster[1].settings["listeners"] = f"PLAINTEXT://{inside},OUTSIDE://{outside}"
    cluster[1].settings["advertised.listeners"] = (
        f"PLAINTEXT://{inside},OUTSIDE://nowhere.invalid:{port + 1}"
    )
    cluster[2].settings["message.max.bytes"] = "2000000"
    with cluster:
        found = SickCluster(cluster, outside)
        with AdminClient(cluster.bootstrap_servers) as admin:
            make_topics(admin)
            with Producer(found.alive, transactional_id="stuck") as stuck:
                make_records(found, admin, stuck)
                cluster[3].kill()
                await_departure(admin)
                yield found


def make_topics(admin: AdminClient) -> None:
    """One of each kind of problem."""
    everywhere = [1, 2, 3]
    admin.create_topics([
        NewTopic("orders", replicas=dict.fromkeys(range(3), everywhere)),
        NewTopic("alone", replicas={0: [3]}),
        NewTopic("strict", replicas={0: [1, 3]}, configs={"min.insync.replicas": "2"}),
        NewTopic("never", replicas={0: [1, 2]}, configs={"min.insync.replicas": "3"}),
        NewTopic("small", replicas={0: [2, 1]}, configs={"retention.bytes": "1000"}),
        NewTopic("turned", replicas={0: [1, 2]}),
        NewTopic("t", replicas={0: [1, 2]}),
        NewTopic("future", replicas={0: [1, 2]}),
    ])  # fmt: skip
    admin.alter_partition_reassignments({TopicPartition("turned", 0): [2, 1]})
    admin.create_acls([
        Acl(
            AclResourceType.TOPIC, "orders-*", "User:alice", AclOperation.READ,
            pattern_type=AclPatternType.LITERAL,
        ),
        Acl(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ),
    ])  # fmt: skip


def make_records(found: SickCluster, admin: AdminClient, stuck: Producer) -> None:
    """Records, groups that do not read them, and transactions that never end."""
    ahead = round(time.time() * 1000) + IN_AN_EPOCH_MS
    with Producer(found.alive) as producer:
        for number in range(60):
            producer.send("orders", b"v", partition=number % 3)
        producer.send("future", b"v", timestamp=ahead)
        producer.flush()
    admin.alter_group_offsets("slow", {TopicPartition("orders", 0): OffsetAndMetadata(5)})
    admin.alter_group_offsets("late", {TopicPartition("orders", 1): OffsetAndMetadata(3)})
    admin.delete_records({TopicPartition("orders", 1): 10})
    stuck.init_transactions()
    stuck.begin_transaction()
    stuck.send("orders", b"open", partition=2).result()
    leader = admin.describe_topics(["t"])[0].partitions[0].leader
    host, _, port = found.cluster[leader].address.rpartition(":")
    raw = RawProducer(SimpleNamespace(host=host, port=int(port)))
    raw.id, raw.epoch = 4_000_000, 0  # no coordinator has assigned it
    assert raw.write(b"hangs", version=11) == [0]


def await_departure(admin: AdminClient) -> None:
    """Wait until the cluster knows that broker 3 has ended, and the replicas of turned:0 are in
    order.
    """
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        rows = {
            (topic.name, row.partition): row
            for topic in admin.describe_topics()
            for row in topic.partitions
        }
        orders = [rows["orders", n] for n in range(3)]
        if (
            {broker.node_id for broker in admin.describe_cluster().brokers} == {1, 2}
            and all(set(row.isr) == {1, 2} and row.leader in {1, 2} for row in orders)
            and rows["strict", 0].isr == (1,)
            and rows["turned", 0].replicas == (2, 1)
        ):
            return
        time.sleep(0.05)
    pytest.fail(f"broker 3 is still there: {rows}")
