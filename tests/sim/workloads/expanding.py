"""A simulated topic whose number of partitions grows while records with keys are written to it
(KIP-253). The producer states its number of partitions, and distributes refused records again. A
group that reads the topic must get the records of each key in order. Also a topic that shrinks:
groups of both protocols read it all the time, and another group comes later. When they have read a
retired partition, it is emptied and deleted, and the topic grows again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

from kstore.errors import ErrorCode
from kstore.record import build_batch
from tests.plain_messages import Ask
from tests.record_requests import only, produce_request
from tests.sim.history import KEYED, History, Place, Row
from tests.sim.refusals import Refusals
from tests.sim.workloads.client import Client, UnansweredError, Workload
from tests.sim.workloads.committing import committed_offset
from tests.sim.workloads.grouping import ConsumerMember, SubscribedMember
from tests.sim.workloads.owning import Owner
from tests.sim.workloads.producing import init_producer
from tests.sim.workloads.reading import read_partition

FIRST_COUNT, LARGEST_COUNT = 2, 6
WIDE_COUNT = 5
"""How many the one has that shrinks."""
KEYS = [f"k{number}" for number in range(12)]
FIRST_WITH_COUNT = 12
READ_S = 5.0
LOOK_S = 0.5
MULTIPLIER = 2862933555777941757
DONE = (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
"""Partitions are added now, or were by an earlier question whose answer was lost."""


class _Batch(NamedTuple):
    """The records for one partition; they do not change until they are acknowledged or refused."""

    partition: int
    of: int
    """For how many partitions it was made."""
    sequence: int
    keys: tuple[str, ...]


class KeyedProducer(Workload):
    """Writes to the partition of each key, with at most one record in flight for each key."""

    first_count = FIRST_COUNT
    ended = False
    """Nothing more is sent."""

    def __init__(self, client: Client, history: History, topic: str, refusals: Refusals) -> None:
        super().__init__(client, history)
        self.topic = topic
        self.refusals = refusals
        self.next: dict[str, int] = dict.fromkeys(KEYS, 0)
        """The number of each key's next record."""
        self.count = self.first_count
        self.unanswered: set[int] = set()
        """The partitions that may have records of which that is not known."""
        self._sequences: dict[int, int] = defaultdict(int)
        self._id = (-1, -1)

    async def run(self) -> None:
        """Write until stopped and everything is acknowledged."""
        self._id = await init_producer(self.client, None)
        while not self.stopping:
            random = self.client.random
            await self._write(set(random.sample(KEYS, random.randint(1, len(KEYS)))))
            await self.client.pause(0.0, 0.2)
        self.ended = True

    def may_write(self, first: int) -> bool:
        """Whether requests for partitions from this one on may still come, or be answered."""
        if self.ended:  # it need not have learned the count that was decided at the end
            return False
        return self.count > first or any(index >= first for index in self.unanswered)

    async def _write(self, keys: set[str]) -> None:
        unsent, sent = keys, list[_Batch]()
        while unsent or sent:
            sent += self._distribute(unsent, {batch.partition for batch in sent})
            unsent = unsent - {key for batch in sent for key in batch.keys}
            self.unanswered = {batch.partition for batch in sent}
            codes = await asyncio.gather(*map(self._send, sent))
            again = []
            for batch, code in zip(sent, codes, strict=True):
                if code == ErrorCode.NONE:
                    self._sequences[batch.partition] += len(batch.keys)
                    for key in batch.keys:
                        self.next[key] += 1
                elif code == ErrorCode.INVALID_PARTITION_COUNT:
                    self.history.counts["batches distributed anew"] += 1
                    unsent |= set(batch.keys)
                else:
                    again.append(batch)
            sent = again
            self.unanswered = {batch.partition for batch in sent}
            if sent or unsent:
                await self.client.pause()
            if unsent:
                await self._learn_count()

    def _distribute(self, keys: set[str], busy: set[int]) -> list[_Batch]:
        """Batches of the keys, except for partitions with a batch in flight."""
        parts: dict[int, list[str]] = defaultdict(list)
        for key in sorted(keys):
            parts[jump_hash(key, self.count)].append(key)
        return [
            _Batch(index, self.count, self._sequences[index], tuple(part))
            for index, part in sorted(parts.items())
            if index not in busy
        ]

    async def _send(self, batch: _Batch) -> int:
        """The error code; NETWORK_EXCEPTION if the outcome is not known."""
        client, place = self.client, Place(self.topic, batch.partition)
        producer_id, epoch = self._id
        values = [b"%s%s:%d" % (KEYED, key.encode(), self.next[key]) for key in batch.keys]
        records = build_batch(
            [(key.encode(), value) for key, value in zip(batch.keys, values, strict=True)],
            timestamp=client.life.now_ms(), producer_id=producer_id, producer_epoch=epoch,
            base_sequence=batch.sequence,
        )  # fmt: skip
        request = produce_request(
            self.topic, records, first=batch.partition, count=batch.of, acks=-1, timeout_ms=3000
        )
        leader = await client.leader(*place)
        count = self.refusals.count()
        try:
            answer = await client.ask(leader, request, newest=FIRST_WITH_COUNT)
        except UnansweredError:
            client.forget_leader(*place)
            return ErrorCode.NETWORK_EXCEPTION
        row = only(answer)
        self.refusals.answered(place, leader, batch.of, count, row.error_code)
        if row.error_code != ErrorCode.NONE:
            client.forget_leader(*place)
        elif row.base_offset >= 0:
            self.history.was_acknowledged(place, row.base_offset, values)
        return int(row.error_code)

    async def _learn_count(self) -> None:
        """Fetch the number of partitions."""
        with suppress(UnansweredError):
            row = await self.client.metadata(self.topic)
            if row.error_code == ErrorCode.NONE:
                self.learn(row)

    def learn(self, row: Any) -> None:
        """The topic in the metadata; an answer that is older than another one is ignored."""
        self.count = max(self.count, len(row.partitions))


