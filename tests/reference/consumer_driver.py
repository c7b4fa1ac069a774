"""A GroupDriver for the consumer protocol. It does not check any rules."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.protocol.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from kstore.protocol.schema import ZERO_UUID
from tests.plain_messages import Ask
from tests.record_requests import commit_request
from tests.reference.group_driver import GroupDriver

REBALANCE_MS = 60_000
Owned = dict[UUID, list[int]]


class ConsumerDriver(GroupDriver):
    """Heartbeats of members of the group ``g``; the default assignment interval is 0."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.group_configs["consumer.assignment.interval.ms"] = 0

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups["g"]
        assert isinstance(group, ConsumerGroup), group
        return group

    def enter(self, member_id: str, *topics: str, **fields: Any) -> Any:
        """A member's first heartbeat."""
        said: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
        }
        return self.beat(member_id, 0, **(said | fields))

    def beat(self, member_id: str, epoch: int, owned: Owned | None = None, **fields: Any) -> Any:
        """A heartbeat; ``owned`` says what the client owns."""
        if owned is not None:
            rows = [{"topic_id": topic, "partitions": owned[topic]} for topic in owned]
            fields["topic_partitions"] = rows
        who = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
        response = self.send(Ask.ConsumerGroupHeartbeat(**who, **fields))
        self.advance(0)  # regular expressions are resolved right after
        return response

    def commit(
        self, member_id: str, epoch: int, topic: str, *partitions: int, version: int = 9
    ) -> list[int]:
        """The error codes of an OffsetCommit."""
        known = self.image.topics.get(topic)
        topic_id = ZERO_UUID if known is None else known.topic_id
        who = {"member_id": member_id, "generation_id_or_member_epoch": epoch}
        request = commit_request(topic, dict.fromkeys(partitions, 0), topic_id=topic_id, **who)
        response = self.send(request, version=version)
        return [row.error_code for row in response.topics[0].partitions]


def owned_of(response: Any) -> Owned:
    """What a heartbeat's answer assigns."""
    return {row.topic_id: list(row.partitions) for row in response.assignment.topic_partitions}


def subscription(*owned: int, topic: str = "t") -> tuple[tuple[str, bytes], ...]:
    """The protocols of a classic member's JoinGroup."""
    parts = [ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=list(owned))]
    value = ConsumerProtocolSubscription(topics=[topic], owned_partitions=parts if owned else [])
    return (("range", b"\x00\x01" + value.encode(1)),)


def assignment(*partitions: int, topic: str = "t", user_data: bytes | None = None) -> bytes:
    """A leader's assignment of partitions of a topic."""
    row = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    value = ConsumerProtocolAssignment(assigned_partitions=[row], user_data=user_data)
    return b"\x00\x01" + value.encode(1)
