"""ConsumerGroupHeartbeat 0-1 and ConsumerGroupDescribe 0-1 (KIP-848). What a group decides is
broker/state's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kstore.broker.api.api_versions import finalized_features
from kstore.broker.api.groups import GROUP_OPERATIONS
from kstore.broker.runtime.shards import GroupCoordinator, coordinator_of
from kstore.broker.state.consumer_describe import describe_consumer_group
from kstore.broker.state.consumer_heartbeat import request_problem
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.runtime.broker import Broker

__all__ = ["handle_consumer_group_describe", "handle_consumer_group_heartbeat"]

KIND = "consumer"
FEATURE = "group.version"


async def handle_consumer_group_heartbeat(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, ctx: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Join, stay in or leave a consumer group."""
    if not _is_enabled(broker):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    coordinator = coordinator_of(broker)
    assignors = coordinator.settings.consumer_assignors
    problem = request_problem(request, ctx.api_version, assignors)
    if problem is not None:
        return ConsumerGroupHeartbeatResponse(
            error_code=problem.error_code, error_message=problem.message
        )
    try:
        answer = await coordinator.handle(request.group_id, request, ctx)
        return cast(ConsumerGroupHeartbeatResponse, answer)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))


async def handle_consumer_group_describe(
    broker: Broker, request: ConsumerGroupDescribeRequest, ctx: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Members, assignments and target assignments of the groups asked for."""
    response = ConsumerGroupDescribeResponse()
    if not _is_enabled(broker):
        refused = ErrorCode.UNSUPPORTED_VERSION
        response.groups = [
            DescribedGroup(group_id=group_id, error_code=refused) for group_id in request.group_ids
        ]
        return response
    coordinator = coordinator_of(broker)
    for group_id in request.group_ids:
        if not group_id:
            response.groups.append(DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID))
            continue
        try:
            described = await _describe(broker, coordinator, group_id)
        except KafkaError as error:
            response.groups.append(DescribedGroup(group_id=group_id, error_code=error.code))
            continue
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = GROUP_OPERATIONS
        response.groups.append(described)
    return response


async def _describe(broker: Broker, coordinator: GroupCoordinator, group_id: str) -> DescribedGroup:
    default = coordinator.settings.consumer_assignors[0]
    return await coordinator.read(
        group_id,
        lambda shard: describe_consumer_group(
            shard.groups.get(group_id), group_id, broker.image, default
        ),
    )


def _is_enabled(broker: Broker) -> bool:
    """Whether the protocol is among those of the settings, and its feature is finalized."""
    protocols = broker.config["group.coordinator.rebalance.protocols"]
    return KIND in protocols and finalized_features(broker).levels.get(FEATURE, 0) > 0
