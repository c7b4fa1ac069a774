"""Tasks of streams groups (KIP-1071): their ids, sets of them by role, and their form in messages.
Other files assign them.

A task is one partition of a subtopology. A member has tasks as active (it processes and commits),
as standby (it keeps a copy of the state) and as warm-up (it builds the state up).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = [
    "NO_ASSIGNED_TASKS",
    "NO_TASKS",
    "AssignedTasks",
    "TaskId",
    "Tasks",
    "by_subtopology",
    "task_ids",
    "with_epochs",
]

T = TypeVar("T")


class TaskId(NamedTuple):
    """One partition of a subtopology."""

    subtopology_id: str
    partition: int


class Tasks(NamedTuple):
    """Tasks by role."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    warmup: frozenset[TaskId] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether it has no tasks."""
        return not (self.active or self.standby or self.warmup)


class AssignedTasks(NamedTuple):
    """Tasks by role, the active ones with the epoch in which the member got them (KAFKA-19779)."""

    active: Mapping[TaskId, int] = {}
    standby: frozenset[TaskId] = frozenset()
    warmup: frozenset[TaskId] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether it has no tasks."""
        return not (self.active or self.standby or self.warmup)

    def intersects(self, owned: Tasks) -> bool:
        """Whether a task of these is also in ``owned``, in the same role."""
        return not (
            owned.active.isdisjoint(self.active)
            and owned.standby.isdisjoint(self.standby)
            and owned.warmup.isdisjoint(self.warmup)
        )

    def contains(self, owned: Tasks) -> bool:
        """Whether these include all tasks of ``owned``, in the same roles."""
        return (
            owned.active <= self.active.keys()
            and owned.standby <= self.standby
            and owned.warmup <= self.warmup
        )

    def equals(self, owned: Tasks) -> bool:
        """Whether these are exactly the tasks of ``owned``, in the same roles."""
        same_copies = owned.standby == self.standby and owned.warmup == self.warmup
        return same_copies and owned.active == self.active.keys()

    def merge(self, other: AssignedTasks) -> AssignedTasks:
        """The union of both."""
        return AssignedTasks(
            {**self.active, **other.active},
            self.standby | other.standby,
            self.warmup | other.warmup,
        )


NO_TASKS = Tasks()
NO_ASSIGNED_TASKS = AssignedTasks()


class TaskIdsEntry(Protocol):
    """An entry of a message's list of tasks."""

    subtopology_id: str
    partitions: list[int]


class EpochsEntry(TaskIdsEntry, Protocol):
    """An entry that may have assignment epochs."""

    assignment_epochs: list[int] | None


def task_ids(entries: Iterable[TaskIdsEntry]) -> frozenset[TaskId]:
    """The tasks in a message's list."""
    return frozenset(
        TaskId(entry.subtopology_id, partition)
        for entry in entries
        for partition in entry.partitions
    )


def with_epochs(entries: Iterable[EpochsEntry], default_epoch: int) -> dict[TaskId, int]:
    """The tasks in a record's list, with their epochs. An older record without epochs (or with a
    wrong number of them) gets the default.
    """
    found: dict[TaskId, int] = {}
    for entry in entries:
        epochs = entry.assignment_epochs
        if epochs is None or len(epochs) != len(entry.partitions):
            epochs = [default_epoch] * len(entry.partitions)
        for partition, epoch in zip(entry.partitions, epochs, strict=True):
            found[TaskId(entry.subtopology_id, partition)] = epoch
    return found


def by_subtopology(
    tasks: Iterable[TaskId], make: type[T], epochs: Mapping[TaskId, int] | None = None
) -> list[T]:
    """A message's list of tasks: one entry per subtopology, which ``make`` creates. Everything is
    sorted.
    """
    grouped: dict[str, list[int]] = {}
    for task in sorted(tasks):
        grouped.setdefault(task.subtopology_id, []).append(task.partition)
    entries = []
    for subtopology_id, partitions in grouped.items():
        values: dict[str, Any] = {"subtopology_id": subtopology_id, "partitions": partitions}
        if epochs is not None:
            values["assignment_epochs"] = [epochs[TaskId(subtopology_id, p)] for p in partitions]
        entries.append(make(**values))
    return entries
