"""Topics and partitions: create, delete, list and describe topics, and change their number of
partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kstore.clients.admin.acls import AclOperation, operations_of
from kstore.clients.admin.routing import AdminBase, AnyBroker, Controller, Results, item_error
from kstore.errors import ErrorCode, KafkaError, UnsupportedVersionError
from kstore.items import Items, check_config, items_of, mapping_of
from kstore.protocol.metadata.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
    TopicRequest,
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
    """A topic to create. -1 means the broker's default. `replicas` maps each partition to broker
    ids.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    replicas: Mapping[int, Items[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of partitions of a topic. `replicas` has the broker ids of each new
    partition. With may_shrink the total may be smaller than now (KIP-253): the partitions above it
    are deleted when they are empty.
    """

    total: int
    replicas: Items[Items[int]] | None = None
    may_shrink: bool = False


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition's leader (-1 if there is none), leader epoch, and replicas, as broker ids.

    partition_epoch is -1 if the broker does not send it (KIP-232). `elr` are the replicas outside
    the ISR that can become leader. `last_known_elr` is the last leader of a partition without an
    ISR (KIP-966). Both are None if the broker does not send them.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    partition_epoch: int = -1
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's id (zero if the broker has none), and its partitions in order.

    While the topic shrinks (KIP-253), only its first `remaining` partitions accept records;
    otherwise `remaining` is -1.
    """

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    remaining: int = -1


class TopicsAdmin(AdminBase):
    """Requests about topics."""

    async def create_topics(
        self,
        topics: Items[NewTopic | str] | Mapping[str, int],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, uuid.UUID]:
        """Create topics: NewTopics, names, or a dict of names and numbers of partitions. Returns
        the topic ids by name (zero if the broker does not send ids). With validate_only the request
        is only checked.
        """
        rows = _new_topics(topics)
        by_name = {row.name: _creatable(row) for row in rows}

        async def ask(node_id: int, names: list[str]) -> dict[str, uuid.UUID | KafkaError]:
            request = CreateTopicsRequest(
                topics=[by_name[name] for name in names],
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
        self, topics: Items[str | uuid.UUID], *, raise_errors: bool = True
    ) -> Results[str | uuid.UUID, None]:
        """Delete topics by name or by topic id."""
        topics = items_of("topics", topics, (str, uuid.UUID), "topic names or ids")

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
        replicas: Items[Items[int]] | None = None,
        may_shrink: bool = False,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Set the number of partitions of one topic to `total`, or of several topics with a dict.
        `replicas` has the broker ids of each new partition.

        With may_shrink the total may be smaller than now. This needs kstore's brokers: see
        docs/documents/contraction.md (KIP-253).
        """
        if isinstance(topic, str):
            if total is None:
                raise TypeError("create_partitions(topic, total) needs the total")
            topic = {topic: NewPartitions(total, replicas, may_shrink)}
        rows = {
            name: _growing(name, NewPartitions(row) if isinstance(row, int) else row)
            for name, row in mapping_of("topic", topic, "topic -> number of partitions").items()
        }

        async def ask(node_id: int, names: list[str]) -> dict[str, KafkaError | None]:
            request = CreatePartitionsRequest(
                topics=[rows[name] for name in names],
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
        """The names of all topics, sorted. With `internal`, internal topics are included."""
        found = await self.describe_topics()
        return [topic.name for topic in found if internal or not topic.is_internal]

    async def describe_topics(
        self,
        topics: Items[str | uuid.UUID] | None = None,
        *,
        authorized_operations: bool = False,
    ) -> list[TopicDescription]:
        """Topics with their ids, partitions, leaders and replicas, sorted by name. `topics` are
        names or topic ids (None: all topics).

        The eligible leader replicas (KIP-966) are included for topics that are named, and for
        topics that have partitions without a leader, if the broker sends them.
        """
        wanted = None
        if topics is not None:
            named = items_of("topics", topics, (str, uuid.UUID), "topic names or ids")
            wanted = sorted(set(named), key=str)
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
            names = [t.name for t in found if wanted is not None or _has_no_leader(t)]
            found = await self._with_eligible(node_id, found, names)
            return sorted(found, key=lambda topic: topic.name)

        return await self._one(AnyBroker(self._cluster), ask)

    async def _with_eligible(
        self, node_id: int, found: list[TopicDescription], names: list[str]
    ) -> list[TopicDescription]:
        """The topics. Those with these names come from DescribeTopicPartitions if the broker
        supports it.
        """
        rows: dict[tuple[uuid.UUID, int], DescribeTopicPartitionsResponsePartition] = {}
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in sorted(names)]
        )
        while names:
            try:
                answer = await self._ask(node_id, request, DescribeTopicPartitionsResponse)
            except UnsupportedVersionError:
                return found
            for topic in answer.topics:
                rows |= {(topic.topic_id, row.partition_index): row for row in topic.partitions}
            if answer.next_cursor is None:
                break
            request.cursor = DescribeTopicPartitionsRequestCursor(
                topic_name=answer.next_cursor.topic_name,
                partition_index=answer.next_cursor.partition_index,
            )
        return [
            replace(
                topic,
                partitions=tuple(
                    _described(part, rows.get((topic.topic_id, part.partition)))
                    for part in topic.partitions
                ),
            )
            for topic in found
        ]


def _new_topics(topics: Items[NewTopic | str] | Mapping[str, int]) -> list[NewTopic]:
    if isinstance(topics, Mapping):
        for name, count in topics.items():
            if not isinstance(name, str) or not isinstance(count, int):
                raise TypeError(
                    f"topics contains {name!r}: {count!r}: pass a dict of topic name -> number of "
                    "partitions, or a list of NewTopic"
                )
        return [NewTopic(name, count) for name, count in topics.items()]
    rows = items_of("topics", topics, (NewTopic, str), "topic names or NewTopic")
    return [NewTopic(row) if isinstance(row, str) else row for row in rows]


def _creatable(topic: NewTopic) -> CreatableTopic:
    configs = mapping_of("configs", topic.configs, "config -> value")
    for key, value in configs.items():
        check_config(key, value)
    replicas = mapping_of("replicas", topic.replicas, "partition -> broker ids")
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.replicas else topic.num_partitions,
        replication_factor=-1 if topic.replicas else topic.replication_factor,
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        assignments=[
            CreatableReplicaAssignment(
                partition_index=partition,
                broker_ids=items_of("replicas", brokers, int, "broker ids"),
            )
            for partition, brokers in replicas.items()
        ],
    )


def _growing(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if new.replicas is not None:
        rows = items_of("replicas", new.replicas, object, "lists of broker ids")
        assignments = [
            CreatePartitionsAssignment(broker_ids=items_of("replicas", ids, int, "broker ids"))
            for ids in rows
        ]
    return CreatePartitionsTopic(
        name=name, count=new.total, assignments=assignments, may_shrink=new.may_shrink
    )


def _named(topic: str | uuid.UUID) -> MetadataRequestTopic:
    if isinstance(topic, uuid.UUID):
        return MetadataRequestTopic(topic_id=topic, name=None)
    return MetadataRequestTopic(name=topic)


def _has_no_leader(topic: TopicDescription) -> bool:
    return any(part.leader < 0 for part in topic.partitions)


def _described(
    known: PartitionDescription, row: DescribeTopicPartitionsResponsePartition | None
) -> PartitionDescription:
    if row is None:
        return known
    return replace(
        known,
        leader=row.leader_id,
        leader_epoch=row.leader_epoch,
        isr=tuple(row.isr_nodes),
        offline_replicas=tuple(row.offline_replicas),
        elr=_ids(row.eligible_leader_replicas),
        last_known_elr=_ids(row.last_known_elr),
    )


def _ids(nodes: list[int] | None) -> tuple[int, ...] | None:
    return None if nodes is None else tuple(nodes)


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
        topic.partition_count,
    )
