"""The topology of a streams group, as its members send it: subtopologies, and the topics that they
read, write and use for state. topics.py matches it with the existing topics.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.streams import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from kstore.protocol.groups.streams_groups import (
    StreamsGroupDescribeResponseKeyValue,
    StreamsGroupDescribeResponseSubtopology,
    StreamsGroupDescribeResponseTopicInfo,
    StreamsGroupDescribeResponseTopology,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopicInfo,
    StreamsGroupHeartbeatRequestTopology,
)

__all__ = ["StreamsError", "Topology", "described_topology", "topology_value"]


class StreamsError(Exception):
    """A refusal by a streams group: Kafka's error code and a message for the client."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(message or "")
        self.code = code
        self.message = message


class Topology:
    """A topology with indexes. Two are equal if they have equal epochs and subtopologies, in any
    order.
    """

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        """Raises StreamsError if the topology contradicts itself."""
        self.epoch = value.epoch
        self.value = value
        self.subtopologies = {item.subtopology_id: item for item in value.subtopologies}
        if value.epoch < 0 or len(self.subtopologies) != len(value.subtopologies):
            raise StreamsError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self.source_topics: dict[str, str] = {}
        """Topic to the subtopology that reads it, to which a commit for a partition of the topic
        belongs.
        """
        for item in value.subtopologies:
            for name in source_topics(item):
                self.source_topics[name] = item.subtopology_id
        self.required_topics = frozenset(self.source_topics) | {
            info.name for item in value.subtopologies for info in item.state_changelog_topics
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    __hash__ = None  # type: ignore[assignment]


def source_topics(subtopology: Subtopology) -> list[str]:
    """The topics that a subtopology reads: the user's and the repartition topics."""
    repartition = [info.name for info in subtopology.repartition_source_topics]
    return [*subtopology.source_topics, *repartition]


def topology_value(sent: StreamsGroupHeartbeatRequestTopology) -> StreamsGroupTopologyValue:
    """The record of the topology that a member sent."""
    return StreamsGroupTopologyValue(
        epoch=sent.epoch, subtopologies=[_subtopology(item) for item in sent.subtopologies]
    )


def _subtopology(sent: StreamsGroupHeartbeatRequestSubtopology) -> Subtopology:
    return Subtopology(
        subtopology_id=sent.subtopology_id,
        source_topics=sent.source_topics,
        source_topic_regex=sent.source_topic_regex,
        state_changelog_topics=_topic_infos(sent.state_changelog_topics),
        repartition_sink_topics=sent.repartition_sink_topics,
        repartition_source_topics=_topic_infos(sent.repartition_source_topics),
        copartition_groups=[
            CopartitionGroup(
                source_topics=group.source_topics,
                source_topic_regex=group.source_topic_regex,
                repartition_source_topics=group.repartition_source_topics,
            )
            for group in sent.copartition_groups
        ],
    )


def _topic_infos(sent: Iterable[StreamsGroupHeartbeatRequestTopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=info.name,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            topic_configs=[
                TopicConfig(key=config.key, value=config.value) for config in info.topic_configs
            ],
        )
        for info in sent
    ]


def described_topology(topology: Topology) -> StreamsGroupDescribeResponseTopology:
    """The topology for StreamsGroupDescribe before it is matched with topics: as it was sent, but
    sorted.
    """
    return StreamsGroupDescribeResponseTopology(
        epoch=topology.epoch,
        subtopologies=[
            StreamsGroupDescribeResponseSubtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(item.source_topics),
                repartition_sink_topics=sorted(item.repartition_sink_topics),
                state_changelog_topics=_described_infos(item.state_changelog_topics),
                repartition_source_topics=_described_infos(item.repartition_source_topics),
            )
            for subtopology_id, item in sorted(topology.subtopologies.items())
        ],
    )


def _described_infos(infos: list[TopicInfo]) -> list[StreamsGroupDescribeResponseTopicInfo]:
    return [
        StreamsGroupDescribeResponseTopicInfo(
            name=info.name,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            topic_configs=[
                StreamsGroupDescribeResponseKeyValue(key=config.key, value=config.value)
                for config in info.topic_configs
            ],
        )
        for info in sorted(infos, key=lambda info: info.name)
    ]
