"""ConsoleAdmin: AIOAdminClient, with requests about leader epochs for the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kstore.clients.admin import AIOAdminClient, Results
from kstore.clients.admin.routing import Leader, by_topic, item_error
from kstore.errors import KafkaError
from kstore.protocol.logs.leader_epoch_for_partition import (
    LeaderEpochForPartitionRequest,
    LeaderEpochForPartitionResponse,
    LeaderEpochForPartitionTopic,
)
from kstore.protocol.logs.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kstore.types import TopicPartition

__all__ = ["ConsoleAdmin", "EpochEnd"]

KIP_253 = "kstore.kip253"


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not above the requested one, and its end; -1: none."""

    leader_epoch: int
    end_offset: int


class ConsoleAdmin(AIOAdminClient):
    """An admin client that can also ask for the leader epochs of partitions."""

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, raise_errors: bool = True
    ) -> Results[TopicPartition, EpochEnd]:
        """The ends of leader epochs: partition -> epoch."""

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, EpochEnd | KafkaError]:
            rows = [
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=index, leader_epoch=epochs[TopicPartition(topic, index)]
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(wanted).items()
            ]
            request = OffsetForLeaderEpochRequest(replica_id=-1, topics=rows)
            answer = await self._ask(node_id, request, OffsetForLeaderEpochResponse)
            return {
                TopicPartition(topic.topic, row.partition): item_error(
                    f"partition {topic.topic}-{row.partition}", row.error_code
                )
                or EpochEnd(row.leader_epoch, row.end_offset)
                for topic in answer.topics
                for row in topic.partitions
            }

        route = Leader(self._cluster)
        return await self._each(epochs, route, ask, raise_errors=raise_errors)

    async def prior_partitions(
        self, topic: str, partitions: list[int]
    ) -> Results[TopicPartition, dict[int, int]]:
        """The prior partitions of each of these when it was added to its topic, with their last
        leader epochs (KIP-253). Empty if the broker does not have them.
        """

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, dict[int, int] | KafkaError]:
            connection = await self._cluster.connection(node_id)
            if not connection.versions.has(KIP_253):
                return {tp: {} for tp in wanted}
            row = LeaderEpochForPartitionTopic(name=topic, partitions=[p for _, p in wanted])
            request = LeaderEpochForPartitionRequest(topics=[row])
            answer = await self._ask(node_id, request, LeaderEpochForPartitionResponse)
            return {
                TopicPartition(each.name, one.partition_index): item_error(
                    f"partition {each.name}-{one.partition_index}", one.error_code
                )
                or {prior.partition_index: prior.leader_epoch for prior in one.prior_leader_epochs}
                for each in answer.topics
                for one in each.partitions
            }

        route = Leader(self._cluster)
        wanted = [TopicPartition(topic, index) for index in partitions]
        return await self._each(wanted, route, ask, raise_errors=False)
