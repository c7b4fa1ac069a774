"""The working copy of a classic group during one step, and the operations that joins, syncs and
timers share.

A step changes its own copy of the group and some lists, which become its Result. The live group
does not change. The order of operations and the error codes are Kafka's.
"""

from __future__ import annotations

from kstore.broker.state.groups.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    ClassicMember,
    session_timer,
)
from kstore.broker.state.groups.classic.held_back import lacks_remaining
from kstore.broker.state.groups.classic.records import metadata_record
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result, Token
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.groups.timers import (
    InitialRebalanceExpired,
    JoinExpired,
    SyncExpired,
    TimerChange,
    TimerEvent,
    TimerKey,
    heartbeat_key,
    join_key,
    sync_key,
)
from kstore.broker.state.work import Work, each
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from kstore.protocol.schema import Message

__all__ = ["UNKNOWN_MEMBER_ID", "Step", "parked_answers", "resume"]

UNKNOWN_MEMBER_ID = ""


class Step:
    """One step on a group: change ``group`` with its methods, then take the ``result``."""

    def __init__(self, group: ClassicGroup, ctx: GroupContext, settings: GroupSettings) -> None:
        self.group = group.copy()
        self.ctx = ctx
        self.settings = settings
        self.records: list[GroupRecord] = []
        self._completions: list[tuple[Token, Message]] = []
        self._timers: dict[TimerKey, TimerChange] = {}

    def result(self, response: Message | None = None) -> Result:
        """The result of the step. Without ``response``, the request is parked until a completion
        answers it.
        """
        return Result(
            response,
            tuple(self.records),
            tuple(self._completions),
            tuple(self._timers.values()),
            (self.group,),
        )

    def set_timer(self, key: TimerKey, delay_ms: int, event: TimerEvent) -> None:
        """Set or replace a timer."""
        self._timers[key] = TimerChange(key, delay_ms, event)

    def cancel_timer(self, key: TimerKey) -> None:
        """Cancel a timer, if it is set."""
        self._timers[key] = TimerChange(key, 0, None)

    def expect_heartbeat(self, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """Restart the member's session."""
        change = session_timer(self.group.group_id, member, timeout_ms)
        self._timers[change.key] = change

    def forget_heartbeat(self, member_id: str) -> None:
        """End a member's session."""
        self.cancel_timer(heartbeat_key(self.group.group_id, member_id))

    def answer_join(self, member_id: str, response: JoinGroupResponse) -> None:
        """Answer the member's parked join, if it has one."""
        member = self.group.members[member_id]
        if member.awaiting_join is not None:
            self._completions.append((member.awaiting_join, response))
            self.group.replace(member._replace(awaiting_join=None))

    def answer_sync(self, member_id: str, response: SyncGroupResponse) -> None:
        """Answer the member's parked sync, if it has one."""
        member = self.group.members[member_id]
        if member.awaiting_sync is not None:
            self._completions.append((member.awaiting_sync, response))
            self.group.replace(member._replace(awaiting_sync=None))

    def drop_member(self, member_id: str) -> None:
        """Remove a member. The response to its parked join makes it join again as a new member."""
        rejected = JoinGroupResponse(member_id="", error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self.answer_join(member_id, rejected)
        self.answer_sync(member_id, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        self.group.remove(member_id)
        self.forget_heartbeat(member_id)

    def drop_pending(self, member_id: str) -> None:
        """Remove a member that has received an id and has not joined with it."""
        self.group.remove(member_id)
        self.forget_heartbeat(member_id)

    def join_response(self, member_id: str) -> Work[JoinGroupResponse]:
        """The response about the current generation. For the leader it has the members."""
        group = self.group
        leads = group.leader_id == member_id
        members = (yield from self.described_members()) if leads else []
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            member_id=member_id,
            members=members,
        )

    def described_members(self) -> Work[list[JoinGroupResponseMember]]:
        """All members with their metadata for the selected protocol."""
        name = self.group.protocol_name

        def described(member: ClassicMember) -> JoinGroupResponseMember:
            return JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(name),
            )

        return (yield from each(described, self.group.members.values()))

    def rebalance_or_complete_join(self) -> Work[None]:
        """Start a rebalance. If one is in progress, end its join phase if possible."""
        if self.group.can_rebalance:
            yield from self.prepare_rebalance()
        else:
            yield from self.maybe_complete_join()

    def prepare_rebalance(self) -> Work[None]:
        """Enter the join phase. A new group waits for more members, another group for its own
        members.
        """
        group = self.group
        if group.state == COMPLETING_REBALANCE:
            yield from self.propagate_assignment({}, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self.cancel_timer(sync_key(group.group_id))
        is_initial = group.state == EMPTY
        group.transition_to(PREPARING_REBALANCE, self.ctx.now_ms)
        if is_initial:
            delay_ms = self.settings.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            event = InitialRebalanceExpired(group.group_id, delay_ms, remaining_ms)
            self.set_timer(join_key(group.group_id), delay_ms, event)
        elif group.all_joined:
            yield from self.complete_join()
        else:
            self.wait_for_joins()

    def wait_for_joins(self) -> None:
        """Set the timer that ends the join phase after the rebalance timeout."""
        event = JoinExpired(self.group.group_id)
        self.set_timer(join_key(self.group.group_id), self.group.rebalance_timeout_ms, event)

    def maybe_complete_join(self) -> Work[None]:
        """End the join phase if all members have joined. Only the timer ends that of a new
        group.
        """
        group = self.group
        if (
            group.state == PREPARING_REBALANCE
            and group.previous_state != EMPTY
            and group.all_joined
        ):
            yield from self.complete_join()

    def complete_join(self) -> Work[None]:
        """End the join phase: remove dynamic members that have not joined, begin a generation,
        answer joins.
        """
        group = self.group
        self.cancel_timer(join_key(group.group_id))
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                group.remove(member.member_id)
                self.forget_heartbeat(member.member_id)
            yield
        if group.members and not self._elect_joined_leader():
            self.wait_for_joins()  # only static members are absent: their sessions decide
            return
        yield from group.start_generation(self.ctx.now_ms)
        if group.state == EMPTY:
            self.records.append((yield from metadata_record(group)))
            return
        for member_id, member in list(group.members.items()):
            if member.awaiting_join is not None:
                response = yield from self.join_response(member_id)
                self._completions.append((member.awaiting_join, response))
            group.replace(member._replace(awaiting_join=None, is_new=False))
            self.expect_heartbeat(member)
            group.pending_sync.add(member_id)
            yield
        event = SyncExpired(group.group_id, group.generation_id)
        self.set_timer(sync_key(group.group_id), group.rebalance_timeout_ms, event)

    def _elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined. Returns False if no member has."""
        members = self.group.members
        leader = members.get(self.group.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = (member for member in members.values() if member.awaiting_join is not None)
        successor = next(joined, None)
        if successor is not None:
            self.group.leader_id = successor.member_id
        return successor is not None

    def propagate_assignment(self, assignment: dict[str, bytes], error_code: int) -> Work[None]:
        """Set the assignment of every member (empty without one) and answer the parked syncs."""
        group = self.group
        succeeded = error_code == ErrorCode.NONE
        for member_id, member in list(group.members.items()):
            given = assignment.get(member_id, b"")
            group.replace(member._replace(assignment=given, awaiting_sync=None))
            if member.awaiting_sync is not None:
                response = SyncGroupResponse(
                    error_code=error_code,
                    protocol_type=group.protocol_type if succeeded else None,
                    protocol_name=group.protocol_name if succeeded else None,
                    assignment=given,
                )
                self._completions.append((member.awaiting_sync, response))
                # A session timeout during this wait did not apply.
                self.expect_heartbeat(member)
            yield

    def become_stable(self, assignment: dict[str, bytes]) -> Work[None]:
        """Apply the leader's assignment, persist the generation, and answer the parked syncs."""
        yield from self.propagate_assignment(assignment, ErrorCode.NONE)
        self.records.append((yield from metadata_record(self.group)))
        self.group.transition_to(STABLE, self.ctx.now_ms)


def resume(shard: ShardState, group: ClassicGroup, ctx: GroupContext) -> Work[Result]:
    """After replay: start the members' sessions, and rebalance a group that is over the size
    limit.
    """
    step = Step(group, ctx, shard.settings)
    step.group.lacking = lacks_remaining(group, ctx.image)
    for member in group.members.values():
        step.expect_heartbeat(member)
        yield
    if len(group.members) > shard.settings.max_size and group.state == STABLE:
        yield from step.prepare_rebalance()
    return step.result() if group.members else Result()


def parked_answers(group: ClassicGroup) -> list[tuple[Token, Message]]:
    """The responses to parked requests when this broker is no longer the coordinator."""
    moved = ErrorCode.NOT_COORDINATOR
    answers: list[tuple[Token, Message]] = []
    for member in group.members.values():
        if member.awaiting_join is not None:
            response = JoinGroupResponse(member_id=member.member_id, error_code=moved)
            answers.append((member.awaiting_join, response))
        if member.awaiting_sync is not None:
            answers.append((member.awaiting_sync, SyncGroupResponse(error_code=moved)))
    return answers
