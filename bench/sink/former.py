"""The sink's former design, as a peer. A task stages every batch as one record through a producer,
all of them in one partition. The driver reads the staged batches, and writes each to its partition
at a given offset. What it did after failures is omitted.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from kstore.clients import AdminClient, Producer
from kstore.clients.core.replication import Piece
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.replicator.wire import Destination, fetch, produce
from kstore.pipeline.sink.rows import RowEncoder, groups
from kstore.pipeline.sink.settings import SinkSettings, admin_settings, producer_settings
from kstore.pipeline.sink.staging import new_producer_id, topic_of
from kstore.record import decode
from kstore.record.signing import signed
from kstore.types import TopicPartition

__all__ = ["Range", "commit", "settings_for", "stage"]

STAGING: dict[str, Any] = {
    "compression.type": "none",
    "batch.size": 1 << 20,
    "max.request.size": 64 << 20,
    "buffer.memory": 128 << 20,
    "partitioner.class": None,
}
FETCH_BYTES = 16 << 20
TRY_MS = 120_000
_KEY = struct.Struct(">ii")  # partition, records


class Range(NamedTuple):
    """The places of a task's batches."""

    partition: int
    start: int
    end: int


class _Staged(NamedTuple):
    partition: int
    records: int
    data: bytes


def settings_for(bootstrap: str, topic: str, *, exactly_once: bool = True) -> SinkSettings:
    """The settings of a sink without options."""
    return SinkSettings({"bootstrap.servers": bootstrap}, topic, exactly_once)


def stage(settings: SinkSettings, sink: str, rows: Iterable[Any]) -> Range:
    """One task."""
    topic = topic_of(sink)
    with AdminClient(admin_settings(settings)) as admin:
        mine, named = admin.describe_topics([topic, settings.topic or ""])
        count = len(named.partitions)
    with Producer(dict(settings.clients) | STAGING) as producer:
        encoder = RowEncoder(producer_settings(settings), lambda _: count)
        partition = 1 + os.getpid() % (len(mine.partitions) - 1)
        sent = []
        for batch in rows:
            for group in groups(batch, settings.topic):
                sent += [_send(producer, topic, partition, each) for each in encoder.add(group)]
        sent += [_send(producer, topic, partition, each) for each in encoder.finish()]
        producer.flush()
    offsets = [each.result() for each in sent]
    return Range(partition, min(offsets), max(offsets) + 1)


def _send(producer: Producer, topic: str, partition: int, batch: Any) -> Any:
    return producer.send(topic, batch.data, _KEY.pack(batch.partition, batch.records), partition)


def commit(settings: SinkSettings, sink: str, staged: Iterable[Range]) -> None:
    """The driver's part: one batch at a time for each partition, one fetch ahead."""
    thread = LoopThread()
    try:
        thread.run(_commit(settings, topic_of(sink), list(staged)))
    finally:
        thread.close()
    with AdminClient(admin_settings(settings)) as admin:
        admin.delete_topics([topic_of(sink)])


async def _commit(settings: SinkSettings, source: str, staged: list[Range]) -> None:
    cluster, target = ClusterClient(producer_settings(settings)), settings.topic or ""
    try:
        await cluster.refresh([source, target])
        producer_id = await new_producer_id(cluster)
        ends: dict[int, int] = {}
        for partition in sorted({each.partition for each in staged}):
            ranges = [each for each in staged if each.partition == partition]
            at, end = min(each.start for each in ranges), max(each.end for each in ranges)
            ahead = asyncio.ensure_future(_read(cluster, TopicPartition(source, partition), at))
            while True:
                found, at = await ahead
                tp = TopicPartition(source, partition)
                if at < end:
                    ahead = asyncio.ensure_future(_read(cluster, tp, at))
                await _write_all(cluster, target, producer_id, ends, found)
                if at >= end:
                    break
    finally:
        await cluster.close()


async def _read(cluster: ClusterClient, tp: TopicPartition, at: int) -> tuple[list[_Staged], int]:
    """The batches of one fetch, and the next offset."""
    rows = await fetch(
        cluster, cluster.view.leader(tp), [(tp, at, cluster.view.leader_epoch(tp))], isolation=0,
        wait_ms=500, max_bytes=FETCH_BYTES, partition_bytes=FETCH_BYTES,
    )  # fmt: skip
    found = []
    for record in decode(rows[tp].records or b"", start_offset=at):
        partition, records = _KEY.unpack(cast(bytes, record.key))
        found.append(_Staged(partition, records, cast(bytes, record.value)))
        at = record.offset + 1
    if not found:
        raise RuntimeError(f"the staged batches of {tp} are not there")
    return found, at


async def _write_all(
    cluster: ClusterClient, topic: str, producer_id: int, ends: dict[int, int], rows: list[_Staged]
) -> None:
    parts: dict[int, list[_Staged]] = {}
    for row in rows:
        parts.setdefault(row.partition, []).append(row)

    async def write(partition: int, batches: list[_Staged]) -> None:
        tp = TopicPartition(topic, partition)
        to = Destination(tp, cluster.view.leader_epoch(tp))
        for batch in batches:
            at = ends.get(partition, 0)
            data = signed(batch.data, at, producer_id, at)
            piece = Piece(at, at + batch.records, data)
            answer = (await produce(cluster, cluster.view.leader(tp), [(to, piece)]))[tp]
            if answer.error_code:
                raise RuntimeError(f"{tp}: error {answer.error_code}")
            ends[partition] = at + batch.records

    async with asyncio.TaskGroup() as group:
        for partition, batches in parts.items():
            group.create_task(write(partition, batches))
