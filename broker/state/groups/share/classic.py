"""What the classic group requests meet in a share group: it does not know the member, and nobody
joins it in this way.
"""

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
    """Refused: an empty share group keeps its share partitions' state."""
    return Result(JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


def sync_group(
    shard: ShardState, group: ShareGroup, request: SyncGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """As if there were no group."""
    return classic_sync.sync_group(shard, None, request, ctx)


def heartbeat(
    shard: ShardState, group: ShareGroup, request: HeartbeatRequest, ctx: GroupContext
) -> Work[Result]:
    """As if there were no group."""
    return classic_sync.heartbeat(shard, None, request, ctx)


def leave_group(
    shard: ShardState, group: ShareGroup, request: LeaveGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """As if there were no group."""
    return classic_sync.leave_group(shard, None, request, ctx)
