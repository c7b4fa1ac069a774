"""Every request of the clients that can meet a broker which is cut off from the controller: however
that refuses it, and however often, another broker is asked in the end (KIP-232).

The asyncio clients are the same code: the others run them in a thread.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kstore.broker.api.requests.error_responses import failed
from kstore.clients import AdminClient, Consumer, Producer, ShareConsumer
from kstore.errors import ErrorCode, error_name
from kstore.protocol.registry import APIS
from kstore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.clients.io.cut_off_brokers import (
    LEADER,
    OLD_EPOCH,
    OTHER,
    OUTDATED,
    Brokers,
    cut_off_brokers,
)
from tests.plain_messages import Answer

ROOT = Path(__file__).parents[3]
TP = TopicPartition("t", 0)
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
READ: dict[str, Any] = QUICK | {"fetch_max_wait_ms": 5, "auto_offset_reset": "earliest"}
PATIENCE_MS = 20_000


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with cut_off_brokers() as running:
        yield running


# ---- what a user does ----


def reads_in_a_group(brokers: Brokers, protocol: str) -> None:
    """A record arrives, and a heartbeat is answered by the coordinator."""
    settings = READ | {"group_protocol": protocol, "group_id": "g"}
    if protocol == "classic":
        settings |= {"heartbeat_interval_ms": 20}
    beat = "Heartbeat" if protocol == "classic" else "ConsumerGroupHeartbeat"
    with Consumer(brokers.bootstrap, enable_auto_commit=False, **settings) as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(PATIENCE_MS)
        for _ in range(PATIENCE_MS // 10):
            if brokers.times(LEADER, beat) > 1:
                return
            consumer.poll(10)
        raise AssertionError(f"no {beat} came to the coordinator")


def reads_by_classic_group(brokers: Brokers) -> None:
    reads_in_a_group(brokers, "classic")


def reads_by_consumer_group(brokers: Brokers) -> None:
    reads_in_a_group(brokers, "consumer")


def reads_by_share_group(brokers: Brokers) -> None:
    with ShareConsumer(brokers.bootstrap, group_id="g", fetch_max_wait_ms=5, **QUICK) as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(PATIENCE_MS)


def reads_a_partition(brokers: Brokers) -> None:
    with Consumer(brokers.bootstrap, **READ) as consumer:
        consumer.assign([TP])
        assert consumer.poll(PATIENCE_MS)


def checks_a_position(brokers: Brokers) -> None:
    with Consumer(brokers.bootstrap, **READ) as consumer:
        consumer.assign([TP])
        consumer.seek(TP, OffsetAndMetadata(0, leader_epoch=0))
        assert consumer.poll(PATIENCE_MS)


def commits_and_asks(brokers: Brokers) -> None:
    with Consumer(brokers.bootstrap, group_id="g", **READ) as consumer:
        consumer.commit({TP: 1})
        consumer.committed([TP])


def asks_for_the_end(brokers: Brokers) -> None:
    with Consumer(brokers.bootstrap, **READ) as consumer:
        assert consumer.end_offsets([TP]) == {TP: 0}


def sends(brokers: Brokers) -> None:
    with Producer(brokers.bootstrap, **QUICK) as producer:
        producer.send("t", b"v", partition=0).result(PATIENCE_MS / 1000)


def commits_a_transaction(brokers: Brokers) -> None:
    with Producer(brokers.bootstrap, transactional_id="x", **QUICK) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        producer.send_offsets_to_transaction({TP: 1}, ConsumerGroupMetadata("g"))
        producer.commit_transaction()


def administrates(brokers: Brokers) -> None:
    with AdminClient(brokers.bootstrap, **QUICK) as admin:
        assert admin.list_offsets({TP: "latest"})[TP].offset == 0
        assert admin.delete_records({TP: 1}) == {TP: 1}
        admin.alter_group_offsets("g", {TP: 1})
        admin.list_group_offsets("g")
        admin.delete_group_offsets("g", [TP])


def administrates_the_cluster(brokers: Brokers) -> None:
    with AdminClient(brokers.bootstrap, **QUICK) as admin:
        admin.create_topics(["new"])
        admin.describe_client_quotas()


# ---- what may happen to it ----

MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
LATE = ErrorCode.REQUEST_TIMED_OUT
BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
NO_LEADER = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_ID,)
NO_REPLICAS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class Meeting(NamedTuple):
    """What a user does, the request of it that meets the outdated broker, and its answers."""

    does: Callable[[Brokers], None]
    api: str
    codes: tuple[int, ...]


MEETINGS = [
    Meeting(reads_by_classic_group, "JoinGroup", (*MOVED, LATE)),
    Meeting(reads_by_classic_group, "SyncGroup", (*MOVED, LATE)),
    Meeting(reads_by_classic_group, "Heartbeat", (*MOVED, LATE)),
    Meeting(reads_by_consumer_group, "ConsumerGroupHeartbeat", (*MOVED, LATE)),
    Meeting(reads_by_consumer_group, "OffsetFetch", (*MOVED, LATE, *NO_TOPIC)),
    Meeting(reads_by_share_group, "ShareGroupHeartbeat", (*MOVED, LATE)),
    Meeting(reads_by_share_group, "ShareFetch", (*NO_LEADER, *NO_TOPIC, LATE)),
    Meeting(reads_a_partition, "Fetch", (*NO_LEADER, *NO_TOPIC)),
    Meeting(reads_a_partition, "ListOffsets", (*NO_LEADER, LATE)),
    Meeting(checks_a_position, "OffsetForLeaderEpoch", (*NO_LEADER, LATE)),
    Meeting(asks_for_the_end, "ListOffsets", (*NO_LEADER, LATE)),
    Meeting(commits_and_asks, "OffsetCommit", (*MOVED, LATE)),
    Meeting(commits_and_asks, "OffsetFetch", (*MOVED, LATE, ErrorCode.UNSTABLE_OFFSET_COMMIT)),
    Meeting(sends, "Produce", (*NO_LEADER, *NO_TOPIC, *NO_REPLICAS, LATE)),
    Meeting(sends, "InitProducerId", (*BUSY, ErrorCode.COORDINATOR_NOT_AVAILABLE)),
    Meeting(commits_a_transaction, "InitProducerId", (*MOVED, *BUSY, LATE)),
    Meeting(commits_a_transaction, "AddPartitionsToTxn", (*MOVED, *BUSY)),
    Meeting(commits_a_transaction, "AddOffsetsToTxn", (*MOVED, *BUSY)),
    Meeting(commits_a_transaction, "TxnOffsetCommit", (*MOVED, *BUSY, LATE)),
    Meeting(commits_a_transaction, "EndTxn", (*MOVED, *BUSY, LATE)),
    Meeting(administrates, "ListOffsets", NO_LEADER),
    Meeting(administrates, "DeleteRecords", NO_LEADER),
    Meeting(administrates, "OffsetCommit", MOVED),
    Meeting(administrates, "OffsetFetch", MOVED),
    Meeting(administrates, "OffsetDelete", MOVED),
    Meeting(administrates_the_cluster, "CreateTopics", (ErrorCode.NOT_CONTROLLER,)),
    Meeting(administrates_the_cluster, "DescribeClientQuotas", (ErrorCode.NOT_CONTROLLER,)),
]
CASES = [
    pytest.param(row.does, row.api, code, id=f"{row.does.__name__}-{row.api}-{error_name(code)}")
    for row in MEETINGS
    for code in row.codes
]


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize(("does", "api", "code"), CASES)
def test_a_request_that_an_outdated_broker_refuses_goes_to_another(
    brokers: Brokers, does: Callable[[Brokers], None], api: str, code: int
) -> None:
    brokers.refuse(api, code)
    does(brokers)
    assert brokers.times(OUTDATED, api) >= 1
    assert brokers.times(LEADER, api) + brokers.times(OTHER, api) >= 1


DOINGS = [
    reads_by_classic_group,
    reads_by_consumer_group,
    reads_by_share_group,
    commits_and_asks,
    commits_a_transaction,
    administrates,
]


@pytest.mark.parametrize("does", DOINGS, ids=lambda each: each.__name__)
def test_a_broker_that_finds_no_coordinator_is_not_the_only_one_asked(
    brokers: Brokers, does: Callable[[Brokers], None]
) -> None:
    brokers.refuse("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    does(brokers)
    assert brokers.times(OUTDATED, "FindCoordinator") <= 3
    assert brokers.times(LEADER, "FindCoordinator") + brokers.times(OTHER, "FindCoordinator") >= 1


@pytest.mark.parametrize("does", [reads_by_consumer_group, reads_by_share_group])
def test_a_topic_id_that_only_the_coordinator_knows_is_looked_up_at_another_broker(
    brokers: Brokers, does: Callable[[Brokers], None]
) -> None:
    """The topic was created again, and the outdated broker's metadata has the id of the first
    one.
    """
    brokers.coordinates, brokers.is_made_again = False, True
    does(brokers)
    assert brokers.times(OUTDATED, "Metadata") >= 1


@pytest.mark.parametrize("epoch", [OLD_EPOCH, None], ids=["another-life", "unknown"])
def test_prior_partitions_are_asked_of_the_leader_if_the_coordinator_does_not_know_them(
    brokers: Brokers, epoch: int | None
) -> None:
    """LeaderEpochForPartition: an answer about another topic of the name is none (KIP-232)."""

    def answer(request: Any, version: int) -> Any:
        if epoch is None:
            return failed(request, version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        prior = [{"partition_index": 0, "leader_epoch": 0}]  # never to be read to its end
        row = {"partition_index": 1, "partition_epoch": epoch, "prior_leader_epochs": prior}
        return Answer.LeaderEpochForPartition(topics=[{"name": "t", "partitions": [row]}])

    brokers.script("LeaderEpochForPartition", answer)
    brokers.leads = False
    with Consumer(
        brokers.bootstrap, group_id="g", group_protocol="consumer", enable_auto_commit=False, **READ
    ) as consumer:
        consumer.subscribe(["t"])
        found = 0
        while found < 4:
            found += len(consumer.poll(PATIENCE_MS))
    assert brokers.times(OUTDATED, "LeaderEpochForPartition") >= 1
    assert brokers.times(LEADER, "LeaderEpochForPartition") >= 1


def test_metadata_that_grows_old_is_asked_of_another_broker(brokers: Brokers) -> None:
    """A broker that is cut off and answers everything, from a log that no client writes any
    more.
    """
    brokers.script("Fetch", brokers.brokers[OUTDATED].empty)
    with Consumer(brokers.bootstrap, metadata_max_age_ms=50, **READ) as consumer:
        consumer.assign([TP])
        assert consumer.poll(PATIENCE_MS)
    assert brokers.times(OUTDATED, "Fetch") >= 1


# ---- all of them ----

ONCE = "a last word: whether it is heard or not, nobody waits for it"
ANY = "of any broker, about brokers and connections"
ELSEWHERE = {
    "ApiVersions": ANY,
    "Metadata": "how a broker is found to be outdated (test_several_brokers.py)",
    "FindCoordinator": "above, and test_outdated_brokers.py",
    "LeaderEpochForPartition": "above",
    "LeaveGroup": ONCE,
    "ShareAcknowledge": "refused, the records come again: from whoever leads then",
}
"""Requests without a meeting above, and why, or where they are tested."""


def requests_of(folder: str) -> set[str]:
    """The requests that the code in a folder makes, by their names."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.add(node.func.id)
    return {api.name for api in APIS.values()} & {each.removesuffix("Request") for each in found}


def test_no_request_is_forgotten() -> None:
    sent = requests_of("clients/io") | requests_of("clients/core")
    assert sent - {row.api for row in MEETINGS} <= ELSEWHERE.keys()
