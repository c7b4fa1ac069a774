"""Carries out a sink's plan: staged record batches go to their partitions, each at an offset given
by the sink (KIP-391), all of them once, however often and by however many drivers it is begun.

The leader of a partition copies what was staged out of its own log (CopyBatches), so the driver
moves no batch. It does so only where that leader can't: it has no replica of what was staged (its
partition moved meanwhile), or the topic does not take a batch as it is.

A batch is written at the offset where its partition was last seen to end. A leader takes it there
or says INVALID_PRODUCE_OFFSET: something is there, of another writer, or of this plan, written by
an earlier try whose answer was lost or by a driver that died. Which of the two the log itself
tells: every batch is signed with the plan's producer id, and its sequence number says which of the
plan's records it begins with. So after a refusal, and before the first write of a plan that
somebody else may have begun, the partition is read from where it ended when the plan was made, and
writing continues behind the last record of the plan. Others' records in between only move the
offset.

As in the replicator, every write carries the leader epoch under which the end was learnt (KIP-359),
and one write per partition is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from kstore.clients.core.backoff import pause_ms
from kstore.clients.core.replication import Piece
from kstore.clients.replicator.wire import EARLIEST, LATEST, Destination, end_of, fetch, produce
from kstore.errors import (
    ErrorCode,
    KafkaError,
    error_for,
)
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.staging import key_of, staged_batch
from kstore.protocol.logs.copy_batches import (
    CopyBatchesPartition,
    CopyBatchesPartitionResult,
    CopyBatchesRequest,
    CopyBatchesResponse,
    CopyBatchesSource,
    CopyBatchesTopic,
)
from kstore.record import RecordBatchBuilder, batches, decode
from kstore.record.signing import signed
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from kstore.clients.io.cluster import ClusterClient
    from kstore.pipeline.sink.staging import Plan, PlannedTarget

__all__ = ["Batch", "Target", "copy", "failure", "place"]

COMPRESSION_BITS = 0x07
SURVEY_BYTES = 8 << 20
BATCHES_AT_ONCE = 64
TARGETS_AT_ONCE = 32
FIRST_PAUSE_MS, MAX_PAUSE_MS = 20, 1_000
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
REFUSED = {ErrorCode.INVALID_PRODUCE_OFFSET, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
BY_HAND = TOO_LARGE | {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
"""What a leader does not copy, though a Produce may bring it there."""


class Batch(NamedTuple):
    """A staged batch: where it is, and which of the plan's records it has."""

    partition: int
    key: bytes
    offset: int
    first: int
    records: int


@dataclass
class Target:
    """One partition of a target topic, and how far the plan is there."""

    tp: TopicPartition
    seen: int
    """All before this offset was looked through, or was there before the plan."""
    batches: list[Batch] = field(default_factory=list)
    """All of the plan."""
    placed: int = 0
    """Records of the plan that are in the log; sequence numbers are theirs."""
    leader_epoch: int = -1
    is_known: bool = False
    """Whether `seen` is where the log ends, as far as we know."""
    at_least: int = 0
    """The log end offset of the last refusal, which may be above the high watermark yet."""
    was_cut: bool = False
    """Whether records that may be the plan's were deleted before we looked."""
    failures: int = 0
    failing_since_s: float = 0.0

    @classmethod
    def of(cls, planned: PlannedTarget) -> Target:
        """As the plan has it."""
        target = cls(TopicPartition(planned.topic, planned.partition), planned.base)
        first = 0
        for run in planned.runs:
            key = key_of(bytes.fromhex(run.attempt), planned.topic, planned.partition)
            for offset, count in zip(run.offsets, run.counts, strict=True):
                target.batches.append(Batch(run.partition, key, offset, first, count))
                first += count
        return target

    @property
    def total(self) -> int:
        """Records of the plan."""
        return self.batches[-1].first + self.batches[-1].records if self.batches else 0

    def left(self) -> list[Batch]:
        """The batches that are not wholly in the log, as many as are copied at once."""
        at = bisect_right(self.batches, self.placed, key=lambda batch: batch.first) - 1
        if self.batches[at].first + self.batches[at].records <= self.placed:
            at += 1
        return self.batches[at : at + BATCHES_AT_ONCE]


