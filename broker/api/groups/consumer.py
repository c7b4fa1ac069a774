"""ConsumerGroupHeartbeat 0-1 and ConsumerGroupDescribe 0-1 (KIP-848). broker/state makes the
decisions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, cast

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.groups.behind_commits import behind_commits
from kstore.broker.api.groups.classic import group_operations
from kstore.broker.api.security.access import HasAuthorizer, permitted
from kstore.broker.api.security.permissions import no_right
from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
from kstore.broker.runtime.response_future import converted
from kstore.broker.state.groups.consumer.describe import describe_consumer_group
from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.consumer.heartbeat import request_problem
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.groups.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.groups.parts import GroupProtocolParts
    from kstore.protocol.groups.streams_groups import StreamsGroupHeartbeatRequest
    from kstore.protocol.schema import Message

__all__ = [
    "UNSEEN",
    "handle_consumer_group_describe",
    "handle_consumer_group_heartbeat",
    "leaving_behind_commits",
    "may_describe",
]

KIND = "consumer"
FEATURE = "group.version"
UNSEEN = "The group has topics that the client is not authorized to describe."


def handle_consumer_group_heartbeat(
    broker: GroupProtocolParts, request: ConsumerGroupHeartbeatRequest, ctx: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    """Join, stay in or leave a consumer group."""
    if not _is_enabled(broker):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not may_describe(broker, ctx, request.subscribed_topic_names or ()):
        return ConsumerGroupHeartbeatResponse(
            error_code=denied, error_message=no_right(ctx, denied)
        )
    coordinator = broker.groups()
    assignors = coordinator.settings.consumer_assignors
    problem = request_problem(request, ctx.api_version, assignors)
    if problem is not None:
        return ConsumerGroupHeartbeatResponse(
            error_code=problem.error_code, error_message=problem.message
        )
    coordinator.regex_rights.note(
        request.group_id, request.subscribed_topic_regex, ctx.principal, ctx.client_host
    )
    try:
        answer = leaving_behind_commits(broker, request, ctx)
    except KafkaError as error:
        return _heartbeat_response(error)
    if broker.authorizer is None:
        return converted(answer, _heartbeat_response)
    return _checked_heartbeat(broker, answer, request, ctx)


def leaving_behind_commits(
    broker: GroupProtocolParts,
    request: ConsumerGroupHeartbeatRequest | StreamsGroupHeartbeatRequest,
    ctx: RequestContext,
) -> Message | Awaitable[Message]:
    """The coordinator's response. A member that leaves does not overtake the group's commits.
    Raises KafkaError.
    """

    def answer() -> Message | Awaitable[Message]:
        return broker.groups().answer(request.group_id, request, ctx)

    if request.member_epoch >= 0:
        return answer()
    return behind_commits(broker.partition_lookup, request.group_id, answer)


async def _checked_heartbeat(
    broker: GroupProtocolParts,
    answer: Message | Awaitable[Message],
    request: ConsumerGroupHeartbeatRequest,
    ctx: RequestContext,
) -> ConsumerGroupHeartbeatResponse:
    try:
        response = await answer if isinstance(answer, Awaitable) else answer
        await _note_regex(broker.groups(), request, ctx)
    except KafkaError as error:
        return _heartbeat_response(error)
    return _heartbeat_response(response)


def _heartbeat_response(answer: Message | KafkaError) -> ConsumerGroupHeartbeatResponse:
    if isinstance(answer, KafkaError):
        return ConsumerGroupHeartbeatResponse(error_code=answer.code, error_message=str(answer))
    return cast(ConsumerGroupHeartbeatResponse, answer)


async def _note_regex(
    coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, ctx: RequestContext
) -> None:
    """Note a member's regular expression. A member sends it once. A new coordinator of its group
    gets it with the next full heartbeat.
    """
    group = (await coordinator.partition(request.group_id)).shard.groups.get(request.group_id)
    member = group.members.get(request.member_id) if isinstance(group, ConsumerGroup) else None
    regex = member.regex if member is not None else None
    if regex and not coordinator.regex_rights.knows(request.group_id, regex):
        coordinator.regex_rights.note(request.group_id, regex, ctx.principal, ctx.client_host)


async def handle_consumer_group_describe(
    broker: GroupProtocolParts, request: ConsumerGroupDescribeRequest, ctx: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Return members, assignments and target assignments of the requested groups."""
    response = ConsumerGroupDescribeResponse()
    if not _is_enabled(broker):
        refused = ErrorCode.UNSUPPORTED_VERSION
        response.groups = [
            DescribedGroup(group_id=group_id, error_code=refused) for group_id in request.group_ids
        ]
        return response
    coordinator = broker.groups()
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for group_id in request.group_ids:
        if not group_id:
            response.groups.append(DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID))
            continue
        try:
            described = await _describe(coordinator, group_id)
        except KafkaError as error:
            response.groups.append(DescribedGroup(group_id=group_id, error_code=error.code))
            continue
        if not may_describe(broker, ctx, _topics(described)):
            response.groups.append(
                DescribedGroup(group_id=group_id, error_code=denied, error_message=UNSEEN)
            )
            continue
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = group_operations(broker, ctx, group_id)
        response.groups.append(described)
    return response


def may_describe(broker: HasAuthorizer, ctx: RequestContext, topics: Iterable[str]) -> bool:
    """Whether the client may describe all of these topics."""
    if broker.authorizer is None:
        return True
    names = set(topics)
    return permitted(broker, ctx, AclOperation.DESCRIBE, AclResourceType.TOPIC, names) == names


def _topics(described: DescribedGroup) -> set[str]:
    """The topics in the members' assignments and target assignments."""
    return {
        topic.topic_name
        for member in described.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


async def _describe(coordinator: GroupCoordinator, group_id: str) -> DescribedGroup:
    default = coordinator.settings.consumer_assignors[0]
    return await coordinator.read(
        group_id,
        lambda shard: describe_consumer_group(
            shard.groups.get(group_id), group_id, coordinator.topic.image, default
        ),
    )


def _is_enabled(broker: GroupProtocolParts) -> bool:
    """Whether the settings enable the protocol and its feature is finalized."""
    protocols = broker.config["group.coordinator.rebalance.protocols"]
    return KIND in protocols and broker.features().levels.get(FEATURE, 0) > 0
