"""Carries out a sink's plan: staged record batches go to their partitions, each at an offset given
by the sink (KIP-391), all of them once, however often and by however many drivers it is begun.

A batch is written at the offset where its partition was last seen to end. A leader takes it there
or says INVALID_PRODUCE_OFFSET: something is there, of another writer, or of this plan, written by
an earlier try whose answer was lost or by a driver that died. Which of the two the log itself
tells: every batch is signed with the plan's producer id, and its sequence number says which of the
plan's records it begins with. So after a refusal, and before the first write of a plan that
somebody else may have begun, the partition is read from where it ended when the plan was made, and
writing goes on behind the last record of the plan. Others' records in between only move the offset.

As in the replicator, every write carries the leader epoch under which the end was learnt (KIP-359),
and one write per partition is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstore._fast.record.crc32c import checksum
from kstore.clients.core.backoff import pause_ms
from kstore.clients.core.replication import Piece
from kstore.clients.replicator.wire import EARLIEST, LATEST, Destination, end_of, fetch, produce
from kstore.errors import (
    ErrorCode,
    KafkaError,
    error_for,
)
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.staging import Staged, read_staged
from kstore.record import RecordBatchBuilder, batches, decode
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from kstore.clients.io.cluster import ClusterClient
    from kstore.pipeline.sink.staging import Plan

__all__ = ["Target", "failure", "place", "signed"]

CRC_AT, ATTRIBUTES_AT, PRODUCER_AT = 17, 21, 43
COMPRESSION_BITS = 0x07
_OFFSET = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
SURVEY_BYTES = 8 << 20
FIRST_PAUSE_MS, MAX_PAUSE_MS = 20, 1_000
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
REFUSED = {ErrorCode.INVALID_PRODUCE_OFFSET, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}


@dataclass
class Target:
    """One partition of a target topic, and how far the plan is there."""

    tp: TopicPartition
    seen: int
    """All before this offset was looked through, or was there before the plan."""
    total: int
    """Records of the plan."""
    placed: int = 0
    """Records of the plan that are in the log; sequence numbers are theirs."""
    taken: int = 0
    """Records of the plan that the staged batches so far had."""
    leader_epoch: int = -1
    is_known: bool = False
    """Whether `seen` is where the log ends, as far as we know."""
    at_least: int = 0
    """The log end offset of the last refusal, which may be above the high watermark yet."""
    was_cut: bool = False
    """Whether records that may be the plan's were deleted before we looked."""
    failures: int = 0
    failing_since_s: float = 0.0


def signed(data: bytes, offset: int, producer_id: int, sequence: int) -> bytearray:
    """The batch with its first offset, its producer's id, and the first record's number."""
    made = bytearray(data)
    _OFFSET.pack_into(made, 0, offset)
    _PRODUCER.pack_into(made, PRODUCER_AT, producer_id, 0, sequence)
    _UINT32.pack_into(made, CRC_AT, checksum(memoryview(made)[ATTRIBUTES_AT:]))
    return made


async def place(
    cluster: ClusterClient, topic: str, plan: Plan, *, is_ours: bool, timeout_ms: int
) -> int:
    """Write all that the plan names; returns how many records. ``topic`` is the sink's own;
    ``is_ours``: nobody else can have begun it. An attempt that brings a partition no further is
    repeated for timeout_ms, then its error raised.
    """
    targets = {
        (name, partition): Target(TopicPartition(name, partition), base, total, is_known=False)
        for name, partition, base, total in plan.targets
    }
    await cluster.refresh({name for name, _ in targets})
    writer = _Writer(cluster, plan.producer_id, timeout_ms)
    for target in targets.values():
        target.leader_epoch = cluster.view.leader_epoch(target.tp)
    if not is_ours:
        await _all(writer.survey(target) for target in targets.values())
    staged = read_staged(cluster, topic, plan)
    upcoming = await anext(staged, None)
    while upcoming is not None:
        found, ahead = upcoming, asyncio.ensure_future(anext(staged, None))
        try:
            by_target: dict[tuple[str, int], list[Staged]] = {}
            for each in found:
                by_target.setdefault((each.key.topic, each.key.partition), []).append(each)
            await _all(writer.put(targets[key], rows) for key, rows in by_target.items())
            upcoming = await ahead
        finally:
            ahead.cancel()
    for target in targets.values():
        if target.placed != target.total:
            raise PipelineError(
                f"{target.placed} of {target.total} records are written, but no more are staged",
                topic=target.tp.topic, partition=target.tp.partition, offset=target.seen,
                remedy=f"Do not delete records of {topic}",
            )  # fmt: skip
    return sum(target.total for target in targets.values())


def failure(error: KafkaError, *, topic: str, partition: int | None = None) -> PipelineError:
    """What the user is told of an error of the brokers."""
    remedy = "Start the query again: it goes on where it was"
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
    """Writes the batches of one plan, in order for each target."""

    def __init__(self, cluster: ClusterClient, producer_id: int, timeout_ms: int) -> None:
        self._cluster = cluster
        self._producer_id = producer_id
        self._timeout_s = timeout_ms / 1000

    async def put(self, target: Target, rows: Iterable[Staged]) -> None:
        """Have these batches, the target's next ones, in the log."""
        for row in rows:
            first = target.taken
            target.taken += row.key.records
            await self._write(target, row.data, first, row.key.records)

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
                remedy="The topic was created again, or lost records: take a new checkpoint",
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
                remedy="Begin with a new checkpoint, behind what was written, or write it again",
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
