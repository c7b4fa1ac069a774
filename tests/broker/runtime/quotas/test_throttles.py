"""Quotas act: who is over is told how long to wait, and is not served meanwhile; others are."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.logs.copy_batches import (
    CopyBatchesPartition,
    CopyBatchesRequest,
    CopyBatchesSource,
    CopyBatchesTopic,
)
from kstore.protocol.logs.fetch import FetchPartition, FetchRequest, FetchTopic
from kstore.protocol.logs.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kstore.protocol.metadata.describe_cluster import DescribeClusterRequest
from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.protocol.metadata.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kstore.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.schema import Message
from tests.conformance import wire
from tests.conformance.kstore_broker import KstoreBroker

Start = Callable[..., KstoreBroker]


class Client:
    """One connection of a client with an id."""

    def __init__(self, broker: KstoreBroker, client_id: str) -> None:
        self.sock = socket.create_connection((broker.host, broker.port), timeout=30)
        self.client_id = client_id

    def send(self, request: Message, version: int) -> None:
        self.sock.sendall(encode_request(request, version, 3, self.client_id))

    def receive(self, request: Message, version: int) -> Any:
        raw = wire.read_frame(self.sock)
        return decode_response(raw, APIS[request.API_KEY].response, version)[1]

    def call(self, request: Message, version: int | None = None) -> Any:
        version = APIS[request.API_KEY].max_version if version is None else version
        self.send(request, version)
        return self.receive(request, version)

    def waits(self) -> bool:
        """Whether a small request stays unanswered for a moment."""
        self.send(MetadataRequest(topics=[]), 9)
        self.sock.settimeout(0.3)
        try:
            wire.read_frame(self.sock)
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(30)
        return False


def produce(acks: int = 1, size: int = 5000) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=build_batch([(None, b"x" * size)]))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def fetch(version: int, wait_ms: int = 0, offset: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics)


def quota(entity: dict[str, str | None], key: str, value: float | None) -> AlterClientQuotasRequest:
    named = [
        AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
        for kind, name in entity.items()
    ]
    op = OpData(key=key, value=value or 0.0, remove=value is None)
    entry = AlterClientQuotasRequestEntryData(entity=named, ops=[op])
    return AlterClientQuotasRequest(entries=[entry])


@pytest.fixture
def admin(broker: KstoreBroker) -> Client:
    client = Client(broker, "admin")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert client.call(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0
    return client


def test_batches_that_a_leader_copies_count_as_produced(broker, admin):
    staged = build_batch([(b"k", build_batch([(None, b"x" * 5000)]))])
    data = PartitionProduceData(index=0, records=staged)
    topics = [TopicProduceData(name="t", partition_data=[data])]
    assert admin.call(ProduceRequest(acks=1, topic_data=topics), 9).throttle_time_ms == 0
    source = CopyBatchesSource(topic="t", partition=0, key=b"k", offsets=[0])
    row = CopyBatchesPartition(
        base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0, sources=[source]
    )
    named = CopyBatchesTopic(name="t", partitions=[row])
    request = CopyBatchesRequest(timeout_ms=5000, topics=[named])
    sink, other = Client(broker, "p"), Client(broker, "q")
    admin.call(quota({"client-id": "p"}, "producer_byte_rate", 100.0))
    answer = sink.call(request)
    assert answer.topics[0].partitions[0].copied == 1
    assert 30_000 < answer.throttle_time_ms < 50_000
    assert sink.waits()
    again = other.call(request)  # nothing is appended again
    assert (again.topics[0].partitions[0].copied, again.throttle_time_ms) == (1, 0)


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_producer_over_its_quota_is_told_and_waits(broker, admin, version):
    producer, other = Client(broker, "p"), Client(broker, "q")
    assert producer.call(produce(), version).throttle_time_ms == 0
    admin.call(quota({"client-id": "p"}, "producer_byte_rate", 100.0))
    answer = producer.call(produce(), version)  # 5 KB, where 1 KB in ten seconds is allowed
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert 30_000 < answer.throttle_time_ms < 50_000
    assert producer.waits()
    assert other.call(produce(), version).throttle_time_ms == 0


def test_a_producer_without_acknowledgement_waits_too(broker, admin):
    admin.call(quota({"client-id": None}, "producer_byte_rate", 100.0))
    producer = Client(broker, "p")
    producer.send(produce(acks=0), 9)
    assert producer.waits()


@pytest.mark.parametrize("version", [4, 12])
def test_a_consumer_over_its_quota_is_told_and_waits(broker, admin, version):
    admin.call(produce(), 9)
    admin.call(quota({"user": "ANONYMOUS", "client-id": "c"}, "consumer_byte_rate", 100.0))
    consumer = Client(broker, "c")
    answer = consumer.call(fetch(version), version)
    assert len(answer.responses[0].partitions[0].records) > 5000
    assert answer.throttle_time_ms > 30_000
    assert consumer.waits()
    parked = Client(broker, "c2")
    admin.call(quota({"client-id": None}, "consumer_byte_rate", 100.0))
    parked.send(fetch(version, 20_000, 1), version)
    admin.call(produce(), 9)
    assert parked.receive(fetch(version), version).throttle_time_ms > 30_000


def test_one_answer_brings_no_more_than_a_whole_window_allows(broker, admin):
    """As in Kafka: or a consumer that is far behind would wait for hours after its first fetch."""
    for _ in range(5):
        admin.call(produce(), 9)
    admin.call(quota({"client-id": "small"}, "consumer_byte_rate", 100.0))
    admin.call(quota({"client-id": "larger"}, "consumer_byte_rate", 1100.0))
    batch = len(Client(broker, "free").call(fetch(12), 12).responses[0].partitions[0].records) // 5
    for client_id, batches in (("small", 1), ("larger", 2)):
        records = Client(broker, client_id).call(fetch(12), 12).responses[0].partitions[0].records
        assert len(records) == batches * batch


def test_a_short_wait_ends(broker, admin):
    admin.call(quota({"client-id": "p"}, "producer_byte_rate", 10_000.0))
    producer = Client(broker, "p")
    told = 0
    while not told:
        told = producer.call(produce(size=50_000), 9).throttle_time_ms
    assert producer.call(MetadataRequest(topics=[]), 9).topics == []


def test_a_removed_quota_holds_nobody_and_quotas_act_after_a_restart(broker, admin):
    admin.call(quota({"user": None}, "producer_byte_rate", 100.0))
    assert Client(broker, "p").call(produce(), 9).throttle_time_ms > 0
    broker.kill()
    broker.start()
    admin = Client(broker, "admin")
    assert Client(broker, "p").call(produce(), 9).throttle_time_ms > 0
    admin.call(quota({"user": None}, "producer_byte_rate", None))
    assert Client(broker, "p").call(produce(), 9).throttle_time_ms == 0


def test_a_share_of_the_brokers_time_that_is_used_up_makes_a_client_wait(broker, admin):
    admin.call(quota({"client-id": "busy"}, "request_percentage", 0.00001))
    client = Client(broker, "busy")
    client.call(MetadataRequest(topics=None), 9)
    assert client.waits()
    assert not Client(broker, "other").waits()


def test_a_client_over_its_share_of_time_is_told_where_answers_are_its_own(broker, admin):
    """Answers to Metadata and ApiVersions are shared with others, and so say nothing."""
    admin.call(quota({"client-id": "busy"}, "request_percentage", 0.00001))
    assert Client(broker, "busy").call(DescribeClusterRequest()).throttle_time_ms > 0
    assert Client(broker, "busy").call(produce(), 9).throttle_time_ms > 0
    assert Client(broker, "busy").call(MetadataRequest(topics=[]), 9).throttle_time_ms == 0
    assert Client(broker, "other").call(DescribeClusterRequest()).throttle_time_ms == 0


def create(*names: str) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=5000)


def test_who_makes_too_many_partitions_is_refused_and_waits(broker, admin):
    admin.call(quota({"client-id": "maker"}, "controller_mutation_rate", 0.1))  # 1.1 at once
    maker = Client(broker, "maker")
    answer = maker.call(create("a", "b", "c"))
    throttled = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert [topic.error_code for topic in answer.topics] == [0, throttled, throttled]
    assert 8_000 < answer.throttle_time_ms <= 9_000
    assert maker.waits()
    again = Client(broker, "maker")
    deleted = again.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=5000), 5)
    assert [topic.error_code for topic in deleted.responses] == [throttled]
    grown = Client(broker, "maker").call(
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="a", count=3, assignments=None)], timeout_ms=5000
        )
    )
    assert [topic.error_code for topic in grown.results] == [throttled]
    assert Client(broker, "other").call(create("b")).topics[0].error_code == 0


def test_a_client_that_knows_no_such_error_is_not_refused_but_waits(broker, admin):
    admin.call(quota({"client-id": "old"}, "controller_mutation_rate", 0.1))
    old = Client(broker, "old")
    answer = old.call(create("a", "b"), 5)
    assert [topic.error_code for topic in answer.topics] == [0, 0]
    assert 28_000 < answer.throttle_time_ms <= 29_000
    assert old.waits()