async def place(
    cluster: ClusterClient, topic: str, plan: Plan, *, is_ours: bool, timeout_ms: int
) -> None:
    """Have all in the log that the plan names. ``topic`` is the sink's own; ``is_ours``: nobody
    else can have begun it. An attempt that brings a partition no further is repeated for
    timeout_ms, then its error raised.
    """
    targets = [Target.of(planned) for planned in plan.targets]
    await cluster.refresh({target.tp.topic for target in targets})
    writer = _Writer(cluster, topic, plan.producer_id, timeout_ms)
    for target in targets:
        target.leader_epoch = cluster.view.leader_epoch(target.tp)
        target.is_known = is_ours
    at_once = asyncio.Semaphore(TARGETS_AT_ONCE)

    async def put(target: Target) -> None:
        async with at_once:
            await writer.put(target)

    await _all(put(target) for target in targets)


async def copy(
    cluster: ClusterClient, topic: str, target: Target, producer_id: int, rows: list[Batch]
) -> CopyBatchesPartitionResult:
    """Have the target's leader append these batches, acknowledged by all in-sync replicas."""
    sources: list[CopyBatchesSource] = []
    for row in rows:
        if not sources or (sources[-1].partition, sources[-1].key) != (row.partition, row.key):
            sources.append(CopyBatchesSource(topic=topic, partition=row.partition, key=row.key))
        sources[-1].offsets.append(row.offset)
    view, tp = cluster.view, target.tp
    asked = CopyBatchesPartition(
        partition_index=tp.partition,
        current_leader_epoch=target.leader_epoch,
        base_offset=target.seen,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=rows[0].first,
        sources=sources,
    )
    named = CopyBatchesTopic(name=tp.topic, topic_id=view.topic_id(tp.topic), partitions=[asked])
    timeout_ms = cluster.settings["request.timeout.ms"] // 2
    request = CopyBatchesRequest(timeout_ms=timeout_ms, topics=[named])
    answer = cast(CopyBatchesResponse, await cluster.ask(view.leader(tp), request))
    return answer.topics[0].partitions[0]


def failure(error: KafkaError, *, topic: str, partition: int | None = None) -> PipelineError:
    """The error for the user for an error of the brokers."""
    remedy = "Start the query again: it continues where it stopped"
    if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        remedy = "Given offsets need REPLICATOR_WRITE on the cluster: allow it"
    said = str(error).rstrip(".")
    return PipelineError(f"writing failed: {said}", topic=topic, partition=partition, remedy=remedy)


