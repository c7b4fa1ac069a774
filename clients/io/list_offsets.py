"""Looks up offsets by timestamp and ends of leader epochs at the partitions' leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, cast

from kstore.clients.core.consumer.offset_epoch import encode_known
from kstore.clients.core.metadata import ClusterView
from kstore.clients.io.cluster import ClusterClient
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kstore.types import OffsetAndTimestamp, TopicPartition

__all__ = ["EpochEnd", "FoundOffset", "epoch_ends", "list_offsets", "list_offsets_once"]

CONSUMER_REPLICA_ID = -1


class FoundOffset(NamedTuple):
    """An offset (-1: none at or after the timestamp), its record's timestamp, and the epochs; -1
    for unknown values.
    """

    offset: int
    timestamp: int
    leader_epoch: int
    partition_epoch: int

    def public(self) -> OffsetAndTimestamp:
        """In the users' form."""
        epochs = encode_known(self.partition_epoch, self.leader_epoch)
        return OffsetAndTimestamp(self.offset, self.timestamp, self.leader_epoch, epochs)


class EpochEnd(NamedTuple):
    """The end of a leader epoch in the leader's log: the largest epoch in the log that is not above
    the requested one, and the offset after it; both -1 if there is none.
    """

    leader_epoch: int
    end_offset: int


async def list_offsets(
    cluster: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int,
    timeout_ms: float,
) -> dict[TopicPartition, FoundOffset]:
    """The first offset at or after each timestamp in ms (-1 the end, -2 the start), with retries
    for timeout_ms. Raises the error of the first partition that has one.
    """
    found: dict[TopicPartition, FoundOffset] = {}
    topics = sorted({tp.topic for tp in timestamps})

    async def ask() -> dict[TopicPartition, FoundOffset]:
        if any(topic not in cluster.view.topics for topic in topics):
            await cluster.refresh(topics)
        left = {tp: moment for tp, moment in timestamps.items() if tp not in found}
        errors = await list_offsets_once(cluster, left, found, isolation_level, timeout_ms)
        for error in errors.values():
            raise error
        return found

    return await cluster.retrying(ask, timeout_ms, topics)


async def list_offsets_once(
    cluster: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    found: dict[TopicPartition, FoundOffset],
    isolation_level: int,
    timeout_ms: float,
) -> dict[TopicPartition, KafkaError]:
    """One round: results are added to `found`, errors are returned."""
    by_leader, errors = _by_leader(cluster.view, timestamps)

    async def ask(leader: int, rows: dict[TopicPartition, int]) -> None:
        try:
            knows = await _knows_epochs(cluster, leader)
            request = _request(rows, cluster.view, isolation_level, timeout_ms, knows_epochs=knows)
            answer = cast(ListOffsetsResponse, await cluster.ask(leader, request))
        except KafkaError as error:
            errors.update(dict.fromkeys(rows, error))
            return
        for topic in answer.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    errors[tp] = _error(row.error_code, tp)
                elif tp in rows:
                    epoch = row.partition_epoch if cluster.view.uses_partition_epochs else -1
                    found[tp] = FoundOffset(row.offset, row.timestamp, row.leader_epoch, epoch)

    await asyncio.gather(*(ask(leader, rows) for leader, rows in by_leader.items()))
    return errors


async def epoch_ends(
    cluster: ClusterClient, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd | KafkaError]:
    """The end of each leader epoch in the log of the partition's leader (KIP-320); one round.

    A broker that does not support it is an UnsupportedVersionError.
    """
    by_leader, errors = _by_leader(cluster.view, epochs)
    found: dict[TopicPartition, EpochEnd | KafkaError] = dict(errors)

    async def ask(leader: int, rows: dict[TopicPartition, int]) -> None:
        try:
            knows = await _knows_epochs(cluster, leader)
            request = _epochs_request(rows, cluster.view, knows_epochs=knows)
            # Before version 3 only brokers may send it.
            answer = await cluster.ask(leader, request, at_least=3)
        except KafkaError as error:
            found.update(dict.fromkeys(rows, error))
            return
        for named in cast(OffsetForLeaderEpochResponse, answer).topics:
            for end in named.partitions:
                tp = TopicPartition(named.topic, end.partition)
                found[tp] = (
                    _error(end.error_code, tp)
                    if end.error_code
                    else EpochEnd(end.leader_epoch, end.end_offset)
                )

    await asyncio.gather(*(ask(leader, rows) for leader, rows in by_leader.items()))
    return found


def _by_leader(
    view: ClusterView, rows: Mapping[TopicPartition, int]
) -> tuple[dict[int, dict[TopicPartition, int]], dict[TopicPartition, KafkaError]]:
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for tp, value in rows.items():
        try:
            by_leader.setdefault(view.leader(tp), {})[tp] = value
        except KafkaError as error:
            errors[tp] = error
    return by_leader, errors


async def _knows_epochs(cluster: ClusterClient, leader: int) -> bool:
    """Whether the leader checks the partition epoch (KIP-232)."""
    connection = await cluster.connection(leader)
    return connection.versions.has("kstore.kip232")


def _epochs_request(
    rows: Mapping[TopicPartition, int], view: ClusterView, *, knows_epochs: bool
) -> OffsetForLeaderEpochRequest:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for tp, epoch in rows.items():
        topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(topic=tp.topic))
        row = OffsetForLeaderPartition(
            partition=tp.partition,
            current_leader_epoch=view.leader_epoch(tp),
            leader_epoch=epoch,
            partition_epoch=view.partition_epoch(tp) if knows_epochs else -1,
        )
        topic.partitions.append(row)
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values()))


def _request(
    rows: Mapping[TopicPartition, int],
    view: ClusterView,
    isolation_level: int,
    timeout_ms: float,
    *,
    knows_epochs: bool,
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for tp, timestamp in rows.items():
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic))
        row = ListOffsetsPartition(
            partition_index=tp.partition,
            timestamp=timestamp,
            current_leader_epoch=view.leader_epoch(tp),
            partition_epoch=view.partition_epoch(tp) if knows_epochs else -1,
        )
        topic.partitions.append(row)
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=list(topics.values()),
        timeout_ms=int(timeout_ms),
    )


def _error(code: int, tp: TopicPartition) -> KafkaError:
    if code == ErrorCode.INVALID_PARTITION_EPOCH:
        code = ErrorCode.UNKNOWN_TOPIC_ID  # the metadata is older than the topic: fetch it again
    return error_for(code, f"partition {tp}: {type(error_for(code)).description}")
