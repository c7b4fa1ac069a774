"""Start offsets of share groups (KIP-932): list, alter, delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstore.clients.admin.routing import AdminBase, Coordinator, Results, by_topic, item_error
from kstore.clients.core.consumer.positions import committed_position
from kstore.clients.io.cluster import GROUP
from kstore.errors import KafkaError
from kstore.items import Items, by_partition, items_of, partitions_of
from kstore.protocol.shares.offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = ["ShareGroupOffset", "ShareOffsetsAdmin"]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The state of a share group in a partition. All records below start_offset are done. Some
    records after it may be done too, because brokers advance it by whole batches. leader_epoch is
    the partition's leader epoch when the offset was stored. lag is the number of records that are
    not done; None if unknown.
    """

    start_offset: int
    leader_epoch: int | None = None
    lag: int | None = None


class ShareOffsetsAdmin(AdminBase):
    """Requests about the start offsets of share groups."""

    async def list_share_group_offsets(
        self,
        group_id: str,
        partitions: Items[TopicPartition] | None = None,
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, ShareGroupOffset]:
        """A share group's start offsets in these partitions (None: all). Partitions without one are
        omitted.
        """
        topics = None
        if partitions is not None:
            topics = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions_of("partitions", partitions)).items()
            ]
        errors: dict[TopicPartition, KafkaError] = {}

        async def ask(node_id: int) -> dict[TopicPartition, ShareGroupOffset] | KafkaError:
            request = DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)]
            )
            answer = await self._ask(node_id, request, DescribeShareGroupOffsetsResponse)
            (group,) = answer.groups
            whole = item_error(f"group {group_id!r}", group.error_code, group.error_message)
            if whole is not None:
                return whole
            found: dict[TopicPartition, ShareGroupOffset] = {}
            errors.clear()
            for topic in group.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.topic_name, row.partition_index)
                    error = item_error(f"partition {tp}", row.error_code, row.error_message)
                    if error is not None and route.may_retry(error, 0):
                        return error
                    if error is not None:
                        errors[tp] = error
                    elif row.start_offset >= 0:
                        found[tp] = ShareGroupOffset(
                            row.start_offset, _known(row.leader_epoch), _known(row.lag)
                        )
            return found

        route = Coordinator(self._cluster, GROUP, lambda _: group_id)
        results = Results(dict(sorted((await self._one(route, ask)).items())), errors)
        if raise_errors:
            results.raise_first()
        return results

    async def alter_share_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a share group that has no members. Acknowledgements above them
        are discarded. Of an OffsetAndMetadata only the offset and the epoch are used. An offset of
        a deleted topic with the same name is refused (KIP-232).
        """
        given = {
            tp: committed_position(
                OffsetAndMetadata(each) if isinstance(each, int) else each,
                uses_partition_epochs=True,
            )
            for tp, each in by_partition("offsets", offsets, "offset", (int, tuple)).items()
        }

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            connection = await self._cluster.connection(node_id)
            with_epoch = connection.versions.has("kstore.kip232")
            request = AlterShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic,
                        partitions=[
                            AlterShareGroupOffsetsRequestPartition(
                                partition_index=index,
                                start_offset=given[TopicPartition(topic, index)].offset,
                                partition_epoch=(
                                    given[TopicPartition(topic, index)].partition_epoch
                                    if with_epoch
                                    else -1
                                ),
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(wanted).items()
                ],
            )
            answer = await self._ask(node_id, request, AlterShareGroupOffsetsResponse)
            what = f"group {group_id!r}"
            whole = item_error(what, answer.error_code, answer.error_message)
            if whole is not None:
                return dict.fromkeys(wanted, whole)
            found: dict[TopicPartition, KafkaError | None] = {}
            for topic in answer.responses:
                for row in topic.partitions:
                    tp = TopicPartition(topic.topic_name, row.partition_index)
                    where = f"{what}, partition {tp}"
                    found[tp] = item_error(where, row.error_code, row.error_message)
            return found

        route = Coordinator(self._cluster, GROUP, lambda _: group_id)
        return await self._each(given, route, ask, raise_errors=raise_errors)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Items[str], *, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete a share group's offsets in whole topics. The group must not have members."""
        topics = items_of("topics", topics, str, "topic names")

        async def ask(node_id: int, wanted: list[str]) -> dict[str, KafkaError | None]:
            request = DeleteShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in wanted],
            )
            answer = await self._ask(node_id, request, DeleteShareGroupOffsetsResponse)
            what = f"group {group_id!r}"
            whole = item_error(what, answer.error_code, answer.error_message)
            if whole is not None:
                return dict.fromkeys(wanted, whole)
            return {
                row.topic_name: item_error(
                    f"{what}, topic {row.topic_name!r}", row.error_code, row.error_message
                )
                for row in answer.responses
            }

        route = Coordinator(self._cluster, GROUP, lambda _: group_id)
        return await self._each(topics, route, ask, raise_errors=raise_errors)


def _known(number: int) -> int | None:
    return None if number < 0 else number
