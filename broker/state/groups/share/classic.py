"""The classic group requests in a share group: the member is unknown, and no client can join."""

from __future__ import annotations

from kstore.broker.state.groups.classic import sync as classic_sync
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.share.group import ShareGroup
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)

__all__ = ["heartbeat", "join_group", "leave_group", "sync_group"]


def join_group(
    shard: ShardState, group: ShareGroup, request: JoinGroupRequest, ctx: GroupContext
) -> Result:
    """Refuse: an empty share group keeps its share-partitions' state."""
    return Result(JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


def sync_group(
    shard: ShardState, group: ShareGroup, request: SyncGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Answer as if the group did not exist."""
    return classic_sync.sync_group(shard, None, request, ctx)


def heartbeat(
    shard: ShardState, group: ShareGroup, request: HeartbeatRequest, ctx: GroupContext
) -> Work[Result]:
    """Answer as if the group did not exist."""
    return classic_sync.heartbeat(shard, None, request, ctx)


def leave_group(
    shard: ShardState, group: ShareGroup, request: LeaveGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Answer as if the group did not exist."""
    return classic_sync.leave_group(shard, None, request, ctx)
