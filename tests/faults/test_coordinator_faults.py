"""Three real brokers, an unmodified client, and kill -9 of a transaction's coordinator between the
decision and its end.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as KafkaProducer

from kstore.broker.runtime.coordinators.partitions import partition_of
from kstore.broker.runtime.transactions.admission import TIMEOUT_S
from kstore.protocol.transactions.admin import DescribeTransactionsRequest
from tests.beside.librdkafka import read_all
from tests.beside.waiting import until
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.probes.peer import Peer
from tests.faults.histories import all_records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COORDINATOR_PARTITIONS = 3
TRANSACTIONS = "__transaction_state"
SETTINGS = {
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "2000",
}
NAME = "copier"
BROKERS = {1, 2, 3}
LARGE = 400_000
"""More than is read at once: the batches behind the first stay unread while that one waits."""


def coordinator(cluster: KstoreCluster, *, not_: int = -1) -> int:
    index = partition_of(NAME, COORDINATOR_PARTITIONS)
    return cluster.wait_for_leader(TRANSACTIONS, index, not_=not_)


def test_a_transaction_that_was_decided_on_is_completed_by_the_next_coordinator(
    cluster: KstoreCluster,
) -> None:
    """A stopped broker leads one of its partitions, so the transaction stays decided but
    unfinished; then its coordinator is killed.
    """
    producer = KafkaProducer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": NAME, "linger.ms": 0}
    )
    producer.init_transactions(60)
    first = coordinator(cluster)
    # Not the controller: it must remove the stopped broker from the ISR.
    still = min(BROKERS - {first, cluster.wait_for_controller()})
    (other,) = BROKERS - {first, still}
    cluster.create_topic("data", replicas={0: [still, other], 1: [other, still]})
    producer.begin_transaction()
    for number in range(10):
        producer.produce("data", str(number), partition=number % 2)
    assert producer.flush(60) == 0
    cluster.pause(still)
    committing = threading.Thread(target=lambda: producer.commit_transaction(120), daemon=True)
    committing.start()
    # The marker here shows that the decision is safe; that over there is missing.
    servers = cluster.brokers[other].bootstrap
    until(lambda: len(read_all(servers, "data", [1])) == 5, "the other half is there", pause_s=0.1)
    assert state_at(cluster, first) == "PrepareCommit"
    cluster.kill(first)
    second = coordinator(cluster, not_=first)
    until(lambda: state_at(cluster, second) == "PrepareCommit", "the next one goes on with it")
    cluster.resume(still)
    until(lambda: state_at(cluster, second) == "CompleteCommit", "it is completed")
    committing.join(120)
    assert not committing.is_alive()
    cluster.start(first)
    records = all_records(cluster.bootstrap, "data", 2, "read_committed")
    assert sorted(int(value) for _, _, value in records) == list(range(10))
    producer.begin_transaction()
    producer.produce("data", "10", partition=0)
    producer.abort_transaction(60)
    assert len(all_records(cluster.bootstrap, "data", 2, "read_committed")) == 10


def test_batches_behind_one_that_is_to_come_again_do_not_end_the_transaction(
    tmp_path: Path,
) -> None:
    """Its coordinator is stopped until the first batch is refused, and answers for the others."""
    alone = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "kstore.coordination.session.timeout.ms": "600000",  # no broker is replaced
    }
    with KstoreCluster(tmp_path, overrides=SETTINGS | alone) as cluster:
        producer = KafkaProducer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": NAME,
                "linger.ms": 0,
                "batch.num.messages": 1,
            }
        )
        producer.init_transactions(60)
        first = cluster.wait_for_leader(TRANSACTIONS, 0)
        leader = min(BROKERS - {first, cluster.wait_for_controller()})
        cluster.create_topic("data", replicas={0: [leader]})
        producer.begin_transaction()
        producer.produce("data", "0", partition=0)
        producer.commit_transaction(60)
        producer.begin_transaction()
        cluster.pause(leader)  # the partition is in the transaction, and the batches wait
        for number in range(1, 6):
            producer.produce("data", str(number) + " " * LARGE, partition=0)
            producer.poll(0.05)
        until(lambda: state_at(cluster, first) == "Ongoing", "it is in the transaction")
        cluster.pause(first)
        cluster.resume(leader)
        time.sleep(TIMEOUT_S + 2)  # until the first batch is refused: how long the fault lasts
        cluster.resume(first)
        producer.commit_transaction(30)
        records = all_records(cluster.bootstrap, "data", 1, "read_committed")
        assert [int(value) for _, _, value in sorted(records)] == list(range(6))


def state_at(cluster: KstoreCluster, node_id: int) -> str:
    """What a coordinator says of the transaction."""
    broker = cluster.brokers[node_id]
    peer = Peer("coordinator", broker.host, broker.port)
    answer: Any = peer.ask(DescribeTransactionsRequest(transactional_ids=[NAME]), 0)
    peer.reset()
    return str(answer.transaction_states[0].transaction_state)
