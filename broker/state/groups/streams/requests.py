"""Checks of StreamsGroupHeartbeat requests that do not depend on the group: for contradictions, and
for features that Kafka 4.3 does not support yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from kstore.broker.state.groups.streams.topology import StreamsError
from kstore.broker.state.metadata.image import INTERNAL_TOPICS
from kstore.broker.state.metadata.topic_rules import TopicError, check_name
from kstore.errors import ErrorCode
from kstore.protocol.groups.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestTopology,
)

__all__ = ["JOIN_EPOCH", "LEAVE_EPOCH", "LEAVE_STATIC_EPOCH", "check_heartbeat"]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
NO_TIMEOUT = -1


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise StreamsError for a request that is invalid for any group."""
    if request.topology is not None:
        _check_topic_names(request.topology)
    _check_unsupported(request)
    _refuse_if(not request.member_id, "MemberId is empty: the member must generate one.")
    _refuse_if(not request.group_id, "GroupId is empty: send the application's id.")
    _refuse_if(request.rack_id == "", "RackId is empty: send a rack, or null.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    _refuse_if(
        request.member_epoch == LEAVE_STATIC_EPOCH,
        f"MemberEpoch {LEAVE_STATIC_EPOCH} is for static members, which have an InstanceId.",
    )
    _refuse_if(
        request.member_epoch < LEAVE_STATIC_EPOCH,
        f"MemberEpoch {request.member_epoch} is not valid: the lowest is {LEAVE_STATIC_EPOCH}.",
    )
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    given = [role is not None for role in roles]
    _refuse_if(
        any(given) and not all(given),
        "Send ActiveTasks, StandbyTasks and WarmupTasks together, or none of them.",
    )
    _refuse_if(
        request.member_epoch != JOIN_EPOCH and request.topology is not None,
        f"A topology is sent with MemberEpoch {JOIN_EPOCH} only, not with {request.member_epoch}.",
    )


def _refuse_if(wrong: bool, message: str) -> None:
    if wrong:
        raise StreamsError(ErrorCode.INVALID_REQUEST, message)


def _check_unsupported(request: StreamsGroupHeartbeatRequest) -> None:
    for name, is_sent in (
        ("InstanceId", request.instance_id is not None),
        ("TaskOffsets", request.task_offsets is not None),
        ("TaskEndOffsets", request.task_end_offsets is not None),
        ("WarmupTasks", bool(request.warmup_tasks)),
    ):
        _refuse_if(is_sent, f"Leave {name} out: streams groups do not support it yet.")
    subtopologies = [] if request.topology is None else request.topology.subtopologies
    _refuse_if(
        any(item.source_topic_regex for item in subtopologies),
        "List the source topics: regular expressions are not supported for them yet.",
    )


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    _refuse_if(
        request.rebalance_timeout_ms == NO_TIMEOUT,
        "A member that joins must send RebalanceTimeoutMs.",
    )
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        _refuse_if(bool(tasks), f"A member that joins has no tasks yet: leave {name} empty.")
    if request.topology is None:
        raise StreamsError(ErrorCode.INVALID_REQUEST, "A member that joins must send its topology.")
    for item in request.topology.subtopologies:
        for info in item.state_changelog_topics:
            if info.partitions != 0:
                raise StreamsError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {info.name} asks for {info.partitions} partitions: send 0, "
                    "because the source topics determine the count.",
                )


def _check_topic_names(topology: StreamsGroupHeartbeatRequestTopology) -> None:
    names = list(dict.fromkeys(_topic_names(topology)))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise StreamsError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Leave {', '.join(internal)} out of the topology: only the broker may use them.",
        )
    for name in names:
        try:
            check_name(name)
        except TopicError as problem:
            raise StreamsError(ErrorCode.STREAMS_INVALID_TOPOLOGY, str(problem)) from problem


def _topic_names(topology: StreamsGroupHeartbeatRequestTopology) -> Iterator[str]:
    for item in topology.subtopologies:
        yield from item.source_topics
        yield from item.repartition_sink_topics
        yield from (info.name for info in item.repartition_source_topics)
        yield from (info.name for info in item.state_changelog_topics)
