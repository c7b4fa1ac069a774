"""kstore's own clients with a broker: with kstore's, and with Apache Kafka itself."""

from __future__ import annotations

import time

import pytest

from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.errors import (
    InvalidPartitionsError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kstore.types import Header, TopicPartition
from tests.conformance.kstore_broker import KstoreBroker


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_is_sent_is_read_back_in_order(
    servers: str, admin: AdminClient, topic: str, compression: str, idempotent: bool
) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=3)])
    with Producer(
        servers, compression_type=compression, enable_idempotence=idempotent, batch_size=4096
    ) as producer:
        sent = [
            producer.send(topic, b"v%d" % n, b"k%d" % (n % 7), None, 1_700_000_000_000 + n)
            for n in range(1000)
        ]
        producer.flush()
        assert all(delivery.done and delivery.error is None for delivery in sent)
    with Consumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=3000
    ) as consumer:
        found = []
        while len(found) < 1000:
            records = consumer.poll(10_000)
            assert records
            found += records
    where = {(record.partition, record.offset): record for record in found}
    assert len(where) == 1000
    for n, delivery in enumerate(sent):
        record = where[delivery.partition, delivery.offset]
        assert (record.key, record.value) == (b"k%d" % (n % 7), b"v%d" % n)
        assert record.timestamp == 1_700_000_000_000 + n
    for partition in range(3):
        offsets = [record.offset for record in found if record.partition == partition]
        assert offsets == sorted(offsets)


def test_headers_nulls_and_empty_values_survive(
    servers: str, admin: AdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=1)])
    headers = (Header("a", b"1"), Header("b", None), Header("a", b""))
    with Producer(servers) as producer:
        assert producer.send(topic, None, b"gone").result() == 0
        assert producer.send(topic, b"", None, headers=headers).result() == 1
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        first, second = consumer.poll(10_000)
    assert (first.key, first.value, first.headers) == (b"gone", None, ())
    assert (second.key, second.value, second.headers) == (None, b"", headers)


def test_a_missing_topic_is_created_by_a_send(servers: str, topic: str) -> None:
    with Producer(servers) as producer:
        assert producer.send(topic, b"x").result() == 0


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks(servers: str, admin: AdminClient, topic: str, acks: int) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=1)])
    with Producer(servers, acks=acks) as producer:
        assert producer.send(topic, b"x").result() == (-1 if acks == 0 else 0)
    with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        assert [record.value for record in consumer.poll(10_000)] == [b"x"]


def test_a_consumer_seeks_and_tells_offsets(servers: str, admin: AdminClient, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    admin.create_topics([NewTopic(topic, num_partitions=1)])
    with Producer(servers) as producer:
        for n in range(10):
            producer.send(topic, b"%d" % n, timestamp=1000 + n)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="latest") as consumer:
        consumer.assign([tp])
        assert consumer.position(tp) == 10
        assert consumer.poll(10) == []
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        assert consumer.end_offsets([tp]) == {tp: 10}
        found = consumer.offsets_for_times({tp: 1004})[tp]
        assert found is not None
        assert (found.offset, found.timestamp) == (4, 1004)
        assert consumer.offsets_for_times({tp: 99_999}) == {tp: None}
        consumer.seek(tp, 7)
        assert [record.offset for record in consumer.poll(10_000)] == [7, 8, 9]
        assert consumer.position(tp) == 10
        consumer.seek_to_beginning()
        assert consumer.poll(10_000, max_records=1)[0].offset == 0
        assert consumer.position(tp) == 1
        consumer.seek(tp, 500)
        deadline = time.monotonic() + 60
        while consumer.position(tp) == 500 and time.monotonic() < deadline:
            assert consumer.poll(500) == []
        assert consumer.position(tp) == 10


def test_iteration_ends_after_consumer_timeout_ms(servers: str, topic: str) -> None:
    with Producer(servers) as producer:
        producer.send(topic, b"1")
        producer.send(topic, b"2")
    with Consumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=1000
    ) as consumer:
        assert [record.value for record in consumer] == [b"1", b"2"]


def test_topics_are_created_listed_described_grown_and_deleted(
    servers: str, admin: AdminClient, topic: str
) -> None:
    ids = admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "5000"})])
    with pytest.raises(TopicAlreadyExistsError, match=topic):
        admin.create_topics([topic])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert described.topic_id == ids[topic]
    assert [row.partition for row in described.partitions] == [0, 1]
    assert described.partitions[0].isr == described.partitions[0].replicas
    assert admin.describe_configs(topic)["retention.ms"].value == "5000"
    admin.delete_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError, match=topic):
        admin.delete_topics([topic])


def test_a_bad_topic_is_refused_with_its_name(admin: AdminClient, topic: str) -> None:
    with pytest.raises(InvalidPartitionsError, match=topic):
        admin.create_topics([NewTopic(topic, num_partitions=0)])


def test_the_cluster_and_its_offsets_are_described(
    servers: str, admin: AdminClient, topic: str
) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert [f"{broker.host}:{broker.port}" for broker in cluster.brokers] == [servers]
    admin.create_topics([NewTopic(topic, num_partitions=1)])
    tp = TopicPartition(topic, 0)
    with Producer(servers) as producer:
        producer.send(topic, b"x", timestamp=77).result()
    assert admin.list_offsets({tp: "latest"})[tp].offset == 1
    assert admin.list_offsets({tp: "earliest"})[tp].offset == 0
    assert admin.list_offsets({tp: "max-timestamp"})[tp][:2] == (0, 77)


def test_records_are_there_once_and_in_order_after_the_broker_was_killed(
    own_broker: KstoreBroker, topic: str
) -> None:
    with AdminClient(own_broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1)])
    options = {"auto_offset_reset": "earliest", "request_timeout_ms": 10_000}
    with (
        Producer(own_broker.bootstrap, batch_size=2000, request_timeout_ms=10_000) as producer,
        Consumer(bootstrap_servers=own_broker.bootstrap, **options) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        found = []
        for round_number in range(3):
            for n in range(200):
                producer.send(topic, b"%d-%d" % (round_number, n))
            if round_number:
                own_broker.kill()
                own_broker.start()
            producer.flush()
            found += consumer.poll(10_000)
        while records := consumer.poll(1000):
            found += records
    assert [record.offset for record in found] == list(range(600))
    assert [record.value for record in found] == [
        b"%d-%d" % (round_number, n) for round_number in range(3) for n in range(200)
    ]
