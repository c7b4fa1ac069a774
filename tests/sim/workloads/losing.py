"""A simulated topic with unclean leader elections. One client writes to it without retries. Another
one processes it and checks, as kstore's consumers do, which processed records no longer exist.
"""

from __future__ import annotations

from kstore.clients.core.consumer.epoch_history import EpochHistory
from kstore.clients.core.consumer.lost_records import Divergence, lost_records
from kstore.clients.core.consumer.subscription import Position
from kstore.errors import ErrorCode
from kstore.record import batches, build_batch, decode
from kstore.types import TopicPartition
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request, only, produce_request
from tests.sim.history import History, Place
from tests.sim.workloads.client import Client, UnansweredError, Workload


class CarelessProducer(Workload):
    """Writes different records; it does not check whether they are kept."""

    def __init__(self, client: Client, history: History, place: Place) -> None:
        super().__init__(client, history)
        self.place = place

    async def run(self) -> None:
        client, place = self.client, self.place
        written = 0
        while not self.stopping:
            written += 1
            records = build_batch([b"%d" % written], timestamp=client.life.now_ms())
            request = produce_request(place.topic, records, first=place.partition)
            try:
                answer = await client.ask(await client.leader(*place), request, newest=12)
                code = only(answer).error_code
            except UnansweredError:
                code = ErrorCode.REQUEST_TIMED_OUT
            if code == ErrorCode.NONE:
                self.history.counts["acknowledged"] += 1
            else:
                client.forget_leader(*place)
            await client.pause(0.0, 0.1)


class Processor(Workload):
    """Processes the records of a partition in order. ``processed`` has those that were not reported
    lost. Later reads never return one of their offsets again, and at the end they equal the log.
    """

    def __init__(self, client: Client, history: History, place: Place) -> None:
        super().__init__(client, history)
        self.place = place
        self.processed: dict[int, bytes] = {}
        self._position = Position(0)
        self._epochs = EpochHistory()
        self._leader_epoch = -1
        """Of the leader whose log has all below the position."""

    async def run(self) -> None:
        while not self.stopping:
            await self.step()

    async def finish(self, log: dict[int, bytes]) -> None:
        """Process the log to its end when there are no more faults: it equals what was processed,
        without what was lost.
        """
        end = max(log, default=-1) + 1
        while self._position.offset < end or self._leader_epoch != self._known_epoch():
            await self.step()
        if self.processed != log:
            wrong = {o for o in {*log, *self.processed} if log.get(o) != self.processed.get(o)}
            self.history.break_rule(
                "lost_records",
                f"{self.place}: at offsets {min(wrong)} to {max(wrong)} the log is not what was "
                "processed, and that was not told",
            )

    async def step(self) -> None:
        """Check the log of a new leader, or read on."""
        client, place = self.client, self.place
        leader = await client.leader(*place)
        epoch = self._known_epoch()
        try:
            if epoch == self._leader_epoch or await self._validate(leader, epoch):
                self._leader_epoch = epoch
                await self._read(leader, epoch)
        except UnansweredError:
            client.forget_leader(*place)
            await client.pause()

    def _known_epoch(self) -> int:
        return self.client.leaders.get(self.place, (-1, -1))[1]

    async def _validate(self, leader: int, epoch: int) -> bool:
        """Whether the records in the leader's log are now known."""
        if self._position.leader_epoch < 0:
            return True
        found = Divergence(self._position, self._epochs)
        while found.ask >= 0:
            row = {"current_leader_epoch": epoch, "leader_epoch": found.ask}
            rows = [row | {"partition": self.place.partition}]
            topics = [{"topic": self.place.topic, "partitions": rows}]
            request = Ask.OffsetForLeaderEpoch(replica_id=-1, topics=topics)
            answer = await self.client.ask(leader, request, newest=4)
            end = answer.topics[0].partitions[0]
            if not self._is_good(end.error_code):
                await self.client.pause()
                return False
            found.on_epoch_end(end.leader_epoch, end.end_offset)
        self.history.counts["positions validated"] += 1
        if found.is_lost:
            self._lose(found, epoch)
        return True

    def _lose(self, found: Divergence, epoch: int) -> None:
        event = lost_records(TopicPartition(*self.place), found, self._epochs, epoch)
        self.history.counts["losses of processed records"] += 1
        if not event.is_exact:
            self.history.break_rule("lost_records", f"all was read, and it is not exact: {event}")
        for offset in range(event.first_offset, event.last_offset + 1):
            self.processed.pop(offset, None)
        self._epochs.cut(found.offset)
        self._position = Position(found.offset, found.leader_epoch)

    async def _read(self, leader: int, epoch: int) -> None:
        offset = self._position.offset
        part = fetch_part(offset, self.place.partition, 4096, current_leader_epoch=epoch)
        request = fetch_request(self.place.topic, part, max_wait_ms=200)
        data = only(await self.client.ask(leader, request, newest=12))
        if not self._is_good(data.error_code) or not data.records:
            await self.client.pause()
            return
        for batch in batches(data.records):
            self._epochs.note(batch.leader_epoch, max(batch.base_offset, offset))
        records = decode(data.records, start_offset=offset)
        for record in records:
            if record.offset in self.processed:
                self.history.break_rule(
                    "lost_records", f"{self.place} offset {record.offset} came again, untold"
                )
            self.processed[record.offset] = record.value or b""
        if records.next_offset:
            newest = self._epochs.epoch_at(records.next_offset - 1)
            self._position = Position(records.next_offset, newest)

    def _is_good(self, code: int) -> bool:
        if code != ErrorCode.NONE:
            self.client.forget_leader(*self.place)
        return code == ErrorCode.NONE
