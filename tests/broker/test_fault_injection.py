"""Injected faults in a running broker, message by message, and with unmodified clients."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kstore.errors import ErrorCode
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.protocol.registry import decode_response, encode_request
from kstore.testing import Broker, Cluster, Faults
from tests.beside.librdkafka import read_first
from tests.broker.harness.topic_client import TopicClient
from tests.record_requests import fetch_request, only

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
LATE_MS = 150
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("faults"), {"kstore.check.invariants": True}) as broker:
        yield broker


@pytest.fixture
def faults(broker: Broker) -> Iterator[Faults]:
    faults = Faults(lambda: broker.http_urls)
    yield faults
    faults.clear()


@pytest.fixture
def connect(broker: Broker) -> Iterator[Any]:
    with contextlib.ExitStack() as opened:

        def connect() -> TopicClient:
            client = TopicClient(broker.address, extended=False)
            opened.callback(client.sock.close)
            return client

        yield connect


@pytest.fixture
def client(connect: Any) -> TopicClient:
    return connect()  # type: ignore[no-any-return]


@pytest.fixture
def topic(client: TopicClient) -> str:
    name = f"t{next(NUMBERS)}"
    client.create(name, 2)
    return name


def end(client: TopicClient, topic: str, index: int = 0) -> int:
    return int(client.list_offsets(topic, index).offset)


# ---- errors ----


def test_produce_fails_on_the_partition_that_is_meant(
    client: TopicClient, topic: str, faults: Faults
) -> None:
    with faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, partition=0) as fault:
        answer = client.produce(topic, 0)
        assert (answer.error_code, answer.base_offset) == (NOT_LEADER, -1)
        assert client.produce(topic, 1).error_code == 0
        assert fault.struck == 1
    assert fault.struck == 1
    assert client.produce(topic, 0).base_offset == 0, "nothing was appended"


def test_an_error_after_produce_is_told_of_what_is_appended(
    client: TopicClient, topic: str, faults: Faults
) -> None:
    faults.error("Produce", "REQUEST_TIMED_OUT", topic=topic, count=1, when="after")
    assert client.produce(topic, 0).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert end(client, topic) == 1
    assert client.produce(topic, 0).base_offset == 1


def test_an_error_without_acknowledgement_ends_the_connection(
    client: TopicClient, connect: Any, topic: str, faults: Faults
) -> None:
    faults.error("Produce", NOT_LEADER, count=1)
    with pytest.raises(ConnectionError):
        client.produce(topic, acks=0)
    assert end(connect(), topic) == 0


def test_fetch_fails_in_a_session_that_names_no_partition(
    client: TopicClient, topic: str, faults: Faults
) -> None:
    client.produce(topic, 0)
    session = client.fetch(topic, 0, session_epoch=0).session_id
    assert session
    faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic, partition=0, count=1)
    known = {"session_id": session}
    waiting = fetch_request(topic, session_epoch=1, max_wait_ms=60_000, **known)
    answer = client.call(waiting, 12)
    [part] = answer.responses[0].partitions
    assert (answer.error_code, part.error_code) == (0, NOT_LEADER)
    part = only(client.call(fetch_request(topic, session_epoch=2, **known), 12))
    assert (part.error_code, part.high_watermark) == (0, 1), "and it is told anew"


def test_an_error_of_fetch_sessions_is_one_of_the_whole_fetch(
    client: TopicClient, topic: str, faults: Faults
) -> None:
    faults.error("Fetch", "FETCH_SESSION_ID_NOT_FOUND", count=1)
    assert client.fetch(topic).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.fetch(topic).error_code == 0


def test_a_commit_fails_in_part(client: TopicClient, topic: str, faults: Faults) -> None:
    with faults.error("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION", topic=topic, partition=1):
        assert client.commit(topic, {0: 5, 1: 6}) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert client.commit(topic, {1: 7}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    with faults.error("OffsetCommit", "REQUEST_TIMED_OUT", topic=topic, partition=1, when="after"):
        assert client.commit(topic, {0: 8, 1: 9}) == [0, ErrorCode.REQUEST_TIMED_OUT]
    assert client.commit(topic, {0: 1, 1: 1}) == [0, 0]


@pytest.mark.parametrize("partition", [None, 1])
def test_metadata_has_the_error_where_it_is_meant(
    client: TopicClient, topic: str, faults: Faults, partition: int | None
) -> None:
    client.create(f"{topic}-other")
    faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic=topic, partition=partition)
    told = {row.name: row for row in client.call(MetadataRequest(topics=None)).topics}
    assert told[f"{topic}-other"].error_code == 0
    row = told[topic]
    errors = [row.error_code, *(part.error_code for part in row.partitions)]
    assert errors == ([ErrorCode.LEADER_NOT_AVAILABLE] if partition is None else [0, 0, 5])


def test_an_api_that_the_broker_has_answers_for_fails_too(
    client: TopicClient, faults: Faults
) -> None:
    client.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    faults.error("ApiVersions", "UNSUPPORTED_VERSION", count=1)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    client.sock.sendall(encode_request(request, 4, 9, "test"))
    _, answer = decode_response(client.answer(), ApiVersionsResponse, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION, "in the version that all read"


def test_a_client_that_is_not_meant_is_left_alone(client: TopicClient, faults: Faults) -> None:
    fault = faults.error("FindCoordinator", 15, client_id="other-*")
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    assert client.call(request).coordinators[0].error_code == 0
    assert fault.struck == 0
    faults.error("FindCoordinator", 15, client_id="te?t", count=1)
    row = client.call(request).coordinators[0]
    assert (row.error_code, row.node_id, row.port) == (15, -1, -1)


# ---- delays, and answers that are lost ----


def answers(client: TopicClient, count: int) -> list[int]:
    """The correlation ids of the next answers."""
    return [int.from_bytes(client.answer()[:4], "big") for _ in range(count)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_late_keeps_its_place(client: TopicClient, faults: Faults, when: str) -> None:
    fault = faults.delay("FindCoordinator", LATE_MS, when=when)
    slow = FindCoordinatorRequest(coordinator_keys=["g"])
    quick = MetadataRequest(topics=[])
    frames = [
        encode_request(request, version, number, "test")
        for number, (request, version) in enumerate([(quick, 12), (slow, 4), (quick, 12)] * 2)
    ]
    client.sock.sendall(b"".join(frames))
    assert answers(client, 6) == [0, 1, 2, 3, 4, 5]
    assert fault.struck == 2


def test_a_delay_is_nobody_elses(client: TopicClient, connect: Any, faults: Faults) -> None:
    faults.delay("Metadata", 3_600_000, client_id="test", count=1)
    client.sock.sendall(encode_request(MetadataRequest(topics=[]), 12, 1, "test"))
    other = connect()
    assert other.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators
    assert other.call(MetadataRequest(topics=[])).brokers, "the next one of that client"


def test_a_late_produce_is_appended_once(client: TopicClient, topic: str, faults: Faults) -> None:
    faults.delay("Produce", LATE_MS)
    faults.delay("Produce", LATE_MS, when="after")
    assert client.produce(topic).base_offset == 0
    assert end(client, topic) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_that_is_dropped_holds_back_what_is_behind_it(
    client: TopicClient, connect: Any, topic: str, faults: Faults, when: str
) -> None:
    fault = faults.drop("Produce", count=1, when=when)
    client.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.produce(topic)
    with pytest.raises(TimeoutError):
        client.call(MetadataRequest(topics=[]))
    assert fault.struck == 1
    assert end(connect(), topic) == (when == "after"), "whether it was carried out"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_is_cut(
    client: TopicClient, connect: Any, topic: str, faults: Faults, when: str
) -> None:
    faults.disconnect("Produce", count=1, when=when)
    with pytest.raises(ConnectionError):
        client.produce(topic)
    assert end(connect(), topic) == (when == "after")


def test_answers_before_the_one_that_is_cut_off_arrive(client: TopicClient, faults: Faults) -> None:
    faults.disconnect("FindCoordinator", when="after")
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    frames = [encode_request(MetadataRequest(topics=[]), 12, n, "test") for n in range(3)]
    client.sock.sendall(b"".join((*frames, encode_request(request, 4, 3, "test"), *frames)))
    assert answers(client, 3) == [0, 1, 2]
    with pytest.raises(ConnectionError):
        client.answer()


def test_a_malformed_request_is_told_as_ever(
    client: TopicClient, broker: Broker, faults: Faults
) -> None:
    faults.error("OffsetFetch", 6, topic="t")
    frame = encode_request(MetadataRequest(topics=[]), 12, 1, "test")
    broken = frame[:4] + (9).to_bytes(2, "big") + (8).to_bytes(2, "big") + frame[8:-4] + b"\xff" * 4
    client.sock.sendall(broken)
    with pytest.raises(ConnectionError):
        client.answer()
    assert broker.pid is not None


# ---- unmodified clients ----


@pytest.mark.slow
def test_librdkafka_gets_over_all_of_it(broker: Broker, topic: str, faults: Faults) -> None:
    delivered: list[tuple[Any, int]] = []
    producer = confluent_kafka.Producer({
        "bootstrap.servers": broker.address, "enable.idempotence": True, "retry.backoff.ms": 20,
        "linger.ms": 0, "reconnect.backoff.max.ms": 100,
    })  # fmt: skip
    struck = [
        faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, count=2),
        faults.error("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", count=2, when="after"),
        faults.disconnect("Produce", count=1, when="after"),
        faults.delay("Metadata", 50, count=3),
    ]
    for number in range(20):
        producer.produce(
            topic, str(number), partition=0,
            on_delivery=lambda error, message: delivered.append((error, message.offset())),
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(60) == 0
    assert [error for error, _ in delivered] == [None] * 20
    for fault in struck[:3]:
        assert fault.struck > 0

    faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic, count=2)
    faults.disconnect("ListOffsets", count=1)
    quick = {"reconnect.backoff.max.ms": 100}
    values = [int(each.value()) for each in read_first(broker.address, topic, 20, settings=quick)]
    assert values == list(range(20)), "each once, in order, though answers were lost"


@pytest.mark.slow
def test_brokers_of_a_cluster_are_struck_where_they_are_meant(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        faults = Faults(lambda: cluster.http_urls)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        clients = faults.error("Fetch", NOT_LEADER)
        followers = faults.delay("Fetch", 1, brokers=True)
        producer.produce("t", b"v")
        assert producer.flush(60) == 0, "followers fetch as ever"
        followers.wait()
        assert clients.struck == 0
        with pytest.raises(ValueError, match="broker 9 is not running"):
            faults.drop("Fetch", node=9)
        assert faults.drop("Fetch", node=2).struck == 0
