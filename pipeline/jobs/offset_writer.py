"""Writes records at their offsets into one partition of a kstore cluster (KIP-391), in order, one
batch at a time. It starts at the target's log end offset, so it can be killed and started again at
any time. The caller provides the records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from kstore.clients.core.replication import Piece, cut
from kstore.clients.io.cluster import ANY, ClusterClient
from kstore.clients.replicator.replicator import NEEDED
from kstore.clients.replicator.wire import LATEST, Destination, end_of, produce, record_at
from kstore.errors import ErrorCode, KafkaError, OffsetOutOfRangeError, error_for
from kstore.pipeline.errors import PipelineError
from kstore.protocol.logs.produce import PartitionProduceResponse
from kstore.record import Record, RecordBatchBuilder, batches, decode
from kstore.types import TopicPartition

__all__ = ["OffsetWriter", "Row", "pieces", "require_given_offsets", "same_record"]

PIECE_BYTES = 256 << 10
PIECE_RECORDS = 10_000
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}


class Row(NamedTuple):
    """A record at its offset; `timestamp` in ms, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def pieces(rows: Iterator[Row], compression: int) -> Iterator[Piece]:
    """Rows of ascending offsets as batches of consecutive ones, none of them large. A row with the
    offset of the one before is skipped.
    """
    builder = RecordBatchBuilder(compression=compression)
    base = expected = -1
    for row in rows:
        if row.offset < expected:
            continue
        full = builder.size_bytes >= PIECE_BYTES or builder.count >= PIECE_RECORDS
        if builder.count and (row.offset != expected or full):
            yield Piece(base, expected, builder.build(base))
            builder.reset()
        if not builder.count:
            base = row.offset
        builder.append(row.value, row.key, row.timestamp, row.headers)
        expected = row.offset + 1
    if builder.count:
        yield Piece(base, expected, builder.build(base))


async def require_given_offsets(cluster: ClusterClient) -> None:
    """Raise PipelineError if the cluster does not accept records at given offsets."""
    connection = await cluster.connection(ANY)
    missing = [name for name in NEEDED if name not in connection.versions.features]
    if missing:
        raise PipelineError(
            f"the cluster at {connection.address} does not accept records at given offsets "
            f"(it lacks {' and '.join(missing)})",
            remedy="The target must be kstore",
        )


class OffsetWriter:
    """One partition. `position` is the target's log end offset after `open`."""

    def __init__(self, cluster: ClusterClient, tp: TopicPartition, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._tp = tp
        self._target = Destination(tp, -1)
        self._is_located = False
        self.position = -1
        self.written = 0
        """The number of records that this writer has written."""
        self.already_there = 0
        """The number of offsets that the target already had."""
        self.last: Record | None = None
        """The target's last record when it was opened; None if it has none there."""

    async def open(self) -> None:
        """Look up the end of the target. Raises PipelineError."""
        await self._trying(self._open)

    async def _open(self) -> None:
        await self._locate()
        if self.position > 0:
            self.last = await self._record(self.position - 1)

    async def write(self, piece: Piece) -> None:
        """Write the piece, or the part of it that the target does not have, and wait for the
        acknowledgement. Raises PipelineError.
        """
        await self._trying(partial(self._write, piece))

    async def _write(self, piece: Piece) -> None:
        left = [piece]
        while left:
            if not self._is_located:
                await self._locate()
            piece = left[0]
            if piece.end_offset <= self.position:
                self.already_there += piece.records
                left.pop(0)
                continue
            if piece.base_offset < self.position:
                self.already_there += self.position - piece.base_offset
                left[0] = cut(piece, self.position)
                continue
            left[:1] = await self._send(piece)

    async def _send(self, piece: Piece) -> list[Piece]:
        """The rest of the piece after one request."""
        row = await self._produce(piece)
        if row.error_code == ErrorCode.NONE:
            self.position = piece.end_offset
            self.written += piece.records
            return []
        if row.error_code in TOO_LARGE and piece.records > 1:
            return _halves(piece)
        if row.error_code == ErrorCode.INVALID_PRODUCE_OFFSET:
            if row.log_end_offset > piece.base_offset:
                await self._concede(piece, row.log_end_offset)
            else:
                self._is_located = False
            return [piece]
        self._is_located = False
        raise error_for(row.error_code, row.error_message or None, produce=True)

    async def _produce(self, piece: Piece) -> PartitionProduceResponse:
        cluster, tp = self._cluster, self._tp
        try:
            node = cluster.view.leader(tp)
            return (await produce(cluster, node, [(self._target, piece)]))[tp]
        except KafkaError:
            self._is_located = False
            raise

    async def _concede(self, piece: Piece, log_end_offset: int) -> None:
        """Another attempt of this task, or another program, has written there meanwhile."""
        last = min(log_end_offset, piece.end_offset) - 1
        theirs = await self._record(last)
        ours = next(iter(decode(piece.data, verify=False, start_offset=last)), None)
        if theirs is not None and ours is not None and not same_record(theirs, ours):
            raise PipelineError(
                "the target has another record at this offset than the one to write",
                topic=self._tp.topic,
                partition=self._tp.partition,
                offset=last,
                remedy="Another program writes to the topic; write to a new one",
            )
        self.position = log_end_offset

    async def _record(self, offset: int) -> Record | None:
        epoch = self._target.leader_epoch
        try:
            return (await record_at(self._cluster, self._tp, offset, epoch, 0)).record
        except OffsetOutOfRangeError:
            return None

    async def _locate(self) -> None:
        cluster, tp = self._cluster, self._tp
        if tp.topic not in cluster.view.topics:
            await cluster.refresh([tp.topic])
        epoch = cluster.view.partition(tp).leader_epoch
        end = await end_of(cluster, tp, epoch, LATEST)
        if end < self.position:
            raise PipelineError(
                f"the target ends at {end} now, but had acknowledged offsets up to {self.position}",
                topic=tp.topic,
                partition=tp.partition,
                offset=end,
                remedy="A leader has lost records; start the job again to continue there",
            )
        self._target = Destination(tp, epoch)
        self.position = end
        self._is_located = True

    async def _trying(self, work: Callable[[], Awaitable[None]]) -> None:
        tp = self._tp
        try:
            await self._cluster.retrying(work, self._timeout_ms, [tp.topic])
        except KafkaError as error:
            raise PipelineError(
                (str(error) or type(error).description).rstrip("."),
                topic=tp.topic,
                partition=tp.partition,
                offset=max(self.position, 0),
                remedy="Written records stay; start the job again to continue there",
            ) from error


def same_record(one: Any, other: Any) -> bool:
    """Whether timestamp, key, value and headers are equal."""
    return (
        one.timestamp == other.timestamp
        and one.key == other.key
        and one.value == other.value
        and [tuple(h) for h in one.headers] == [tuple(h) for h in other.headers]
    )


def _halves(piece: Piece) -> list[Piece]:
    middle = piece.base_offset + piece.records // 2
    builder = RecordBatchBuilder(compression=next(iter(batches(piece.data))).compression)
    for record in decode(piece.data, verify=False, end_offset=middle):
        builder.append(record.value, record.key, record.timestamp, record.headers)
    first = Piece(piece.base_offset, middle, builder.build(piece.base_offset))
    return [first, cut(piece, middle)]
