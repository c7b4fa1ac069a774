"""Produce, Fetch and cached responses with an authorizer: the rights of each user, and the
responses to users without rights, for every version.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kstore._fast.record.builder import build_batch
from kstore.acls import CLUSTER_NAME, Acl, AclOperation, AclPermission, AclResourceType
from kstore.broker.state.security.authorizer import Authorizer
from kstore.errors import ErrorCode
from kstore.protocol.logs.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kstore.protocol.logs.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kstore.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from tests.broker.harness.plane_harness import TOPIC_ID, Client, Plane
from tests.reference.acl_rules import load

PRODUCE, FETCH, METADATA = 0, 1, 3
READ, WRITE = AclOperation.READ, AclOperation.WRITE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OTHER_ID = UUID("00112233-4455-6677-8899-aabbccddee00")
UNKNOWN_ID = UUID(int=9)
IDS = {"t": TOPIC_ID, "other": OTHER_ID, "absent": UNKNOWN_ID}


def acl(
    operation: AclOperation, name: str = "t", kind: AclResourceType = AclResourceType.TOPIC
) -> Acl:
    return Acl(kind, name, "User:alice", operation, AclPermission.ALLOW)


@pytest.fixture
def plane(plane: Plane) -> Plane:
    plane.add_topic("other", OTHER_ID, 1)
    plane.plane.authorizer = Authorizer(["User:root"])
    return plane


def rules(plane: Plane, *acls: Acl) -> None:
    load(plane.plane.authorizer, acls)


def client_of(plane: Plane, principal: str = "User:alice") -> Client:
    client = plane.client()
    client.connection.principal = principal
    return client


def produce(
    version: int, *topics: str, acks: int = 1, records: bytes | None = None, **more: Any
) -> ProduceRequest:
    data = []
    for topic in topics:
        records = records or build_batch([b"x"])
        row = TopicProduceData(partition_data=[PartitionProduceData(index=0, records=records)])
        if version >= 13:
            row.topic_id = IDS[topic]
        else:
            row.name = topic
        data.append(row)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data, **more)


def fetch(version: int, *topics: str, **more: Any) -> FetchRequest:
    rows = []
    for topic in topics:
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        named = {"topic_id": IDS[topic]} if version >= 13 else {"topic": topic}
        rows.append(FetchTopic(partitions=[part], **named))
    return FetchRequest(topics=rows, **{"max_wait_ms": 0, "min_bytes": 1, **more})


def codes(response: Any) -> list[int]:
    """The error codes of the partitions, in order."""
    return [
        p.error_code
        for topic in response.responses
        for p in (
            topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
        )
    ]


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_needs_write_on_each_topic(plane: Plane, version: int) -> None:
    """A missing topic looks like one that the client may not write to. For an id, which cannot be
    guessed, the response is exact.
    """
    client = client_of(plane)
    absent = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else DENIED
    asked = produce(version, "t", "other", "absent")
    assert codes(client.call(version, asked)) == [DENIED, DENIED, absent]
    rules(plane, acl(WRITE), acl(READ, "other"))
    assert codes(client.call(version, asked)) == [0, DENIED, absent]
    rules(plane, acl(WRITE), acl(WRITE, "absent"))
    absent = absent if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(client.call(version, asked)) == [0, DENIED, absent]
    assert plane.partition().log_end_offset == 2
    assert plane.partition(topic="other").log_end_offset == 0
    root = client_of(plane, "User:root")
    assert codes(root.call(version, produce(version, "other"))) == [0]


def test_produce_without_acks_and_without_the_right_ends_the_connection(plane: Plane) -> None:
    client = client_of(plane)
    client.send(9, produce(9, "t", acks=0))
    assert client.transport.closed
    assert plane.partition().log_end_offset == 0


@pytest.mark.parametrize("version", [3, 9, 13])
def test_transactional_records_need_write_on_their_id(plane: Plane, version: int) -> None:
    """All of the request is refused, as in Kafka; records that are in no transaction are not."""
    rules(plane, acl(WRITE))
    client = client_of(plane)
    in_transaction = build_batch(
        [b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    asked = produce(version, "t", "other", records=in_transaction, transactional_id="tx")
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert codes(client.call(version, asked)) == [refused, refused]
    asked_plain = produce(version, "t", transactional_id="tx")
    assert codes(client.call(version, asked_plain)) == [0]
    rules(plane, acl(WRITE), acl(WRITE, "tx", AclResourceType.TRANSACTIONAL_ID))
    assert codes(client.call(version, asked)) == [0, DENIED]


def test_the_coordinator_is_not_asked_about_topics_that_may_not_be_written(plane: Plane) -> None:
    asked: list[Any] = []

    def admit(*question: Any) -> dict[Any, int]:
        asked.append(question[-1])
        return {}

    plane.produce.admit_transactional = admit
    rules(plane, acl(WRITE), acl(WRITE, "tx", AclResourceType.TRANSACTIONAL_ID))
    records = build_batch(
        [b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    request = produce(9, "t", "other", records=records, transactional_id="tx")
    assert codes(client_of(plane).call(9, request)) == [0, DENIED]
    [partitions] = asked
    assert [partition for partition, _ in partitions] == [plane.partition()]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_needs_read_on_each_topic(plane: Plane, version: int) -> None:
    plane.partition().append_batches(bytearray(build_batch([b"x"])))
    client = client_of(plane)
    absent = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else DENIED
    asked = fetch(version, "t", "other", "absent")
    refused = client.call(version, asked)
    assert codes(refused) == [DENIED, DENIED, absent]
    row = refused.responses[0].partitions[0]
    assert (row.high_watermark, row.last_stable_offset, row.records or b"") == (-1, -1, b"")
    rules(plane, acl(READ), acl(WRITE, "other"))
    assert codes(client.call(version, asked)) == [0, DENIED, absent]
    rules(plane, acl(READ), acl(READ, "absent"))
    absent = absent if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(client.call(version, asked)) == [0, DENIED, absent]


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_fetch_session_follows_changes_of_the_rules(plane: Plane, version: int) -> None:
    """The rights are checked at every fetch, also of partitions that it does not name again."""
    rules(plane, acl(READ), acl(READ, "other"))
    client = client_of(plane)
    first = client.call(version, fetch(version, "t", "other", session_epoch=0))
    assert codes(first) == [0, 0]
    session = first.session_id
    assert session

    def go_on(client: Client, epoch: int) -> list[int]:
        plane.partition().append_batches(bytearray(build_batch([b"x"])))
        more = fetch(version, session_id=session, session_epoch=epoch)
        return codes(client.call(version, more))

    assert go_on(client, 1) == [0], "only the topic with news is told"
    rules(plane, acl(READ))
    assert sorted(go_on(client, 2)) == [0, DENIED]
    rules(plane, acl(READ, "other"))
    assert sorted(go_on(client, 3)) == [0, DENIED], "each is told, since each has changed"
    rules(plane)
    assert go_on(client, 4) == [DENIED, DENIED]
    assert go_on(client, 5) == [DENIED, DENIED], "an error is told every time"
    rules(plane, acl(READ), acl(READ, "other"))
    assert go_on(client, 6) == [0, 0]


@pytest.mark.parametrize("by_data", [True, False])
@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_fetch_that_waits_is_answered_with_the_rights_of_then(
    plane: Plane, version: int, by_data: bool
) -> None:
    """Whether records wake it or its time is over."""
    rules(plane, acl(READ))
    client = client_of(plane)
    client.send(version, fetch(version, "t", max_wait_ms=2**31 - 1))
    assert client.answers() == []
    rules(plane)
    if by_data:
        plane.partition().append_batches(bytearray(build_batch([b"x"])))
        plane.loop.turn()
    else:
        plane.loop.fire_timers()
    [(_, response)] = client.answers()
    assert codes(response) == [DENIED]
    [row] = response.responses[0].partitions
    assert not row.records


def test_no_fetch_waits_for_longer_than_five_minutes(plane: Plane) -> None:
    client = client_of(plane, "User:root")
    client.send(12, fetch(12, "t", max_wait_ms=2**31 - 1))
    [timer] = plane.loop.timers
    assert timer.delay_s == 300


def test_the_end_of_a_session_ends_what_waits_for_data(plane: Plane) -> None:
    client = client_of(plane, "User:root")
    client.send(12, fetch(12, "t", max_wait_ms=60_000))
    client.send(12, fetch(12, "other", max_wait_ms=60_000))
    client.connection.end_waits()
    assert [codes(response) for _, response in client.answers()] == [[0], [0]]
    assert plane.fetch.parked == 0


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_fetch_session_is_its_principals_on_its_listener(plane: Plane, version: int) -> None:
    """For other principals it does not exist, whatever they request with its id."""
    rules(plane, acl(READ))
    mine = client_of(plane)
    session = mine.call(version, fetch(version, "t", session_epoch=0)).session_id
    elsewhere = plane.client(listener="OTHER")
    elsewhere.connection.principal = "User:alice"
    for stranger in (client_of(plane, "User:root"), elsewhere):
        for epoch in (1, 2):
            asked = fetch(version, session_id=session, session_epoch=epoch)
            refused = stranger.call(version, asked)
            assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert (refused.session_id, refused.responses) == (0, [])
        for epoch in (0, -1):
            asked = fetch(version, "t", session_id=session, session_epoch=epoch)
            assert stranger.call(version, asked).session_id != session
    again = fetch(version, session_id=session, session_epoch=1)
    assert client_of(plane).call(version, again).session_id == session


@pytest.mark.parametrize("version", [12, 17])
def test_who_may_read_nothing_gets_no_fetch_session(plane: Plane, version: int) -> None:
    client = client_of(plane)
    asked = fetch(version, "t", "other", "absent", session_epoch=0)
    assert client.call(version, asked).session_id == 0
    as_follower = {"replica_state": ReplicaState(replica_id=7, replica_epoch=1)}
    if version < 15:
        as_follower = {"replica_id": 7}
    asked = fetch(version, "t", session_epoch=0, **as_follower)
    assert client.call(version, asked).session_id == 0
    assert plane.sessions.sessions == {}
    rules(plane, acl(READ))
    asked = fetch(version, "t", "other", session_epoch=0)
    assert client.call(version, asked).session_id


@pytest.mark.parametrize("version", [12, 17])
def test_who_says_that_it_is_a_follower_needs_cluster_action(plane: Plane, version: int) -> None:
    """READ on the topic does not do."""
    plane.partition().append_batches(bytearray(build_batch([b"x"])))
    me: dict[str, Any] = {"replica_id": 2}
    if version >= 15:
        me = {"replica_state": ReplicaState(replica_id=2, replica_epoch=-1)}
    rules(plane, acl(READ))
    client = client_of(plane)
    asked = fetch(version, "t", "absent", **me)
    assert codes(client.call(version, asked)) == [DENIED, DENIED]
    rules(plane, acl(AclOperation.CLUSTER_ACTION, CLUSTER_NAME, AclResourceType.CLUSTER))
    code, absent = codes(client.call(version, asked))
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "as everywhere: 2 has no replica"
    unknown = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert absent in unknown
    plane.plane.fetch.peer_listener = "BROKERS"
    assert codes(client.call(version, asked)) == [DENIED, DENIED]
    plane.plane.fetch.peer_listener = "PLAINTEXT"
    assert codes(client.call(version, asked))[0] == code


def test_cached_answers_are_one_principals(plane: Plane) -> None:
    """And no principal's after a change of the rules."""
    asked = MetadataRequest(topics=None)
    told = iter(range(100))
    plane.server.answers[METADATA] = lambda: MetadataResponse(cluster_id=f"{next(told)}").encode(9)
    alice, again, bob = (client_of(plane, f"User:{name}") for name in ("alice", "alice", "bob"))

    def ask(client: Client) -> str:
        return str(client.call(9, asked).cluster_id)

    assert [ask(alice), ask(again), ask(bob), ask(bob), ask(alice)] == ["0", "0", "1", "1", "0"]
    rules(plane, acl(READ))
    assert [ask(bob), ask(alice), ask(again)] == ["2", "3", "3"]
    alice.connection.principal = "User:bob"
    assert ask(alice) == "2"
    plane.plane.authorizer = None
    assert [ask(alice), ask(bob)] == ["4", "4"]


