"""The value types of confluent-kafka: TopicPartition, Message, Uuid, Node and others, the constants
and the enumerations.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from kstore._fast.clients.fetched import ConsumerRecord
from kstore.clients.compat.confluent.error import KafkaError
from kstore.types import OffsetAndMetadata
from kstore.types import TopicPartition as TopicPartitionPair

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "ElectionType",
    "IsolationLevel",
    "Message",
    "Node",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "enum_of",
    "pairs_of",
]

OFFSET_BEGINNING, OFFSET_END = -2, -1
OFFSET_STORED, OFFSET_INVALID = -1000, -1001
TIMESTAMP_NOT_AVAILABLE, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME = 0, 1, 2


@functools.total_ordering
class TopicPartition:
    """A partition, with an offset and an error; compared by topic and partition only."""

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = None if leader_epoch is None or leader_epoch < 0 else leader_epoch
        self.error: KafkaError | None = None

    @property
    def pair(self) -> TopicPartitionPair:
        """In the form of kstore's clients."""
        return TopicPartitionPair(self.topic, self.partition)

    @property
    def committable(self) -> OffsetAndMetadata:
        """The offset to commit."""
        epoch = -1 if self.leader_epoch is None else self.leader_epoch
        return OffsetAndMetadata(self.offset, self.metadata or "", epoch)

    @classmethod
    def at(cls, pair: TopicPartitionPair, row: OffsetAndMetadata | None) -> TopicPartition:
        """A partition and its committed offset."""
        if row is None:
            return cls(pair.topic, pair.partition)
        return cls(pair.topic, pair.partition, row.offset, row.metadata or None, row.leader_epoch)

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPartition) and self.pair == other.pair

    def __lt__(self, other: TopicPartition) -> bool:
        return self.pair < other.pair


def pairs_of(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The list, after a check. Raises TypeError for anything else."""
    found = list(partitions) if isinstance(partitions, (list, tuple)) else None
    if found is None or not all(isinstance(each, TopicPartition) for each in found):
        raise TypeError("requires list of TopicPartition")
    return found


class Message:
    """A record that was received or sent, or an error."""

    __slots__ = (
        "_delivery_count", "_error", "_headers", "_key", "_latency", "_leader_epoch", "_offset",
        "_partition", "_timestamp", "_topic", "_value",
    )  # fmt: skip

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic, self._partition, self._offset = topic, partition, offset
        self._key, self._value, self._headers = key, value, headers
        self._error, self._timestamp = error, timestamp or (TIMESTAMP_NOT_AVAILABLE, 0)
        self._latency, self._leader_epoch = latency, leader_epoch
        self._delivery_count = delivery_count

    @classmethod
    def of(cls, record: ConsumerRecord) -> Message:
        """A received record."""
        kind = TIMESTAMP_LOG_APPEND_TIME if record.timestamp_type else TIMESTAMP_CREATE_TIME
        stamp = (kind, record.timestamp) if record.timestamp >= 0 else (0, -1)
        epoch = record.leader_epoch
        return cls(
            record.topic, record.partition, record.offset, record.key, record.value,
            [(name, value) for name, value in record.headers] or None, None, stamp, None,
            epoch if epoch >= 0 else None,
        )  # fmt: skip

    def topic(self) -> str | None:
        """The topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """The partition's index."""
        return self._partition

    def offset(self) -> int | None:
        """The offset, if it is known."""
        return self._offset

    def key(self) -> Any:
        """The key; an object after DeserializingConsumer."""
        return self._key

    def value(self) -> Any:
        """The value, or the text of the error."""
        return self._value

    deserialized_key = key
    deserialized_value = value

    def headers(self) -> Any:
        """A list of (name, value), or None."""
        return self._headers

    def error(self) -> KafkaError | None:
        """The error, if there is no record."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """TIMESTAMP_..., and milliseconds since 1970."""
        return self._timestamp

    def latency(self) -> float | None:
        """Seconds from produce() to the broker's response."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """The leader epoch in which the record was written."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Only for share consumers."""
        return self._delivery_count

    def set_topic(self, topic: str) -> None:
        """Replace the topic's name."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        self._error = error

    def __len__(self) -> int:
        return len(self._value) if isinstance(self._value, (bytes, str)) else 0

    def _content(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (
            self._topic, self._partition, self._offset, self._key, self._value, self._headers,
            self._error, self._timestamp, self._latency, self._leader_epoch, self._delivery_count,
        )  # fmt: skip


class Uuid:
    """A topic's id, in two halves of 64 bits; its text is Kafka's base64."""

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        self._halves = (most_significant_bits, least_significant_bits)

    @classmethod
    def of(cls, given: uuid.UUID) -> Uuid:
        """From Python's UUID."""
        high, low = given.int >> 64, given.int & 0xFFFFFFFFFFFFFFFF
        return cls(*(half - (1 << 64) if half >> 63 else half for half in (high, low)))

    def get_most_significant_bits(self) -> int:
        """The first 64 bits, signed."""
        return self._halves[0]

    def get_least_significant_bits(self) -> int:
        """The last 64 bits, signed."""
        return self._halves[1]

    def __int__(self) -> int:
        high, low = (half & 0xFFFFFFFFFFFFFFFF for half in self._halves)
        return high << 64 | low

    def __str__(self) -> str:
        from base64 import b64encode

        return b64encode(int(self).to_bytes(16, "big")).decode().rstrip("=")

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self._halves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uuid) and self._halves == other._halves


class Node:
    """A broker."""

    def __init__(self, id: int, host: str, port: int, rack: str | None = None) -> None:
        self.id, self.host, self.port, self.rack = id, host, port, rack
        self.id_string = str(id)

    def __str__(self) -> str:
        rack = f" {self.rack}" if self.rack else ""
        return f"({self.id}) {self.host}:{self.port}{rack}"


class TopicPartitionInfo:
    """A partition's leader and replicas."""

    def __init__(
        self,
        id: int,
        leader: Node | None,
        replicas: Sequence[Node],
        isr: Sequence[Node],
    ) -> None:
        self.id, self.leader, self.replicas, self.isr = id, leader, list(replicas), list(isr)


class TopicCollection:
    """Topics by name."""

    def __init__(self, topic_names: list[str]) -> None:
        self.topic_names = topic_names


class ConsumerGroupTopicPartitions:
    """A group and partitions, with offsets."""

    def __init__(self, group_id: str, topic_partitions: list[TopicPartition] | None = None) -> None:
        self.group_id, self.topic_partitions = group_id, topic_partitions


class _Ordered(Enum):
    """Members compare by their values."""

    def __lt__(self, other: Any) -> Any:
        return self.value < other.value if type(self) is type(other) else NotImplemented


class ConsumerGroupState(_Ordered):
    """The state of a group."""

    UNKNOWN = 0
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


class ConsumerGroupType(_Ordered):
    """The protocol of a group."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


class IsolationLevel(_Ordered):
    """The isolation level."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ElectionType(_Ordered):
    """How a leader is elected."""

    PREFERRED = 0
    UNCLEAN = 1


def enum_of(kind: type[Enum], given: Any) -> Any:
    """A member of an enumeration from itself, its name or its value. Raises ValueError for
    others.
    """
    if isinstance(given, str):
        try:
            return kind[given.upper()]
        except KeyError:
            raise ValueError(f"{given!r} is not one of {[each.name for each in kind]}") from None
    return kind(given.value if isinstance(given, Enum) else given)
