"""Simulated members of groups of each protocol: consumer (KIP-848), classic, streams (KIP-1071).
They join, own partitions and leave. They give up what they own after a session timeout without an
answer.
"""

from __future__ import annotations

import json
from typing import Any

from kstore.errors import ErrorCode
from kstore.protocol.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from tests.plain_messages import Ask
from tests.record_requests import join_request
from tests.sim.history import History, Place
from tests.sim.workloads.client import Client, UnansweredError
from tests.sim.workloads.owning import SESSION_S, WAITS, Owner

REBALANCE_S = 10.0
ANSWER_S = 2.0
SUBTOPOLOGY = "0"
PROTOCOL_TYPE, PROTOCOL = "simulated", "round robin"


class EpochMember(Owner):
    """A member whose heartbeats have all fields, and which the broker assigns."""

    api = ""

    def __init__(self, client: Client, history: History, group: str, topic: str) -> None:
        super().__init__(client, history, group, topic)
        self._told = False

    def owned_fields(self, *, joining: bool, full: bool) -> dict[str, Any]:
        """The owned partitions and the subscription, as fields of a heartbeat."""
        raise NotImplementedError

    def taken(self, answer: Any) -> set[int] | None:
        """The partitions that an answer assigns; None if it has no assignment."""
        raise NotImplementedError

    async def heartbeat(self) -> None:
        node = await self.client.coordinator(self.group, transactional=False)
        joining = self.epoch == 0
        full = joining or not self._told
        request = getattr(Ask, self.api)(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=int(REBALANCE_S * 1000) if full else -1,
            **self.owned_fields(joining=joining, full=full),
        )
        sent_at, epoch = self.client.world.loop.time(), self.epoch
        try:
            answer = await self.client.ask(node, request, timeout_s=ANSWER_S)
        except UnansweredError:
            self._told = False
            return
        if epoch != self.epoch:
            return  # revoked meanwhile
        # A refused request may have been done. A member that does not send everything after it does
        # not learn its assignment again.
        self._told = answer.error_code == ErrorCode.NONE
        if self._told:
            self.epoch = answer.member_epoch
            self.keep_until(sent_at + SESSION_S)
            indexes = self.taken(answer)
            if indexes is not None:
                self.own({Place(self.topic, index) for index in indexes})
        elif answer.error_code not in WAITS:
            self.give_up()

    def give_up(self) -> None:
        super().give_up()
        self._told = False

    async def tell_leaving(self, epoch: int) -> None:
        node = await self.client.coordinator(self.group, transactional=False)
        who = {"group_id": self.group, "member_id": self.member_id}
        await self.client.ask(node, getattr(Ask, self.api)(**who, member_epoch=-1))


class ConsumerMember(EpochMember):
    """A member of the consumer protocol."""

    api = "ConsumerGroupHeartbeat"

    def owned_fields(self, *, joining: bool, full: bool) -> dict[str, Any]:
        rows = []
        if self.owned and not joining:
            indexes = sorted(place.partition for place in self.owned)
            rows = [{"topic_id": self.client.topic_ids[self.topic], "partitions": indexes}]
        return {
            "subscribed_topic_names": [self.topic] if full else None, "topic_partitions": rows
        }  # fmt: skip

    def taken(self, answer: Any) -> set[int] | None:
        if answer.assignment is None:
            return None
        for row in answer.assignment.topic_partitions:
            self.client.topic_ids[self.topic] = row.topic_id
        return {i for row in answer.assignment.topic_partitions for i in row.partitions}


