"""The placement of replicas: reassignments to other brokers, leader elections, and log dirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kstore.clients.admin.routing import (
    AdminBase,
    Broker,
    Controller,
    Results,
    by_topic,
    item_error,
)
from kstore.errors import ErrorCode, KafkaError
from kstore.items import Items, by_partition, items_of, mapping_of, partitions_of
from kstore.protocol.controller.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kstore.protocol.logs.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kstore.types import TopicPartition

__all__ = [
    "LogDirDescription",
    "PartitionReassignment",
    "ReplicaOnBroker",
    "ReplicaSize",
    "ReplicasAdmin",
]

ELECTIONS = {"preferred": 0, "unclean": 1}


class PartitionReassignment(NamedTuple):
    """A running reassignment, as broker ids: all replicas, those being added, and those being
    removed.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReplicaOnBroker(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


class ReplicaSize(NamedTuple):
    """A replica's size in bytes, and its lag in offsets. `is_future`: it is being moved to this log
    dir, and is not in use yet.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log dir: its error (None if there is none), its replicas, and the size of its volume in
    bytes. total_bytes and usable_bytes are -1 if the broker does not send them (KIP-827).
    """

    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int
    usable_bytes: int


class ReplicasAdmin(AdminBase):
    """Requests about the placement of replicas and their leaders."""

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Items[int] | None],
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Move partitions to these brokers; the first one is the preferred leader. None cancels a
        move.
        """
        wanted_ids = {
            tp: None if ids is None else items_of("targets", ids, int, "broker ids")
            for tp, ids in by_partition("targets", targets, "broker ids").items()
        }

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._request_timeout_ms,
                topics=[
                    ReassignableTopic(
                        name=topic,
                        partitions=[
                            _reassignable(index, wanted_ids[TopicPartition(topic, index)])
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(wanted).items()
                ],
            )
            answer = await self._ask(node_id, request, AlterPartitionReassignmentsResponse)
            whole = item_error("reassignments", answer.error_code, answer.error_message)
            if whole is not None:
                return dict.fromkeys(wanted, whole)
            return {
                TopicPartition(topic.name, row.partition_index): item_error(
                    f"partition {topic.name}-{row.partition_index}",
                    row.error_code,
                    row.error_message,
                )
                for topic in answer.responses
                for row in topic.partitions
            }

        route = Controller(self._cluster)
        return await self._each(wanted_ids, route, ask, raise_errors=raise_errors)

    async def list_partition_reassignments(
        self, partitions: Items[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The running reassignments of these partitions (None: of all)."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions_of("partitions", partitions)).items()
            ]

        async def ask(
            node_id: int,
        ) -> dict[TopicPartition, PartitionReassignment] | KafkaError:
            request = ListPartitionReassignmentsRequest(
                timeout_ms=self._request_timeout_ms, topics=topics
            )
            answer = await self._ask(node_id, request, ListPartitionReassignmentsResponse)
            found = {
                TopicPartition(topic.name, row.partition_index): PartitionReassignment(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in answer.topics
                for row in topic.partitions
            }
            error = item_error("reassignments", answer.error_code, answer.error_message)
            return error or dict(sorted(found.items()))

        return await self._one(Controller(self._cluster), ask)

    async def elect_leaders(
        self,
        partitions: Items[TopicPartition] | None = None,
        *,
        election: Literal["preferred", "unclean"] = "preferred",
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Elect the preferred leader of partitions (None: of all). With election="unclean", any
        live replica can become leader, which may lose records.

        If a named partition already has its preferred leader, its error is ElectionNotNeededError.
        If partitions is None, such partitions are omitted.
        """
        named = None if partitions is None else partitions_of("partitions", partitions)
        errors: dict[TopicPartition, KafkaError] = {}

        async def ask(node_id: int) -> dict[TopicPartition, None] | KafkaError:
            rows = None
            if named is not None:
                rows = [
                    TopicPartitions(topic=topic, partitions=indexes)
                    for topic, indexes in by_topic(named).items()
                ]
            request = ElectLeadersRequest(
                election_type=ELECTIONS[election],
                topic_partitions=rows,
                timeout_ms=self._request_timeout_ms,
            )
            answer = await self._ask(
                node_id, request, ElectLeadersResponse, at_least=ELECTIONS[election]
            )
            whole = item_error("elections", answer.error_code)
            if whole is not None:
                return whole
            found: dict[TopicPartition, None] = {}
            errors.clear()
            for topic in answer.replica_election_results:
                for row in topic.partition_result:
                    tp = TopicPartition(topic.topic, row.partition_id)
                    error = item_error(f"partition {tp}", row.error_code, row.error_message)
                    if error is None:
                        found[tp] = None
                    elif named is not None or row.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                        errors[tp] = error
            return found

        results = Results(await self._one(Controller(self._cluster), ask), errors)
        if raise_errors:
            results.raise_first()
        return results

    async def describe_log_dirs(
        self,
        brokers: Items[int] | None = None,
        *,
        partitions: Items[TopicPartition] | None = None,
    ) -> dict[int, dict[str, LogDirDescription]]:
        """The log dirs of brokers (None: of all), by broker id and path. `partitions` limits the
        replicas in the result.
        """
        if brokers is not None:
            brokers = items_of("brokers", brokers, int, "broker ids")
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions_of("partitions", partitions)).items()
            ]

        async def ask(node_id: int) -> dict[str, LogDirDescription] | KafkaError:
            request = DescribeLogDirsRequest(topics=topics)
            answer = await self._ask(node_id, request, DescribeLogDirsResponse)
            return item_error(f"log dirs of broker {node_id}", answer.error_code) or {
                row.log_dir: _log_dir(row) for row in answer.results
            }

        return await self._every_broker(ask, brokers)

    async def alter_replica_log_dirs(
        self, targets: Mapping[ReplicaOnBroker, str], *, raise_errors: bool = True
    ) -> Results[ReplicaOnBroker, None]:
        """Move replicas to other log dirs of their brokers. A target is the path of a log dir."""
        mapping_of("targets", targets, "ReplicaOnBroker -> log dir")

        async def ask(
            node_id: int, wanted: list[ReplicaOnBroker]
        ) -> dict[ReplicaOnBroker, KafkaError | None]:
            by_path: dict[str, list[TopicPartition]] = {}
            for topic, partition, broker_id in wanted:
                path = targets[ReplicaOnBroker(topic, partition, broker_id)]
                by_path.setdefault(path, []).append(TopicPartition(topic, partition))
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                            for topic, indexes in by_topic(rows).items()
                        ],
                    )
                    for path, rows in by_path.items()
                ]
            )
            answer = await self._ask(node_id, request, AlterReplicaLogDirsResponse)
            return {
                ReplicaOnBroker(row.topic_name, each.partition_index, node_id): item_error(
                    f"partition {row.topic_name}-{each.partition_index} on broker {node_id}",
                    each.error_code,
                )
                for row in answer.results
                for each in row.partitions
            }

        route = Broker(self._cluster, lambda replica: replica.broker_id)
        return await self._each(targets, route, ask, raise_errors=raise_errors)


def _reassignable(index: int, replicas: list[int] | None) -> ReassignablePartition:
    return ReassignablePartition(partition_index=index, replicas=replicas)


def _log_dir(row: DescribeLogDirsResult) -> LogDirDescription:
    replicas = {
        TopicPartition(topic.name, each.partition_index): ReplicaSize(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in row.topics
        for each in topic.partitions
    }
    return LogDirDescription(
        item_error(f"log dir {row.log_dir}", row.error_code),
        dict(sorted(replicas.items())),
        row.total_bytes,
        row.usable_bytes,
    )
