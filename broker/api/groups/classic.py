"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups and DeleteGroups.

Requests of old versions are converted to the newest form here. broker/state makes the decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, cast

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.groups.behind_commits import behind_commits
from kstore.broker.api.security.access import (
    HasAuthorizer,
    allowed,
    allowed_cluster,
    operations_mask,
)
from kstore.broker.runtime.response_future import converted
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.work import each
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.groups.classic import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kstore.protocol.groups.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.groups.parts import DeleteParts, GroupParts
    from kstore.protocol.schema import Message

__all__ = [
    "group_operations",
    "handle_delete_groups",
    "handle_describe_groups",
    "handle_heartbeat",
    "handle_join_group",
    "handle_leave_group",
    "handle_list_groups",
    "handle_sync_group",
]

GROUP = AclResourceType.GROUP
FIRST_JOIN_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_SYNC_VERSION_WITH_PROTOCOL = 5
"""From this version on, a member must name the protocol type and protocol that it joined with
(KIP-559).
"""
FIRST_LEAVE_VERSION_WITH_MEMBERS = 3


def handle_join_group(
    broker: GroupParts, request: JoinGroupRequest, ctx: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Join a group. The response may wait for the other members."""
    if ctx.api_version < FIRST_JOIN_VERSION_WITH_REBALANCE_TIMEOUT:
        request = request.replaced(rebalance_timeout_ms=request.session_timeout_ms)
    joined = partial(_joined, ctx=ctx)
    try:
        answer = broker.groups().answer(request.group_id, request, ctx)
    except KafkaError as error:
        return joined(error)
    return converted(answer, joined)


def _joined(answer: Message | KafkaError, ctx: RequestContext) -> JoinGroupResponse:
    if isinstance(answer, KafkaError):
        answer = JoinGroupResponse(error_code=answer.code)
    response = cast(JoinGroupResponse, answer)
    # Without a protocol, the field is null if the version allows that, else empty.
    nullable = ctx.api_version >= FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL
    response.protocol_name = response.protocol_name or (None if nullable else "")
    return response


def handle_sync_group(
    broker: GroupParts, request: SyncGroupRequest, ctx: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Return the member's assignment. The response waits for the leader of the group."""
    named = request.protocol_type is not None and request.protocol_name is not None
    if ctx.api_version >= FIRST_SYNC_VERSION_WITH_PROTOCOL and not named:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        answer = broker.groups().answer(request.group_id, request, ctx)
    except KafkaError as error:
        return _synced(error)
    return converted(answer, _synced)


def _synced(answer: Message | KafkaError) -> SyncGroupResponse:
    if isinstance(answer, KafkaError):
        return SyncGroupResponse(error_code=answer.code)
    return cast(SyncGroupResponse, answer)


def handle_heartbeat(
    broker: GroupParts, request: HeartbeatRequest, ctx: RequestContext
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    """Extend a member's session. While the group is loading, the response has no error."""
    try:
        answer = broker.groups().answer(request.group_id, request, ctx)
    except KafkaError as error:
        return _heartbeat_response(error)
    return converted(answer, _heartbeat_response)


def _heartbeat_response(answer: Message | KafkaError) -> HeartbeatResponse:
    if isinstance(answer, KafkaError):
        loading = answer.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else answer.code)
    return cast(HeartbeatResponse, answer)


async def handle_leave_group(
    broker: GroupParts, request: LeaveGroupRequest, ctx: RequestContext
) -> LeaveGroupResponse:
    """Leave a group. Before version 3 the request has one member, whose error is that of the
    response.
    """
    single = ctx.api_version < FIRST_LEAVE_VERSION_WITH_MEMBERS
    if single:
        request = request.replaced(members=[MemberIdentity(member_id=request.member_id)])
    try:
        answer = behind_commits(
            broker.partition_lookup,
            request.group_id,
            lambda: broker.groups().answer(request.group_id, request, ctx),
        )
        response = cast(
            LeaveGroupResponse, await answer if isinstance(answer, Awaitable) else answer
        )
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if single:
        if response.error_code == ErrorCode.NONE:
            response.error_code = response.members[0].error_code
        response.members = []
    return response


async def handle_describe_groups(
    broker: GroupParts, request: DescribeGroupsRequest, ctx: RequestContext
) -> DescribeGroupsResponse:
    """Return state and members of the requested groups."""
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        try:
            described = await _describe(broker, group_id, ctx.api_version)
        except KafkaError as error:
            described = DescribedGroup(group_id=group_id, error_code=error.code)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = group_operations(broker, ctx, group_id)
        response.groups.append(described)
    return response


def group_operations(broker: HasAuthorizer, ctx: RequestContext, group_id: str) -> int:
    """The operations that the client may do on the group (KIP-430)."""
    return operations_mask(broker, ctx, GROUP, group_id)


async def _describe(broker: GroupParts, group_id: str, api_version: int) -> DescribedGroup:
    return await broker.groups().read(group_id, lambda shard: shard.describe(group_id, api_version))


async def handle_list_groups(
    broker: GroupParts, request: ListGroupsRequest, ctx: RequestContext
) -> ListGroupsResponse:
    """List the groups of this broker that match the filters and that the client may describe."""
    response = ListGroupsResponse()
    coordinator = broker.groups()
    await coordinator.wait_loaded()
    for partition in coordinator.partitions:
        if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ListGroupsResponse(error_code=partition.error_code)
        if partition.error_code == ErrorCode.NONE:
            view = partition.view(lambda s: s.list(request.states_filter, request.types_filter))
            response.groups += await view.wait()
    if not allowed_cluster(broker, ctx, AclOperation.DESCRIBE, quiet=True):

        def may_describe(group: ListedGroup) -> bool:
            may = AclOperation.DESCRIBE
            return allowed(broker, ctx, may, GROUP, group.group_id, quiet=True)

        kept = await Slices().do(each(may_describe, response.groups))
        response.groups = list(compress(response.groups, kept))
    return response


def handle_delete_groups(
    broker: DeleteParts, request: DeleteGroupsRequest, ctx: RequestContext
) -> Awaitable[DeleteGroupsResponse]:
    """Delete groups without members, and their offsets. Like a commit, this takes effect at once:
    it deletes earlier commits of the same connection, but not later ones.
    """
    answers: dict[str, Message | Awaitable[Message] | KafkaError] = {}
    for group_id in request.groups_names:
        if group_id not in answers:
            single = DeleteGroupsRequest(groups_names=[group_id])
            try:
                if broker.share_states().group(group_id) is not None:
                    answers[group_id] = _delete_share_group(broker, single, ctx)
                else:
                    delete = partial(broker.groups().answer, group_id, single, ctx)
                    answer = behind_commits(broker.partition_lookup, group_id, delete)
                    # The order of each deletion is fixed now, not when `_deleted` awaits it.
                    if isinstance(answer, Awaitable):
                        answer = asyncio.ensure_future(answer)
                    answers[group_id] = answer
            except KafkaError as error:
                answers[group_id] = error
    return _deleted(answers)


async def _delete_share_group(
    broker: DeleteParts, single: DeleteGroupsRequest, ctx: RequestContext
) -> Message:
    """Delete a share group. The state of its share-partitions is deleted first, since only the
    group knows them.
    """
    (group_id,) = single.groups_names
    await broker.share_states().delete_all(group_id)
    return await broker.groups().handle(group_id, single, ctx)


async def _deleted(
    answers: dict[str, Message | Awaitable[Message] | KafkaError],
) -> DeleteGroupsResponse:
    response = DeleteGroupsResponse()
    for group_id, answer in answers.items():
        try:
            result = await answer if isinstance(answer, Awaitable) else answer
        except KafkaError as error:
            result = error
        if isinstance(result, KafkaError):
            response.results.append(DeletableGroupResult(group_id=group_id, error_code=result.code))
        else:
            response.results += cast(DeleteGroupsResponse, result).results
    return response
