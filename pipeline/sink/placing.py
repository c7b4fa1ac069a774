"""Carries out a sink's plan: writes the staged record batches to their partitions, each at an
offset given by the sink (KIP-391). Each batch is written once, even if several drivers carry out
the plan, or one repeats it.

Batches are staged in pieces, several in one record. The leader of a partition copies the pieces
from its own log (CopyBatches), so the driver moves no batch. The driver sends a piece's batches
itself only if the leader can't copy it: the leader has no replica of the piece (its partition moved
meanwhile), the topic does not accept a batch unchanged, or only some of the piece's batches are in
the log.

A batch is written at the last known log end offset of its partition. The leader accepts it, or
answers INVALID_PRODUCE_OFFSET because the log has records there. They belong to another producer,
or to this plan: written by an earlier attempt whose answer was lost, or by a driver that died. The
log shows which: every batch of the plan has the plan's producer id, and its base sequence is the
number of its first record in the plan. So after such an answer, and before the first write of a
plan that another driver may have started, the partition is read from the offset at which it ended
when the plan was made, and writing continues after the last record of the plan. Records of other
producers in between only increase the offset.

As in the replicator, every write carries the leader epoch under which the log end offset was read
(KIP-359), and one write per partition is in flight.
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
from kstore.pipeline.sink.staging import key_of, staged_piece
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

__all__ = ["StagedPiece", "Target", "copy", "failure", "place"]

COMPRESSION_BITS = 0x07
SURVEY_BYTES = 8 << 20
PIECES_AT_ONCE = 16
TARGETS_AT_ONCE = 32
FIRST_PAUSE_MS, MAX_PAUSE_MS = 20, 1_000
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
REFUSED = {ErrorCode.INVALID_PRODUCE_OFFSET, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
BY_HAND = TOO_LARGE | {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
"""Errors of CopyBatches after which a Produce may still succeed."""


class StagedPiece(NamedTuple):
    """A staged piece: its place, and the plan's records that it contains."""

    partition: int
    key: bytes
    offset: int
    first: int
    records: int


@dataclass
class Target:
    """One partition of a target topic, and the plan's progress in it."""

    tp: TopicPartition
    seen: int
    """Records below this offset were checked, or are older than the plan."""
    pieces: list[StagedPiece] = field(default_factory=list)
    """All pieces of the plan."""
    placed: int = 0
    """The number of the plan's records that are in the log; sequence numbers count them."""
    leader_epoch: int = -1
    is_known: bool = False
    """Whether `seen` is the log end offset, as far as is known."""
    at_least: int = 0
    """The log end offset in the last refusal; it may still be above the high watermark."""
    was_cut: bool = False
    """Whether records that may belong to the plan were deleted before they were read."""
    failures: int = 0
    failing_since_s: float = 0.0

    @classmethod
    def of(cls, planned: PlannedTarget) -> Target:
        """The target at the start of its plan."""
        target = cls(TopicPartition(planned.topic, planned.partition), planned.base)
        first = 0
        for run in planned.runs:
            key = key_of(bytes.fromhex(run.attempt), planned.topic, planned.partition)
            for offset, count in zip(run.offsets, run.counts, strict=True):
                target.pieces.append(StagedPiece(run.partition, key, offset, first, count))
                first += count
        return target

    @property
    def total(self) -> int:
        """The number of the plan's records."""
        return self.pieces[-1].first + self.pieces[-1].records if self.pieces else 0

    def left(self) -> list[StagedPiece]:
        """The next pieces that are not completely in the log, up to the limit of one request."""
        at = bisect_right(self.pieces, self.placed, key=lambda piece: piece.first) - 1
        if self.pieces[at].first + self.pieces[at].records <= self.placed:
            at += 1
        return self.pieces[at : at + PIECES_AT_ONCE]


async def place(
    cluster: ClusterClient, topic: str, plan: Plan, *, is_ours: bool, timeout_ms: int
) -> None:
    """Write all that the plan names. ``topic`` is the sink's own; ``is_ours`` means that no other
    driver can have started the plan. If attempts make no progress in a partition for timeout_ms,
    raises the last error.
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
    cluster: ClusterClient, topic: str, target: Target, producer_id: int, rows: list[StagedPiece]
) -> CopyBatchesPartitionResult:
    """Ask the target's leader to append these pieces; all in-sync replicas acknowledge them."""
    sources: list[CopyBatchesSource] = []
    for row in rows:
        if not sources or (sources[-1].partition, sources[-1].key) != (row.partition, row.key):
            sources.append(CopyBatchesSource(topic=topic, partition=row.partition, key=row.key))
        sources[-1].offsets.append(row.offset)
    view, tp = cluster.view, target.tp
    requested = CopyBatchesPartition(
        partition_index=tp.partition,
        current_leader_epoch=target.leader_epoch,
        base_offset=target.seen,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=rows[0].first,
        sources=sources,
    )
    named = CopyBatchesTopic(
        name=tp.topic, topic_id=view.topic_id(tp.topic), partitions=[requested]
    )
    timeout_ms = cluster.settings["request.timeout.ms"] // 2
    request = CopyBatchesRequest(timeout_ms=timeout_ms, topics=[named])
    answer = cast(CopyBatchesResponse, await cluster.ask(view.leader(tp), request))
    return answer.topics[0].partitions[0]


