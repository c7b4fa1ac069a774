"""A sink's own topic: the batches that tasks have staged, and the journal of plans.

Partition 0 is the journal. Version n of a sink (a micro-batch's id) has two offsets in it: its plan
is at 2n, and the mark that it is done at 2n + 1. Both are written at given offsets (KIP-391), so
only one of several drivers can write a plan, and the journal's log end offset alone shows the
sink's progress, even after old plans are deleted. Each record of the other partitions contains
staged record batches; its key names the attempt that staged them and the target partition.

This module does not write to the target topics (placing.py does).
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
    from kstore.clients.admin.client import AdminClient
    from kstore.clients.io.cluster import ClusterClient

__all__ = [
    "Journal", "Plan", "PlannedTarget", "Run", "data_leaders", "ensure_topic", "key_of",
    "new_producer_id", "staged_piece", "topic_of",
]  # fmt: skip

PREFIX = "__kstore_sink_"
JOURNAL = 0
MOST_PARTITIONS = 8
LARGEST_RECORD = 64 << 20
FETCH_BYTES = 16 << 20
TRY_MS = 120_000
FORMAT = 3
READABLE = (2, FORMAT)
"""In format 2 each staged record had one batch. Older versions would place only the first one."""
_KEY = struct.Struct(">16si")  # attempt, partition; the topic's name follows


def topic_of(sink: str) -> str:
    """The name of a sink's own topic."""
    return PREFIX + sink


def key_of(attempt: bytes, topic: str, partition: int) -> bytes:
    """The key of all that an attempt stages for one partition."""
    return _KEY.pack(attempt, partition) + topic.encode()


class Run(NamedTuple):
    """Records of one attempt for a target: their offsets, and their numbers of rows."""

    attempt: str
    partition: int
    offsets: list[int]
    counts: list[int]


class PlannedTarget(NamedTuple):
    """The records to copy to one partition of a target topic, in order. ``base`` is the
    partition's log end offset when the plan was made.
    """

    topic: str
    partition: int
    base: int
    runs: list[Run]


@dataclass
class Plan:
    """What to write for one version of a sink. All batches carry ``producer_id``."""

    version: int
    producer_id: int
    targets: list[PlannedTarget] = field(default_factory=list)

    def encode(self) -> bytes:
        """The bytes for the journal."""
        return json.dumps({"format": FORMAT} | vars(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Plan:
        """Parse the journal's bytes. Raises PipelineError if another version of kstore wrote
        them.
        """
        found = json.loads(data)
        if found.pop("format") not in READABLE:
            raise PipelineError(
                "another version of kstore has started this write",
                remedy="Finish it with that version",
            )
        found["targets"] = [
            PlannedTarget(topic, partition, base, [Run(*run) for run in runs])
            for topic, partition, base, runs in found["targets"]
        ]
        return cls(**found)


def ensure_topic(admin: AdminClient, topic: str) -> list[int]:
    """Create the sink's topic if it is missing; returns the leaders of its data partitions."""
    with contextlib.suppress(UnknownTopicOrPartitionError):
        return data_leaders(admin, topic)
    brokers = len(admin.describe_cluster().brokers)
    wanted = NewTopic(
        topic,
        num_partitions=1 + min(2 * brokers, MOST_PARTITIONS),
        configs={
            "cleanup.policy": "delete",
            "retention.ms": "-1",  # the sink deletes staged batches itself
            "retention.bytes": "-1",
            "max.message.bytes": str(LARGEST_RECORD),
            "compression.type": "producer",
            "message.timestamp.type": "CreateTime",
        },
    )
    with contextlib.suppress(TopicAlreadyExistsError):  # another task was quicker
        admin.create_topics([wanted])
    return data_leaders(admin, topic)


def data_leaders(admin: AdminClient, topic: str) -> list[int]:
    """The leaders of the data partitions of the sink's topic, from partition 1 on.

    Raises UnknownTopicOrPartitionError if the topic does not exist.
    """
    rows = sorted(admin.describe_topics([topic])[0].partitions, key=lambda row: row.partition)
    return [row.leader for row in rows[JOURNAL + 1 :]]


class Journal:
    """The journal of one sink. All methods run on one event loop."""

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self._cluster = cluster
        self._tp = TopicPartition(topic, JOURNAL)

    async def end(self) -> int:
        """Its log end offset; 0 if the topic does not exist."""
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
        """Write at this offset. False if the log already ends after it."""
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
        """The plan of a version; None if it was deleted, so a later plan exists."""
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
    """A producer id that no other producer has."""
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


async def staged_piece(
    cluster: ClusterClient, tp: TopicPartition, offset: int, key: bytes
) -> bytes:
    """The batches that were staged at this offset under this key, one behind the other."""

    async def ask() -> Any:
        rows = await fetch(
            cluster,
            cluster.view.leader(tp),
            [(tp, offset, cluster.view.leader_epoch(tp))],
            isolation=0,
            wait_ms=500,
            max_bytes=1,
            partition_bytes=1,
        )
        row = rows[tp]
        if row.error_code and row.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error_for(row.error_code)
        if not row.records and not row.error_code:
            raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE)  # not yet below the high watermark
        return row.records or b""

    if tp.topic not in cluster.view.topics:
        await cluster.refresh([tp.topic])
    data = await cluster.retrying(ask, TRY_MS, [tp.topic])
    for record in decode(data, start_offset=offset, end_offset=offset + 1):
        if record.offset == offset and record.key == key:
            return cast(bytes, record.value)
    raise PipelineError(
        "the staged rows are gone",
        topic=tp.topic, partition=tp.partition, offset=offset,
        remedy="Do not delete records of a sink's own topic",
    )  # fmt: skip
