"""Eligible leader replicas (KIP-966) on real brokers that are stopped and killed.
DescribeTopicPartitions shows after each step what it shows in Kafka 4.3.1 with the same brokers
(topics on brokers 2 to 4, broker 1 is the controller, min.insync.replicas=2).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.clients.admin import FeatureUpdate
from kstore.errors import KafkaError, NotEnoughReplicasError, RequestTimedOutError
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.conformance.kafka_broker import run_tool
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.zookeeper_server import ZooKeeperEnsemble

pytestmark = pytest.mark.slow
REPLICAS = {"three": [2, 3, 4], "two": [2, 3], "one": [2]}
SETTINGS = {"min.insync.replicas": "2", "auto.leader.rebalance.enable": "false"}
FEATURE = "eligible.leader.replicas.version"


class Row(NamedTuple):
    """A partition's leader, the ISR, and who else is eligible or led last."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last: tuple[int, ...] = ()


class Brokers:
    """A cluster, and what it says of its topics."""

    def __init__(self, cluster: KstoreCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap})

    def rows(self) -> dict[str, Row]:
        found = {}
        for topic in self.admin.describe_topics(list(REPLICAS)):
            [part] = topic.partitions
            assert part.elr is not None
            assert part.last_known_elr is not None
            isr = tuple(sorted(part.isr))
            found[topic.name] = Row(part.leader, isr, part.elr, part.last_known_elr)
        return found

    def expect(self, **wanted: Row) -> None:
        found: dict[str, Row] = {}

        def is_so() -> bool:
            found.update(self.rows())
            return {name: found[name] for name in wanted} == wanted

        try:
            until(is_so, f"{wanted}", timeout_s=20)
        except AssertionError:
            raise AssertionError(f"wanted {wanted}, found {found}") from None


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with KstoreCluster(tmp_path, 4, overrides=SETTINGS) as cluster:
        yield from started(cluster)


def started(cluster: KstoreCluster) -> Iterator[Brokers]:
    cluster.start(1)
    cluster.start(2, 3, 4)
    made = Brokers(cluster)
    with made.admin:
        made.admin.create_topics(
            [NewTopic(name, replicas={0: ids}) for name, ids in REPLICAS.items()]
        )
        made.expect(three=Row(2, (2, 3, 4)), two=Row(2, (2, 3)), one=Row(2, (2,)))
        yield made


def test_killed_brokers_are_eligible_until_they_come_back(brokers: Brokers) -> None:
    cluster = brokers.cluster
    cluster.kill(4)
    brokers.expect(three=Row(2, (2, 3)))
    cluster.kill(3)
    brokers.expect(three=Row(2, (2,), elr=(3,)), two=Row(2, (2,), elr=(3,)))
    cluster.start(3)
    brokers.expect(three=Row(2, (2, 3)), two=Row(2, (2, 3)))
    cluster.kill(3)
    brokers.expect(three=Row(2, (2,), elr=(3,)))
    cluster.kill(2)
    leaderless = Row(-1, (), elr=(2, 3), last=(2,))
    brokers.expect(three=leaderless, two=leaderless, one=Row(-1, (), elr=(2,), last=(2,)))
    cluster.start(4)  # it left the ISR while records could be committed without it
    brokers.expect(three=leaderless)
    cluster.start(3)  # from an unclean shutdown
    brokers.expect(three=Row(-1, (), elr=(2,), last=(2,)), two=Row(-1, (), elr=(2,), last=(2,)))
    cluster.start(2)  # no replica is eligible any more, and it led last
    brokers.expect(three=Row(2, (2, 3, 4)), two=Row(2, (2, 3)), one=Row(2, (2,)))


def test_brokers_that_were_stopped_cleanly_lead_with_all_records(brokers: Brokers) -> None:
    cluster = brokers.cluster
    servers = {"bootstrap.servers": cluster.brokers[1].bootstrap}
    with Producer({**servers, "acks": "all"}) as producer:
        for number in range(100):
            producer.send("three", b"%d" % number, partition=0)
    cluster.stop(4)
    brokers.expect(three=Row(2, (2, 3)))
    cluster.stop(3)
    brokers.expect(three=Row(2, (2,), elr=(3,)))
    cluster.kill(2)
    brokers.expect(three=Row(-1, (), elr=(2, 3), last=(2,)))
    cluster.start(4)
    brokers.expect(three=Row(-1, (), elr=(2, 3), last=(2,)))
    cluster.start(3)
    brokers.expect(three=Row(3, (3, 4)), two=Row(3, (3,), elr=(2,)))
    with Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("three", 0)])
        found: list[bytes] = []
        while len(found) < 100:
            found += [record.value or b"" for record in consumer.poll(5.0)]
        assert found == [b"%d" % number for number in range(100)]
    cluster.start(2)
    brokers.expect(three=Row(3, (2, 3, 4)), two=Row(3, (2, 3)))


