"""Three real brokers, unmodified clients, and kill -9 of coordinators: committed offsets survive,
and transactions find the new coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.coordinators.partitions import partition_of
from kstore.errors import ErrorCode
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.logs.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest
from kstore.protocol.transactions.transactions import EndTxnRequest
from tests.beside.librdkafka import commits, consumer_of, read_all
from tests.beside.waiting import answer_of, until
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.probes.peer import Peer

pytestmark = pytest.mark.slow
COORDINATOR_PARTITIONS = 3
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SETTINGS = {
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}
QUICK = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KstoreCluster]:
    """Brokers 1 to 3. The coordinators' topics get three replicas by default."""
    with KstoreCluster(tmp_path, overrides=SETTINGS) as made:
        yield made


def consumer(cluster: KstoreCluster, group: str) -> Consumer:
    return consumer_of(cluster.bootstrap, group, QUICK)


def coordinator(cluster: KstoreCluster, topic: str, name: str) -> int:
    return cluster.wait_for_leader(topic, partition_of(name, COORDINATOR_PARTITIONS))


def test_internal_topics_have_a_replica_on_every_broker(cluster: KstoreCluster) -> None:
    cluster.create_topic("t", 1)
    group = consumer(cluster, "first")
    group.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    group.close()
    replicas = {frozenset(row.replicas) for row in cluster.topic(GROUPS).partitions}
    assert replicas == {frozenset({1, 2, 3})}
    leaders = {row.leader for row in cluster.topic(GROUPS).partitions}
    assert len(leaders) > 1, "the groups' work is shared"


def test_committed_offsets_outlive_their_coordinator(cluster: KstoreCluster) -> None:
    cluster.create_topic("offsets", 1)
    group = consumer(cluster, "offsets")
    place = TopicPartition("offsets", 0)

    number = 0

    def again() -> bool:
        return commits(group, [TopicPartition("offsets", 0, number)])

    def is_stored() -> bool:
        try:
            (found,) = group.committed([place], 10)
        except KafkaException:
            return False
        return bool(found.offset == number)

    until(again, "the first commit")
    for _ in range(2):
        victim = coordinator(cluster, GROUPS, "offsets")
        for _ in range(20):
            number += 1
            until(again, "a commit")
        cluster.kill(victim)
        until(is_stored, "the last offset committed is told")
        assert coordinator(cluster, GROUPS, "offsets") != victim
        until(again, "a commit at the new coordinator")
        cluster.start(victim)
        for index in range(COORDINATOR_PARTITIONS):
            cluster.wait_for_isr(GROUPS, {1, 2, 3}, index)
    group.close()


def test_writing_adds_the_partition_at_a_coordinator_elsewhere(cluster: KstoreCluster) -> None:
    """KIP-890, transaction.version 2: a producer names its transaction only when it writes;
    requests after the first one wait with it.
    """
    peers = {
        node: Peer(f"broker {node}", broker.host, broker.port)
        for node, broker in cluster.brokers.items()
    }
    found: Any = None

    def init() -> bool:
        nonlocal found
        peers[1].ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 6)
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        asked = peers[coordinator(cluster, TRANSACTIONS, "tx")].ask(request, 5)
        found = asked
        return bool(asked.error_code == 0)

    until(init, "a producer id")
    serving = coordinator(cluster, TRANSACTIONS, "tx")
    elsewhere = next(node for node in peers if node != serving)
    cluster.create_topic("data", replicas={0: [elsewhere, serving]})
    leader = peers[elsewhere]

    def produce_request(epoch: int, sequence: int) -> ProduceRequest:
        batch = build_batch(
            [(b"k", f"{epoch}-{sequence}".encode())],
            timestamp=1_700_000_000_000,
            producer_id=found.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        row = PartitionProduceData(index=0, records=batch)
        topics = [TopicProduceData(name="data", partition_data=[row])]
        return ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=9_000, topic_data=topics)

    for epoch, committed in enumerate((True, False, True)):
        requests = [produce_request(epoch, sequence) for sequence in range(3)]
        for request in requests:
            leader.send(request, 12)
        answers: list[Any] = [leader.receive(request, 12) for request in requests]
        rows = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [row.error_code for row in rows] == [0, 0, 0]
        end = EndTxnRequest(
            transactional_id="tx",
            producer_id=found.producer_id,
            producer_epoch=epoch,
            committed=committed,
        )
        ended: Any = peers[serving].ask(end, 5)
        assert (ended.error_code, ended.producer_epoch) == (0, epoch + 1)
    late: Any = leader.ask(produce_request(1, 3), 12)
    refused = late.responses[0].partition_responses[0].error_code
    assert refused == ErrorCode.INVALID_PRODUCER_EPOCH
    for peer in peers.values():
        peer.reset()
    wanted = [f"{epoch}-{sequence}" for epoch in (0, 2) for sequence in range(3)]
    assert read(cluster, "data", len(wanted)) == wanted


def read(cluster: KstoreCluster, topic: str, count: int) -> list[str]:
    """The committed records, at least this number."""
    found = answer_of(lambda: read_all(cluster.bootstrap, topic), lambda rows: len(rows) >= count)
    return [each.value().decode() for each in found]
