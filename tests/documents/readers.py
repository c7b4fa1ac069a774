"""What is in a topic, by an unmodified client (librdkafka): so that what kstore wrote is not judged
by kstore's own reader.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

TIMEOUT_S = 60.0


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def everything(
    bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed"
) -> list[list[Seen]]:
    """All records of each partition, up to its end."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[list[Seen]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    try:
        reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{topic} was not read to its end"
            message: Any = reader.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()].append(
                    Seen(
                        message.offset(),
                        message.timestamp(),
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                    )
                )
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    finally:
        reader.close()
    return found
