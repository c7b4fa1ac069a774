"""What is in a topic, by kstore's own consumer."""

from __future__ import annotations

from typing import Any

from kstore.clients import Consumer
from kstore.clients.consumer import ConsumerRecord
from kstore.types import TopicPartition


def records_of(bootstrap: str, topic: str, **settings: Any) -> list[ConsumerRecord]:
    """All records of the topic, up to the ends that its partitions have now."""
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
    """The values alone, sorted: each should be there once."""
    return sorted(record.value or b"" for record in records_of(bootstrap, topic, **settings))
