"""On which partition a record lies, as Kafka's Java client has it. It knows nothing of leaders."""

from __future__ import annotations

from kstore._fast.murmur2 import murmur2

__all__ = ["StickyPartitions", "partition_for_key"]


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key: murmur2, made positive, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitions:
    """Partitions for records without a key: one after the other, a whole batch each (KIP-480)."""

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def partition(self, topic: str, partitions: int) -> int:
        """The partition on which the topic's current batch is being filled."""
        return self._current.setdefault(topic, 0) % partitions

    def next_batch(self, topic: str) -> None:
        """A batch of the topic is full: the next one goes to the next partition."""
        self._current[topic] = self._current.get(topic, 0) + 1