class Resizer(Workload):
    """Changes the number of partitions of a topic."""

    def __init__(self, client: Client, history: History, topic: str) -> None:
        super().__init__(client, history)
        self.topic = topic

    async def resize(self, count: int, **more: Any) -> Any:
        """The answer of a broker; UnansweredError."""
        topic = {"name": self.topic, "count": count, "assignments": None, **more}
        request = Ask.CreatePartitions(topics=[topic], timeout_ms=5000)
        return (await self.client.ask_anyone(request)).results[0]


class Grower(Resizer):
    """Adds partitions to a topic, one or two at a time. None are added between a copy of the
    coordination store and its restore: the restored store would not know them and their records.
    """

    is_copied = False

    def store_copied(self) -> None:
        self.is_copied = True

    def store_restored(self) -> None:
        self.is_copied = False

    async def run(self) -> None:
        count = FIRST_COUNT
        while not self.stopping and count < LARGEST_COUNT:
            await self.client.pause(1.0, 4.0)
            if self.is_copied:
                continue
            self.settled = False
            wanted = min(count + self.client.random.randint(1, 2), LARGEST_COUNT)
            try:
                code = (await self.resize(wanted)).error_code
            except UnansweredError:
                continue
            if code in DONE:
                count = wanted
                self.settled = True
                self.history.counts["expansions"] += 1
            elif code == ErrorCode.REQUEST_TIMED_OUT:
                self.history.counts["expansions not known or rolled back"] += 1


class ShrinkingProducer(KeyedProducer):
    """Knows that an answer with more partitions is older."""

    first_count = WIDE_COUNT

    def learn(self, row: Any) -> None:
        told = len(row.partitions) if row.partition_count < 0 else row.partition_count
        self.count = min(self.count, told)


class Shrinker(Resizer):
    """Removes partitions from a topic, once."""

    left = 0
    """How many it leaves."""
    done = False

    async def run(self) -> None:
        """Repeat the request until it is done; a contraction may be rolled back."""
        left = self.left = self.client.random.randint(1, WIDE_COUNT - 1)
        await self.client.pause(2.0, 8.0)
        retiring = [Place(self.topic, index) for index in range(left, WIDE_COUNT)]
        while not any(self.history.acknowledged[place] for place in retiring):
            await asyncio.sleep(LOOK_S)  # empty partitions are deleted at once
        while True:
            try:
                answer = await self.resize(left, may_shrink=True)
            except UnansweredError:
                continue
            code = answer.error_code
            if code == ErrorCode.NONE:
                self.history.counts["contractions"] += 1
                self.done = True
                return
            if code == ErrorCode.REQUEST_TIMED_OUT:
                self.history.counts["contractions not known or rolled back"] += 1
            elif code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REASSIGNMENT_IN_PROGRESS):
                why = f"no contraction: error {code}: {answer.error_message}"
                self.history.break_rule("liveness", why)
                return
            await self.client.pause()


