"""Offsets of partitions: look them up by time, and delete records below an offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kstore.clients.admin.routing import AdminBase, Leader, Results, by_topic, item_error
from kstore.clients.core.consumer.offset_epoch import encode_known
from kstore.errors import ErrorCode, KafkaError
from kstore.items import by_partition
from kstore.protocol.logs.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kstore.types import TopicPartition

__all__ = ["OFFSET_SPECS", "ListedOffset", "OffsetsAdmin"]

# ListOffsets' special timestamps, with the first version that has each.
OFFSET_SPECS = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
FIRST_VERSIONS = {-3: 7, -4: 8, -5: 9, -6: 11}
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


class ListedOffset(NamedTuple):
    """An offset, with the timestamp (ms since 1970) and leader epoch of its record. The offset is
    -1 if there is no record with the timestamp or a later one. partition_epoch is that of KIP-232;
    -1 if the broker does not send it.
    """

    offset: int
    timestamp: int
    leader_epoch: int
    partition_epoch: int = -1

    @property
    def offset_epoch(self) -> bytes | None:
        """Put this into an OffsetAndMetadata: the commit is then refused if the topic was deleted
        in the meantime (KIP-232).
        """
        return encode_known(self.partition_epoch, -1)


class _PresentLeader(Leader):
    """The current leader of the partition of this name, even if the topic was created again."""

    async def prepare(self, items: Sequence[TopicPartition], *, again: bool) -> None:
        """Look up the leader in any case."""
        if again:
            self._cluster.doubt()
        await self._cluster.refresh({tp.topic for tp in items})


class _NamedLeader(Leader):
    """The leader of the partition in the known metadata. If a broker reports that it was deleted,
    newer metadata is requested.
    """

    def may_retry(self, error: KafkaError, waited_s: float) -> bool:
        """Also retries for a topic that was created again."""
        is_other = error.code == ErrorCode.UNKNOWN_TOPIC_ID
        return is_other or super().may_retry(error, waited_s)


class OffsetsAdmin(AdminBase):
    """Requests about the offsets of partitions."""

    async def _known_epochs(
        self, node_id: int, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The partition epochs (KIP-232) to send to a broker, -1 if it does not check them."""
        connection = await self._cluster.connection(node_id)
        if not connection.versions.has("kstore.kip232"):
            return dict.fromkeys(wanted, -1)
        return {tp: self._cluster.view.partition_epoch(tp) for tp in wanted}

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, str | int],
        *,
        isolation_level: str = "read_uncommitted",
        raise_errors: bool = True,
    ) -> Results[TopicPartition, ListedOffset]:
        """Look up offsets, each by a name in OFFSET_SPECS or by a time in ms since 1970. For a
        time, the result is the first record with this timestamp or a later one; -1 if there is
        none.

        Only responses about the current topic of this name are used, never those about a deleted
        one.
        """
        wanted_specs = by_partition("specs", specs, "a name of OFFSET_SPECS or a timestamp")
        timestamps = {tp: _timestamp(spec) for tp, spec in wanted_specs.items()}
        isolation = ISOLATION_LEVELS[isolation_level]
        at_least = max((FIRST_VERSIONS.get(t, 1) for t in timestamps.values()), default=1)

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, ListedOffset | KafkaError]:
            epochs = await self._known_epochs(node_id, wanted)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                timeout_ms=self._request_timeout_ms,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=partition,
                                timestamp=timestamps[TopicPartition(topic, partition)],
                                partition_epoch=epochs[TopicPartition(topic, partition)],
                            )
                            for partition in partitions
                        ],
                    )
                    for topic, partitions in by_topic(wanted).items()
                ],
            )
            answer = await self._ask(
                node_id, request, ListOffsetsResponse, at_least=max(at_least, 2 * isolation)
            )
            found: dict[TopicPartition, ListedOffset | KafkaError] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.name, row.partition_index)
                    code = row.error_code
                    if code == ErrorCode.INVALID_PARTITION_EPOCH:
                        code = ErrorCode.UNKNOWN_TOPIC_ID  # newer metadata helps
                    found[tp] = item_error(f"partition {tp}", code) or ListedOffset(
                        row.offset, row.timestamp, row.leader_epoch, row.partition_epoch
                    )
            return found

        route = _NamedLeader(self._cluster)
        return await self._each(timestamps, route, ask, raise_errors=raise_errors)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, raise_errors: bool = True
    ) -> Results[TopicPartition, int]:
        """Delete the records below these offsets (-1: the high watermark). Returns the new log
        start offsets.

        Raises InvalidPartitionEpochError if the topic is deleted and created again in the meantime.
        No record of the new topic is deleted.
        """
        before = by_partition("offsets", offsets, "offset", int)
        # The partitions of the first lookup: a topic that is created again meanwhile keeps its
        # records.
        meant: dict[TopicPartition, int] = {}

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, int | KafkaError]:
            connection = await self._cluster.connection(node_id)
            knows_epochs = connection.versions.has("kstore.kip232")
            for tp in wanted:
                meant.setdefault(tp, self._cluster.view.partition_epoch(tp))
            request = DeleteRecordsRequest(
                timeout_ms=self._request_timeout_ms,
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=partition,
                                offset=before[TopicPartition(topic, partition)],
                                partition_epoch=(
                                    meant[TopicPartition(topic, partition)] if knows_epochs else -1
                                ),
                            )
                            for partition in partitions
                        ],
                    )
                    for topic, partitions in by_topic(wanted).items()
                ],
            )
            answer = await self._ask(node_id, request, DeleteRecordsResponse)
            found: dict[TopicPartition, int | KafkaError] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.name, row.partition_index)
                    error = item_error(f"partition {tp}", row.error_code)
                    found[tp] = row.low_watermark if error is None else error
            return found

        route = _PresentLeader(self._cluster)
        return await self._each(before, route, ask, raise_errors=raise_errors)


def _timestamp(spec: str | int) -> int:
    if isinstance(spec, int):
        return spec
    name = spec.replace("_", "-")
    if name not in OFFSET_SPECS:
        raise ValueError(f"{spec!r} is not one of {list(OFFSET_SPECS)} or a timestamp in ms")
    return OFFSET_SPECS[name]