class ClassicMember(Owner):
    """A member of the classic protocol. It revokes everything at each rebalance, and the leader
    assigns round robin.
    """

    protocol_type, metadata = PROTOCOL_TYPE, b""

    def __init__(self, client: Client, history: History, group: str, topic: str) -> None:
        super().__init__(client, history, group, topic)
        self.member_id = ""
        self._partitions = 0

    async def heartbeat(self) -> None:
        node = await self.client.coordinator(self.group, transactional=False)
        try:
            if self.epoch <= 0:
                await self._join(node)
                return
            sent_at, epoch = self.client.world.loop.time(), self.epoch
            answer = await self._beat(node, epoch)
        except UnansweredError:
            return
        if epoch != self.epoch:
            return  # revoked meanwhile
        if answer.error_code == ErrorCode.NONE:
            self.keep_until(sent_at + SESSION_S)
        elif answer.error_code not in WAITS:
            self._forget(answer.error_code)

    async def _beat(self, node: int, generation: int) -> Any:
        request = Ask.Heartbeat(
            group_id=self.group, generation_id=generation, member_id=self.member_id
        )
        return await self.client.ask(node, request, timeout_s=ANSWER_S)

    async def _join(self, node: int) -> None:
        client = self.client
        if not self._partitions:
            await client.leader(self.topic, 0)
            self._partitions = len([key for key in client.leaders if key[0] == self.topic])
        request = join_request(
            self.group, self.member_id, ms=int(REBALANCE_S * 1000),
            session_timeout_ms=int(SESSION_S * 1000), protocol_type=self.protocol_type,
            protocols=[{"name": PROTOCOL, "metadata": self.metadata}],
        )  # fmt: skip
        joined = await client.ask(node, request, timeout_s=REBALANCE_S + ANSWER_S)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return
        if joined.error_code != ErrorCode.NONE:
            self._forget(joined.error_code)
            return
        self.member_id = joined.member_id
        assigned = []
        if joined.leader == self.member_id:
            assigned = self._assign([each.member_id for each in joined.members])
        request = Ask.SyncGroup(
            group_id=self.group, generation_id=joined.generation_id, member_id=self.member_id,
            protocol_type=self.protocol_type, protocol_name=PROTOCOL, assignments=assigned,
        )  # fmt: skip
        synced = await client.ask(node, request, timeout_s=REBALANCE_S + ANSWER_S)
        if synced.error_code != ErrorCode.NONE:
            self._forget(synced.error_code)
            return
        # Kafka does not restart the session of a member that joins a stable group.
        await self._begin_to_own(node, joined.generation_id, self.decode(synced.assignment))

    def encode(self, indexes: list[int]) -> bytes:
        """An assignment, in the format that the members of the group use among themselves."""
        return json.dumps(indexes).encode()

    def decode(self, assignment: bytes) -> list[int]:
        """The partitions of an assignment."""
        return list(json.loads(assignment or b"[]"))

    async def _begin_to_own(self, node: int, generation: int, indexes: list[int]) -> None:
        sent_at = self.client.world.loop.time()
        answer = await self._beat(node, generation)
        if answer.error_code == ErrorCode.NONE:
            self.epoch = generation
            self.keep_until(sent_at + SESSION_S)
            self.own({Place(self.topic, index) for index in indexes})

    def _assign(self, members: list[str]) -> list[dict[str, Any]]:
        def part(turn: int) -> bytes:
            return self.encode([*range(turn, self._partitions, len(members))])

        turns = enumerate(sorted(members))
        return [{"member_id": member, "assignment": part(turn)} for turn, member in turns]

    def _forget(self, code: int) -> None:
        """Own nothing and join again, with the same member id if there still is one."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        self.give_up()

    async def tell_leaving(self, epoch: int) -> None:
        member_id, self.member_id = self.member_id, ""
        node = await self.client.coordinator(self.group, transactional=False)
        request = Ask.LeaveGroup(group_id=self.group, members=[{"member_id": member_id}])
        await self.client.ask(node, request)


class SubscribedMember(ClassicMember):
    """A classic member with the subscription and assignment format of consumers, which brokers can
    read.
    """

    protocol_type = "consumer"

    def __init__(self, client: Client, history: History, group: str, topic: str) -> None:
        super().__init__(client, history, group, topic)
        self.metadata = b"\0\0" + ConsumerProtocolSubscription(topics=[topic]).encode(0)

    def encode(self, indexes: list[int]) -> bytes:
        row = ConsumerProtocolAssignmentTopicPartition(topic=self.topic, partitions=indexes)
        return b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=[row]).encode(0)

    def decode(self, assignment: bytes) -> list[int]:
        if not assignment:
            return []
        rows = ConsumerProtocolAssignment.decode(assignment, 0, offset=2).assigned_partitions
        return [index for row in rows for index in row.partitions]


class StreamsMember(EpochMember):
    """A member of the streams protocol; its tasks read the partitions of one topic."""

    api = "StreamsGroupHeartbeat"

    def owned_fields(self, *, joining: bool, full: bool) -> dict[str, Any]:
        indexes = sorted(place.partition for place in self.owned)
        tasks = [{"subtopology_id": SUBTOPOLOGY, "partitions": indexes}]
        reading = {"subtopology_id": SUBTOPOLOGY, "source_topics": [self.topic]}
        return {
            "topology": {"epoch": 0, "subtopologies": [reading]} if joining else None,
            "active_tasks": tasks if indexes and not joining else [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": self.member_id if full else None,
        }

    def taken(self, answer: Any) -> set[int] | None:
        if answer.active_tasks is None:
            return None
        return {index for row in answer.active_tasks for index in row.partitions}
