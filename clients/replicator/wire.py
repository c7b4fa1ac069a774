"""The requests of a replicator about partitions: their ends, the record at an offset, fetches, and
writes of batches at given offsets. Errors of single partitions are values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from kstore.clients.core.replication import PartitionCopy, Piece
from kstore.errors import error_for
from kstore.protocol.logs.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kstore.protocol.logs.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kstore.record import Record, decode
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients.io.cluster import ClusterClient

__all__ = ["EARLIEST", "LATEST", "Destination", "Found", "end_of", "fetch", "produce", "record_at"]

LATEST, EARLIEST = -1, -2
LANE = "fetch"
"""Fetches may wait at the broker, so they use a connection of their own."""


async def end_of(
    cluster: ClusterClient, tp: TopicPartition, epoch: int, which: int, isolation: int = 0
) -> int:
    """The partition's EARLIEST or LATEST offset from its leader, which must lead in this epoch."""
    row = ListOffsetsPartition(
        partition_index=tp.partition, current_leader_epoch=epoch, timestamp=which
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=tp.topic, partitions=[row])],
        timeout_ms=cluster.settings["request.timeout.ms"],
    )
    answer = await cluster.ask(cluster.view.leader(tp), request)
    found = cast(ListOffsetsResponse, answer).topics[0].partitions[0]
    if found.error_code:
        raise error_for(found.error_code, f"offsets of {tp}: {_name_of(found.error_code)}")
    return found.offset


def _name_of(code: int) -> str:
    return type(error_for(code)).description


async def fetch(
    cluster: ClusterClient,
    node: int,
    offsets: Iterable[tuple[TopicPartition, int, int]],
    *,
    isolation: int,
    wait_ms: int,
    max_bytes: int,
    partition_bytes: int,
) -> dict[TopicPartition, PartitionData]:
    """One Fetch of (partition, offset, leader epoch) from one broker."""
    view = cluster.view
    topics: dict[str, FetchTopic] = {}
    for tp, offset, epoch in offsets:
        if tp.topic not in topics:
            topics[tp.topic] = FetchTopic(topic=tp.topic, topic_id=view.topic_id(tp.topic))
        row = FetchPartition(
            partition=tp.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=partition_bytes,
        )
        topics[tp.topic].partitions.append(row)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=list(topics.values()),
    )
    requested = await cluster.ask(node, request, extra_wait_ms=wait_ms, lane=LANE)
    answer = cast(FetchResponse, requested)
    if answer.error_code:
        raise error_for(answer.error_code)
    ids = {topic.topic_id: topic.topic for topic in topics.values()}
    return {
        TopicPartition(topic.topic or ids.get(topic.topic_id, ""), row.partition_index): row
        for topic in answer.responses
        for row in topic.partitions
    }


class Found(NamedTuple):
    """The result of a look at one offset: its record, if it has one, and the end of what can be
    read.
    """

    record: Record | None
    end_offset: int


async def record_at(
    cluster: ClusterClient, tp: TopicPartition, offset: int, epoch: int, isolation: int
) -> Found:
    """The record at this offset; an error of the partition is raised."""
    rows = await fetch(
        cluster,
        cluster.view.leader(tp),
        [(tp, offset, epoch)],
        isolation=isolation,
        wait_ms=0,
        max_bytes=1,
        partition_bytes=1,
    )
    row = rows[tp]
    if row.error_code:
        raise error_for(row.error_code, f"{tp} at offset {offset}: {_name_of(row.error_code)}")
    aborted = [(t.producer_id, t.first_offset) for t in row.aborted_transactions or ()]
    kept = decode(row.records or b"", start_offset=offset, aborted=aborted if isolation else None)
    first = next(iter(kept), None)
    record = first if first is not None and first.offset == offset else None
    return Found(record, row.last_stable_offset if isolation else row.high_watermark)


class Destination(NamedTuple):
    """A piece's partition and its leader epoch."""

    tp: TopicPartition
    leader_epoch: int


async def produce(
    cluster: ClusterClient,
    node: int,
    rows: Iterable[tuple[PartitionCopy | Destination, Piece]],
    *,
    exact: bool = False,
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Write pieces at their offsets, acknowledged by all in-sync replicas; `exact`: byte for
    byte.
    """
    view = cluster.view
    topics: dict[str, TopicProduceData] = {}
    for copy, piece in rows:
        name = copy.tp.topic
        if name not in topics:
            topics[name] = TopicProduceData(
                name=name,
                topic_id=view.topic_id(name),
                partition_count=view.topic(name).count,
            )
        data = PartitionProduceData(
            index=copy.tp.partition,
            records=piece.data,
            current_leader_epoch=copy.leader_epoch,
        )
        topics[name].partition_data.append(data)
    timeout_ms = cluster.settings["request.timeout.ms"]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
        use_offset=not exact,
        exact=exact,
    )
    answer = cast(ProduceResponse, await cluster.ask(node, request, at_least=9))
    ids = {topic.topic_id: topic.name for topic in topics.values()}
    return {
        TopicPartition(topic.name or ids.get(topic.topic_id, ""), row.index): row
        for topic in answer.responses
        for row in topic.partition_responses
    }
