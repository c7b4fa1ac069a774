"""Simulated members of a consumer group (KIP-848): they join, own, commit, leave, and give up what
they own when they have not been heard for a session.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kstore.errors import ErrorCode
from kstore.protocol.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from tests.sim.client import Client, UnansweredError
from tests.sim.committing import commit, committed_offset
from tests.sim.history import History, Place
from tests.sim.reading import fetch, rows_of

__all__ = ["Member"]

SESSION_S = 3.0
HEARTBEAT_S = 0.4
WAITS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Member:
    """One member of one group on one topic."""

    def __init__(self, client: Client, history: History, group: str, topic: str) -> None:
        self.client = client
        self.history = history
        self.group = group
        self.topic = topic
        self.stopping = False
        self.member_id = client.name
        self._epoch = 0
        self._owned: dict[Place, int] = {}
        """Each with the offset to go on from; -1 until that is known."""
        self._assigned: set[Place] = set()
        self._deadline: asyncio.TimerHandle | None = None
        self._told = False

    async def run(self) -> None:
        """Be a member until told to stop; leave now and then."""
        consuming = self.client.spawn(self._consume())
        while not self.stopping:
            await self._heartbeat()
            await asyncio.sleep(HEARTBEAT_S)
            if self._epoch > 0 and self.client.random.random() < 0.02:
                await self._leave()
                await self.client.pause(0.1, 2.0)
        await self._leave()
        consuming.cancel()

    # ---- membership ----

    async def _heartbeat(self) -> None:
        node = await self.client.coordinator(self.group, transactional=False)
        joining = self._epoch == 0
        full = joining or not self._told
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=10_000 if full else -1,
            subscribed_topic_names=[self.topic] if full else None,
            topic_partitions=self._owned_rows() if not joining else [],
        )
        sent_at = self.client.world.loop.time()
        epoch = self._epoch
        try:
            answer = await self.client.ask(node, request, timeout_s=2.0)
        except UnansweredError:
            self._told = False
            return
        if epoch != self._epoch:
            return  # given up meanwhile
        if answer.error_code == ErrorCode.NONE:
            self._told = True
            self._epoch = answer.member_epoch
            self._keep_until(sent_at + SESSION_S)
            if answer.assignment is not None:
                self._take(answer.assignment)
        elif answer.error_code not in WAITS:
            self._give_up()

    def _owned_rows(self) -> list[Any]:
        if not self._owned:
            return []
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self.client.topic_ids[self.topic],
                partitions=sorted(place.partition for place in self._owned),
            )
        ]

    def _take(self, assignment: Any) -> None:
        places = {
            Place(self.topic, index)
            for row in assignment.topic_partitions
            for index in row.partitions
        }
        for row in assignment.topic_partitions:
            self.client.topic_ids[self.topic] = row.topic_id
        for place in [each for each in self._owned if each not in places]:
            self._disown(place)
        for place in sorted(places - set(self._owned)):
            self.history.owns(self.group, place, f"{self.client.name}")
            self._owned[place] = -1

    def _disown(self, place: Place) -> None:
        del self._owned[place]
        self.history.disowns(self.group, place, self.client.name)

    def _keep_until(self, when: float) -> None:
        """Give everything up then, unless another heartbeat is answered before."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.client.world.loop.call_at(when, self._give_up)

    def _give_up(self) -> None:
        for place in list(self._owned):
            self._disown(place)
        self._epoch = 0
        self._told = False

    async def _leave(self) -> None:
        epoch, self._epoch = self._epoch, 0
        if epoch <= 0:
            return
        self._give_up()
        node = await self.client.coordinator(self.group, transactional=False)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=-1
        )
        try:
            await self.client.ask(node, request)
        except UnansweredError:
            return

    # ---- work ----

    async def _consume(self) -> None:
        while True:
            await self.client.pause(0.02, 0.2)
            for place in list(self._owned):
                await self._consume_some(place)

    async def _consume_some(self, place: Place) -> None:
        client, epoch = self.client, self._epoch
        if self._owned.get(place, 0) < 0:
            low = self.history.least_commit(self.group, place)
            offset = await committed_offset(client, self.group, place)
            self.history.found_commit(self.group, place, offset, low)
            offset = max(offset, 0)
            if self._owned.get(place, 0) < 0:
                self._owned[place] = offset
        if place not in self._owned or epoch != self._epoch:
            return
        offset = self._owned[place]
        try:
            answer = await fetch(client, place, offset, isolation=0, wait_ms=50)
        except UnansweredError:
            return
        if answer.error_code != ErrorCode.NONE:
            return
        rows, next_offset = rows_of(answer, offset)
        for row in rows:
            self.history.was_read(place, row.offset, row.value)
        if place not in self._owned or epoch != self._epoch or next_offset == offset:
            return
        self._owned[place] = next_offset
        node = await client.coordinator(self.group, transactional=False)
        if place not in self._owned or epoch != self._epoch:
            return
        self.history.commit_sent(self.group, place, next_offset)
        try:
            code = await commit(client, node, self.group, self.member_id, epoch, place, next_offset)
        except UnansweredError:
            return
        if code == ErrorCode.NONE:
            self.history.committed(self.group, place, next_offset)
