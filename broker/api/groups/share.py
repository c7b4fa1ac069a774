"""ShareGroupHeartbeat and ShareGroupDescribe (KIP-932), version 1 of both. broker/state makes the
decisions. share_offsets.py handles the offsets of share groups.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, cast

from kstore.broker.api.groups.classic import group_operations
from kstore.broker.api.groups.consumer import UNSEEN, may_describe
from kstore.broker.api.security.permissions import no_right
from kstore.broker.runtime.response_future import converted
from kstore.broker.state.groups.share.describe import describe_share_group
from kstore.broker.state.groups.share.heartbeat import request_problem
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.shares.describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kstore.protocol.shares.heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.groups.parts import GroupProtocolParts, ShareParts
    from kstore.protocol.schema import Message

__all__ = ["handle_share_group_describe", "handle_share_group_heartbeat", "is_enabled"]

FEATURE = "share.version"


def is_enabled(broker: GroupProtocolParts) -> bool:
    """Whether share groups are enabled: by the feature, or as in Kafka by the older setting."""
    protocols = broker.config["group.coordinator.rebalance.protocols"]
    return "share" in protocols or broker.features().levels.get(FEATURE, 0) > 0


def handle_share_group_heartbeat(
    broker: ShareParts, request: ShareGroupHeartbeatRequest, ctx: RequestContext
) -> ShareGroupHeartbeatResponse | Awaitable[ShareGroupHeartbeatResponse]:
    """Join, stay in or leave a share group."""
    if not is_enabled(broker):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not may_describe(broker, ctx, request.subscribed_topic_names or ()):
        return ShareGroupHeartbeatResponse(error_code=denied, error_message=no_right(ctx, denied))
    problem = request_problem(request)
    if problem is not None:
        return ShareGroupHeartbeatResponse(
            error_code=problem.error_code, error_message=problem.message
        )
    response_of = partial(_heartbeat_response, broker=broker, group_id=request.group_id)
    try:
        answer = broker.groups().answer(request.group_id, request, ctx)
    except KafkaError as error:
        return response_of(error)
    return converted(answer, response_of)


def _heartbeat_response(
    answer: Message | KafkaError, broker: ShareParts, group_id: str
) -> ShareGroupHeartbeatResponse:
    if isinstance(answer, KafkaError):
        return ShareGroupHeartbeatResponse(error_code=answer.code, error_message=str(answer))
    broker.share_states().initialize_soon(group_id)
    return cast(ShareGroupHeartbeatResponse, answer)


async def handle_share_group_describe(
    broker: ShareParts, request: ShareGroupDescribeRequest, ctx: RequestContext
) -> ShareGroupDescribeResponse:
    """Return members and assignments of the requested groups."""
    response = ShareGroupDescribeResponse()
    if not is_enabled(broker):
        refused = ErrorCode.UNSUPPORTED_VERSION
        response.groups = [
            DescribedGroup(group_id=group_id, error_code=refused) for group_id in request.group_ids
        ]
        return response
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for group_id in request.group_ids:
        described = await _describe(broker, group_id)
        topics = {
            topic.topic_name
            for member in described.members
            for topic in member.assignment.topic_partitions
        }
        if not may_describe(broker, ctx, topics):
            described = DescribedGroup(group_id=group_id, error_code=denied, error_message=UNSEEN)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = group_operations(broker, ctx, group_id)
        response.groups.append(described)
    return response


async def _describe(broker: ShareParts, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = broker.groups()
    try:
        return await coordinator.read(
            group_id,
            lambda shard: describe_share_group(
                shard.groups.get(group_id), group_id, coordinator.topic.image
            ),
        )
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=str(error))
