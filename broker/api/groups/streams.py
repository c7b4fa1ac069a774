"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071), version 0 of both.

A heartbeat that finds internal topics missing starts their creation and does not wait for it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.groups.classic import group_operations
from kstore.broker.api.groups.consumer import UNSEEN, leaving_behind_commits, may_describe
from kstore.broker.api.security.access import allowed_cluster, permitted
from kstore.broker.api.security.permissions import no_right
from kstore.broker.state.groups.streams.describe import describe_streams_group
from kstore.broker.state.groups.streams.group import StreamsGroup
from kstore.broker.state.groups.streams.requests import check_heartbeat
from kstore.broker.state.groups.streams.target import configured_topology
from kstore.broker.state.groups.streams.topics import MISSING_INTERNAL_TOPICS
from kstore.broker.state.groups.streams.topology import StreamsError
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.groups.streams_groups import (
    DescribedGroup,
    Status,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kstore.protocol.groups.streams_groups import (
    StreamsGroupDescribeResponseTopology as ToldTopology,
)
from kstore.protocol.groups.streams_groups import (
    StreamsGroupHeartbeatRequestTopology as AskedTopology,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.groups.parts import StreamsParts

__all__ = ["handle_streams_group_describe", "handle_streams_group_heartbeat"]

STREAMS_PROTOCOL = "streams"
STREAMS_FEATURE = "streams.version"
ERRORS_SHOWN = 3


async def handle_streams_group_heartbeat(
    broker: StreamsParts, request: StreamsGroupHeartbeatRequest, ctx: RequestContext
) -> StreamsGroupHeartbeatResponse:
    """Join, stay in or leave a streams group."""
    if not _is_enabled(broker):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        check_heartbeat(request)
        if not may_describe(broker, ctx, _topics(request.topology)):
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return StreamsGroupHeartbeatResponse(
                error_code=denied, error_message=no_right(ctx, denied)
            )
        answer = leaving_behind_commits(broker, request, ctx)
        if isinstance(answer, Awaitable):
            answer = await answer
    except StreamsError as refused:
        return StreamsGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
    except KafkaError as error:
        return StreamsGroupHeartbeatResponse(error_code=error.code)
    response = cast(StreamsGroupHeartbeatResponse, answer)
    statuses = response.status or []
    for index, status in enumerate(statuses):
        if status.status_code == MISSING_INTERNAL_TOPICS:
            problem = await _make_internal_topics(broker, request.group_id, ctx)
            # The group uses this status for the next response, too, so it must not be changed.
            statuses[index] = Status(
                status_code=status.status_code, status_detail=status.status_detail + problem
            )
    return response


def _is_enabled(broker: StreamsParts) -> bool:
    protocols = broker.config["group.coordinator.rebalance.protocols"]
    return STREAMS_PROTOCOL in protocols and bool(broker.features().levels.get(STREAMS_FEATURE))


async def _make_internal_topics(broker: StreamsParts, group_id: str, ctx: RequestContext) -> str:
    """Create the missing topics. Returns a message about those that could not be created."""
    coordinator = broker.groups()
    group = (await coordinator.partition(group_id)).shard.groups.get(group_id)
    if not isinstance(group, StreamsGroup) or group.topology is None:
        return ""
    missing = configured_topology(group.topology, coordinator.topic.image).missing_topics
    denied = set(missing)
    if allowed_cluster(broker, ctx, AclOperation.CREATE, quiet=True):
        denied.clear()
    else:
        denied -= permitted(broker, ctx, AclOperation.CREATE, AclResourceType.TOPIC, missing)
    if denied:
        return f"; {ctx.principal} is not authorized to create {_some(sorted(denied))}."
    maker = broker.internal_topics()
    errors = maker.errors(missing)
    interval_ms = broker.configs.group(group_id)["streams.heartbeat.interval.ms"]
    maker.create(missing, 2 * interval_ms / 1000)
    if not errors:
        return ""
    failed = _some([f"{name} ({why.rstrip('.')})" for name, why in errors.items()])
    return f"; could not create {failed}."


def _some(words: list[str]) -> str:
    """The first few words, and how many more there are."""
    more = len(words) - ERRORS_SHOWN
    return ", ".join(words[:ERRORS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _topics(topology: AskedTopology | ToldTopology | None) -> set[str]:
    """All topics that a topology reads, writes or uses for its state."""
    names: set[str] = set()
    for part in () if topology is None else topology.subtopologies or ():
        names.update(part.source_topics, part.repartition_sink_topics)
        names.update(topic.name for topic in part.repartition_source_topics)
        names.update(topic.name for topic in part.state_changelog_topics)
    return names


async def handle_streams_group_describe(
    broker: StreamsParts, request: StreamsGroupDescribeRequest, ctx: RequestContext
) -> StreamsGroupDescribeResponse:
    """Return members, tasks and topology of groups."""
    if not _is_enabled(broker):
        refused = ErrorCode.UNSUPPORTED_VERSION
        return StreamsGroupDescribeResponse(
            groups=[
                DescribedGroup(group_id=group_id, error_code=refused)
                for group_id in request.group_ids
            ]
        )
    response = StreamsGroupDescribeResponse()
    for group_id in request.group_ids:
        described = await _describe(broker, group_id)
        if not may_describe(broker, ctx, _topics(described.topology)):
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            described = DescribedGroup(group_id=group_id, error_code=denied, error_message=UNSEEN)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = group_operations(broker, ctx, group_id)
        response.groups.append(described)
    return response


async def _describe(broker: StreamsParts, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        return await broker.groups().read(
            group_id,
            lambda shard: describe_streams_group(shard.groups.get(group_id), group_id),
        )
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
