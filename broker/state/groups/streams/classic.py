"""The classic group requests in a streams group. A classic group replaces an empty streams group.
In any other the member is unknown.
"""

from __future__ import annotations

from kstore.broker.state.groups.classic import sync as classic_sync
from kstore.broker.state.groups.classic.join import join_group as join_classic_group
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.streams.group import StreamsGroup
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
    shard: ShardState, group: StreamsGroup, request: JoinGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Join a classic group, which replaces the streams group and keeps its offsets."""
    if not group.is_empty:
        return Result(JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    joined = yield from join_classic_group(shard, None, request, ctx)
    return joined._replace(records=(*group.tombstones(), *joined.records))


def sync_group(
    shard: ShardState, group: StreamsGroup, request: SyncGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Answer as if the group did not exist."""
    return classic_sync.sync_group(shard, None, request, ctx)


def heartbeat(
    shard: ShardState, group: StreamsGroup, request: HeartbeatRequest, ctx: GroupContext
) -> Work[Result]:
    """Answer as if the group did not exist."""
    return classic_sync.heartbeat(shard, None, request, ctx)


def leave_group(
    shard: ShardState, group: StreamsGroup, request: LeaveGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Answer as if the group did not exist."""
    return classic_sync.leave_group(shard, None, request, ctx)