class Remover(Resizer):
    """Empties the partitions that a Shrinker retires."""

    def __init__(
        self, client: Client, history: History, shrinker: Shrinker, producer: KeyedProducer,
        groups: Collection[str],
    ) -> None:  # fmt: skip
        """`stopping` is set when there are no more writes: then the topic grows again."""
        super().__init__(client, history, shrinker.topic)
        self.shrinker = shrinker
        self.producer = producer
        self.groups = groups

    async def run(self) -> None:
        """Wait until the topic has as many partitions as at first."""
        while not self.shrinker.done:
            await asyncio.sleep(LOOK_S)
        places = [Place(self.topic, i) for i in range(self.shrinker.left, WIDE_COUNT)]
        while not await self._all_read(places):
            if await self._count() == self.shrinker.left:
                why = f"{self.topic} has lost partitions with records that groups have not read"
                self.history.break_rule("acknowledged", why)
                return
            await asyncio.sleep(LOOK_S)
        while self.producer.may_write(self.shrinker.left):
            # A repeated request for a deleted partition has no result.
            await asyncio.sleep(LOOK_S)
        while await self._count() != self.shrinker.left:
            # Again: records that were above the high watermark are below it now.
            for place in places:
                await self._empty(place)
            await self.client.pause()
        self.history.counts["retired partitions deleted"] += len(places)
        while not self.stopping:
            await asyncio.sleep(LOOK_S)
        await self._grow()
        for place in places:
            await self._check_new(place)

    async def _all_read(self, places: list[Place]) -> bool:
        """Whether all groups have read it; then the records are stored here."""
        found: dict[Place, list[Row]] = {}
        try:
            async with asyncio.timeout(READ_S):
                for place in places:
                    rows = await read_partition(self.client, place, committed=False)
                    end = rows[-1].offset + 1 if rows else 0
                    if max(self.history.acknowledged[place], default=-1) >= end:
                        return False  # a new leader learns its high watermark later
                    for group in self.groups:
                        committed = await committed_offset(self.client, group, place)
                        if max(committed, 0) < end:  # no offset is committed for an empty partition
                            return False
                    found[place] = rows
        except TimeoutError:
            return False
        self.history.gone.update(found)
        return True

    async def _empty(self, place: Place) -> None:
        """Delete its records; the partition may be deleted before the response."""
        row = {"partition_index": place.partition, "offset": -1}
        topics = [{"name": place.topic, "partitions": [row]}]
        while await self._count() != self.shrinker.left:
            leader, _ = self.client.leaders.get(place, (-1, -1))
            try:
                request = Ask.DeleteRecords(topics=topics, timeout_ms=3000)
                answer = await self.client.ask(max(leader, 0), request)
            except UnansweredError:
                self.client.forget_leader(*place)
                continue
            if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                return
            self.client.forget_leader(*place)
            await self.client.pause()

    async def _count(self) -> int:
        """The number of partitions that some broker knows; -1: no answer."""
        await self.client.refresh(self.topic)
        try:
            return len((await self.client.metadata(self.topic)).partitions)
        except UnansweredError:
            return -1

    async def _grow(self) -> None:
        while True:
            with suppress(UnansweredError):
                if (await self.resize(WIDE_COUNT)).error_code in DONE:
                    return
                await self.client.pause()

    async def _check_new(self, place: Place) -> None:
        """No records of the previous partition with this number are left."""
        while await self._count() != WIDE_COUNT:
            await self.client.pause()
        rows = await read_partition(self.client, place, committed=False)
        if rows:
            self.history.break_rule("other_life", f"{place} is new, and has {rows[0].value!r}")
        for group in self.groups:
            offset = await committed_offset(self.client, group, place)
            if offset >= 0:
                self.history.break_rule("other_life", f"{place} is new, and {group} has {offset}")


class Latecomer(ConsumerMember):
    async def run(self) -> None:
        await self.client.pause(5.0, 14.0)
        await super().run()


def jump_hash(key: str, count: int) -> int:
    """Jump consistent hashing (Lamping, Veach): as the count grows, keys only move to new
    partitions.
    """
    state = int.from_bytes(key.encode().ljust(8, b"*")[:8], "big")
    found, next_jump = -1, 0
    while next_jump < count:
        found = next_jump
        state = (state * MULTIPLIER + 1) & 0xFFFFFFFFFFFFFFFF
        next_jump = int((found + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return found


NARROWED = "narrowed"
NARROWED_GROUPS: dict[str, type[Owner]] = {
    "attentive": ConsumerMember,
    "attentive classics": SubscribedMember,
    "latecomers": Latecomer,
}
"""The topic, and the groups that read it."""
SLOW_S = 1.0
"""How long their members rest, so that something is left to be read when it shrinks."""
