"""A client over its quota learns how long to wait, and is not served meanwhile; others are."""

from __future__ import annotations

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.logs.fetch import FetchRequest
from kstore.protocol.logs.produce import ProduceRequest
from kstore.protocol.schema import Message
from tests.broker.harness.wire import Wire
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import fetch_request, produce_request

OLD_PRODUCE = [pytest.param(version, marks=pytest.mark.slow) for version in (3, 9)]


class Client(Wire):
    def waits(self) -> bool:
        """Whether a small request stays unanswered for a moment."""
        self.put(Ask.Metadata(topics=[]), 9)
        self.sock.settimeout(0.3)
        try:
            self.answer()
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(30)
        return False


def produce(acks: int = 1, size: int = 5000) -> ProduceRequest:
    return produce_request("t", build_batch([(None, b"x" * size)]), acks=acks)


def fetch(version: int, wait_ms: int = 0, offset: int = 0) -> FetchRequest:
    return fetch_request("t", offset, max_wait_ms=wait_ms)


def quota(entity: dict[str, str | None], key: str, value: float | None) -> Message:
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    op = {"key": key, "value": value or 0.0, "remove": value is None}
    return Ask.AlterClientQuotas(entries=[{"entity": named, "ops": [op]}])


@pytest.fixture
def admin(broker: KstoreBroker) -> Client:
    client = Client(broker, "admin")
    client.make_topic("t")
    return client


def test_batches_that_a_leader_copies_count_as_produced(broker, admin):
    staged = build_batch([(b"k", build_batch([(None, b"x" * 5000)]))])
    assert admin.call(produce_request("t", staged), 9).throttle_time_ms == 0
    source = {"topic": "t", "partition": 0, "key": b"k", "offsets": [0]}
    row = {"base_offset": 1, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    named = {"name": "t", "partitions": [row | {"sources": [source]}]}
    request = Ask.CopyBatches(timeout_ms=5000, topics=[named])
    sink, other = Client(broker, "p"), Client(broker, "q")
    admin.call(quota({"client-id": "p"}, "producer_byte_rate", 100.0))
    answer = sink.call(request)
    assert answer.topics[0].partitions[0].copied == 1
    assert 30_000 < answer.throttle_time_ms < 50_000
    assert sink.waits()
    again = other.call(request)  # the batch is not appended again
    assert (again.topics[0].partitions[0].copied, again.throttle_time_ms) == (1, 0)


@pytest.mark.parametrize("version", [*OLD_PRODUCE, 12])
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
    producer.put(produce(acks=0), 9)
    assert producer.waits()


@pytest.mark.parametrize("version", [pytest.param(4, marks=pytest.mark.slow), 12])
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
    parked.put(fetch(version, 20_000, 1), version)
    admin.call(produce(), 9)
    assert parked.take(fetch(version), version).throttle_time_ms > 30_000


def test_one_answer_brings_no_more_than_a_whole_window_allows(broker, admin):
    """As in Kafka: otherwise a consumer that is far behind would wait for hours after its first
    fetch.
    """
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
    assert producer.call(Ask.Metadata(topics=[]), 9).topics == []


@pytest.mark.slow
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
    client.call(Ask.Metadata(topics=None), 9)
    assert client.waits()
    assert not Client(broker, "other").waits()


def test_a_client_over_its_share_of_time_is_told_where_answers_are_its_own(broker, admin):
    """Metadata and ApiVersions answers are shared between clients, so they have no throttle
    time.
    """
    admin.call(quota({"client-id": "busy"}, "request_percentage", 0.00001))
    assert Client(broker, "busy").call(Ask.DescribeCluster()).throttle_time_ms > 0
    assert Client(broker, "busy").call(produce(), 9).throttle_time_ms > 0
    assert Client(broker, "busy").call(Ask.Metadata(topics=[]), 9).throttle_time_ms == 0
    assert Client(broker, "other").call(Ask.DescribeCluster()).throttle_time_ms == 0


def create(*names: str) -> Message:
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in names]
    return Ask.CreateTopics(topics=topics, timeout_ms=5000)


def test_who_makes_too_many_partitions_is_refused_and_waits(broker, admin):
    admin.call(quota({"client-id": "maker"}, "controller_mutation_rate", 0.1))  # 1.1 at once
    maker = Client(broker, "maker")
    answer = maker.call(create("a", "b", "c"))
    throttled = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert [topic.error_code for topic in answer.topics] == [0, throttled, throttled]
    assert 8_000 < answer.throttle_time_ms <= 9_000
    assert maker.waits()
    again = Client(broker, "maker")
    deleted = again.call(Ask.DeleteTopics(topic_names=["a"], timeout_ms=5000), 5)
    assert [topic.error_code for topic in deleted.responses] == [throttled]
    grown = Client(broker, "maker").call(
        Ask.CreatePartitions(
            topics=[{"name": "a", "count": 3, "assignments": None}], timeout_ms=5000
        )
    )
    assert [topic.error_code for topic in grown.results] == [throttled]
    assert Client(broker, "other").call(create("b")).topics[0].error_code == 0


@pytest.mark.slow
def test_a_client_that_knows_no_such_error_is_not_refused_but_waits(broker, admin):
    admin.call(quota({"client-id": "old"}, "controller_mutation_rate", 0.1))
    old = Client(broker, "old")
    answer = old.call(create("a", "b"), 5)
    assert [topic.error_code for topic in answer.topics] == [0, 0]
    assert 28_000 < answer.throttle_time_ms <= 29_000
    assert old.waits()