def test_who_hears_of_denials_hears_each_and_nothing_of_what_is_allowed(plane: Plane) -> None:
    heard: list[tuple[Any, ...]] = []
    plane.plane.authorizer.on_denied = lambda *asked: heard.append(asked)
    rules(plane, acl(WRITE), acl(READ))
    client = client_of(plane)
    host = client.connection.client_host
    client.call(9, produce(9, "t"))
    client.call(12, fetch(12, "t"))
    assert heard == []
    client.call(9, produce(9, "t", "other"))
    client.call(13, fetch(13, "other", "t"))
    alice = ("User:alice", host)
    topic, cluster = AclResourceType.TOPIC, AclResourceType.CLUSTER
    assert heard == [
        (*alice, WRITE, topic, "other", PRODUCE), (*alice, READ, topic, "other", FETCH),
    ]  # fmt: skip
    heard.clear()
    in_transaction = build_batch(
        [b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    asked = produce(9, "t", records=in_transaction, transactional_id="tx")
    client.call(9, asked)
    follower = ReplicaState(replica_id=1, replica_epoch=-1)
    client.call(15, fetch(15, "t", replica_state=follower))
    assert heard == [
        (*alice, WRITE, AclResourceType.TRANSACTIONAL_ID, "tx", PRODUCE),
        (*alice, AclOperation.CLUSTER_ACTION, cluster, CLUSTER_NAME, FETCH),
    ]
