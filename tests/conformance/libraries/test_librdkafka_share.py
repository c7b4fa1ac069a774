"""librdkafka's share consumer (confluent-kafka 2.16), unmodified: it acknowledges automatically and
record by record, and the next member gets the records of a member that has left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.clients.admin import ConfigResource

COUNT = 10
DEADLINE_S = 60.0


@pytest.fixture
def group(peer, topic) -> str:
    """A group with the topic's name that begins at the first of this number of records."""
    with AdminClient(peer.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
        reset = {"share.auto.offset.reset": "earliest"}
        admin.alter_resource_configs({ConfigResource("group", topic): reset})
    with Producer(peer.bootstrap) as producer:
        for n in range(COUNT):
            producer.send(topic, b"v%d" % n)
    return topic


@contextmanager
def member(peer, group: str, mode: str) -> Iterator[confluent_kafka.ShareConsumer]:
    config = {
        "bootstrap.servers": peer.bootstrap, "group.id": group, "share.acknowledgement.mode": mode,
    }  # fmt: skip
    with confluent_kafka.ShareConsumer(config) as consumer:
        consumer.subscribe([group])
        yield consumer


def poll(consumer: confluent_kafka.ShareConsumer) -> list[confluent_kafka.Message]:
    """What comes next."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = list(consumer.poll(1.0))
        if found:
            assert [each.error() for each in found] == [None] * len(found)
            return found
        assert time.monotonic() < deadline, "nothing came"


def read(consumer: confluent_kafka.ShareConsumer, count: int) -> list[bytes]:
    """The values of this number of records; the next poll accepts what was polled before."""
    values: list[bytes] = []
    while len(values) < count:
        values += [each.value() for each in poll(consumer)]
    return values


def test_records_are_accepted_by_the_next_poll_and_at_the_end(peer, group):
    with member(peer, group, "implicit") as consumer:
        assert read(consumer, COUNT) == [b"v%d" % n for n in range(COUNT)]
        told = consumer.commit_sync(DEADLINE_S)
        assert set(told.values()) <= {None}
    with AdminClient(peer.bootstrap) as admin:
        (offset,) = admin.list_share_group_offsets(group).values()
        assert offset.lag == 0


def test_each_record_is_accepted_released_or_rejected(peer, group):
    kinds = confluent_kafka.AcknowledgeType
    again: dict[bytes, int] = {}
    with member(peer, group, "explicit") as consumer:
        seen = 0
        while seen < COUNT:
            for record in poll(consumer):
                seen += 1
                if record.offset() == 3:
                    kind = kinds.RELEASE
                else:
                    kind = kinds.REJECT if record.offset() == 5 else kinds.ACCEPT
                consumer.acknowledge(record, kind)
            told = consumer.commit_sync(DEADLINE_S)
            assert set(told.values()) == {None}
        while b"v3" not in again:
            for record in poll(consumer):
                again[record.value()] = record.delivery_count()
                consumer.acknowledge_offset(group, 0, record.offset(), kinds.ACCEPT)
            assert set(consumer.commit_sync(DEADLINE_S).values()) == {None}
    assert again == {b"v3": 2}


def test_what_a_member_had_that_has_left_is_the_next_ones(peer, group):
    with member(peer, group, "explicit") as first:
        had = {record.value() for record in poll(first)}
    assert had
    with member(peer, group, "implicit") as second:
        assert sorted(read(second, COUNT)) == sorted(b"v%d" % n for n in range(COUNT))
