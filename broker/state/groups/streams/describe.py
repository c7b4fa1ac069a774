"""The rows of StreamsGroupDescribe, and the partitions that can be queried at each member's user
endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kstore.broker.state.groups.contract import Group, absence
from kstore.broker.state.groups.streams.group import STREAMS_KIND, StreamsGroup, StreamsMember
from kstore.broker.state.groups.streams.tasks import (
    NO_TASKS,
    AssignedTasks,
    TaskId,
    Tasks,
    by_subtopology,
)
from kstore.broker.state.groups.streams.topics import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    described_configuration,
)
from kstore.broker.state.groups.streams.topology import described_topology
from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.streams_groups import (
    Assignment,
    DescribedGroup,
    EndpointToPartitions,
    Member,
    StreamsGroupDescribeResponseEndpoint,
    StreamsGroupDescribeResponseKeyValue,
    StreamsGroupDescribeResponseTaskIds,
    StreamsGroupHeartbeatResponseEndpoint,
    StreamsGroupHeartbeatResponseTaskIds,
    TopicPartition,
)

__all__ = ["describe_streams_group", "endpoint_partitions"]


def describe_streams_group(group: Group | None, group_id: str) -> Work[DescribedGroup]:
    """One group of StreamsGroupDescribe. A group of another kind is not found."""
    if not isinstance(group, StreamsGroup):
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=absence(group, group_id, STREAMS_KIND),
        )
    configured, topology = group.soft.configured, group.topology
    described = None
    if configured is not None and configured.is_ready:
        described = described_configuration(configured)
    elif topology is not None:
        described = described_topology(topology)
    members = []
    for member_id, member in group.members.items():
        members.append(_member(member, group.targets.get(member_id, NO_TASKS)))
        yield
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=described,
        members=members,
    )


def _member(member: StreamsMember, target: Tasks) -> Member:
    endpoint = member.user_endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=(
            None
            if endpoint is None
            else StreamsGroupDescribeResponseEndpoint(host=endpoint[0], port=endpoint[1])
        ),
        client_tags=[
            StreamsGroupDescribeResponseKeyValue(key=key, value=value)
            for key, value in member.client_tags
        ],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: Tasks | AssignedTasks) -> Assignment:
    return Assignment(
        active_tasks=by_subtopology(tasks.active, StreamsGroupDescribeResponseTaskIds),
        standby_tasks=by_subtopology(tasks.standby, StreamsGroupDescribeResponseTaskIds),
        warmup_tasks=by_subtopology(tasks.warmup, StreamsGroupDescribeResponseTaskIds),
    )


def endpoint_partitions(
    members: Iterable[StreamsMember], configured: ConfiguredTopology, image: MetadataImage
) -> list[EndpointToPartitions]:
    """For each member with a user endpoint: the partitions whose state it has."""
    subtopologies = configured.subtopologies or {}
    return [
        EndpointToPartitions(
            user_endpoint=StreamsGroupHeartbeatResponseEndpoint(
                host=member.user_endpoint[0], port=member.user_endpoint[1]
            ),
            active_partitions=_partitions(member.assigned.active, subtopologies, image),
            standby_partitions=_partitions(member.assigned.standby, subtopologies, image),
        )
        for member in members
        if member.user_endpoint is not None
    ]


def _partitions(
    tasks: Iterable[TaskId],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    image: MetadataImage,
) -> list[TopicPartition]:
    found = []
    for entry in by_subtopology(tasks, StreamsGroupHeartbeatResponseTaskIds):
        subtopology = subtopologies.get(entry.subtopology_id)
        if subtopology is None:
            continue
        names = subtopology.source_topics | subtopology.repartition_source_topics.keys()
        for name in sorted(names):
            topic = image.topics.get(name)
            if topic is not None:
                # The partitions of a topic with fewer partitions than tasks belong to the first
                # tasks.
                partitions = entry.partitions[: len(topic.partitions)]
                found.append(TopicPartition(topic=name, partitions=partitions))
    return found
