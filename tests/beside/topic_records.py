"""The records of a topic, read by kstore's consumer; and transactions of kstore's producer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kstore.clients import Consumer, Producer
from kstore.clients.consumer import ConsumerRecord
from kstore.types import TopicPartition
from tests.beside.waiting import TIMEOUT_S


def records_of(bootstrap: str, topic: str, **settings: Any) -> list[ConsumerRecord]:
    """All records of the topic, up to the current ends of its partitions."""
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        count = len(consumer.partitions_for(topic))
        tps = [TopicPartition(topic, index) for index in range(count)]
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found += consumer.poll(200)
    return found


def values_of(bootstrap: str, topic: str, **settings: Any) -> list[bytes]:
    """Only the values, sorted: each should be there once."""
    return sorted(record.value or b"" for record in records_of(bootstrap, topic, **settings))


def polled(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """At least this many records. Raises AssertionError if they do not arrive."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found}"
        found += consumer.poll(100)
    return found


@contextmanager
def transaction(producer: Producer, *, commits: bool = True) -> Iterator[None]:
    """A transaction that is committed or aborted at the end."""
    producer.begin_transaction()
    yield
    if commits:
        producer.commit_transaction()
    else:
        producer.flush()  # if it is aborted before it was sent, it never gets there
        producer.abort_transaction()
