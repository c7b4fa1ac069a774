"""Checks whether the log still has the records that a group has processed."""

from __future__ import annotations

from collections.abc import Mapping

from kstore.clients.admin.group_offsets import GroupOffsetsAdmin
from kstore.clients.admin.offsets import ListedOffset, OffsetsAdmin
from kstore.clients.admin.routing import Leader, Results, by_topic, item_error
from kstore.clients.core.consumer.offset_check import OffsetCheck, check_offset
from kstore.clients.core.consumer.positions import committed_position
from kstore.errors import KafkaError
from kstore.protocol.logs.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = ["GroupVerification"]

CONSUMER_REPLICA_ID = -1
FIRST_FOR_CONSUMERS = 3
"""The first version of OffsetForLeaderEpoch that clients may send."""


class GroupVerification(OffsetsAdmin, GroupOffsetsAdmin):
    """Requests about the offsets of partitions and groups, and a comparison of the two."""

    async def verify_group_offsets(
        self, group_id: str, *, raise_errors: bool = True
    ) -> Results[TopicPartition, OffsetCheck]:
        """Compare a group's committed offsets with the logs. This finds out whether records that
        the group has processed were lost in an unclean leader election, or belong to a deleted
        topic.
        """
        committed = await self.list_group_offsets(group_id, raise_errors=raise_errors)
        ends = await self.list_offsets(dict.fromkeys(committed, "latest"), raise_errors=False)
        epochs = {
            tp: epoch
            for tp, row in committed.items()
            if tp in ends
            and (epoch := committed_position(row, uses_partition_epochs=True).leader_epoch) >= 0
        }
        lives = {tp: end.partition_epoch for tp, end in ends.items()}
        epoch_ends = await self._epoch_ends(epochs, lives)
        failed = epoch_ends.errors
        checks = {
            tp: self._check(tp, ends[tp], epoch_ends.get(tp), committed)
            for tp in committed
            if tp in ends and tp not in failed
        }
        results = Results(checks, committed.errors | ends.errors | failed)
        if raise_errors:
            results.raise_first()
        return results

    def _check(
        self,
        tp: TopicPartition,
        end: ListedOffset,
        epoch_end: tuple[int, int] | None,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> OffsetCheck:
        leader_epoch = self._cluster.view.leader_epoch(tp)
        return check_offset(
            tp, committed[tp], end.offset, end.partition_epoch, leader_epoch, epoch_end
        )

    async def _epoch_ends(
        self, epochs: Mapping[TopicPartition, int], lives: Mapping[TopicPartition, int]
    ) -> Results[TopicPartition, tuple[int, int]]:
        """For each leader epoch: the largest epoch in the log that is not above it, and its end
        offset. Only partitions of these partition epochs (-1: unknown) answer, not other partitions
        of the same names.
        """

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, tuple[int, int] | KafkaError]:
            request = OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID,
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=partition,
                                leader_epoch=epochs[TopicPartition(topic, partition)],
                                partition_epoch=lives[TopicPartition(topic, partition)],
                            )
                            for partition in partitions
                        ],
                    )
                    for topic, partitions in by_topic(wanted).items()
                ],
            )
            answer = await self._ask(
                node_id, request, OffsetForLeaderEpochResponse, at_least=FIRST_FOR_CONSUMERS
            )
            found: dict[TopicPartition, tuple[int, int] | KafkaError] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.topic, row.partition)
                    error = item_error(f"partition {tp}", row.error_code)
                    found[tp] = error or (row.leader_epoch, row.end_offset)
            return found

        return await self._each(epochs, Leader(self._cluster), ask, raise_errors=False)