def failure(error: KafkaError, *, topic: str, partition: int | None = None) -> PipelineError:
    """The user's error for an error of the brokers."""
    remedy = "Start the query again: it continues where it stopped"
    if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        remedy = "Given offsets need REPLICATOR_WRITE on the cluster: allow it"
    message = str(error).rstrip(".")
    return PipelineError(
        f"writing failed: {message}", topic=topic, partition=partition, remedy=remedy
    )


async def _all(work: Iterable[Coroutine[object, object, None]]) -> None:
    """Run all at once; the first error cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class _Writer:
    """Writes the batches of one plan, in order for each target."""

    def __init__(
        self, cluster: ClusterClient, topic: str, producer_id: int, timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._producer_id = producer_id
        self._timeout_s = timeout_ms / 1000

    async def put(self, target: Target) -> None:
        """Write all of the target's pieces."""
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

    async def _copy(self, target: Target, rows: list[StagedPiece]) -> int:
        """The number of pieces that the leader has copied; if one follows, the leader can't copy
        it. -1 if the log must be read first.
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

    async def _move(self, target: Target, row: StagedPiece) -> None:
        """Write the batches of a piece that the leader can't copy."""
        tp = TopicPartition(self._topic, row.partition)
        data = memoryview(await staged_piece(self._cluster, tp, row.offset, row.key))
        first = row.first
        for view in batches(data):
            batch, data = bytes(data[: view.size_bytes]), data[view.size_bytes :]
            await self._write(target, batch, first, view.records_count)
            first += view.records_count

    async def _write(self, target: Target, data: bytes, first: int, count: int) -> None:
        """Write a batch whose first record is number ``first`` of the plan."""
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
                        "a record is larger than the topic allows",
                        topic=target.tp.topic, partition=target.tp.partition,
                        remedy="Raise max.message.bytes and restart the query: it continues",
                    )  # fmt: skip
                half = count // 2
                await self._write(target, _cut(data, 0, half), first, half)
                await self._write(target, _cut(data, half, count), first + half, count - half)
                return

    async def _send(self, target: Target, data: bytes, first: int, count: int) -> int:
        """One attempt. Returns the error code that the caller handles; NONE for success."""
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
        """Find out the log end offset, and how many of the plan's records are in the log."""
        while not target.is_known:
            try:
                await self._survey(target)
            except KafkaError as error:
                await self._failed(target, error)

    async def _survey(self, target: Target) -> None:
        tp, cluster = target.tp, self._cluster
        epoch = cluster.view.leader_epoch(tp)
        if epoch != target.leader_epoch:
            target.at_least = 0  # records that only the former leader had may be gone
        end = max(await end_of(cluster, tp, epoch, LATEST), target.at_least)
        if target.seen > end:
            raise PipelineError(
                f"the log end offset fell from {target.seen} to {end}",
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
                f"records before offset {target.seen} were deleted, so it is unknown which of the "
                "query's records were written",
                topic=tp.topic, partition=tp.partition, offset=target.seen,
                remedy="Use a new checkpoint: start after the records that were written, or write "
                "them again",
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
                # Compaction may have removed records, but it does not change offsets.
                size = batch.next_offset - batch.base_offset
                placed = batch.base_sequence + size
                if placed > target.placed:
                    target.placed, target.failures = placed, 0
        if target.seen == before:
            target.seen = max(before, high_watermark)  # nothing is left there

    async def _failed(self, target: Target, error: KafkaError) -> None:
        """Wait before the next attempt, which reads the log first; or raise the error."""
        loop = asyncio.get_running_loop()
        tp, target.is_known = target.tp, False
        target.failing_since_s = target.failing_since_s if target.failures else loop.time()
        target.failures += 1
        is_over = loop.time() - target.failing_since_s > self._timeout_s
        if is_over or not (error.retriable or error.code in REFUSED):
            raise failure(error, topic=tp.topic, partition=tp.partition) from error
        pause = pause_ms(target.failures, FIRST_PAUSE_MS, MAX_PAUSE_MS, random.random())
        await asyncio.sleep(pause / 1000)
        with contextlib.suppress(KafkaError):  # the next attempt fails with it, too
            await self._cluster.refresh([tp.topic])


def _cut(data: bytes, start: int, end: int) -> bytes:
    """A batch of some of a batch's records."""
    codec = next(iter(batches(data))).attributes & COMPRESSION_BITS
    builder = RecordBatchBuilder(compression=codec)
    for record in decode(data, verify=False)[start:end]:
        builder.append(record.value, record.key, record.timestamp, record.headers)
    return bytes(builder.build(0))
