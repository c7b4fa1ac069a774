"""The invariants of a streams group after every step (KAFKA-19779, KIP-1071). They are checked in
all test runs, and if ``kstore.check.invariants`` is set; for large groups that is too slow
otherwise.
"""

from __future__ import annotations

from kstore.broker.state.groups.streams.group import StreamsGroup
from kstore.broker.state.groups.streams.tasks import TaskId

__all__ = ["check"]


def check(group: StreamsGroup) -> None:
    """Check that assignment epoch of an active task <= member epoch <= target assignment epoch <=
    group epoch, that an active task has one owner and a process one copy of a task, and that the
    indexes agree with the members. Raises AssertionError.
    """
    assert group.assignment_epoch <= group.group_epoch, (group.group_id, group.assignment_epoch)
    active: dict[TaskId, str] = {}
    members: dict[TaskId, str] = {}
    standby: dict[TaskId, set[str]] = {}
    warmup: dict[TaskId, set[str]] = {}
    for member in group.members.values():
        assert member.member_epoch <= group.assignment_epoch, member
        for tasks in (member.assigned, member.pending_revocation):
            for task, epoch in tasks.active.items():
                assert epoch <= member.member_epoch, (member, task)
                assert members.setdefault(task, member.member_id) == member.member_id, task
                active[task] = member.process_id
            for copies, kept in ((tasks.standby, standby), (tasks.warmup, warmup)):
                for task in copies:
                    kept.setdefault(task, set()).add(member.process_id)
    assert active == group.active_owners, (group.group_id, active, group.active_owners)
    assert standby == group.standby_owners, (group.group_id, standby, group.standby_owners)
    assert warmup == group.warmup_owners, (group.group_id, warmup, group.warmup_owners)
    for task, process_id in active.items():
        assert process_id not in standby.get(task, ()), (group.group_id, task)
    assert set(group.targets) <= set(group.members), (group.group_id, set(group.targets))