def test_what_is_written_below_min_isr_is_not_seen(brokers: Brokers) -> None:
    cluster = brokers.cluster
    cluster.kill(4)
    brokers.expect(three=Row(2, (2, 3)))  # of two that leave at once, both would be eligible
    cluster.kill(3)
    brokers.expect(three=Row(2, (2,), elr=(3,)))
    servers = {"bootstrap.servers": cluster.brokers[1].bootstrap, "delivery.timeout.ms": 2000}
    servers |= {"request.timeout.ms": 1000, "enable.idempotence": False}
    for acks in ("1", "0"):
        with Producer({**servers, "acks": acks}) as producer:
            producer.send("three", b"x", partition=0).result()
    producer = Producer({**servers, "acks": "all"})
    with pytest.raises((NotEnoughReplicasError, RequestTimedOutError)):
        producer.send("three", b"x", partition=0).result()
    with pytest.raises(KafkaError):
        producer.close()
    place = TopicPartition("three", 0)
    assert brokers.admin.list_offsets({place: "latest"})[place].offset == 0
    cluster.start(3)
    brokers.expect(three=Row(2, (2, 3)))
    until(
        lambda: brokers.admin.list_offsets({place: "latest"})[place].offset == 2,
        "the records are committed with enough in sync",
    )


def test_unclean_elections_settings_and_the_feature(brokers: Brokers) -> None:
    cluster, admin = brokers.cluster, brokers.admin
    cluster.stop(4)
    cluster.stop(3)
    brokers.expect(three=Row(2, (2,), elr=(3,)), two=Row(2, (2,), elr=(3,)))
    admin.alter_configs("three", {"min.insync.replicas": "1"})
    brokers.expect(three=Row(2, (2,)), two=Row(2, (2,), elr=(3,)))
    admin.alter_configs("three", {"min.insync.replicas": None})
    cluster.start(3)
    brokers.expect(three=Row(2, (2, 3)), two=Row(2, (2, 3)))
    cluster.stop(3)
    cluster.stop(2)
    brokers.expect(three=Row(-1, (), elr=(2, 3), last=(2,)))
    cluster.start(4)
    admin.elect_leaders([TopicPartition("three", 0)], election="unclean")
    brokers.expect(three=Row(4, (4,)), two=Row(-1, (), elr=(2, 3), last=(2,)))
    cluster.start(2)
    cluster.start(3)
    brokers.expect(three=Row(4, (2, 3, 4)), two=Row(2, (2, 3)))
    admin.update_features({FEATURE: FeatureUpdate(0, "safe-downgrade")})
    assert FEATURE not in admin.describe_features().finalized
    cluster.kill(3)
    brokers.expect(two=Row(2, (2,)))
    cluster.kill(2)
    brokers.expect(two=Row(-1, (2,)))
    admin.update_features({FEATURE: 1})
    brokers.expect(two=Row(-1, (), elr=(2,), last=(2,)))
    cluster.start(2)
    brokers.expect(two=Row(2, (2,)))


@pytest.mark.java
@pytest.mark.thorough
@pytest.mark.usefixtures("zookeeper_jars")
def test_on_zookeeper_it_is_the_same(tmp_path: Path) -> None:
    settings = SETTINGS | {"zookeeper.session.timeout.ms": "6000"}
    with (
        ZooKeeperEnsemble(tmp_path / "zookeeper") as ensemble,
        KstoreCluster(
            tmp_path, 4, overrides=settings, zookeeper=f"{ensemble.connect}/k"
        ) as cluster,
    ):
        for each in started(cluster):
            test_killed_brokers_are_eligible_until_they_come_back(each)


@pytest.mark.java
def test_kafka_topics_shows_who_is_eligible(brokers: Brokers) -> None:
    brokers.cluster.kill(4)
    brokers.expect(three=Row(2, (2, 3)))  # of two that leave at once, both would be eligible
    brokers.cluster.kill(3)
    brokers.expect(three=Row(2, (2,), elr=(3,)))
    server = brokers.cluster.brokers[1].bootstrap
    described = ["--bootstrap-server", server, "--describe", "--topic", "three"]

    def shown() -> str:
        # Any broker answers it; the exit code says that a killed one does not.
        return run_tool("kafka-topics", described, check=False).stdout

    def wait_for(*wanted: str) -> None:
        until(
            lambda: (told := shown()) and all(part in told for part in wanted),
            f"kafka-topics shows {wanted}",
        )

    wait_for("Leader: 2", "Isr: 2\tElr: 3\tLastKnownElr: \n")
    brokers.cluster.kill(2)
    brokers.expect(three=Row(-1, (), elr=(2, 3), last=(2,)))
    wait_for("Leader: none", "Isr: \tElr: 2,3\tLastKnownElr: 2\n")
