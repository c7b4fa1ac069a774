"""A sink's own topic: what tasks have staged, and the journal of what becomes of it.

Partition 0 is the journal. Version n of a sink (a micro-batch's id) has two places in it: its plan
is at offset 2n, the mark that it is done at 2n + 1. Both are written with given offsets (KIP-391),
so only one of many drivers gets its plan in, and the journal's log end offset alone tells how far
the sink is, also after old plans are deleted. The other partitions hold staged record batches, one
in each record; the key says which attempt staged it, for which partition, and how many records it
has.

Nothing here writes to the target topics (placing.py does).
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from kstore.clients.admin.topics import NewTopic
from kstore.clients.core.replication import Piece
from kstore.clients.io.nodes import ANY
from kstore.clients.replicator.wire import LATEST, Destination, end_of, fetch, produce
from kstore.errors import (
    ErrorCode,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kstore.pipeline.errors import PipelineError
from kstore.record import RecordBatchBuilder, decode
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kstore.clients.admin.client import AdminClient
    from kstore.clients.io.cluster import ClusterClient

__all__ = [
    "Journal", "Plan", "Staged", "StagedKey", "StagedRange", "data_partitions", "ensure_topic",
    "read_staged",
]  # fmt: skip

PREFIX = "__kstore_sink_"
JOURNAL = 0
MOST_PARTITIONS = 8
LARGEST_RECORD = 64 << 20
FETCH_BYTES = 16 << 20
TRY_MS = 120_000
FORMAT = 1
_KEY = struct.Struct(">16sii")  # attempt, partition, records; the topic's name follows


def topic_of(sink: str) -> str:
    """The name of a sink's own topic."""
    return PREFIX + sink


class StagedKey(NamedTuple):
    """The key of a staged record batch."""

    attempt: bytes
    partition: int
    records: int
    topic: str

    def encode(self) -> bytes:
        """As it stands in the record."""
        return _KEY.pack(self.attempt, self.partition, self.records) + self.topic.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Out of the record."""
        attempt, partition, records = _KEY.unpack_from(data)
        return cls(attempt, partition, records, data[_KEY.size :].decode())


class Staged(NamedTuple):
    """One staged record batch."""

    key: StagedKey
    data: bytes


class StagedRange(NamedTuple):
    """Where one attempt's batches lie in the sink's topic."""

    attempt: str
    partition: int
    start: int
    end: int


@dataclass
class Plan:
    """What is to be written for one version of a sink: the attempts that count, and for each
    partition of a target how many records, from which offset on. ``producer_id`` signs the batches.
    """

    version: int
    producer_id: int
    staged: list[StagedRange]
    targets: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Topic, partition, offset where it ended when the plan was made, records."""

    def encode(self) -> bytes:
        """As it stands in the journal."""
        return json.dumps({"format": FORMAT} | asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Plan:
        """Out of the journal; PipelineError if a newer kstore has written it."""
        found = json.loads(data)
        if found.pop("format") != FORMAT:
            raise PipelineError(
                "a newer kstore has started to write this",
                remedy="Let that version finish it",
            )
        found["staged"] = [StagedRange(*row) for row in found["staged"]]
        found["targets"] = [tuple(row) for row in found["targets"]]
        return cls(**found)


def ensure_topic(admin: AdminClient, topic: str) -> int:
    """Create the sink's topic if it is missing; returns how many of its partitions are for data."""
    with contextlib.suppress(UnknownTopicOrPartitionError):
        return data_partitions(admin, topic)
    brokers = len(admin.describe_cluster().brokers)
    wanted = NewTopic(
        topic,
        num_partitions=1 + min(2 * brokers, MOST_PARTITIONS),
        configs={
            "cleanup.policy": "delete",
            "retention.ms": "-1",  # the sink deletes what it has written
            "retention.bytes": "-1",
            "max.message.bytes": str(LARGEST_RECORD),
            "compression.type": "producer",
            "message.timestamp.type": "CreateTime",
        },
    )
    with contextlib.suppress(TopicAlreadyExistsError):  # another task was quicker
        admin.create_topics([wanted])
    return data_partitions(admin, topic)


def data_partitions(admin: AdminClient, topic: str) -> int:
    """How many partitions of the sink's topic are for data; UnknownTopicOrPartitionError if there
    is no such topic.
    """
    return len(admin.describe_topics([topic])[0].partitions) - 1


class Journal:
    """The journal of one sink. All methods run on one event loop."""

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self._cluster = cluster
        self._tp = TopicPartition(topic, JOURNAL)

    async def end(self) -> int:
        """Its log end offset; 0 if the topic is not there."""
        topic = self._tp.topic

        async def ask() -> int:
            if topic not in self._cluster.view.topics:
                await self._cluster.refresh([topic])
            self._cluster.view.topic(topic)
            epoch = self._cluster.view.leader_epoch(self._tp)
            return await end_of(self._cluster, self._tp, epoch, LATEST)

        try:
            return await self._cluster.retrying(ask, TRY_MS, [topic])
        except UnknownTopicOrPartitionError:
            return 0

    async def put(self, offset: int, value: bytes) -> bool:
        """Write at this offset; False: something is there, or behind it."""
        builder = RecordBatchBuilder()
        builder.append(value, None, time.time_ns() // 1_000_000)
        data = builder.build(offset)

        async def ask() -> int:
            epoch = self._cluster.view.leader_epoch(self._tp)
            row = Destination(self._tp, epoch), Piece(offset, offset + 1, data)
            answers = await produce(self._cluster, self._cluster.view.leader(self._tp), [row])
            answer = answers[self._tp]
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCE_OFFSET):
                raise error_for(answer.error_code, answer.error_message, produce=True)
            return answer.error_code

        code = await self._cluster.retrying(ask, TRY_MS, [self._tp.topic])
        return code == ErrorCode.NONE

    async def plan(self, version: int) -> Plan | None:
        """The plan of a version; None: it is deleted, so a later one was made."""
        offset = 2 * version

        async def ask() -> Plan | None:
            rows = await fetch(
                self._cluster,
                self._cluster.view.leader(self._tp),
                [(self._tp, offset, self._cluster.view.leader_epoch(self._tp))],
                isolation=0,
                wait_ms=500,
                max_bytes=FETCH_BYTES,
                partition_bytes=FETCH_BYTES,
            )
            row = rows[self._tp]
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            if row.error_code:
                raise error_for(row.error_code)
            for record in decode(row.records or b"", start_offset=offset):
                return Plan.decode(cast(bytes, record.value)) if record.offset == offset else None
            raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE)  # not yet below the high watermark

        return await self._cluster.retrying(ask, TRY_MS, [self._tp.topic])


