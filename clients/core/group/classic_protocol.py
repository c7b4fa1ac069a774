"""The embedded messages of the classic consumer protocol: subscriptions and assignments as bytes.

Written in the newest version (3); a newer version is read as version 3 (KIP-429, KIP-792).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable

from kstore.clients.core.group.assignors import Subscription
from kstore.errors import ProtocolError
from kstore.protocol.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from kstore.types import TopicPartition

__all__ = [
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]

NEWEST = 3


def encode_subscription(subscription: Subscription) -> bytes:
    """A member's metadata in JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in _by_topic(subscription.owned)
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return struct.pack(">h", NEWEST) + message.encode(NEWEST)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Another member's subscription. Raises ProtocolError if it is malformed."""
    version = _version(data)
    message = ConsumerProtocolSubscription.decode_prefix(data, version, offset=2)[0]
    return Subscription(
        topics=frozenset(message.topics),
        owned=tuple(
            TopicPartition(row.topic, index)
            for row in message.owned_partitions
            for index in row.partitions
        ),
        generation=message.generation_id,
        user_data=None if message.user_data is None else bytes(message.user_data),
        instance_id=instance_id,
        rack=message.rack_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A member's assignment in the leader's SyncGroup."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in _by_topic(partitions)
        ]
    )
    return struct.pack(">h", NEWEST) + message.encode(NEWEST)


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The assignment from the leader; empty bytes are an empty assignment."""
    if not data:
        return frozenset()
    message = ConsumerProtocolAssignment.decode_prefix(data, _version(data), offset=2)[0]
    return frozenset(
        TopicPartition(row.topic, index)
        for row in message.assigned_partitions
        for index in row.partitions
    )


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise ProtocolError(f"{len(data)} bytes are too few for a consumer protocol message")
    version = int(struct.unpack_from(">h", data)[0])
    if version < 0:
        raise ProtocolError(f"consumer protocol version {version} is negative")
    return min(version, NEWEST)


def _by_topic(partitions: Iterable[TopicPartition]) -> Collection[tuple[str, list[int]]]:
    rows: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        rows.setdefault(topic, []).append(index)
    return rows.items()
