"""Committed offsets of groups: list, alter, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kstore.clients.admin.routing import (
    AdminBase,
    Coordinator,
    Results,
    by_topic,
    item_error,
)
from kstore.clients.core.consumer.commits import commit_row, commits_of, fetched_offset
from kstore.clients.io.cluster import GROUP
from kstore.errors import KafkaError
from kstore.items import Items, by_partition, partitions_of
from kstore.protocol.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
)
from kstore.protocol.groups.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = ["GroupOffsetsAdmin"]

# The last versions that name topics; later ones have only ids.
LAST_BY_NAME = 9


class GroupOffsetsAdmin(AdminBase):
    """Requests about the committed offsets of groups."""

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Items[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, OffsetAndMetadata]:
        """A group's committed offsets in these partitions (None: all). Partitions without a commit
        are omitted. With require_stable, wait for transactions that are committing offsets
        (KIP-447).
        """
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions_of("partitions", partitions)).items()
            ]
        errors: dict[TopicPartition, KafkaError] = {}

        async def ask(node_id: int) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)],
                require_stable=require_stable,
            )
            answer = await self._ask(
                node_id, request, OffsetFetchResponse, at_least=8, at_most=LAST_BY_NAME
            )
            (group,) = answer.groups
            whole = item_error(f"group {group_id!r}", group.error_code)
            if whole is not None:
                return whole
            found: dict[TopicPartition, OffsetAndMetadata] = {}
            errors.clear()
            for topic in group.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.name, row.partition_index)
                    error = item_error(f"partition {tp}", row.error_code)
                    if error is not None and route.may_retry(error, 0):
                        return error
                    if error is not None:
                        errors[tp] = error
                    elif row.committed_offset >= 0:
                        found[tp] = fetched_offset(row)
            return found

        route = Coordinator(self._cluster, GROUP, lambda _: group_id)
        results = Results(dict(sorted((await self._one(route, ask)).items())), errors)
        if raise_errors:
            results.raise_first()
        return results

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Commit offsets for a group that has no members. An offset is that of the next record to
        read.
        """
        given = {
            tp: OffsetAndMetadata(each) if isinstance(each, int) else each
            for tp, each in by_partition("offsets", offsets, "offset", (int, tuple)).items()
        }
        commits = commits_of(given)

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            connection = await self._cluster.connection(node_id)
            with_epoch = connection.versions.has("kstore.kip232")
            request = OffsetCommitRequest(
                group_id=group_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            commit_row(
                                OffsetCommitRequestPartition,
                                index,
                                commits[TopicPartition(topic, index)],
                                partition_epochs=with_epoch,
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(wanted).items()
                ],
            )
            answer = await self._ask(node_id, request, OffsetCommitResponse, at_most=LAST_BY_NAME)
            return _errors(group_id, answer.topics)

        route = Coordinator(self._cluster, GROUP, lambda _: group_id)
        return await self._each(commits, route, ask, raise_errors=raise_errors)

    async def delete_group_offsets(
        self, group_id: str, partitions: Items[TopicPartition], *, raise_errors: bool = True
    ) -> Results[TopicPartition, None]:
        """Delete a group's committed offsets. No member of the group may subscribe to these topics
        (KIP-496).
        """
        partitions = partitions_of("partitions", partitions)

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(wanted).items()
                ],
            )
            answer = await self._ask(node_id, request, OffsetDeleteResponse)
            whole = item_error(f"group {group_id!r}", answer.error_code)
            if whole is not None:
                return dict.fromkeys(wanted, whole)
            return _errors(group_id, answer.topics)

        route = Coordinator(self._cluster, GROUP, lambda _: group_id)
        return await self._each(partitions, route, ask, raise_errors=raise_errors)


def _errors(
    group_id: str,
    topics: Iterable[OffsetCommitResponseTopic | OffsetDeleteResponseTopic],
) -> dict[TopicPartition, KafkaError | None]:
    """The result of each partition of a response."""
    found: dict[TopicPartition, KafkaError | None] = {}
    for topic in topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            found[tp] = item_error(f"group {group_id!r}, partition {tp}", row.error_code)
    return found
