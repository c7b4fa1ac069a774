"""Makes the target's topics equal to the source's: creates them, adds partitions, sets configs.

Nothing is ever deleted or reduced in the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from kstore.clients.io.cluster import ANY
from kstore.clients.replicator.exact_wire import IDS_PER_CLUSTER
from kstore.clients.replicator.options import (
    Event,
    ReplicationError,
    ReplicationOptions,
    Report,
)
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.metadata.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kstore.protocol.metadata.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients.io.cluster import ClusterClient

__all__ = ["TopicCopier"]

TOPIC = 2
SET_ON_TOPIC = 1
SET, DELETE = 0, 1
TIMESTAMP_TYPE = "message.timestamp.type"
# Configs about brokers of the source, which the target does not have.
NEVER = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)
MIRROR, LEAST_ID = "kstore.mirror", "kstore.least.producer.id"
"""Configs of the target only: the topic is an exact copy and refuses other writes; and which
producer ids the source never uses.
"""


class TopicCopier:
    """`sync` checks all topics once."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        options: ReplicationOptions,
        report: Report,
    ) -> None:
        self._source, self._target = source, target
        self._options, self._report = options, report
        self._timeout_ms: int = source.settings["request.timeout.ms"]
        self._refused: set[tuple[str, str, str | None]] = set()
        self.least_ids: dict[str, int] = {}
        """For each exact copy: no producer of the source has this id or a larger one."""
        self.switching = False
        """Whether to skip a topic that has been an exact copy: it is switched already."""
        self.passed_over: list[str] = []
        """The skipped topics."""

    async def sync(self) -> list[TopicPartition]:
        """The partitions of all selected topics, when the target also has them."""
        names = await self._names()
        self._source.watch_topics(names)
        self._target.watch_topics(names)
        await self._target.refresh(names)
        configs = await self._configs(self._source, names) if self._options.copy_configs else {}
        for of_topic in configs.values():
            of_topic.pop(MIRROR, None)  # of a source that is a copy itself
            of_topic.pop(LEAST_ID, None)
        new = [name for name in names if name not in self._target.view.topics]
        there = await self._configs(self._target, [name for name in names if name not in new])
        self.passed_over = self._switched(there)
        for name in self.passed_over:
            names.remove(name)
            del there[name]
        mirror = {MIRROR: "true", LEAST_ID: str(IDS_PER_CLUSTER)} if self._options.exact else {}
        for name in new:
            await self._create(name, configs.get(name, {}) | mirror)
        grown = [name for name in names if name not in new and await self._grow(name)]
        if new or grown:
            await self._target.refresh(names)
        for name, of_topic in there.items():
            _check_kind(name, of_topic.pop(MIRROR, None), exact=self._options.exact)
            self.least_ids[name] = int(of_topic.pop(LEAST_ID, None) or 0)
            if self._options.copy_configs:
                await self._configure(name, configs[name], of_topic)
        return [
            TopicPartition(name, row.partition)
            for name in names
            for row in self._source.view.topics[name].partitions
            if row.partition < self._target.view.partition_count(name)
        ]

    async def _names(self) -> list[str]:
        view = self._source.view
        await self._source.refresh(None)
        found = [
            topic.name
            for topic in view.topics.values()
            if not topic.is_internal and self._options.topics.fullmatch(topic.name)
        ]
        # A response about all topics does not name deleted ones.
        await self._source.refresh(found)
        return sorted(name for name in found if name in view.topics)

    def _switched(self, there: Mapping[str, Mapping[str, str | None]]) -> list[str]:
        """The topics that an earlier run switched before it was stopped."""
        if not self.switching:
            return []
        return [
            name
            for name, of_topic in there.items()
            if not _is_mirror(of_topic.get(MIRROR)) and int(of_topic.get(LEAST_ID) or 0) > 0
        ]

    async def raise_least_id(self, name: str, least: int) -> None:
        """Make a copy refuse smaller ids from the target's producers, and larger ones from the
        source's.
        """
        if self.least_ids.get(name, 0) < least:
            await self._set(LEAST_ID, str(least), name, self._target)
            self.least_ids[name] = least

    async def set_mirror(self, cluster: ClusterClient, name: str, *, on: bool) -> None:
        """Make a topic accept only an exact copy's batches, or only producers' records."""
        await self._set(MIRROR, "true" if on else None, name, cluster)

    # ---- topics and partitions ----

    async def _create(self, name: str, configs: Mapping[str, str | None]) -> None:
        count = self._source.view.partition_count(name)
        topic = CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=self._options.replication_factor,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        row = cast(CreateTopicsResponse, await self._target.ask(ANY, request)).topics[0]
        one_by_one = row.error_code == ErrorCode.INVALID_CONFIG and topic.configs
        if one_by_one:  # the target refuses one of them; the others are accepted
            topic.configs = [each for each in topic.configs if each.name in (MIRROR, LEAST_ID)]
            row = cast(CreateTopicsResponse, await self._target.ask(ANY, request)).topics[0]
        if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise error_for(row.error_code, f"topic {name!r}: {row.error_message or ''}")
        if one_by_one:
            await self._configure(name, configs, {each.name: each.value for each in topic.configs})
        message = f"created topic {name} with {count} partitions"
        self._report(Event("topic", message, TopicPartition(name, -1)))

    async def _grow(self, name: str) -> bool:
        ours = self._source.view.partition_count(name)
        theirs = self._target.view.partition_count(name)
        if theirs > ours:
            raise ReplicationError(
                f"topic {name!r} has {theirs} partitions in the target and {ours} in the source: "
                "it is not a copy"
            )
        if theirs == ours:
            return False
        topic = CreatePartitionsTopic(name=name, count=ours, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        answer = cast(CreatePartitionsResponse, await self._target.ask(ANY, request))
        row = answer.results[0]
        # INVALID_PARTITIONS: another replicator was first.
        if row.error_code not in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
            raise error_for(row.error_code, f"topic {name!r}: {row.error_message or ''}")
        message = f"topic {name} grows from {theirs} to {ours} partitions"
        self._report(Event("topic", message, TopicPartition(name, -1)))
        return True

    # ---- configs ----

    async def _configs(
        self, cluster: ClusterClient, names: list[str]
    ) -> dict[str, dict[str, str | None]]:
        """The configs that are set on the topics. The copy keeps each record's timestamp, so the
        target never uses its own append time.
        """
        rows = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=n, configuration_keys=None)
            for n in names
        ]
        if not rows:
            return {}
        request = DescribeConfigsRequest(resources=rows)
        answer = cast(DescribeConfigsResponse, await cluster.ask(ANY, request))
        left_out = NEVER | self._options.excluded_configs
        found: dict[str, dict[str, str | None]] = {}
        for result in answer.results:
            if result.error_code:
                name = result.resource_name
                raise error_for(result.error_code, f"configs of {name!r}: {result.error_message}")
            found[result.resource_name] = {
                entry.name: "CreateTime"
                if entry.name == TIMESTAMP_TYPE and not self._options.exact
                else entry.value
                for entry in result.configs
                if entry.config_source == SET_ON_TOPIC and entry.name not in left_out
            }
        return found

    async def _configure(
        self, name: str, wanted: Mapping[str, str | None], there: Mapping[str, str | None]
    ) -> None:
        changes = {key: value for key, value in wanted.items() if there.get(key) != value}
        changes |= dict.fromkeys(key for key in there if key not in wanted)
        for key, value in changes.items():
            if (name, key, value) in self._refused:
                continue
            try:
                await self._set(key, value, name, self._target)
            except KafkaError as error:
                if error.retriable:
                    raise
                self._refused.add((name, key, value))
                message = f"topic {name}: the target refuses {key}={value}: {error}"
                self._report(Event("trouble", message, TopicPartition(name, -1)))
                continue
            message = f"topic {name}: {key} " + ("is unset" if value is None else f"is {value}")
            self._report(Event("config", message, TopicPartition(name, -1)))

    async def _set(self, key: str, value: str | None, name: str, cluster: ClusterClient) -> None:
        row = AlterableConfig(
            name=key, config_operation=DELETE if value is None else SET, value=value
        )
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[row])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await cluster.ask(ANY, request)
        result = cast(IncrementalAlterConfigsResponse, answer).responses[0]
        if result.error_code:
            raise error_for(result.error_code, result.error_message or None)


def _is_mirror(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"


def _check_kind(name: str, mirror: str | None, *, exact: bool) -> None:
    """Raise ReplicationError if a topic of the target is not of the right kind."""
    is_mirror = _is_mirror(mirror)
    if exact and not is_mirror:
        raise ReplicationError(
            f"topic {name!r} of the target is not an exact copy, it accepts other records: delete "
            f"it. If it was switched, and has no other records than the source: "
            f"kstore topic alter {name} --config {MIRROR}=true"
        )
    if is_mirror and not exact:
        raise ReplicationError(
            f"topic {name!r} of the target is an exact copy: copy it with --exact, or switch it "
            f"first"
        )
