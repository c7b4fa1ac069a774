"""The common part of simulated group members of all protocols: what they own and until when, and
their work, which is to read and commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from kstore.errors import ErrorCode
from tests.sim.history import History, Place
from tests.sim.workloads.client import Client, UnansweredError, Workload
from tests.sim.workloads.committing import commit, committed_offset
from tests.sim.workloads.reading import fetch, rows_of

SESSION_S = 3.0
HEARTBEAT_S = 0.4
WAITS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Owner(Workload):
    """One member of one group on one topic. Subclasses implement how it joins, stays and leaves."""

    def __init__(self, client: Client, history: History, group: str, topic: str) -> None:
        super().__init__(client, history)
        self.group = group
        self.topic = topic
        self.leaves = 0.02
        """How often it leaves after a heartbeat."""
        self.rest_s = 0.2
        """How long it rests at most between two fetches."""
        self.member_id = client.name
        self.epoch = 0
        """Member epoch or generation; not positive while it is no member."""
        self.owned: dict[Place, int] = {}
        """Each with the offset to continue from; -1: unknown yet."""
        self._uncommitted: set[Place] = set()
        """Those whose last commit was refused or not answered."""
        self._deadline: asyncio.TimerHandle | None = None

    async def heartbeat(self) -> None:
        """Join, or send a heartbeat, and learn the assignment."""
        raise NotImplementedError

    async def tell_leaving(self, epoch: int) -> None:
        """Leave once; UnansweredError."""
        raise NotImplementedError

    async def run(self) -> None:
        """Be a member until stopped; leave now and then."""
        consuming = self.client.spawn(self._consume())
        while not self.stopping:
            await self.heartbeat()
            await asyncio.sleep(HEARTBEAT_S)
            if self.epoch > 0 and self.client.random.random() < self.leaves:
                self.history.counts["departures"] += 1
                await self._leave()
                await self.client.pause(0.1, 2.0)
        await self._leave()
        consuming.cancel()

    # ---- membership ----

    def own(self, places: Collection[Place]) -> None:
        """Own exactly these from now on."""
        for place in [each for each in self.owned if each not in places]:
            self.disown(place)
        for place in sorted(set(places) - set(self.owned)):
            self.history.owns(self.group, place, self.client.name)
            self.owned[place] = -1

    def disown(self, place: Place) -> None:
        """Revoke a partition."""
        del self.owned[place]
        self._uncommitted.discard(place)
        self.history.disowns(self.group, place, self.client.name)

    def keep_until(self, when: float) -> None:
        """Revoke everything at that time, unless another heartbeat is answered before."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.client.world.loop.call_at(when, self.give_up)

    def give_up(self) -> None:
        """Stop being a member, and own nothing."""
        for place in list(self.owned):
            self.disown(place)
        self.epoch = 0

    async def _leave(self) -> None:
        epoch = self.epoch
        self.give_up()
        if epoch <= 0:
            return
        try:
            await self.tell_leaving(epoch)
        except UnansweredError:
            # The request may still arrive: make sure that it can only affect another member.
            self.member_id = self.member_id and self.member_id + "+"

    # ---- work ----

    async def _consume(self) -> None:
        while True:
            await self.client.pause(0.02, self.rest_s)
            for place in list(self.owned):
                await self._consume_some(place)

    async def _consume_some(self, place: Place) -> None:
        client, epoch = self.client, self.epoch
        if self.history.is_gone(place):
            return
        if self.owned.get(place, 0) < 0:
            asked = self.history.asks_commit(self.group, place)
            offset = await committed_offset(client, self.group, place)
            self.history.found_commit(self.group, place, offset, asked)
            offset = max(offset, 0)
            if self.owned.get(place, 0) < 0:
                self.owned[place] = offset
        if place not in self.owned or epoch != self.epoch:
            return
        offset = self.owned[place]
        try:
            answer = await fetch(client, place, offset, isolation=0, wait_ms=50)
        except UnansweredError:
            return
        if answer.error_code != ErrorCode.NONE:
            return
        rows, next_offset = rows_of(answer, offset)
        for row in rows:
            self.history.was_read(place, row.offset, row.value)
        if place not in self.owned or epoch != self.epoch:
            return
        if next_offset == offset and place not in self._uncommitted:
            return
        if next_offset != offset:
            self.history.was_processed(self.group, [row.value for row in rows])
        self.owned[place] = next_offset
        self._uncommitted.add(place)
        node = await client.coordinator(self.group, transactional=False)
        if place not in self.owned or epoch != self.epoch:
            return
        self.history.commit_sent(self.group, place, next_offset, client.name)
        try:
            code = await commit(client, node, self.group, self.member_id, epoch, place, next_offset)
        except UnansweredError:
            return
        self.history.commit_answered(self.group, place, next_offset, client.name, code)
        if code == ErrorCode.NONE:
            self._uncommitted.discard(place)
