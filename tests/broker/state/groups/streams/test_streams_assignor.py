"""The sticky task assignor: who gets which task, over all kinds of groups and over changes."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.groups.streams.assignor import MemberSpec, assign_tasks
from kstore.broker.state.groups.streams.tasks import NO_TASKS, TaskId, Tasks
from kstore.broker.state.work import whole


class Sub(NamedTuple):
    tasks: int
    is_stateful: bool


def new(processes: dict[str, str]) -> dict[str, MemberSpec]:
    """Members (id to process) without tasks."""
    return {member: MemberSpec(process, NO_TASKS) for member, process in processes.items()}


def after(members: dict[str, MemberSpec], assigned: dict[str, Tasks]) -> dict[str, MemberSpec]:
    """The members with what they were assigned."""
    return {
        name: MemberSpec(spec.process_id, assigned.get(name, NO_TASKS))
        for name, spec in members.items()
    }


def test_tasks_are_dealt_out_by_subtopology_to_the_least_loaded_process() -> None:
    assigned = whole(
        assign_tasks(new({"a": "p1", "b": "p2"}), {"0": Sub(2, False), "1": Sub(2, True)}, 0)
    )
    assert {
        name: sorted(f"{task.subtopology_id}_{task.partition}" for task in tasks.active)
        for name, tasks in assigned.items()
    } == {
        "a": ["0_0", "1_0"],
        "b": ["0_1", "1_1"],
    }


def test_a_standby_takes_over_the_tasks_of_a_member_that_is_gone() -> None:
    subs = {"0": Sub(3, True)}
    members = new({"a": "p1", "b": "p2", "c": "p3"})
    first = whole(assign_tasks(members, subs, 1))
    assert len(first["a"].active) == 1
    left = after({name: spec for name, spec in members.items() if name != "a"}, first)
    second = whole(assign_tasks(left, subs, 0))
    for task in first["a"].active:
        heir = next(name for name, tasks in second.items() if task in tasks.active)
        assert task in first[heir].standby


def test_a_new_member_takes_no_more_than_its_share() -> None:
    subs = {"0": Sub(6, False)}
    members = new({"a": "p1", "b": "p2"})
    first = whole(assign_tasks(members, subs, 0))
    grown = after(members, first) | new({"c": "p3"})
    second = whole(assign_tasks(grown, subs, 0))
    assert {name: len(tasks.active) for name, tasks in second.items()} == {"a": 2, "b": 2, "c": 2}
    assert second["a"].active < first["a"].active
    assert second["b"].active < first["b"].active


def test_more_standbys_than_processes_are_left_out() -> None:
    assigned = whole(assign_tasks(new({"a": "p1", "b": "p1", "c": "p2"}), {"0": Sub(2, True)}, 2))
    assert sum(len(tasks.standby) for tasks in assigned.values()) == 2


def test_nobody_to_assign_to_is_no_error() -> None:
    assert whole(assign_tasks({}, {"0": Sub(2, True)}, 1)) == {}


subtopologies = st.dictionaries(
    st.sampled_from("0123"), st.builds(Sub, st.integers(1, 7), st.booleans()), min_size=1
)
processes = st.dictionaries(
    st.sampled_from([f"m{i}" for i in range(7)]), st.sampled_from("pqrs"), min_size=1
)


def check(members: dict[str, MemberSpec], subs: dict[str, Sub], copies: int) -> dict[str, Tasks]:
    """Assign, and check what holds always."""
    assigned = whole(assign_tasks(members, subs, copies))
    assert assigned.keys() == members.keys()
    every = [TaskId(name, part) for name, sub in subs.items() for part in range(sub.tasks)]
    active = [task for tasks in assigned.values() for task in tasks.active]
    assert sorted(active) == sorted(every)
    held: dict[TaskId, list[str]] = {}
    for name, tasks in assigned.items():
        for task in (*tasks.active, *tasks.standby):
            held.setdefault(task, []).append(members[name].process_id)
    count = len({spec.process_id for spec in members.values()})
    for task in every:
        wanted = min(count, 1 + copies) if subs[task.subtopology_id].is_stateful else 1
        assert len(held[task]) == len(set(held[task])) == wanted
    assert not any(tasks.warmup for tasks in assigned.values())
    return assigned


@given(processes, subtopologies, st.integers(0, 2))
def test_every_task_is_active_once_and_copies_are_in_other_processes(
    members: dict[str, str], subs: dict[str, Sub], copies: int
) -> None:
    check(new(members), subs, copies)


@given(processes, processes, subtopologies, subtopologies, st.integers(0, 2))
def test_it_holds_over_changes_of_members_and_topics_too(
    before: dict[str, str],
    later: dict[str, str],
    subs: dict[str, Sub],
    other_subs: dict[str, Sub],
    copies: int,
) -> None:
    first = check(new(before), subs, copies)
    check(after(new(later), first), other_subs, copies)


@given(processes, subtopologies)
def test_without_a_change_everybody_keeps_the_active_tasks(
    members: dict[str, str], subs: dict[str, Sub]
) -> None:
    alone = {member: member for member in members}  # quotas are per member
    first = check(new(alone), subs, 0)
    assert check(after(new(alone), first), subs, 0) == first
    counts = [len(tasks.active) for tasks in first.values()]
    assert max(counts) - min(counts) <= 1
