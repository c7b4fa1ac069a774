"""What the tests of jobs share: a second cluster, and looks at what lies in topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstore.clients import Consumer
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition

Records = dict[int, list[tuple[Any, ...]]]


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A second kstore broker, for copies."""
    with Broker(tmp_path_factory.mktemp("target")) as started:
        yield started


@pytest.fixture
def look() -> Callable[[Broker, str], Records]:
    """A topic's committed records by partition: offset, timestamp, key, value, headers."""
    return records_of


def records_of(broker: Broker, topic: str) -> Records:
    found: Records = {}
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    with Consumer(settings) as consumer:
        count = len(consumer.partitions_for(topic))
        consumer.assign([TopicPartition(topic, index) for index in range(count)])
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(consumer.assignment())
        found = {index: [] for index in range(count)}
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for r in consumer.poll(200):
                headers = [tuple(header) for header in r.headers]
                row = r.offset, r.timestamp, r.key, r.value, headers
                found[r.partition].append(row)
    return found
