"""The groups of one partition of __consumer_offsets, as a pure shard.

`handle` and `expire` decide and never mutate; `replay` takes over what is in the log; `commit`
takes over a decided step once its records are appended. It knows no log, clock or connection:
broker/runtime/shards.py runs it.
"""

from __future__ import annotations

from kstore.broker.state.classic_group import (
    STABLE,
    ClassicGroup,
    restore_group,
)
from kstore.broker.state.classic_join import join_group
from kstore.broker.state.classic_step import Step
from kstore.broker.state.classic_sync import expire, heartbeat, leave_group, sync_group
from kstore.broker.state.group_admin import (
    delete_error,
    deletion_records,
    describe_group,
    expiry_records,
    list_groups,
)
from kstore.broker.state.group_result import (
    GroupContext,
    GroupRecord,
    GroupSettings,
    Result,
    TimerEvent,
    Token,
)
from kstore.broker.state.offset_commit import commit_offsets, delete_offsets
from kstore.broker.state.offsets import NO_PRODUCER_ID, Offsets, commit_tombstone
from kstore.errors import ErrorCode
from kstore.protocol.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    ListedGroup,
)
from kstore.protocol.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kstore.protocol.log_records_classic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kstore.protocol.offset_delete import OffsetDeleteRequest
from kstore.protocol.offsets import (
    OffsetCommitRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from kstore.protocol.schema import Message

__all__ = ["GroupShard"]


class GroupShard:
    """Groups and offsets of one partition. All its methods are quick, none waits."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()

    def handle(self, request: Message, ctx: GroupContext) -> Result:
        """Decide on a request that may change a group. Changes nothing: give the result to
        `commit`.
        """
        if isinstance(request, DeleteGroupsRequest):
            return self._delete_groups(request)
        group = self.groups.get(request.group_id)  # type: ignore[attr-defined]
        if isinstance(request, HeartbeatRequest):
            return heartbeat(group, request)
        if isinstance(request, OffsetCommitRequest):
            return commit_offsets(group, request, ctx, self.settings)
        if isinstance(request, JoinGroupRequest):
            return join_group(group, request, ctx, self.settings)
        if isinstance(request, SyncGroupRequest):
            return sync_group(group, request, ctx, self.settings)
        if isinstance(request, LeaveGroupRequest):
            return leave_group(group, request, ctx, self.settings)
        assert isinstance(request, OffsetDeleteRequest), request
        return delete_offsets(group, request, self.offsets)

    def expire(self, event: TimerEvent, ctx: GroupContext) -> Result:
        """Decide what a fired timer leads to."""
        group = self.groups.get(event.group_id)
        return Result() if group is None else expire(group, event, ctx, self.settings)

    def commit(self, result: Result, base_offset: int = -1) -> None:
        """Take over a result whose records are in the log from ``base_offset`` on."""
        for index, record in enumerate(result.records):
            offset = base_offset + index if base_offset >= 0 else -1
            self.replay(record, record_offset=offset)
        for group in result.groups:
            self.groups[group.group_id] = group

    def replay(
        self,
        record: GroupRecord,
        *,
        record_offset: int = -1,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Take over one record of the log; ``producer_id`` if it lies in a transaction."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group, -1)
            self.offsets.replay(key, value, record_offset, producer_id)
        else:
            assert isinstance(key, GroupMetadataKey)
            if value is None:
                self.groups.pop(key.group, None)
            else:
                assert isinstance(value, GroupMetadataValue)
                self.groups[key.group] = restore_group(key.group, value)

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        """Take over a transaction marker of the log."""
        self.offsets.replay_transaction_end(producer_id, committed=committed)

    def loaded(self, ctx: GroupContext) -> list[Result]:
        """What to do after the log was replayed: expect members' heartbeats; shrink groups over the
        size limit.
        """
        results = []
        for group in self.groups.values():
            step = Step(group, ctx, self.settings)
            for member in group.members.values():
                step.expect_heartbeat(member)
            if len(group.members) > self.settings.max_size and group.state == STABLE:
                step.prepare_rebalance()
            if group.members:
                results.append(step.result())
        return results

    def unloaded(self) -> list[tuple[Token, Message]]:
        """The answers to everybody parked here, when this broker stops being the coordinator."""
        moved = ErrorCode.NOT_COORDINATOR
        answers: list[tuple[Token, Message]] = []
        for group in self.groups.values():
            for member in group.members.values():
                if member.awaiting_join is not None:
                    response = JoinGroupResponse(member_id=member.member_id, error_code=moved)
                    answers.append((member.awaiting_join, response))
                if member.awaiting_sync is not None:
                    answers.append((member.awaiting_sync, SyncGroupResponse(error_code=moved)))
        return answers

    def describe(self, group_id: str, api_version: int) -> DescribedGroup:
        """DescribeGroups for one group."""
        return describe_group(self.groups.get(group_id), group_id, api_version)

    def list(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        """ListGroups."""
        return list_groups(self.groups.values(), states, types)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """OffsetFetch for one group; an unknown group has no offsets, which is not an error."""
        return self.offsets.fetch(request, require_stable=require_stable)

    def expire_offsets(self, now_ms: int) -> Result:
        """The tombstones of what is past ``offsets.retention.minutes``."""
        retention_ms = self.settings.offsets_retention_ms
        return Result(
            records=tuple(expiry_records(self.groups, self.offsets, now_ms, retention_ms))
        )

    def forget_topic(self, name: str) -> Result:
        """The tombstones of all offsets of a deleted topic."""
        places = self.offsets.places_of_topic(name)
        return Result(records=tuple(commit_tombstone(group, name, part) for group, part in places))

    def _delete_groups(self, request: DeleteGroupsRequest) -> Result:
        response = DeleteGroupsResponse()
        records: list[GroupRecord] = []
        for group_id in dict.fromkeys(request.groups_names):
            group = self.groups.get(group_id)
            error_code = delete_error(group)
            response.results.append(DeletableGroupResult(group_id=group_id, error_code=error_code))
            if group is not None and error_code == ErrorCode.NONE:
                records += deletion_records(group, self.offsets)
        return Result(response, tuple(records))
