"""confluent-kafka's API on kstore's clients: use `from kstore.clients.compat.confluent import
Producer` instead of `from confluent_kafka import Producer`. As there, .admin has the admin client,
.serialization the serializers, .error their errors.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients, kstore.config,
    kstore.errors, kstore.types.
"""

from __future__ import annotations

from kstore.clients.compat.confluent.consumer import Consumer
from kstore.clients.compat.confluent.error import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
    ThrottleEvent,
)
from kstore.clients.compat.confluent.model import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    Message,
    Node,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
    Uuid,
)
from kstore.clients.compat.confluent.producer import Producer
from kstore.clients.compat.confluent.serializing import DeserializingConsumer, SerializingProducer
from kstore.clients.compat.confluent.settings import consistent, fnv1a
from kstore.clients.compat.confluent.settings import murmur2_partition as murmur2

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "ConcurrentModificationException",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "ElectionType",
    "IllegalStateException",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "Node",
    "Producer",
    "SerializingProducer",
    "ThrottleEvent",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]

VERSION = (2, 16, 1)
__version__ = "2.16.1"
"""The version of confluent-kafka whose API this is."""


def version() -> str:
    """The version of confluent-kafka whose API this is."""
    return ".".join(map(str, VERSION))


def libversion() -> tuple[str, int]:
    """librdkafka's version format: text, and a number with one byte per part."""
    major, minor, fix = VERSION
    return version(), major << 24 | minor << 16 | fix << 8 | 0xFF
