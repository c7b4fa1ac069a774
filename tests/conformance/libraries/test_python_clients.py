"""Unmodified Python clients against the broker: what one sends is what it and the others read."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest

from tests.conformance.libraries.python_clients import PYTHON_CLIENTS, Client, Read
from tests.conformance.libraries.samples import CODECS, Sample, samples
from tests.conformance.storage.stored import stored_codecs


@pytest.fixture(params=PYTHON_CLIENTS)
def client(request: pytest.FixtureRequest, peer) -> Client:
    """Each Python client in turn."""
    return PYTHON_CLIENTS[request.param](peer.bootstrap)


def in_place(found: list[Read]) -> list[tuple[int, Sample]]:
    """Offsets and records in offset order of one partition."""
    return sorted((read.offset, read.sample) for read in found)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(
    "idempotent",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["plain", "idempotent"],
)
@pytest.mark.parametrize("codec", CODECS)
def test_a_client_reads_back_every_record_that_it_sent_in_order(
    client, peer, topic, codec, idempotent
):
    client.create_topic(topic, 1)
    sent = samples()
    offsets = client.send(topic, sent, codec=codec, idempotent=idempotent)
    assert offsets == list(range(len(sent)))
    assert [(r.offset, r.sample) for r in client.read(topic, len(sent))] == list(enumerate(sent))
    stored = stored_codecs(peer.log_dir, topic)
    assert codec in stored
    # librdkafka and kafka-python leave a batch alone that compression does not shrink.
    assert stored <= {codec} | ({"none"} if client.name != "aiokafka" else set())


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_every_client_wrote(peer, topic, codec):
    drivers = [kind(peer.bootstrap) for kind in PYTHON_CLIENTS.values()]
    drivers[0].create_topic(topic, 1)
    sent: list[Sample] = []
    for driver in drivers:
        batch = samples(30, seed=len(sent))
        assert driver.send(topic, batch, codec=codec)[0] == len(sent)
        sent += batch
    for driver in drivers:
        found = driver.read(topic, len(sent))
        assert [(r.offset, r.sample) for r in found] == list(enumerate(sent)), driver.name


def test_unacknowledged_records_arrive_too(client, topic):
    client.create_topic(topic, 1)
    sent = samples(20)
    client.send(topic, sent, acks="0")
    assert [r.sample for r in client.read(topic, len(sent))] == sent


@pytest.mark.quick_one_in(3)
def test_records_without_a_named_partition_keep_their_order_per_key(client, topic):
    client.create_topic(topic, 4)
    sent = [sample for sample in samples(80) if sample.key]
    client.send(topic, sent, partition=None)
    found = client.read(topic, len(sent), partitions=4)
    by_key: dict[bytes | None, list[Sample]] = defaultdict(list)
    for read in sorted(found):
        by_key[read.sample.key].append(read.sample)
    assert {key: [s for s in sent if s.key == key] for key in by_key} == by_key
    assert len(found) == len(sent)


@pytest.mark.slow
def test_a_group_goes_on_where_it_committed(client, topic):
    client.create_topic(topic, 3)
    first, second = samples(30), samples(30, seed=8)
    for partition in range(3):
        client.send(topic, first, partition=partition)
    group = f"g-{topic}"
    found = client.read_as_group(topic, group, 90)
    assert sorted(in_place(found)) == sorted([*enumerate(first)] * 3)
    client.send(topic, second, partition=1)
    after = client.read_as_group(topic, group, 30)
    assert {r.partition for r in after} == {1}
    assert in_place(after) == list(enumerate(second, start=30))


def test_a_topic_can_be_created_with_configs_and_its_log_keeps_append_time(client, topic):
    client.create_topic(topic, 1, message_timestamp_type="LogAppendTime")
    sent = samples(5)
    client.send(topic, sent)
    found = client.read(topic, 5)
    assert [r.sample._replace(timestamp_ms=0) for r in found] == [
        s._replace(timestamp_ms=0) for s in sent
    ]
    assert all(r.sample.timestamp_ms > sent[-1].timestamp_ms for r in found)


def test_creating_a_topic_twice_is_refused(client, topic):
    client.create_topic(topic, 1)
    with pytest.raises(Exception, match=r"(?i)already.?exists"):
        client.create_topic(topic, 1)


@pytest.mark.slow
def test_librdkafkas_statistics_tell_what_was_received_and_no_lag(peer, topic):
    import json

    from confluent_kafka import Consumer

    client = PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap)
    client.create_topic(topic, 1)
    client.send(topic, samples(20))
    told: list[dict] = []
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "statistics.interval.ms": 200,
            "stats_cb": lambda text: told.append(json.loads(text)),
        }
    )
    consumer.subscribe([topic])

    def partition() -> dict:
        found = told[-1]["topics"].get(topic, {}) if told else {}
        return found.get("partitions", {}).get("0", {})

    deadline = time.monotonic() + 40
    wanted = {"rxmsgs": 20, "hi_offset": 20, "lo_offset": 0, "consumer_lag": 0}
    while {name: partition().get(name) for name in wanted} != wanted:
        assert time.monotonic() < deadline, partition()
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and message.offset() == 19:
            consumer.commit(message, asynchronous=False)
    consumer.close()
    states = {row["state"] for row in told[-1]["brokers"].values() if row["nodeid"] >= 0}
    assert states == {"UP"}
