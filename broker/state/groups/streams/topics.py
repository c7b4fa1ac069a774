"""Matches a streams group's topology with the existing topics. It finds how many tasks each
subtopology has, how many partitions the internal topics need, which of them are missing, and
problems.

It creates nothing: the broker creates the topics in `ConfiguredTopology.missing_topics`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kstore.broker.state.groups.streams.topology import StreamsError, Topology, source_topics
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.streams import Subtopology, TopicInfo
from kstore.protocol.groups.streams_groups import (
    Status,
    StreamsGroupDescribeResponseKeyValue,
    StreamsGroupDescribeResponseSubtopology,
    StreamsGroupDescribeResponseTopicInfo,
    StreamsGroupDescribeResponseTopology,
)

__all__ = [
    "ASSIGNMENT_DELAYED",
    "INCORRECTLY_PARTITIONED_TOPICS",
    "MISSING_INTERNAL_TOPICS",
    "MISSING_SOURCE_TOPICS",
    "SHUTDOWN_APPLICATION",
    "STALE_TOPOLOGY",
    "ConfiguredSubtopology",
    "ConfiguredTopology",
    "InternalTopic",
    "configure_topology",
    "described_configuration",
]

# The status codes of StreamsGroupHeartbeatResponse.
STALE_TOPOLOGY = 0
MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3
SHUTDOWN_APPLICATION = 4
ASSIGNMENT_DELAYED = 5

NAMES_SHOWN = 3


class InternalTopic(NamedTuple):
    """A required repartition or changelog topic."""

    name: str
    partitions: int
    replication_factor: int
    """0 means the broker's default."""
    configs: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose topics' sizes are known."""

    tasks: int
    """One task per partition of the largest topic that it reads."""
    source_topics: frozenset[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    repartition_sink_topics: frozenset[str]
    changelog_topics: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state, so that standby copies are useful."""
        return bool(self.changelog_topics)


class ConfiguredTopology(NamedTuple):
    """A topology matched with the existing topics."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """Sorted by id. None if the topics contradict the topology."""
    missing_topics: Mapping[str, InternalTopic]
    problem: Status | None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class TopicFitError(Exception):
    """The topics do not match the topology. Members get a status with every heartbeat."""

    def __init__(self, status_code: int, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(status_code=status_code, status_detail=detail)


def configure_topology(topology: Topology, existing: Mapping[str, int]) -> ConfiguredTopology:
    """Match a topology with the partition counts of the existing topics. Raises StreamsError if the
    topology can never work.
    """
    try:
        _check_sources(topology, existing)
        sizes = _Sizes(topology, existing)
        sizes.decide()
        subtopologies = {
            subtopology_id: _configured(item, sizes)
            for subtopology_id, item in sorted(topology.subtopologies.items())
        }
        missing = _missing_topics(subtopologies, existing)
    except TopicFitError as problem:
        return ConfiguredTopology(topology.epoch, None, {}, problem.status)
    status = None
    if missing:
        detail = f"Waiting for the internal topics {_summary(sorted(missing))}"
        status = Status(status_code=MISSING_INTERNAL_TOPICS, status_detail=detail)
    return ConfiguredTopology(topology.epoch, subtopologies, missing, status)


def _check_sources(topology: Topology, existing: Mapping[str, int]) -> None:
    missing = {
        name
        for item in topology.subtopologies.values()
        for name in item.source_topics
        if name not in existing
    }
    if missing:
        names = _summary(sorted(missing))
        detail = f"The application reads topics that do not exist; create them: {names}."
        raise TopicFitError(MISSING_SOURCE_TOPICS, detail)


def _summary(names: list[str]) -> str:
    text = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{text} and {more} more" if more > 0 else text


class _Sizes:
    """The partition counts of topics: existing ones, and computed ones of internal topics."""

    def __init__(self, topology: Topology, existing: Mapping[str, int]) -> None:
        self._subtopologies = list(topology.subtopologies.values())
        self._existing = existing
        self.decided: dict[str, int] = {}
        repartition = [
            info for item in self._subtopologies for info in item.repartition_source_topics
        ]
        self._fixed = {info.name: info.partitions for info in repartition if info.partitions != 0}
        self._flexible = {info.name for info in repartition if info.partitions == 0}

    def of(self, name: str) -> int:
        """The size of a topic, existing or computed."""
        size = self._existing.get(name, self.decided.get(name))
        if size is None:
            raise StreamsError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return size

    def largest_source(self, item: Subtopology) -> int:
        """The size of the largest topic that a subtopology reads."""
        sizes = [self.of(name) for name in source_topics(item)]
        if not sizes:
            raise StreamsError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"Subtopology {item.subtopology_id} reads no topic: add one.",
            )
        return max(sizes)

    def decide(self) -> None:
        """Compute the sizes of repartition topics, then of co-partitioned topics, then of
        changelogs.
        """
        self.decided.update(self._repartition_sizes())
        for item in self._subtopologies:
            for group in _copartition_groups(item):
                self._enforce_equal_sizes(group)
        changelogs: dict[str, int] = {}
        for item in self._subtopologies:
            size = self.largest_source(item)
            changelogs.update((info.name, size) for info in item.state_changelog_topics)
        self.decided.update(changelogs)

    def _repartition_sizes(self) -> dict[str, int]:
        """A repartition topic is as large as the largest topic read by a subtopology that writes
        it.
        """
        sizes = dict(self._fixed)
        unknown = True
        while unknown:
            unknown = progress = False
            for item in self._subtopologies:
                for sink in item.repartition_sink_topics:
                    if sink in sizes:
                        continue
                    size = self._upstream_size(item, sizes)
                    if size is None:
                        unknown = True
                    else:
                        sizes[sink] = size
                        progress = True
            if unknown and not progress:
                raise StreamsError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    "The partition counts of the repartition topics depend on each other in a "
                    "loop.",
                )
        if any(name not in sizes for name in self._flexible):
            raise StreamsError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "A repartition topic is read, but no subtopology writes it.",
            )
        return sizes

    def _upstream_size(self, item: Subtopology, sizes: Mapping[str, int]) -> int | None:
        repartition = [info.name for info in item.repartition_source_topics]
        known = [sizes[name] for name in repartition if name in sizes]
        known += [self._existing[name] for name in item.source_topics if name in self._existing]
        return max(known, default=None)

    def _enforce_equal_sizes(self, group: Collection[str]) -> None:
        if not group:
            return
        repartition = {
            name: self.of(name) for name in group if name in self._fixed or name in self._flexible
        }
        others = {name: self.of(name) for name in group if name not in repartition}
        if others:
            size = _equal_size(others, others)
        elif self._fixed:
            size = _equal_size({name: self.of(name) for name in self._fixed}, repartition)
        else:
            size = max(repartition.values())
        for name, present in repartition.items():
            self.decided[name] = size
            if name in self._fixed and present != size:
                raise TopicFitError(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Repartition topic {name} has {present} partitions, but the topics that it is "
                    f"joined with have {size}: set {size}.",
                )


def _equal_size(sizes: Mapping[str, int], shown: Mapping[str, int]) -> int:
    first, *rest = sizes.values()
    if any(size != first for size in rest):
        text = ", ".join(f"{name}={size}" for name, size in sorted(shown.items()))
        raise TopicFitError(
            INCORRECTLY_PARTITIONED_TOPICS,
            f"Topics that are joined need equal numbers of partitions, not {text}.",
        )
    return first


def _copartition_groups(item: Subtopology) -> Iterable[set[str]]:
    for group in item.copartition_groups:
        try:
            yield {item.source_topics[_index(i)] for i in group.source_topics} | {
                item.repartition_source_topics[_index(i)].name
                for i in group.repartition_source_topics
            }
        except IndexError as error:
            raise StreamsError(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _index(value: int) -> int:
    if value < 0:
        raise IndexError(value)
    return value


def _configured(item: Subtopology, sizes: _Sizes) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        tasks=sizes.largest_source(item),
        source_topics=frozenset(item.source_topics),
        repartition_source_topics=_internal_topics(item.repartition_source_topics, sizes),
        repartition_sink_topics=frozenset(item.repartition_sink_topics),
        changelog_topics=_internal_topics(item.state_changelog_topics, sizes),
    )


def _internal_topics(infos: Iterable[TopicInfo], sizes: _Sizes) -> dict[str, InternalTopic]:
    return {
        info.name: InternalTopic(
            info.name,
            info.partitions or sizes.decided[info.name],
            info.replication_factor,
            {config.key: config.value for config in info.topic_configs},
        )
        for info in infos
    }


def _missing_topics(
    subtopologies: Mapping[str, ConfiguredSubtopology], existing: Mapping[str, int]
) -> dict[str, InternalTopic]:
    missing: dict[str, InternalTopic] = {}
    for item in subtopologies.values():
        for name, topic in (
            *item.repartition_source_topics.items(),
            *item.changelog_topics.items(),
        ):
            found = existing.get(name)
            if found is None:
                missing[name] = topic
            elif found != topic.partitions:
                raise TopicFitError(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Topic {name} has {found} partitions, but the application needs "
                    f"{topic.partitions}: make these numbers equal.",
                )
    return missing


def described_configuration(
    configured: ConfiguredTopology,
) -> StreamsGroupDescribeResponseTopology:
    """The topology for StreamsGroupDescribe after configuration, with the computed sizes."""
    return StreamsGroupDescribeResponseTopology(
        epoch=configured.epoch,
        subtopologies=[
            StreamsGroupDescribeResponseSubtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(item.source_topics),
                repartition_sink_topics=sorted(item.repartition_sink_topics),
                state_changelog_topics=_described(item.changelog_topics),
                repartition_source_topics=_described(item.repartition_source_topics),
            )
            for subtopology_id, item in (configured.subtopologies or {}).items()
        ],
    )


def _described(
    topics: Mapping[str, InternalTopic],
) -> list[StreamsGroupDescribeResponseTopicInfo]:
    return [
        StreamsGroupDescribeResponseTopicInfo(
            name=name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                StreamsGroupDescribeResponseKeyValue(key=key, value=value)
                for key, value in topic.configs.items()
            ],
        )
        for name, topic in sorted(topics.items())
    ]
