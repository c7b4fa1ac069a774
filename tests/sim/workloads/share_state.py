"""Leaders of share-partitions that store their state with the share coordinator. Each takes over
with a higher leader epoch, reads the state of the previous leader, and writes deliveries. The
responses to one leader are compared with what the next one reads.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from kstore.broker.state.shares.persisted import SharePartitionKey
from kstore.errors import ErrorCode
from kstore.protocol.shares.state import StateBatchRow
from tests.plain_messages import Ask
from tests.sim.history import History
from tests.sim.workloads.client import Client, UnansweredError
from tests.sim.workloads.owning import WAITS

SHARE = 2
OFFSETS = 60
"""Deliveries are of so many offsets from the start offset on."""
WRITES_PER_LIFE = 12
WAITING = {*WAITS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class Delivery(NamedTuple):
    """The state of one offset: number of deliveries and outcome."""

    count: int
    state: int


class ShareLedger:
    """The writes of all leaders of one share-partition, and the responses."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.state_epoch = 0
        """Of the last attempt to initialize it."""
        self.initialized = False
        self._epochs = 0
        self._read_epoch = -1
        self._sent: dict[int, set[Delivery]] = defaultdict(set)
        self._kept: dict[int, Delivery] = {}
        self._kept_start = 0

    def next_epoch(self) -> int:
        """The epoch of the next leader, as a controller assigns it."""
        self._epochs += 1
        return self._epochs

    def ask(self) -> tuple[dict[int, Delivery], int]:
        """The least that a read that is sent now must return."""
        return dict(self._kept), self._kept_start

    def found(self, asked: tuple[dict[int, Delivery], int], epoch: int, row: Any) -> None:
        """The state that a new leader has read."""
        self._read_epoch = max(self._read_epoch, epoch)
        kept, start_offset = asked
        found = deliveries(row.state_batches)
        told = self._history.break_rule
        if row.start_offset < start_offset:
            told("share_state", f"start offset {row.start_offset}, but {start_offset} was kept")
        for offset, delivery in kept.items():
            if offset >= row.start_offset and found.get(offset, Delivery(0, 0)) < delivery:
                told("share_state", f"{offset} has {found.get(offset)}, but {delivery} was kept")
        for offset, delivery in found.items():
            if delivery not in self._sent[offset]:
                told("share_state", f"{offset} has {delivery}, which nobody wrote")

    def sends(self, offsets: range, delivery: Delivery) -> int:
        """A leader writes; returns the argument of `kept`."""
        for offset in offsets:
            self._sent[offset].add(delivery)
        return self._read_epoch

    def kept(
        self, epoch: int, read_epoch: int, offsets: range, delivery: Delivery, start_offset: int
    ) -> None:
        """A leader's write was acknowledged."""
        self._history.counts["share writes"] += 1
        if read_epoch > epoch:
            self._history.break_rule(
                "share_state", f"epoch {epoch} wrote after epoch {read_epoch} had read"
            )
        for offset in offsets:
            self._kept[offset] = max(self._kept.get(offset, delivery), delivery)
        self._kept_start = max(self._kept_start, start_offset)


def deliveries(batches: list[StateBatchRow]) -> dict[int, Delivery]:
    """The deliveries of each offset."""
    return {
        offset: Delivery(batch.delivery_count, batch.delivery_state)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


class ShareLeader:
    """Leads one share-partition again and again, in competition with others."""

    def __init__(
        self, client: Client, ledger: ShareLedger, group: str, topic: str, partition: int
    ) -> None:
        self.client = client
        self.stopping = False
        self._ledger = ledger
        self._group = group
        self._topic = topic
        self._partition = partition
        self._node = -1

    async def run(self) -> None:
        """Lead until stopped; the last leader only reads."""
        while not await self.client.refresh(self._topic):
            await self.client.pause()
        while not self.stopping:
            if await self._initialized():
                await self._lead(WRITES_PER_LIFE)
            await self.client.pause(0.05, 0.4)
        while not (await self._initialized() and await self._lead(0)):
            await self.client.pause()

    async def _initialized(self) -> bool:
        """Whether there is a state; each attempt to initialize it fences the earlier ones."""
        ledger = self._ledger
        if ledger.initialized:
            return True
        ledger.state_epoch += 1
        epoch = ledger.state_epoch
        answer = await self._ask("InitializeShareGroupState", state_epoch=epoch, start_offset=0)
        if answer is not None and epoch == ledger.state_epoch:
            ledger.initialized = True
        return ledger.initialized

    async def _lead(self, writes: int) -> bool:
        """Take over and write this number of times; returns whether the state could be read."""
        ledger, random = self._ledger, self.client.random
        epoch, asked = ledger.next_epoch(), ledger.ask()
        answer = await self._ask("ReadShareGroupState", leader_epoch=epoch)
        if answer is None:
            return False
        ledger.found(asked, epoch, answer)
        known, start_offset = deliveries(answer.state_batches), answer.start_offset
        for _ in range(random.randrange(writes + 1)):
            start_offset += random.choice([0, 0, 0, 1, 3])
            first = start_offset + random.randrange(OFFSETS)
            offsets = range(first, first + random.randrange(1, 9))
            count = 1 + max(known.get(offset, Delivery(0, 0)).count for offset in offsets)
            delivery = Delivery(count, random.choice([0, 2, 4]))
            if not await self._write(epoch, start_offset, offsets, delivery):
                break  # it may still arrive: only another epoch fences it
            known |= dict.fromkeys(offsets, delivery)
            await self.client.pause(0.01, 0.1)
        return True

    async def _write(
        self, epoch: int, start_offset: int, offsets: range, delivery: Delivery
    ) -> bool:
        read_epoch = self._ledger.sends(offsets, delivery)
        batch = {
            "first_offset": offsets[0], "last_offset": offsets[-1],
            "delivery_state": delivery.state, "delivery_count": delivery.count,
        }  # fmt: skip
        answer = await self._ask(
            "WriteShareGroupState", state_epoch=self._ledger.state_epoch, leader_epoch=epoch,
            start_offset=start_offset, state_batches=[batch],
        )  # fmt: skip
        if answer is None:
            return False
        self._ledger.kept(epoch, read_epoch, offsets, delivery, start_offset)
        return True

    async def _ask(self, api: str, **row: Any) -> Any:
        """The row of the answer; None for no answer, an error, or no coordinator."""
        topic_id = self.client.topic_ids[self._topic]
        key = SharePartitionKey(self._group, topic_id, self._partition)
        try:
            if self._node < 0:
                find = Ask.FindCoordinator(key_type=SHARE, coordinator_keys=[str(key)])
                found = (await self.client.ask_anyone(find)).coordinators[0]
                if found.error_code != ErrorCode.NONE:
                    return None
                self._node = found.node_id
            rows = [{"partition": self._partition, **row}]
            topics = [{"topic_id": topic_id, "partitions": rows}]
            request = getattr(Ask, api)(group_id=self._group, topics=topics)
            answer = await self.client.ask(self._node, request)
        except UnansweredError:
            self._node = -1
            return None
        told = answer.results[0].partitions[0]
        if told.error_code in WAITING:
            self._node = -1
        return told if told.error_code == ErrorCode.NONE else None
