"""Fetch and ListOffsets requests out of positions, and what their answers say of each partition.

Whole fetches without sessions: each request names every partition it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kstore.clients.core.metadata import ClusterView
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kstore.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kstore.record import RecordSet, decode
from kstore.types import TopicPartition

__all__ = [
    "EARLIEST",
    "ISOLATION_LEVELS",
    "LATEST",
    "FetchLimits",
    "FetchResult",
    "OffsetResult",
    "fetch_request",
    "fetch_results",
    "list_offsets_request",
    "list_offsets_results",
]

# ListOffsets' special timestamps.
LATEST = -1
EARLIEST = -2
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How long a broker may wait and how much it may send; Kafka's consumer configs."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    isolation_level: int


class FetchResult(NamedTuple):
    """What a broker said of one partition: records from the position asked for, or an error."""

    records: RecordSet
    high_watermark: int
    log_start_offset: int
    error: KafkaError | None


class OffsetResult(NamedTuple):
    """An offset (-1: none at or after the timestamp), its record's timestamp and leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int


def fetch_request(
    positions: Mapping[TopicPartition, int], view: ClusterView, limits: FetchLimits, *, by_id: bool
) -> FetchRequest:
    """A request for all positions; topics by id from version 13 on."""
    topics: dict[str, FetchTopic] = {}
    for tp, offset in positions.items():
        if tp.topic not in topics:
            topics[tp.topic] = (
                FetchTopic(topic_id=view.topic_id(tp.topic))
                if by_id
                else FetchTopic(topic=tp.topic)
            )
        epoch = view.topics[tp.topic].partitions[tp.partition].leader_epoch
        row = FetchPartition(
            partition=tp.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=limits.max_partition_bytes,
        )
        topics[tp.topic].partitions.append(row)
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=list(topics.values()),
    )


def fetch_results(
    response: FetchResponse,
    positions: Mapping[TopicPartition, int],
    view: ClusterView,
    *,
    read_committed: bool,
) -> dict[TopicPartition, FetchResult]:
    """The result of each partition that was asked for and is named in the answer.

    Records before the position (a batch comes whole) are left out, and with read_committed those
    of aborted transactions.
    """
    results: dict[TopicPartition, FetchResult] = {}
    for topic in response.responses:
        name = topic.topic or view.topic_name(topic.topic_id) or ""
        for row in topic.partitions:
            tp = TopicPartition(name, row.partition_index)
            if tp not in positions:
                continue
            aborted = None
            if read_committed:
                aborted = [(t.producer_id, t.first_offset) for t in row.aborted_transactions or ()]
            records = decode(row.records or b"", start_offset=positions[tp], aborted=aborted)
            error = _error(row.error_code, tp)
            results[tp] = FetchResult(records, row.high_watermark, row.log_start_offset, error)
    return results


def _error(code: int, tp: TopicPartition) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    return error_for(code, f"partition {tp}: {type(error_for(code)).description}")


def list_offsets_request(
    timestamps: Iterable[tuple[TopicPartition, int]], isolation_level: int, timeout_ms: int
) -> ListOffsetsRequest:
    """A request for the first offset at or after each timestamp, LATEST or EARLIEST."""
    topics: dict[str, ListOffsetsTopic] = {}
    for tp, timestamp in timestamps:
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic))
        row = ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
        topic.partitions.append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


def list_offsets_results(
    response: ListOffsetsResponse,
) -> dict[TopicPartition, OffsetResult | KafkaError]:
    """An offset or an error for each partition of the answer."""
    results: dict[TopicPartition, OffsetResult | KafkaError] = {}
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            found = OffsetResult(row.offset, row.timestamp, row.leader_epoch)
            results[tp] = _error(row.error_code, tp) or found
    return results