async def _all(work: Iterable[Coroutine[object, object, None]]) -> None:
    """All at once; the first error ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class _Writer:
    """Has the batches of one plan written, in order for each target."""

    def __init__(
        self, cluster: ClusterClient, topic: str, producer_id: int, timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._producer_id = producer_id
        self._timeout_s = timeout_ms / 1000

    async def put(self, target: Target) -> None:
        """Have all of the target's batches in the log."""
        while True:
            if not target.is_known:
                await self.survey(target)
            if target.placed >= target.total:
                return
            rows = target.left()
            if rows[0].first == target.placed:
                copied = await self._copy(target, rows)
                if copied < 0:
                    continue
                rows = rows[copied:]
            if rows:
                await self._move(target, rows[0])

    async def _copy(self, target: Target, rows: list[Batch]) -> int:
        """How many the leader has copied, where it can't copy the next one or there is none; -1:
        it has to be seen first what is in the log.
        """
        try:
            answer = await copy(self._cluster, self._topic, target, self._producer_id, rows)
        except KafkaError as error:
            await self._failed(target, error)
            return -1
        code = answer.error_code
        if code == ErrorCode.NONE or code in BY_HAND:
            for row in rows[: answer.copied]:
                target.seen += row.records
                target.placed += row.records
                target.failures = 0
            return answer.copied
        if code == ErrorCode.INVALID_PRODUCE_OFFSET:
            target.at_least, target.is_known = answer.log_end_offset, False
        else:
            await self._failed(target, error_for(code, answer.error_message, produce=True))
        return -1

    async def _move(self, target: Target, row: Batch) -> None:
        """Have a batch in the log that its leader does not copy by itself."""
        tp = TopicPartition(self._topic, row.partition)
        data = await staged_batch(self._cluster, tp, row.offset, row.key)
        await self._write(target, data, row.first, row.records)

    async def _write(self, target: Target, data: bytes, first: int, count: int) -> None:
        """Have a batch in the log whose first record is the plan's number ``first``."""
        while True:
            if not target.is_known:
                await self.survey(target)
            there = target.placed - first
            if there >= count:
                return
            if there > 0:
                data, first, count = _cut(data, there, count), first + there, count - there
            code = await self._send(target, data, first, count)
            if code == ErrorCode.NONE:
                return
            if code in TOO_LARGE:
                if count == 1:
                    raise PipelineError(
                        "a record is larger than the topic takes",
                        topic=target.tp.topic, partition=target.tp.partition,
                        remedy="Raise its max.message.bytes and restart the query: it continues",
                    )  # fmt: skip
                half = count // 2
                await self._write(target, _cut(data, 0, half), first, half)
                await self._write(target, _cut(data, half, count), first + half, count - half)
                return

    async def _send(self, target: Target, data: bytes, first: int, count: int) -> int:
        """One attempt; the error code for the caller to look at, NONE for success."""
        tp, at = target.tp, target.seen
        made = signed(data, at, self._producer_id, first)
        row = Destination(tp, target.leader_epoch), Piece(at, at + count, made)
        try:
            answer = (await produce(self._cluster, self._cluster.view.leader(tp), [row]))[tp]
        except KafkaError as error:
            await self._failed(target, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        code = answer.error_code
        if code == ErrorCode.NONE and answer.base_offset == at:
            target.seen, target.placed, target.failures = at + count, first + count, 0
        elif code == ErrorCode.INVALID_PRODUCE_OFFSET:
            target.at_least, target.is_known = answer.log_end_offset, False
        elif code not in TOO_LARGE:
            await self._failed(target, error_for(code, answer.error_message, produce=True))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return code

    async def survey(self, target: Target) -> None:
        """Find out where the log ends now, and how many of the plan's records it has."""
        while not target.is_known:
            try:
                await self._survey(target)
            except KafkaError as error:
                await self._failed(target, error)

    async def _survey(self, target: Target) -> None:
        tp, cluster = target.tp, self._cluster
        epoch = cluster.view.leader_epoch(tp)
        if epoch != target.leader_epoch:
            target.at_least = 0  # what a leader had that its followers had not may be gone
        end = max(await end_of(cluster, tp, epoch, LATEST), target.at_least)
        if target.seen > end:
            raise PipelineError(
                f"the log ends at {end} now, though it went up to {target.seen}",
                topic=tp.topic, partition=tp.partition, offset=target.seen,
                remedy="The topic was created again, or lost records: use a new checkpoint",
            )  # fmt: skip
        while target.seen < end:
            rows = await fetch(
                cluster, cluster.view.leader(tp), [(tp, target.seen, epoch)],
                isolation=0, wait_ms=100, max_bytes=SURVEY_BYTES, partition_bytes=SURVEY_BYTES,
            )  # fmt: skip
            row = rows[tp]
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                start = await end_of(cluster, tp, epoch, EARLIEST)
                target.was_cut = True
                target.seen = max(target.seen, start)
                continue
            if row.error_code:
                raise error_for(row.error_code)
            self._look_through(target, row.records or b"", row.high_watermark)
        if target.was_cut and not target.placed:
            raise PipelineError(
                f"records before offset {target.seen} were deleted before it could be seen which "
                "of the query's they were",
                topic=tp.topic, partition=tp.partition, offset=target.seen,
                remedy="Start with a new checkpoint after what was written, or write it again",
            )  # fmt: skip
        target.leader_epoch, target.is_known = epoch, True

    def _look_through(
        self, target: Target, data: bytes | bytearray | memoryview, high_watermark: int
    ) -> None:
        before = target.seen
        for batch in batches(data):
            if batch.next_offset <= target.seen:
                continue
            target.seen = batch.next_offset
            if batch.producer_id == self._producer_id:
                # Compaction may have left fewer records, or none, but not moved their offsets.
                size = batch.next_offset - batch.base_offset
                target.placed = max(target.placed, batch.base_sequence + size)
        if target.seen == before:
            target.seen = max(before, high_watermark)  # nothing is left there

    async def _failed(self, target: Target, error: KafkaError) -> None:
        """Wait before it is tried again, from what the log then says; or give up."""
        loop = asyncio.get_running_loop()
        tp, target.is_known = target.tp, False
        target.failing_since_s = target.failing_since_s if target.failures else loop.time()
        target.failures += 1
        is_over = loop.time() - target.failing_since_s > self._timeout_s
        if is_over or not (error.retriable or error.code in REFUSED):
            raise failure(error, topic=tp.topic, partition=tp.partition) from error
        pause = pause_ms(target.failures, FIRST_PAUSE_MS, MAX_PAUSE_MS, random.random())
        await asyncio.sleep(pause / 1000)
        with contextlib.suppress(KafkaError):  # the next attempt meets it, too
            await self._cluster.refresh([tp.topic])


def _cut(data: bytes, start: int, end: int) -> bytes:
    """Some of a batch's records, as a batch."""
    codec = next(iter(batches(data))).attributes & COMPRESSION_BITS
    builder = RecordBatchBuilder(compression=codec)
    for record in decode(data, verify=False)[start:end]:
        builder.append(record.value, record.key, record.timestamp, record.headers)
    return bytes(builder.build(0))
