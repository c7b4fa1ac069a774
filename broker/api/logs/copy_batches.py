"""CopyBatches, an extension: the leader of a partition appends record batches that are the values
of another partition's records. The result is the same as after Produce requests with these offsets
(KIP-391), but the client does not transfer the batches.

This broker must have a replica of the source partition. The records of a partition are read in
order, up to the first failure. All batches of a record are appended, or none. The response is sent
when the in-sync replicas have the appended batches. Threads read, check and append; other work on
the loop runs after each record. Batches are not copied in memory: their headers are written, and
they are appended, in the buffer that they were read into. Only a few partitions of a request are
copied at the same time, because each has some batches in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore._fast.record.nested import find_nested
from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.logs.list_offsets import check_leader
from kstore.broker.api.security.access import HasAuthorizer, allowed
from kstore.broker.runtime.log_dirs.cold_reads import Slice, finished, locate, read
from kstore.errors import ErrorCode, KafkaError
from kstore.log.errors import LogError
from kstore.protocol.logs.copy_batches import (
    CopyBatchesPartition,
    CopyBatchesPartitionResult,
    CopyBatchesRequest,
    CopyBatchesResponse,
    CopyBatchesSource,
    CopyBatchesTopic,
    CopyBatchesTopicResult,
)
from kstore.record import InvalidBatchError, batches
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore._fast.log.append_queue import CallbackJob
    from kstore._fast.record.nested import NestedBatches
    from kstore.broker.api import RequestContext
    from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.unpacking import Unpacking
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.quotas.client_throttles import ClientThrottles

__all__ = ["CopyParts", "handle_copy_batches"]

GIVEN_OFFSETS = 3
"""LogCore's number for the origin of appends with given offsets."""
NO_ID = bytes(16)
IS_A_COPY = "The topic is an exact copy (kstore.mirror=true): it accepts only batches of its source"
NO_EPOCH = -1
PRODUCE = 0
"""Copied records are charged to the quota of Produce."""
AT_ONCE = 8
"""How many partitions of a request are copied at the same time."""
SEQUENCE_BITS = 0x7FFFFFFF
"""As in Kafka, 0 follows the largest sequence number."""


class CopyParts(HasAuthorizer, Protocol):
    """The parts of a broker that this handler uses."""

    @property
    def node(self) -> Node:
        """The loop's clock."""

    @property
    def table(self) -> PartitionTable:
        """The partitions that this broker knows."""

    @property
    def throttles(self) -> ClientThrottles | None:
        """Applies the quotas of clients; None while there are none."""

    @property
    def unpacking(self) -> Lazy[Unpacking]:
        """The thread that decompresses batches."""

    @property
    def partition_writer(self) -> Lazy[PartitionWriter]:
        """Waits for followers and disk."""


class _Held(NamedTuple):
    """A batch of the source in memory, and its offsets."""

    partition: Partition
    start: int
    end: int
    data: bytes | bytearray

    def has(self, partition: Partition, offset: int) -> bool:
        """Whether the batch contains this offset of the source."""
        return self.partition is partition and self.start <= offset < self.end


async def handle_copy_batches(
    broker: CopyParts, request: CopyBatchesRequest, ctx: RequestContext
) -> CopyBatchesResponse:
    """Copy to all partitions. Those that are not done after timeout_ms get REQUEST_TIMED_OUT."""
    may_read = _Rights(broker, ctx)
    deadline = broker.node.loop.time() + request.timeout_ms / 1000
    copies = [
        [_Copy(broker, topic, row, may_read, deadline) for row in topic.partitions]
        for topic in request.topics
    ]
    at_once = asyncio.Semaphore(AT_ONCE)
    await asyncio.gather(*(copy.run(at_once) for row in copies for copy in row))
    topics = [
        CopyBatchesTopicResult(name=topic.name, partitions=[copy.result for copy in row])
        for topic, row in zip(request.topics, copies, strict=True)
    ]
    response = CopyBatchesResponse(topics=topics)
    size = sum(copy.appended_bytes for row in copies for copy in row)
    if size and broker.throttles is not None and ctx.connection is not None:
        response.throttle_time_ms = broker.throttles.charge_late(ctx.connection, size, PRODUCE)
    return response


