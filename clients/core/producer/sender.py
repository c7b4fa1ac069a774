"""Decides which batches a producer sends next, and handles responses and failures.

Pure: time (monotonic, ms), leaders and responses are passed in. Order within a partition holds over
retries: after a failure no newer batch is sent before the failed ones, one batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from kstore._fast.clients.accumulator import Accumulator, PartitionQueue
from kstore._fast.clients.producer_batch import ProducerBatch
from kstore.clients.core.backoff import pause_ms
from kstore.clients.core.producer.state import PartitionSends, ProducerState
from kstore.errors import (
    DuplicateSequenceNumberError,
    FencedLeaderEpochError,
    InvalidPartitionCountError,
    InvalidProducerEpochError,
    KafkaError,
    MessageTooLargeError,
    NetworkError,
    NotEnoughReplicasAfterAppendError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    RequestTimedOutError,
    UnknownProducerIdError,
)
from kstore.record import decode
from kstore.types import TopicPartition

__all__ = ["NEVER_MS", "REGROUPING", "SendLimits", "Sender", "Verdict"]

# After these errors the batch may still be in the log.
AMBIGUOUS = (NetworkError, RequestTimedOutError, NotEnoughReplicasAfterAppendError)
# The broker has lost the producer's sequence, or is ahead of it.
LOST_SEQUENCE = (OutOfOrderSequenceNumberError, UnknownProducerIdError, InvalidProducerEpochError)
TOO_LARGE = (MessageTooLargeError, RecordListTooLargeError)
NEVER_MS = 1 << 60
REGROUPING = "records are being partitioned again"
"""The accumulator's gate in the meantime."""


class Verdict(Enum):
    """The outcome of a batch that failed."""

    RETRIED = 1
    GIVEN_UP = 2
    SPLIT = 3
    WRONG_COUNT = 4
    """KIP-253: its records must be partitioned again."""


@dataclass(frozen=True, slots=True)
class SendLimits:
    """The settings for sending and retrying; times in ms, sizes in bytes."""

    linger_ms: int
    delivery_timeout_ms: int
    max_request_size: int
    max_in_flight: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


@dataclass(slots=True)
class Due:
    """What can be sent now, by leader, and when to check again (ms from now)."""

    by_leader: dict[int, list[PartitionSends]] = field(default_factory=dict)
    wait_ms: int = NEVER_MS
    leaderless: set[str] = field(default_factory=set)
    """Topics with a partition whose leader is unknown."""


