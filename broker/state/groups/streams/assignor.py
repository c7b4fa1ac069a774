"""The sticky task assignor of streams groups. It computes the target assignment from the previous
one.

The rules are Kafka's. An active task stays with its member, or else goes to a member that had it as
standby, or else to the least loaded process. Standby copies go to processes without another copy.
Quotas balance the members. As in Kafka 4.3, rack ids and client tags are ignored, and there are no
warm-up tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from kstore.broker.state.groups.streams.tasks import TaskId, Tasks
from kstore.broker.state.work import Work

__all__ = ["MemberSpec", "SubtopologySpec", "assign_tasks"]


class MemberSpec(NamedTuple):
    """A member in the input of the assignor."""

    process_id: str
    previous: Tasks
    """Its previous target assignment."""


class SubtopologySpec(Protocol):
    """A subtopology in the input of the assignor."""

    @property
    def tasks(self) -> int:
        """The number of its tasks."""

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks get standby copies."""


def assign_tasks(
    members: Mapping[str, MemberSpec],
    subtopologies: Mapping[str, SubtopologySpec],
    standby_replicas: int,
) -> Work[dict[str, Tasks]]:
    """The new target assignment of every member."""
    if not members:
        return {}
    return (yield from _Assignment(members, subtopologies, standby_replicas).run())