class _Rights(dict[str, bool]):
    """Which topics the client may read. They are checked on first use, since a request may name
    many.
    """

    def __init__(self, broker: CopyParts, ctx: RequestContext) -> None:
        super().__init__()
        self._broker, self._ctx = broker, ctx

    def __missing__(self, topic: str) -> bool:
        action, kind = AclOperation.READ, AclResourceType.TOPIC
        self[topic] = found = allowed(self._broker, self._ctx, action, kind, topic)
        return found


class _Copy:
    """The copy to one partition."""

    def __init__(
        self,
        broker: CopyParts,
        topic: CopyBatchesTopic,
        requested: CopyBatchesPartition,
        may_read: _Rights,
        deadline: float,
    ) -> None:
        self._broker = broker
        self._loop = broker.node.loop
        self._place = TopicPartition(topic.name, requested.partition_index)
        self._topic_id = topic.topic_id.bytes
        self._asked = requested
        self._may_read = may_read
        self._deadline = deadline
        self._held: _Held | None = None
        self._room = bytearray()
        """The buffer for the source's batches, which each of them reuses."""
        self._epoch = NO_EPOCH
        self.appended_bytes = 0
        self.result = CopyBatchesPartitionResult(partition_index=requested.partition_index)

    async def run(self, at_once: asyncio.Semaphore) -> None:
        """Copy until a batch fails."""
        async with at_once:
            await self._run()
            self._held = None
        await self._settle()

    async def _run(self) -> None:
        result = self.result
        offset, sequence = self._asked.base_offset, self._asked.base_sequence
        for source, at in self._sources():
            result.error_code = self._refusal(offset)
            if result.error_code != ErrorCode.NONE:
                break
            result.source_error_code, found = await self._found(source, at)
            if found is None:
                break
            result.error_code = await self._append(found, offset, sequence)
            if result.error_code != ErrorCode.NONE:
                break
            result.copied += 1
            offset += found.records
            sequence = (sequence + found.records) & SEQUENCE_BITS

    def _sources(self) -> Iterator[tuple[CopyBatchesSource, int]]:
        for source in self._asked.sources:
            for offset in source.offsets:
                yield source, offset

    def _partition(self) -> Partition | None:
        return self._broker.table.partition(self._place.topic.encode(), self._place.partition)

    def _refusal(self, offset: int) -> int:
        """The error code if nothing can be appended now, else NONE."""
        partition = self._partition()
        code = check_leader(partition, self._asked.current_leader_epoch)
        if partition is None or code != ErrorCode.NONE:
            return code
        self.result.log_end_offset = partition.log_end_offset
        if self._topic_id not in (NO_ID, partition.entry.topic_id):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if partition.entry.internal:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if partition.entry.mirror:
            self.result.error_message = IS_A_COPY
            return ErrorCode.POLICY_VIOLATION
        if self._epoch not in (NO_EPOCH, partition.leader_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # it is not known how much of this copy it has
        if offset < 0 or self._asked.producer_id < 0 or self._asked.base_sequence < 0:
            return ErrorCode.INVALID_REQUEST
        if partition.insync_replicas < partition.min_insync_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if self._loop.time() >= self._deadline:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE

    async def _found(
        self, source: CopyBatchesSource, offset: int
    ) -> tuple[int, NestedBatches | None]:
        """The batches in a record of the source, or an error code."""
        if not self._may_read[source.topic]:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        partition = self._broker.table.partition(source.topic.encode(), source.partition)
        if partition is None or partition.log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        if offset < partition.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE, None
        if offset >= partition.high_watermark:
            return ErrorCode.OFFSET_NOT_AVAILABLE, None
        held = self._held
        is_new = held is None or not held.has(partition, offset)
        try:
            if held is None or is_new:
                found = await self._read_aside(partition, offset, source.key)
                if found is not None:
                    return ErrorCode.NONE, found
                # The loop reads it, finds damage, and starts the repair.
                end = partition.high_watermark
                data, _ = await finished(read(partition.log, offset, end, 1))
                view = next(iter(batches(data, verify=False)), None)
                if view is None:
                    return ErrorCode.INVALID_RECORD, None  # the log was deleted meanwhile
                held = _Held(partition, view.base_offset, view.next_offset, data)
            self._held = held
            found = await self._broker.unpacking().look(
                partial(find_nested, held.data, offset, source.key, verify=is_new)
            )
        except InvalidBatchError:
            return ErrorCode.CORRUPT_MESSAGE, None
        except (LogError, OSError):
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        return ErrorCode.INVALID_RECORD if found is None else ErrorCode.NONE, found

    async def _read_aside(
        self, partition: Partition, offset: int, key: bytes
    ) -> NestedBatches | None:
        """The batches, which a thread reads and checks. None if the thread could not do it."""
        self._held = None
        # The unpacking thread never waits for a disk, so a reading thread does this.
        place = await finished(locate(partition.log, offset, partition.high_watermark))
        if place is None:
            return None
        _, _, size, start, end = place
        if len(self._room) < size:
            self._room = bytearray(size + size // 4)
        look = partial(_read_and_find, place, self._room, offset, key)
        found = await self._broker.unpacking().look(look)
        if found is not None:
            self._held = _Held(partition, start, end, self._room)
        return found

    async def _append(self, found: NestedBatches, offset: int, sequence: int) -> int:
        """Append batches from the offset on. Returns an error code."""
        refusal = self._refusal(offset)
        if refusal != ErrorCode.NONE:
            return refusal
        partition = self._partition()
        assert partition is not None
        if partition.stored_codec >= 0:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE  # Produce compresses such a batch again
        if found.largest_bytes > partition.log.config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        requested = self._asked
        found.sign(offset, requested.producer_id, requested.producer_epoch, sequence)
        self._epoch = partition.leader_epoch
        done: asyncio.Future[CallbackJob] = self._loop.create_future()
        code, _ = partition.append_later(found, done.set_result, origin=GIVEN_OFFSETS)
        if code != ErrorCode.NONE:
            return code
        job = await done
        if job.problem is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self.result.log_end_offset = job.log_end_offset
        if job.error_code == ErrorCode.NONE:
            if job.base_offset != offset or (job.duplicate and found.count > 1):
                # A duplicate, at another offset or perhaps only in part.
                return ErrorCode.INVALID_PRODUCE_OFFSET
            if job.duplicate:
                return job.error_code
            self.appended_bytes += found.size_bytes
            counts = partition.entry.counts
            counts.note_appended(self._broker.table.counts, found.records, found.size_bytes)
        return job.error_code

    async def _settle(self) -> None:
        """Wait until the appended batches can no longer be lost."""
        result = self.result
        if not result.copied:
            return
        try:
            future = self._broker.partition_writer().to_be_committed(self._place)
        except KafkaError:
            result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        partition = self._partition()
        if partition is None or partition.leader_epoch != self._epoch:
            result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # it may be truncated
            return
        if future is None:
            return
        left = max(self._deadline - self._loop.time(), 0)
        await asyncio.wait({future}, timeout=left)
        code = future.result() if future.done() else ErrorCode.REQUEST_TIMED_OUT
        if code != ErrorCode.NONE:
            result.error_code = code


def _read_and_find(place: Slice, room: bytearray, offset: int, key: bytes) -> NestedBatches | None:
    """Runs in a thread: reads a batch of the source, and finds the batches in it. Returns None if
    it cannot be read, or is not the expected one.
    """
    path, position, size, _, _ = place
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(position)
            if file.readinto(memoryview(room)[:size]) != size:
                return None
        return find_nested(room, offset, key, size=size)
    except (OSError, InvalidBatchError):
        return None
