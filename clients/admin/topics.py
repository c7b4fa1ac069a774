"""Topics and partitions: create, delete, list, describe, grow."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kstore.clients.admin.acls import AclOperation, operations_of
from kstore.clients.admin.routing import AdminBase, AnyBroker, Controller, Results, item_error
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kstore.protocol.metadata.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = ["NewPartitions", "NewTopic", "PartitionDescription", "TopicDescription", "TopicsAdmin"]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 means the broker's default. replicas: partition -> broker ids."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic is to have in all; replicas: broker ids of each new one."""

    total: int
    replicas: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition's leader (-1: none), its epoch, and its replicas by broker id.

    partition_epoch is KIP-232's, -1 where the broker tells none.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's id (zero where the broker has none), and its partitions in order."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


class TopicsAdmin(AdminBase):
    """Requests about topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, uuid.UUID]:
        """Create topics; their ids by name (zero before version 7). validate_only: only check."""
        rows = [NewTopic(topic) if isinstance(topic, str) else topic for topic in topics]
        by_name = {row.name: row for row in rows}

        async def ask(node_id: int, names: list[str]) -> dict[str, uuid.UUID | KafkaError]:
            request = CreateTopicsRequest(
                topics=[_creatable(by_name[name]) for name in names],
                timeout_ms=self._request_timeout_ms,
                validate_only=validate_only,
            )
            answer = await self._ask(node_id, request, CreateTopicsResponse)
            return {
                row.name: item_error(f"topic {row.name!r}", row.error_code, row.error_message)
                or row.topic_id
                for row in answer.topics
            }

        route = Controller(self._cluster)
        return await self._each(by_name, route, ask, raise_errors=raise_errors)

    async def delete_topics(
        self, topics: Iterable[str | uuid.UUID], *, raise_errors: bool = True
    ) -> Results[str | uuid.UUID, None]:
        """Delete topics by name or by id."""

        async def ask(
            node_id: int, wanted: list[str | uuid.UUID]
        ) -> dict[str | uuid.UUID, KafkaError | None]:
            request = DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(name=topic)
                    if isinstance(topic, str)
                    else DeleteTopicState(topic_id=topic)
                    for topic in wanted
                ],
                timeout_ms=self._request_timeout_ms,
            )
            answer = await self._ask(node_id, request, DeleteTopicsResponse, at_least=6)
            found: dict[str | uuid.UUID, KafkaError | None] = {}
            for row in answer.responses:
                key = row.name if row.name in wanted else row.topic_id
                what = f"topic {key!r}" if isinstance(key, str) else f"topic id {key}"
                if key is not None:
                    found[key] = item_error(what, row.error_code, row.error_message)
            return found

        route = Controller(self._cluster)
        return await self._each(topics, route, ask, raise_errors=raise_errors)

    async def create_partitions(
        self,
        topic: str | Mapping[str, int | NewPartitions],
        total: int | None = None,
        *,
        replicas: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Raise a topic's number of partitions to total, or that of several topics.

        replicas: the broker ids of each new partition.
        """
        if isinstance(topic, str):
            if total is None:
                raise TypeError("create_partitions(topic, total) needs the total")
            topic = {topic: NewPartitions(total, replicas)}
        rows = {
            name: NewPartitions(row) if isinstance(row, int) else row for name, row in topic.items()
        }

        async def ask(node_id: int, names: list[str]) -> dict[str, KafkaError | None]:
            request = CreatePartitionsRequest(
                topics=[_growing(name, rows[name]) for name in names],
                timeout_ms=self._request_timeout_ms,
                validate_only=validate_only,
            )
            answer = await self._ask(node_id, request, CreatePartitionsResponse)
            return {
                row.name: item_error(f"topic {row.name!r}", row.error_code, row.error_message)
                for row in answer.results
            }

        route = Controller(self._cluster)
        return await self._each(rows, route, ask, raise_errors=raise_errors)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """All topics' names in order; internal ones only when asked for."""
        found = await self.describe_topics()
        return [topic.name for topic in found if internal or not topic.is_internal]

    async def describe_topics(
        self,
        topics: Iterable[str | uuid.UUID] | None = None,
        *,
        authorized_operations: bool = False,
    ) -> list[TopicDescription]:
        """Ids, partitions, leaders and replicas of topics by name or id (None: of all), by name."""
        wanted = None if topics is None else sorted(set(topics), key=str)
        by_id = any(isinstance(topic, uuid.UUID) for topic in wanted or ())
        at_least = 12 if by_id else 8 if authorized_operations else 4

        async def ask(node_id: int) -> list[TopicDescription] | KafkaError:
            request = MetadataRequest(
                topics=None if wanted is None else [_named(topic) for topic in wanted],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=authorized_operations,
            )
            answer = await self._ask(node_id, request, MetadataResponse, at_least=at_least)
            for row in answer.topics:
                what = f"topic {row.name!r}" if row.name else f"topic id {row.topic_id}"
                error = item_error(what, row.error_code)
                if error is not None:
                    return error
            found = [_description(row) for row in answer.topics]
            return sorted(found, key=lambda topic: topic.name)

        return await self._one(AnyBroker(self._cluster), ask)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.replicas else topic.num_partitions,
        replication_factor=-1 if topic.replicas else topic.replication_factor,
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.replicas.items()
        ],
    )


def _growing(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if new.replicas is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in new.replicas]
    return CreatePartitionsTopic(name=name, count=new.total, assignments=assignments)


def _named(topic: str | uuid.UUID) -> MetadataRequestTopic:
    if isinstance(topic, uuid.UUID):
        return MetadataRequestTopic(topic_id=topic, name=None)
    return MetadataRequestTopic(name=topic)


def _description(topic: MetadataResponseTopic) -> TopicDescription:
    rows = sorted(topic.partitions, key=lambda row: row.partition_index)
    partitions = tuple(
        PartitionDescription(
            row.partition_index,
            -1 if row.error_code == ErrorCode.LEADER_NOT_AVAILABLE else row.leader_id,
            row.leader_epoch,
            tuple(row.replica_nodes),
            tuple(row.isr_nodes),
            tuple(row.offline_replicas),
            row.partition_epoch,
        )
        for row in rows
    )
    return TopicDescription(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        partitions,
        operations_of(topic.topic_authorized_operations),
    )
