"""What is in a topic, by kstore's own consumer: the judge of what Spark has written."""

from __future__ import annotations

from kstore.clients import AdminClient, Consumer
from kstore.clients.consumer import ConsumerRecord
from kstore.types import TopicPartition

__all__ = ["records_of", "values_of"]


def records_of(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """All records of the topic, up to the ends that its partitions have now."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        partitions = admin.describe_topics([topic])[0].partitions
        tps = [TopicPartition(topic, index) for index in range(len(partitions))]
        ends = admin.list_offsets(dict.fromkeys(tps, "latest"))
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        while any(consumer.position(tp) < end.offset for tp, end in ends.items()):
            found += consumer.poll(1000)
    return found


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    """The values alone, sorted: each should be there once."""
    return sorted(record.value or b"" for record in records_of(bootstrap, topic))
