"""Moves a member of a streams group from its tasks to its target. It first gives up tasks, then its
epoch increases, then it gets the free tasks. This file computes one step of one member.

An active task is free when no process has it, and the member's own process has no other copy of it.
A copy is free when the member's process has none. While a member has an active task, the epoch in
which it got the task is stored with it (KAFKA-19779).
"""

from __future__ import annotations

from typing import NamedTuple

from kstore.broker.state.groups.streams.group import MemberState, StreamsGroup, StreamsMember
from kstore.broker.state.groups.streams.tasks import NO_ASSIGNED_TASKS, AssignedTasks, TaskId, Tasks
from kstore.broker.state.groups.streams.topology import StreamsError
from kstore.errors import ErrorCode

__all__ = ["reconcile_member"]


class _Difference(NamedTuple):
    """The difference between a member's tasks and its target."""

    kept: AssignedTasks
    to_revoke: AssignedTasks
    to_assign: AssignedTasks
    unreleased: bool
    """Whether some tasks of its target are not free yet."""


def reconcile_member(
    group: StreamsGroup,
    member: StreamsMember,
    target_epoch: int,
    target: Tasks,
    owned: Tasks | None,
) -> StreamsMember:
    """The member after the next step, or unchanged if no step is possible.

    ``owned`` are the tasks that it reports; None if it reports none. Raises StreamsError for a
    member in a state of a newer coordinator.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    epoch = member.member_epoch
    if member.state == MemberState.UNREVOKED_TASKS:
        if owned is None or member.pending_revocation.intersects(owned):
            return member
        epoch += 1
    elif member.state == MemberState.UNKNOWN:
        if owned is None or not owned.is_empty:
            raise StreamsError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member {member.member_id} is in a state that this broker does not know: it must "
                "give up its tasks and join again.",
            )
        epoch = target_epoch
    difference = _difference(group, member, target_epoch, target)
    return _next_member(member, epoch, target_epoch, difference, owned)


def _difference(
    group: StreamsGroup, member: StreamsMember, target_epoch: int, target: Tasks
) -> _Difference:
    has, process_id = member.assigned, member.process_id
    kept = AssignedTasks(
        {task: epoch for task, epoch in has.active.items() if task in target.active},
        has.standby & target.standby,
        has.warmup & target.warmup,
    )
    to_revoke = AssignedTasks(
        {task: epoch for task, epoch in has.active.items() if task not in target.active},
        has.standby - target.standby,
        has.warmup - target.warmup,
    )

    def has_copy(task: TaskId) -> bool:
        return process_id in group.standby_owners.get(
            task, ()
        ) or process_id in group.warmup_owners.get(task, ())

    def copy_is_free(task: TaskId) -> bool:
        return group.active_owners.get(task) != process_id and not has_copy(task)

    new_active = target.active - kept.active.keys()
    new_standby, new_warmup = target.standby - kept.standby, target.warmup - kept.warmup
    to_assign = AssignedTasks(
        {
            task: target_epoch
            for task in new_active
            if task not in group.active_owners and not has_copy(task)
        },
        frozenset(filter(copy_is_free, new_standby)),
        frozenset(filter(copy_is_free, new_warmup)),
    )
    unreleased = (
        len(to_assign.active) < len(new_active)
        or len(to_assign.standby) < len(new_standby)
        or len(to_assign.warmup) < len(new_warmup)
    )
    return _Difference(kept, to_revoke, to_assign, unreleased)


def _next_member(
    member: StreamsMember,
    epoch: int,
    target_epoch: int,
    difference: _Difference,
    owned: Tasks | None,
) -> StreamsMember:
    kept, to_revoke, to_assign, unreleased = difference
    if not to_revoke.is_empty and (owned is None or to_revoke.intersects(owned)):
        return member._replace(
            state=MemberState.UNREVOKED_TASKS,
            previous_member_epoch=member.member_epoch,
            member_epoch=epoch,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    return member._replace(
        state=MemberState.UNRELEASED_TASKS if unreleased else MemberState.STABLE,
        previous_member_epoch=member.member_epoch,
        member_epoch=target_epoch,
        assigned=kept.merge(to_assign),
        pending_revocation=NO_ASSIGNED_TASKS,
    )