class Sender:
    """The state of all batches between the accumulator and the log."""

    def __init__(
        self,
        accumulator: Accumulator,
        limits: SendLimits,
        state: ProducerState,
        chance: Callable[[], float],
    ) -> None:
        self.accumulator = accumulator
        self.state = state
        self.regrouping: set[str] = set()
        """Topics whose records must be partitioned again: no records of them are sent until
        then.
        """
        self.fenced: dict[TopicPartition, tuple[UUID, int]] = {}
        """The topic's id and the leader epoch that a leader refused as outdated (KIP-359)."""
        self.admits: Callable[[TopicPartition], bool] = lambda _: True
        """Whether the current transaction allows sending to a partition."""
        self.first_error: Exception | None = None
        """The first error of a failed batch; the reporter resets it."""
        self.on_given_up: Callable[[Exception], None] = lambda _: None
        self._limits = limits
        self._chance = chance
        self._busy: set[PartitionSends] = set()
        self._taken = 0

    # ---- what to send next ----

    def sends_of(self, queue: PartitionQueue) -> PartitionSends:
        """The state of a partition."""
        if queue.sends is None:
            queue.sends = PartitionSends(queue, TopicPartition(queue.topic, queue.partition))
        sends: PartitionSends = queue.sends
        return sends

    def due(self, now_ms: int, leader_of: Callable[[TopicPartition], int]) -> Due:
        """Partitions with a batch that can be sent now. leader_of returns -1 for a missing
        leader.
        """
        due = Due()
        partitions = {self.sends_of(queue) for queue in list(self.accumulator.active)}
        for sends in sorted(partitions | self._busy, key=_served):
            wait_ms = self._wait_ms(sends, now_ms)
            if wait_ms:
                due.wait_ms = min(due.wait_ms, wait_ms)
                continue
            leader = leader_of(sends.tp)
            if leader < 0:
                due.leaderless.add(sends.tp.topic)
            else:
                due.by_leader.setdefault(leader, []).append(sends)
        return due

    def _wait_ms(self, sends: PartitionSends, now_ms: int) -> int:
        """0: a batch can be sent now; NEVER_MS: not before something happens."""
        in_flight = len(sends.in_flight)
        if in_flight >= self._limits.max_in_flight:
            return NEVER_MS
        if in_flight and self.state.idempotent and not self._may_follow(sends):
            return NEVER_MS
        if sends.tp.topic in self.regrouping and not self._is_in_doubt(sends):
            return NEVER_MS
        if sends.retries:
            return NEVER_MS if sends.in_flight else max(0, sends.retries[0].retry_at_ms - now_ms)
        if sends.in_flight and sends.in_flight[-1].first_offset >= 0:
            return NEVER_MS  # a later offset would exclude an earlier one that failed
        wait_ms = sends.queue.wait_ms(now_ms, self._limits.linger_ms)
        return NEVER_MS if wait_ms < 0 or not self.admits(sends.tp) else wait_ms

    @staticmethod
    def _may_follow(sends: PartitionSends) -> bool:
        """Whether a batch may be sent behind those in flight. Not behind one that may be in the
        log: if it is refused, and others behind it are written, the broker no longer recognizes it.
        """
        return sends.known and not sends.in_flight[0].maybe_written

    def take(self, partitions: Iterable[PartitionSends], now_ms: int) -> list[ProducerBatch]:
        """The batches of a request: at most one of each partition, within max.request.size, and
        either all with given offsets or none. Empty: nothing can be sent.
        """
        taken: list[ProducerBatch] = []
        size = 0
        for sends in partitions:
            first = sends.retries[0] if sends.retries else sends.queue.first()
            if first is None or self._wait_ms(sends, now_ms):
                continue
            if taken and (
                size + first.size_bytes > self._limits.max_request_size
                or (first.first_offset >= 0) != (taken[0].first_offset >= 0)
            ):
                continue
            if not sends.settle_numbers(self.state):
                continue
            batch = self._take_one(sends)
            if batch is not None:
                size += batch.size_bytes
                taken.append(batch)
        return taken

    def _take_one(self, sends: PartitionSends) -> ProducerBatch | None:
        if sends.retries:
            batch = sends.retries.pop(0)
            if batch.renumbered:
                transactional = self.state.transactional
                id_and_epoch = batch.producer_id, batch.producer_epoch
                batch.pack(*id_and_epoch, batch.base_sequence, transactional)
                batch.renumbered = False
        else:
            found = self.accumulator.take(sends.queue)
            if found is None:
                return None
            batch = found
            sends.number(batch, self.state)
        batch.attempts += 1
        self._taken += 1
        sends.served = self._taken
        sends.in_flight.append(batch)
        self._busy.add(sends)
        return batch

    def is_over(self, tp: TopicPartition, topic_id: UUID, leader_epoch: int) -> bool:
        """Whether a leader has refused this leader epoch of the topic as outdated: it would refuse
        the next request too, so newer metadata is needed first.
        """
        known = self.fenced.get(tp)
        if known is None:
            return False
        if known[0] == topic_id and leader_epoch <= known[1]:
            return True
        del self.fenced[tp]
        return False

    # ---- results ----

    def succeeded(self, batch: ProducerBatch, base_offset: int) -> None:
        """The batch is in the log; -1: at an unknown offset."""
        sends = self._landed(batch)
        sends.known = True
        batch.complete(base_offset)
        self._rest(sends)

    def failed(
        self, batch: ProducerBatch, error: KafkaError, now_ms: int, *, sent: bool = True
    ) -> Verdict:
        """An attempt failed; sent: the broker may have received it."""
        sends = self._landed(batch)
        batch.last_error = error
        if isinstance(error, UnknownProducerIdError):
            sends.known = False
        if sent and isinstance(error, AMBIGUOUS):
            batch.maybe_written = True
        verdict = self._judge(sends, batch, error, now_ms)
        self._rest(sends)
        return verdict

    def _judge(
        self, sends: PartitionSends, batch: ProducerBatch, error: KafkaError, now_ms: int
    ) -> Verdict:
        if batch.done:  # its time expired while it was in flight
            return Verdict.GIVEN_UP
        if isinstance(error, DuplicateSequenceNumberError):
            sends.known = True
            batch.complete(-1)
            return Verdict.RETRIED
        if isinstance(error, TOO_LARGE) and batch.count > 1:
            self._split(sends, batch)
            return Verdict.SPLIT
        if isinstance(error, InvalidPartitionCountError):
            # A broker that had it would have reported a duplicate, and nothing follows a gap.
            for other in [batch, *sends.retries]:
                other.maybe_written = False
            sends.retry(batch)
            self._busy.add(sends)
            return Verdict.WRONG_COUNT
        if self._may_retry(sends, batch, error):
            batch.retry_at_ms = now_ms + self._pause_ms(batch, error)
            sends.retry(batch)
            self._busy.add(sends)
            return Verdict.RETRIED
        self._give_up(sends, batch, error)
        return Verdict.GIVEN_UP

    def _may_retry(self, sends: PartitionSends, batch: ProducerBatch, error: KafkaError) -> bool:
        if batch.attempts > self._limits.retries:
            return False
        if error.retriable:
            return True
        if not self.state.idempotent or not isinstance(error, LOST_SEQUENCE):
            return False
        if batch.renumbered or not sends.is_first(batch):
            return (
                True  # because of an older batch that failed, or of numbers that it no longer has
            )
        if self.state.transactional:
            return False
        sends.lost = True
        return True

    def _pause_ms(self, batch: ProducerBatch, error: KafkaError) -> int:
        if isinstance(error, FencedLeaderEpochError) and batch.attempts == 1:
            return 0  # nothing is sent before a newer epoch is known
        limits = self._limits
        first, most = limits.retry_backoff_ms, limits.retry_backoff_max_ms
        return round(pause_ms(batch.attempts, first, most, self._chance()))

    def _split(self, sends: PartitionSends, batch: ProducerBatch) -> None:
        """Replaces a batch by two or more smaller ones, with the same numbers in total."""
        sequence = batch.base_sequence
        numbered = batch.producer_id, batch.producer_epoch
        records = decode(batch.bytes(), verify=False)
        limit = max(sum(record_bytes(record) for record in records) // 2, 1)
        if batch.maybe_written:
            sends.unresolved = True
        parts = self.accumulator.split(batch, records, limit)
        for part in reversed(parts):
            sends.retry(part)
        for part in parts:
            part.producer_id, part.producer_epoch = numbered
            part.base_sequence = sequence
            part.renumbered = True
            sequence = sequence if sequence < 0 else (sequence + part.count) & 0x7FFFFFFF
        self._busy.add(sends)

    def _give_up(self, sends: PartitionSends, batch: ProducerBatch, error: Exception) -> None:
        self.first_error = self.first_error or error
        sends.give_back_numbers(batch)
        batch.fail(error)
        self.on_given_up(error)

    def _landed(self, batch: ProducerBatch) -> PartitionSends:
        sends: PartitionSends = batch.queue_of.sends
        sends.in_flight.remove(batch)
        return sends

    def _rest(self, sends: PartitionSends) -> None:
        if not sends.in_flight and not sends.retries:
            self._busy.discard(sends)

    # ---- timeouts and close ----

    def expire(self, now_ms: int) -> int:
        """Fail the records whose delivery.timeout.ms is over; returns when to check again (ms)."""
        oldest = now_ms - self._limits.delivery_timeout_ms
        late = sorted(
            (batch for batch in list(self.accumulator.incomplete) if batch.created_ms <= oldest),
            key=lambda batch: batch.number,
        )
        for batch in late:
            why = f"{batch.tp}: delivery.timeout.ms is over"
            if batch.last_error is not None:
                why += f"; the last attempt failed with {batch.last_error}"
            self.drop(batch, RequestTimedOutError(why))
        rest = [batch.created_ms - oldest for batch in list(self.accumulator.incomplete)]
        return min(rest, default=NEVER_MS)

    def drop(self, batch: ProducerBatch, error: Exception) -> None:
        """Fail a batch, wherever it is."""
        sends = self.sends_of(batch.queue_of)
        if batch in sends.in_flight:
            # Its response is outstanding; until then it keeps its numbers.
            batch.maybe_written = True
            sends.unresolved = True
            self.first_error = self.first_error or error
            batch.fail(error)
            self.on_given_up(error)
            return
        if batch in sends.retries:
            sends.retries.remove(batch)
        else:
            while sends.queue.first() not in {batch, None}:
                earlier = self.accumulator.take(sends.queue)
                if earlier is not None:
                    self._give_up(sends, earlier, error)
            self.accumulator.take(sends.queue)
        self._give_up(sends, batch, error)
        self._rest(sends)

    def drop_all(self, error: Exception) -> None:
        """Fail everything: the producer is closed, or its transaction aborted."""
        for batch in sorted(self.accumulator.incomplete, key=lambda each: each.number):
            if not batch.done:
                self.drop(batch, error)

    def is_under_way(self, topic: str) -> bool:
        """Whether a response about the topic is outstanding, or a batch must be sent again to find
        out whether it is in the log.
        """
        return any(
            sends.in_flight or self._is_in_doubt(sends)
            for sends in self._busy
            if sends.tp.topic == topic
        )

    def _is_in_doubt(self, sends: PartitionSends) -> bool:
        return self.state.idempotent and bool(sends.retries) and sends.retries[0].maybe_written

    @property
    def is_idle(self) -> bool:
        """Whether no response is outstanding."""
        return not any(sends.in_flight for sends in self._busy)

    def drop_waiting(self, error: Exception) -> None:
        """Fail what is not in flight."""
        busy = {batch for sends in self._busy for batch in sends.in_flight}
        for batch in sorted(self.accumulator.incomplete - busy, key=lambda each: each.number):
            if not batch.done:
                self.drop(batch, error)

    def regroup(self, topic: str, count: int) -> None:
        """KIP-253: move every record of the topic that is not in the log to its partition among
        count partitions, in order, before any newer record. No batch of the topic may be in flight,
        and users must not add to it meanwhile (its count is 0).
        """
        taken: list[ProducerBatch] = []
        for queue in self.accumulator.queues(topic):
            sends = self.sends_of(queue)
            for batch in sends.retries:
                if batch.maybe_written:
                    sends.unresolved = True
            if sends.retries and sends.retries[0].base_sequence >= 0 and not sends.unresolved:
                sends.next_sequence = sends.retries[0].base_sequence
            taken += sends.retries
            sends.retries.clear()
            self._busy.discard(sends)
            while (waiting := self.accumulator.take(queue)) is not None:
                taken.append(waiting)
        gate, self.accumulator.gate = self.accumulator.gate, REGROUPING
        self.accumulator.set_partitions(topic, count)
        for batch in taken:
            batch.pack(-1, -1, -1, False)
            records = decode(batch.bytes(), verify=False)
            batch.move([self.accumulator.append_again(batch, record) for record in records])
        self.accumulator.gate = gate
        self.regrouping.discard(topic)


def _served(sends: PartitionSends) -> int:
    return sends.served


def record_bytes(record: object) -> int:
    """Approximately the size of a record in a batch."""
    key, value = getattr(record, "key", None), getattr(record, "value", None)
    return len(key or b"") + len(value or b"") + 16