class _Quota:
    """How many tasks a member may have so that all have the same number. When a member has reached
    it, it is reduced to an even share of the remaining tasks.
    """

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.per_member = -(-tasks // members)

    def count(self, tasks_of_member: int) -> None:
        """Note the number of a member's tasks."""
        if tasks_of_member == self.per_member:
            self._members -= 1
            self._tasks -= tasks_of_member
            self.per_member = -(-self._tasks // self._members) if self._members else 0


class _Process:
    """One instance of the application: its members (threads) share its load."""

    def __init__(self) -> None:
        self.tasks: set[TaskId] = set()
        self.counts: dict[str, int] = {}
        self._total = 0
        self._by_load: list[tuple[int, int, str]] | None = None

    @property
    def load(self) -> float:
        """Tasks per member."""
        return self._total / len(self.counts)

    def add(self, member_id: str, task: TaskId) -> int:
        """Give a task to a member. Returns how many it has now."""
        self._by_load = None
        return self._add(member_id, task)

    def add_to_least_loaded(self, task: TaskId) -> tuple[str, int]:
        """Give a task to the member with the fewest. Returns the member and how many it has now."""
        if self._by_load is None:
            self._by_load = [(n, i, name) for i, (name, n) in enumerate(self.counts.items())]
            heapify(self._by_load)
        _, index, member_id = heappop(self._by_load)
        count = self._add(member_id, task)
        heappush(self._by_load, (count, index, member_id))
        return member_id, count

    def _add(self, member_id: str, task: TaskId) -> int:
        self.tasks.add(task)
        self._total += 1
        self.counts[member_id] += 1
        return self.counts[member_id]


class _Assignment:
    """One run of the assignor."""

    def __init__(
        self,
        members: Mapping[str, MemberSpec],
        subtopologies: Mapping[str, SubtopologySpec],
        standby_replicas: int,
    ) -> None:
        self._members = dict(sorted(members.items()))
        self._replicas = standby_replicas
        self._active_tasks = _tasks_of(subtopologies.items())
        self._stateful_tasks = _tasks_of(
            item for item in subtopologies.items() if item[1].is_stateful
        )
        total = len(self._active_tasks)
        self._active_quota = _Quota(total, len(members))
        self._total_quota = _Quota(
            total + len(self._stateful_tasks) * standby_replicas, len(members)
        )
        self._processes: dict[str, _Process] = {}
        self._previous_active: dict[TaskId, str] = {}
        self._previous_standby: dict[TaskId, list[str]] = {}
        self._active: dict[str, set[TaskId]] = {member_id: set() for member_id in self._members}
        self._standby: dict[str, set[TaskId]] = {member_id: set() for member_id in self._members}

    def run(self) -> Work[dict[str, Tasks]]:
        """Active tasks first, then standby ones."""
        for member_id, spec in self._members.items():
            self._processes.setdefault(spec.process_id, _Process()).counts[member_id] = 0
            for task in spec.previous.active:
                self._previous_active[task] = member_id
            for task in spec.previous.standby:
                self._previous_standby.setdefault(task, []).append(member_id)
            yield
        yield from self._assign_active()
        if self._replicas > 0:
            yield from self._assign_standby()
        assigned: dict[str, Tasks] = {}
        for member_id, active in self._active.items():
            assigned[member_id] = Tasks(frozenset(active), frozenset(self._standby[member_id]))
            yield
        return assigned

    # ---- active ----

    def _assign_active(self) -> Work[None]:
        # Tasks of the same partition in several subtopologies belong together, so tasks that stay
        # are processed in this order; the rest is assigned by subtopology.
        left = sorted(self._active_tasks, key=lambda task: (task.partition, task.subtopology_id))
        left = yield from self._not_taken(left, self._previous_active.get)
        left = yield from self._not_taken(left, lambda task: self._previous_holder(task, None))
        queue = self._by_load()
        for task in sorted(left):
            _, index, process = heappop(queue)
            member_id, count = process.add_to_least_loaded(task)
            self._active[member_id].add(task)
            self._count_active(count)
            heappush(queue, (process.load, index, process))
            yield

    def _not_taken(
        self, tasks: list[TaskId], holder: Callable[[TaskId], str | None]
    ) -> Work[list[TaskId]]:
        """The tasks that do not stay with their former members."""
        left = []
        for task in tasks:
            if not self._take_active(task, holder(task)):
                left.append(task)
            yield
        return left

    def _take_active(self, task: TaskId, member_id: str | None) -> bool:
        if member_id is None:
            return False
        process = self._process(member_id)
        if process.counts[member_id] >= self._active_quota.per_member:
            return False
        count = process.add(member_id, task)
        self._active[member_id].add(task)
        self._count_active(count)
        return True

    def _count_active(self, count: int) -> None:
        self._active_quota.count(count)
        self._total_quota.count(count)

    # ---- standby ----

    def _assign_standby(self) -> Work[None]:
        left: list[tuple[TaskId, int]] = []
        by_partition = sorted(
            self._stateful_tasks,
            key=lambda task: (task.partition, task.subtopology_id),
            reverse=True,
        )
        for task in by_partition:
            kept = 0
            while kept < self._replicas and self._keep_standby(task):
                kept += 1
            if kept < self._replicas:
                left.append((task, self._replicas - kept))
            yield
        queue = self._by_load()
        for task, copies in sorted(left, reverse=True):
            for _ in range(copies):
                if not self._standby_to_least_loaded(queue, task):
                    break  # every process has a copy already
            yield

    def _keep_standby(self, task: TaskId) -> bool:
        active = self._previous_active.get(task)
        free = active is not None and task not in self._process(active).tasks
        if active is not None and free and self._take_standby(task, active):
            return True
        holder = self._previous_holder(task, task)
        return holder is not None and self._take_standby(task, holder)

    def _take_standby(self, task: TaskId, member_id: str) -> bool:
        process = self._process(member_id)
        if process.counts[member_id] >= self._total_quota.per_member:
            return False
        self._total_quota.count(process.add(member_id, task))
        self._standby[member_id].add(task)
        return True

    def _standby_to_least_loaded(
        self, queue: list[tuple[float, int, _Process]], task: TaskId
    ) -> bool:
        passed = []
        found = False
        while queue and not found:
            load, index, process = heappop(queue)
            if task not in process.tasks:
                member_id, count = process.add_to_least_loaded(task)
                self._standby[member_id].add(task)
                self._total_quota.count(count)
                load, found = process.load, True
            passed.append((load, index, process))
        for entry in passed:
            heappush(queue, entry)
        return found

    # ---- both ----

    def _process(self, member_id: str) -> _Process:
        return self._processes[self._members[member_id].process_id]

    def _by_load(self) -> list[tuple[float, int, _Process]]:
        queue = [(item.load, i, item) for i, item in enumerate(self._processes.values())]
        heapify(queue)
        return queue

    def _previous_holder(self, task: TaskId, unless_with: TaskId | None) -> str | None:
        """The least loaded member that had the task as standby. For a standby copy, only members
        whose process does not have the task yet.
        """
        holders = self._previous_standby.get(task)
        if not holders:
            return None
        first = best = holders[0]
        load, count = self._process(best).load, self._process(best).counts[best]
        for member_id in holders[1:]:
            process = self._process(member_id)
            taken = unless_with is not None and unless_with in process.tasks
            if process.load < load and not taken and process.counts[member_id] < count:
                best, load, count = member_id, process.load, process.counts[member_id]
        # Kafka checks the process of the first holder, not of the best.
        if unless_with is not None and unless_with in self._process(first).tasks:
            return None
        return best


def _tasks_of(subtopologies: Iterable[tuple[str, SubtopologySpec]]) -> list[TaskId]:
    return [
        TaskId(subtopology_id, partition)
        for subtopology_id, spec in subtopologies
        for partition in range(spec.tasks)
    ]
