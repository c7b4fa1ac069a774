"""Simulated producers: idempotent, with several requests in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

from kstore.errors import ErrorCode
from kstore.record import build_batch
from tests.plain_messages import Ask
from tests.record_requests import only, produce_request
from tests.sim.history import History, Place
from tests.sim.workloads.client import Client, Link, UnansweredError, Workload

ACKNOWLEDGE_MS = 3000
LARGEST_WINDOW = 4


class Batch(NamedTuple):
    """Records that are sent, and repeated, together."""

    sequence: int
    values: list[bytes]
    offset: int = -1
    """The offset to store it at (KIP-391); -1: the leader chooses."""


async def init_producer(client: Client, transactional_id: str | None) -> tuple[int, int]:
    """A producer id and epoch, requested until there is one."""
    request = Ask.InitProducerId(transactional_id=transactional_id, transaction_timeout_ms=20_000)

    async def ask() -> Any:
        if transactional_id is None:
            return await client.ask_anyone(request, newest=4)
        node = await client.coordinator(transactional_id, transactional=True)
        return await client.ask(node, request, newest=4)

    answer = await client.until_done(ask)
    return answer.producer_id, answer.producer_epoch


class IdempotentProducer(Workload):
    """Writes numbered records to one partition, acks=all, until it is stopped."""

    gives_offsets = False

    def __init__(
        self, client: Client, history: History, place: Place, records: int, *, may_lose: bool,
        rest_s: float,
    ) -> None:  # fmt: skip
        super().__init__(client, history)
        self.place = place
        self.done = False
        self._may_lose = may_lose
        self._rest_s = rest_s
        self._records = records
        self._unacknowledged: deque[Batch] = deque()
        self._next_number = 0
        self._next_sequence = 0
        self._lives = 0
        self._known = False
        """Whether the log has a batch under this id. Until then a broker takes any sequence number
        as the first one, as Kafka does (KIP-360): a second batch, where the first was refused.
        """
        self._id = (-1, -1)

    async def run(self) -> None:
        """Send until everything is acknowledged."""
        await self._begin()
        while not self.stopping or self._unacknowledged:
            self._fill()
            if not self._unacknowledged:
                break
            if not await self._send_window():
                await self.client.pause()
            elif self.client.random.random() < 0.7:
                await self.client.pause(0.0, self._rest_s)
        self.done = True

    async def _begin(self) -> None:
        self._id = await init_producer(self.client, None)
        self._next_sequence = 0
        self._known = False
        self._lives += 1

    def _fill(self) -> None:
        window = self.client.random.randint(1, LARGEST_WINDOW) if self._known else 1
        while len(self._unacknowledged) < window and not self.stopping:
            if self._next_number >= self._records:
                return
            count = self.client.random.randint(1, 3)
            values = [self._value(self._next_number + i) for i in range(count)]
            self._unacknowledged.append(Batch(self._next_sequence, values, self.next_offset(count)))
            self.history.sent(self.place, f"{self.client.name}/{self._lives}", values)
            self._next_number += count
            self._next_sequence += count

    def next_offset(self, count: int) -> int:
        """The offset for a new batch of this many records."""
        return -1

    def answered(self, batch: Batch, code: int, base_offset: int) -> None:
        """A broker answered for a batch."""

    def _value(self, number: int) -> bytes:
        return f"{self.client.name}/{self.place.partition}/{self._lives}/{number}".encode()

    async def _send_window(self) -> bool:
        """Send everything that is not acknowledged, in order; returns whether all of it is
        acknowledged.
        """
        client, place = self.client, self.place
        leader = await client.leader(*place)
        try:
            link = await client.link(leader)
        except UnansweredError:
            client.forget_leader(*place)
            return False
        window = list(self._unacknowledged)
        answers = await asyncio.gather(
            *(self._ask(link, batch) for batch in window), return_exceptions=True
        )
        good = True
        for batch, answer in zip(window, answers, strict=True):
            if isinstance(answer, UnansweredError):
                client.forget_leader(*place)
                good = False
                continue
            if isinstance(answer, BaseException):
                raise answer
            code, base_offset = answer
            self.answered(batch, code, base_offset)
            if code == ErrorCode.NONE:
                if good:
                    self._acknowledge(batch, base_offset)
                else:
                    # If this batch was accepted, the batches before it cannot be missing: they are
                    # sent again, and are duplicates then.
                    self.history.was_acknowledged(place, base_offset, batch.values)
            else:
                if batch is window[0] and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    await self._lost()
                    return False
                good = False
                client.forget_leader(*place)
        return good

    def _acknowledge(self, batch: Batch, base_offset: int) -> None:
        self._unacknowledged.remove(batch)
        self._known = True
        if base_offset >= 0:
            self.history.was_acknowledged(self.place, base_offset, batch.values)

    async def _lost(self) -> None:
        """The broker lacks what it acknowledged before this batch."""
        if not (self._may_lose or self.history.has_told_loss(self.place)):
            self.history.break_rule(
                "acknowledged",
                f"{self.client.name}: {self.place} wants an earlier sequence number than the first "
                f"that is not acknowledged, {self._unacknowledged[0].sequence}",
            )
        self._unacknowledged.clear()
        await self._begin()

    async def _ask(self, link: Link, batch: Batch) -> tuple[int, int]:
        request = produce_request(
            self.place.topic, self.encode(batch), first=self.place.partition, acks=-1,
            timeout_ms=ACKNOWLEDGE_MS, use_offset=self.gives_offsets,
        )  # fmt: skip
        row = only(await self.client.ask_on(link, request, 12))
        return row.error_code, row.base_offset

    def encode(self, batch: Batch) -> bytes:
        """The batch in the form in which it is sent."""
        producer_id, epoch = self._id
        return build_batch(
            [(value.rpartition(b"/")[2], value) for value in batch.values],
            timestamp=self.client.life.now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batch.sequence,
            base_offset=max(batch.offset, 0),
        )


class OffsetGiver(IdempotentProducer):
    """States the offsets of its records, with gaps between them, as a replicator does (KIP-391)."""

    gives_offsets = True
    _end = 0

    def next_offset(self, count: int) -> int:
        offset = self._end + self.client.random.choice([0, 0, 1, 7])
        self._end = offset + count
        return offset

    def answered(self, batch: Batch, code: int, base_offset: int) -> None:
        """Whether the batch is there. It may be sent again: no other producer writes to the
        partition, so a taken offset was taken by an earlier request for the same batch.
        """
        self.history.counts["offsets given"] += code == ErrorCode.NONE
        refused = code == ErrorCode.INVALID_PRODUCE_OFFSET
        if refused or (code == ErrorCode.NONE and base_offset not in (batch.offset, -1)):
            self.history.break_rule(
                "given_offsets",
                f"{self.client.name}: {batch.values} were to be stored at {batch.offset} of "
                f"{self.place}; the answer is {base_offset} with error {code}",
            )
