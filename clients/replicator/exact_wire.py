"""The additional requests of an exact copy: leader epochs, producer ids, deletions.
docs/protocol-extensions.md describes kstore's own fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from kstore.clients.io.cluster import ANY
from kstore.clients.replicator.wire import fetch
from kstore.errors import error_for
from kstore.protocol.controller.reassignments import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from kstore.protocol.logs.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kstore.protocol.logs.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kstore.record import BatchView, batches

if TYPE_CHECKING:
    from kstore.clients.io.cluster import ClusterClient
    from kstore.types import TopicPartition

__all__ = [
    "IDS_PER_CLUSTER",
    "EpochEnd",
    "delete_before",
    "end_of_epoch",
    "raise_leader_epoch",
    "reserve_ids",
]

IDS_PER_CLUSTER = 1 << 40
"""More than a cluster ever uses; a copy of a copy starts at the next multiple."""


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not above the requested one, and its end; -1: unknown."""

    leader_epoch: int
    end_offset: int


async def raise_leader_epoch(cluster: ClusterClient, tp: TopicPartition, least: int) -> None:
    """Make the partition's leader continue in an epoch that is at least so large. Raises
    KafkaError.
    """
    row = TopicPartitions(topic=tp.topic, partitions=[tp.partition], least_leader_epochs=[least])
    timeout_ms = cluster.settings["request.timeout.ms"]
    request = ElectLeadersRequest(topic_partitions=[row], timeout_ms=timeout_ms)
    answer = cast(ElectLeadersResponse, await cluster.ask(ANY, request, at_least=2))
    codes = [answer.error_code] + [
        row.error_code
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]
    for code in codes:
        if code:
            raise error_for(code, f"a leader epoch of {least} or more for {tp}")


async def reserve_ids(cluster: ClusterClient, node: int, least: int) -> None:
    """Make a broker use no producer id below this. Raises KafkaError."""
    request = InitProducerIdRequest(transactional_id=None, least_producer_id=least)
    answer = cast(InitProducerIdResponse, await cluster.ask(node, request, at_least=2))
    if answer.error_code:
        raise error_for(answer.error_code, f"producer ids from {least} on at broker {node}")


async def end_of_epoch(
    cluster: ClusterClient, tp: TopicPartition, current_epoch: int, epoch: int
) -> EpochEnd:
    """The end of a leader epoch in the partition's log. Raises KafkaError."""
    row = OffsetForLeaderPartition(
        partition=tp.partition, current_leader_epoch=current_epoch, leader_epoch=epoch
    )
    topic = OffsetForLeaderTopic(topic=tp.topic, partitions=[row])
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
    answer = await cluster.ask(cluster.view.leader(tp), request)
    found = cast(OffsetForLeaderEpochResponse, answer).topics[0].partitions[0]
    if found.error_code:
        raise error_for(found.error_code, f"leader epoch {epoch} of {tp}")
    return EpochEnd(found.leader_epoch, found.end_offset)


async def delete_before(cluster: ClusterClient, tp: TopicPartition, offset: int) -> int:
    """Move the log start offset to an offset; returns the error code."""
    row = DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
    topic = DeleteRecordsTopic(name=tp.topic, partitions=[row])
    timeout_ms = cluster.settings["request.timeout.ms"]
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
    answer = await cluster.ask(cluster.view.leader(tp), request)
    return cast(DeleteRecordsResponse, answer).topics[0].partitions[0].error_code


async def batch_at(
    cluster: ClusterClient, tp: TopicPartition, offset: int, epoch: int, *, wait_ms: int = 0
) -> BatchView | None:
    """The first batch that ends at or after an offset; None if there is none. Raises KafkaError."""
    rows = await fetch(
        cluster,
        cluster.view.leader(tp),
        [(tp, offset, epoch)],
        isolation=0,
        wait_ms=wait_ms,
        max_bytes=1,
        partition_bytes=1,
    )
    row = rows[tp]
    if row.error_code:
        raise error_for(row.error_code, f"{tp} at offset {offset}")
    found: Iterable[BatchView] = batches(row.records or b"")
    return next((batch for batch in found if batch.last_offset >= offset), None)