async def new_producer_id(cluster: ClusterClient) -> int:
    """A producer id that nobody else has."""
    from kstore.protocol.transactions.producer_ids import (
        InitProducerIdRequest,
        InitProducerIdResponse,
    )

    async def ask() -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        answer = cast(InitProducerIdResponse, await cluster.ask(ANY, request))
        if answer.error_code:
            raise error_for(answer.error_code)
        return answer.producer_id

    return await cluster.retrying(ask, TRY_MS)


async def read_staged(
    cluster: ClusterClient, topic: str, plan: Plan
) -> AsyncIterator[list[Staged]]:
    """What the plan's attempts have staged, a few MB at a time, always in the same order."""
    attempts = {bytes.fromhex(row.attempt) for row in plan.staged}
    for partition in sorted({row.partition for row in plan.staged}):
        ranges = [row for row in plan.staged if row.partition == partition]
        at, end = min(row.start for row in ranges), max(row.end for row in ranges)
        while at < end:
            found, at = await _some(cluster, TopicPartition(topic, partition), at, end)
            yield [staged for staged in found if staged.key.attempt in attempts]


async def _some(
    cluster: ClusterClient, tp: TopicPartition, at: int, end: int
) -> tuple[list[Staged], int]:
    """What one fetch brings, and where the next one begins."""

    async def ask() -> Any:
        rows = await fetch(
            cluster,
            cluster.view.leader(tp),
            [(tp, at, cluster.view.leader_epoch(tp))],
            isolation=0,
            wait_ms=500,
            max_bytes=FETCH_BYTES,
            partition_bytes=FETCH_BYTES,
        )
        row = rows[tp]
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise PipelineError(
                "what was staged here is gone",
                topic=tp.topic, partition=tp.partition, offset=at,
                remedy="Do not delete records of a sink's own topic",
            )  # fmt: skip
        if row.error_code:
            raise error_for(row.error_code)
        if not row.records:
            raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE)  # not yet below the high watermark
        return row.records

    data = await cluster.retrying(ask, TRY_MS, [tp.topic])
    found, after = list[Staged](), at
    for record in decode(data, start_offset=at, end_offset=end):
        found.append(Staged(StagedKey.decode(cast(bytes, record.key)), cast(bytes, record.value)))
        after = record.offset + 1
    return found, after if found else end
