"""Administration of a cluster from Python: topics, partitions, records, configs, offsets, brokers.

Each call asks, waits and retries within default_api_timeout_ms. Nothing is kept but connections.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from kstore.clients.core.fetch import EARLIEST, ISOLATION_LEVELS, LATEST, OffsetResult
from kstore.clients.core.metadata import Broker, TopicView
from kstore.clients.network import Cluster
from kstore.clients.offsets import list_offsets
from kstore.errors import ErrorCode, KafkaError, NotControllerError, error_for
from kstore.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse
from kstore.protocol.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kstore.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kstore.protocol.schema import Message
from kstore.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kstore.types import TopicPartition

__all__ = ["AdminClient", "ClusterDescription", "ConfigEntry", "NewTopic"]

M = TypeVar("M", bound=Message)
OFFSET_SPECS = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": -3}
RESOURCE_TYPES = {"topic": 2, "broker": 4, "group": 32}
SET, DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 means the broker's default. replicas: partition -> broker ids."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller's broker id (-1: none), and its brokers."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config: its value (None: sensitive or unset) and its source (Kafka's number)."""

    name: str
    value: str | None
    read_only: bool
    is_sensitive: bool
    source: int


class AdminClient:
    """Creates, changes, deletes, describes. A call raises the first error of what it asked for."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "kstore-admin",
        request_timeout_ms: int = 30_000,
        default_api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
    ) -> None:
        self._timeout_ms = default_api_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _ask_controller(self, request: Message, response: type[M], at_least: int = 0) -> M:
        """Ask the controller, or any broker where none is known; brokers without one forward."""
        cluster = self._cluster

        def ask() -> M:
            if not cluster.view.brokers:
                cluster.refresh([])
            controller = cluster.view.controller_id
            known = controller in cluster.view.brokers
            connection = cluster.broker(controller) if known else cluster.any_broker()
            answer = cluster.ask(connection, request, response, at_least=at_least)
            if _mentions(answer, ErrorCode.NOT_CONTROLLER):
                cluster.refresh([])
                raise NotControllerError()
            return answer

        return cluster.retrying(ask, self._timeout_ms / 1000)

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> dict[str, uuid.UUID]:
        """Create topics; their ids by name (zero before version 7). validate_only: only check."""
        rows = [NewTopic(topic) if isinstance(topic, str) else topic for topic in topics]
        request = CreateTopicsRequest(
            topics=[_creatable(row) for row in rows],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )
        answer = self._ask_controller(request, CreateTopicsResponse)
        for topic in answer.topics:
            _check(f"topic {topic.name!r}", topic.error_code, topic.error_message)
        return {topic.name: topic.topic_id for topic in answer.topics}

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name."""
        names = list(names)
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=self._request_timeout_ms)
        rows = [DeleteTopicState(name=name) for name in names]
        by_row = DeleteTopicsRequest(topics=rows, timeout_ms=self._request_timeout_ms)
        if self._cluster.any_broker().versions.choose(request.API_KEY) >= 6:
            request = by_row
        answer = self._ask_controller(request, DeleteTopicsResponse)
        for topic in answer.responses:
            _check(f"topic {topic.name!r}", topic.error_code, topic.error_message)

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        """Raise a topic's number of partitions to total."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )
        answer = self._ask_controller(request, CreatePartitionsResponse)
        for row in answer.results:
            _check(f"topic {row.name!r}", row.error_code, row.error_message)

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """All topics' names in order; internal ones only when asked for."""
        found = self.describe_topics()
        return [topic.name for topic in found if internal or not topic.is_internal]

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicView]:
        """Ids, partitions, leaders and replicas of topics (None: of all), by name."""
        wanted = None if names is None else sorted(set(names))
        cluster = self._cluster

        def ask() -> list[TopicView]:
            cluster.view.topics.clear()
            cluster.refresh(wanted)
            found = sorted(cluster.view.topics) if wanted is None else wanted
            return [cluster.view.topic(name) for name in found]

        # A missing topic is an answer here, not a reason to try again.
        try:
            return ask()
        except KafkaError as error:
            if not error.retriable or error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return cluster.retrying(ask, self._timeout_ms / 1000)

    def describe_cluster(self) -> ClusterDescription:
        """The brokers and the controller."""
        cluster = self._cluster

        def ask() -> ClusterDescription:
            request = DescribeClusterRequest()
            answer = cluster.ask(cluster.any_broker(), request, DescribeClusterResponse)
            _check("the cluster", answer.error_code, answer.error_message)
            brokers = tuple(
                Broker(row.broker_id, row.host, row.port, row.rack) for row in answer.brokers
            )
            return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

        return cluster.retrying(ask, self._timeout_ms / 1000)

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, str | int],
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetResult]:
        """Offsets by "earliest", "latest", "max-timestamp" or a moment in ms; -1: none."""
        timestamps = {}
        for tp, spec in specs.items():
            if isinstance(spec, str) and spec not in OFFSET_SPECS:
                raise ValueError(f"{spec!r} is not one of {list(OFFSET_SPECS)} or a timestamp")
            timestamps[TopicPartition(*tp)] = OFFSET_SPECS[spec] if isinstance(spec, str) else spec
        return list_offsets(
            self._cluster,
            timestamps,
            isolation_level=ISOLATION_LEVELS[isolation_level],
            timeout_ms=self._timeout_ms,
        )

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what is before the offsets (-1: the high watermark); the new log start offsets."""
        cluster = self._cluster
        topics = sorted({tp.topic for tp in offsets})
        found: dict[TopicPartition, int] = {}

        def ask() -> dict[TopicPartition, int]:
            cluster.refresh(topics)
            for tp, offset in offsets.items():
                if tp not in found:
                    found[tp] = self._delete_records(tp, offset)
            return found

        return cluster.retrying(ask, self._timeout_ms / 1000)

    def _delete_records(self, tp: TopicPartition, offset: int) -> int:
        row = DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=tp.topic, partitions=[row])],
            timeout_ms=self._request_timeout_ms,
        )
        leader = self._cluster.broker(self._cluster.view.leader(tp))
        answer = self._cluster.ask(leader, request, DeleteRecordsResponse)
        result = answer.topics[0].partitions[0]
        _check(f"partition {tp}", result.error_code, None)
        return result.low_watermark

    def describe_configs(self, name: str, *, resource: str = "topic") -> dict[str, ConfigEntry]:
        """The configs of a "topic", "broker" (name is its id) or "group"."""
        row = DescribeConfigsResource(
            resource_type=RESOURCE_TYPES[resource], resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[row])
        answer = self._ask_resource(request, DescribeConfigsResponse, name, resource)
        result = answer.results[0]
        _check(f"{resource} {name!r}", result.error_code, result.error_message)
        return {
            entry.name: ConfigEntry(
                entry.name, entry.value, entry.read_only, entry.is_sensitive, entry.config_source
            )
            for entry in result.configs
        }

    def alter_configs(
        self, name: str, configs: Mapping[str, str | None], *, resource: str = "topic"
    ) -> None:
        """Set single configs; None takes one back to its default."""
        rows = [
            AlterableConfig(
                name=key, config_operation=DELETE if value is None else SET, value=value
            )
            for key, value in configs.items()
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=RESOURCE_TYPES[resource], resource_name=name, configs=rows
                )
            ]
        )
        answer = self._ask_resource(request, IncrementalAlterConfigsResponse, name, resource)
        for result in answer.responses:
            _check(f"{resource} {name!r}", result.error_code, result.error_message)

    def _ask_resource(self, request: Message, response: type[M], name: str, resource: str) -> M:
        """Ask the broker whose configs they are, else the controller."""
        if resource != "broker" or not name:
            return self._ask_controller(request, response)
        cluster = self._cluster

        def ask() -> M:
            cluster.refresh([])
            if int(name) not in cluster.view.brokers:
                raise ValueError(f"there is no broker {name}")
            return cluster.ask(cluster.broker(int(name)), request, response)

        return cluster.retrying(ask, self._timeout_ms / 1000)


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


def _check(what: str, code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise error_for(code, f"{what}: {message or type(error_for(code)).description}")


def _mentions(answer: Message, code: int) -> bool:
    """Whether any row of the answer carries an error code."""
    rows: list[Any] = next((getattr(answer, name) for name in ("topics", "responses", "results")
                 if hasattr(answer, name)), [])  # fmt: skip
    return any(row.error_code == code for row in rows)
