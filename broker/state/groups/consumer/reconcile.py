"""The current assignment of one member on its way to its target: what it keeps, has to give up, and
gets. Pure functions of the member, its target and what others own.

A partition that the member keeps keeps its assignment epoch through every bump of the member's
epoch; a partition that it gets is stamped with the epoch that it gets it in (KAFKA-19779).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.groups.consumer.group import Target
from kstore.broker.state.groups.consumer.member import (
    NOTHING,
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    Assigned,
    Member,
)

__all__ = ["Goal", "Owned", "owns_any", "reconcile"]

Owned = Mapping[UUID, frozenset[int]]
"""What a member's client says that it owns."""


class Goal(NamedTuple):
    """Where a member is to go."""

    epoch: int
    target: Target
    topic_ids: Collection[UUID]
    """The topics that it subscribes to, as far as they exist."""
    subscription_changed: bool
    taken: Collection[tuple[UUID, int]]
    """The partitions that a member owns, or has yet to give up."""


def reconcile(member: Member, goal: Goal, owned: Owned | None) -> Member:
    """The member's next step; ``owned`` None: the client did not say what it owns."""
    if not goal.subscription_changed and member.is_reconciled_to(goal.epoch):
        return member
    if member.state == STABLE:
        if member.epoch != goal.epoch:
            return _advance(member, goal, owned)
        return _drop_unsubscribed(member, goal, owned)
    if member.state == UNREVOKED_PARTITIONS and owns_any(member.revoking, owned):
        return _drop_unsubscribed(member, goal, owned) if goal.subscription_changed else member
    return _advance(member, goal, owned)


def owns_any(partitions: Assigned, owned: Owned | None) -> bool:
    """Whether the client still owns one of the partitions, as far as is known."""
    if owned is None:
        return True
    return any(
        not indexes.isdisjoint(partitions.get(topic, ())) for topic, indexes in owned.items()
    )


def _drop_unsubscribed(member: Member, goal: Goal, owned: Owned | None) -> Member:
    """Take away topics that the member no longer subscribes to, in its present epoch."""
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic in goal.topic_ids}
    if len(kept) == len(member.assigned):
        return member
    revoking = {topic: dict(epochs) for topic, epochs in member.revoking.items()}
    for topic, epochs in member.assigned.items():
        if topic not in kept:
            revoking.setdefault(topic, {}).update(epochs)
    if owns_any(revoking, owned):
        return member.moved_to(member.epoch, UNREVOKED_PARTITIONS, kept, revoking)
    return member._replace(previous_epoch=member.epoch, assigned=kept)


def _advance(member: Member, goal: Goal, owned: Owned | None) -> Member:
    """Towards the target: first everything that is to go is given up, in the present epoch; then
    the member enters the target's epoch and gets what is free.
    """
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    free: dict[UUID, list[int]] = {}
    unreleased = False
    for topic in {**goal.target, **member.assigned}:
        target = goal.target.get(topic, frozenset()) if topic in goal.topic_ids else frozenset()
        present = member.assigned.get(topic, {})
        for partition, epoch in present.items():
            part = kept if partition in target else revoking
            part.setdefault(topic, {})[partition] = epoch
        for partition in sorted(target.difference(present)):
            # What the member itself has just given up is free for it.
            if (topic, partition) in goal.taken and partition not in member.revoking.get(topic, {}):
                unreleased = True
            else:
                free.setdefault(topic, []).append(partition)
    if revoking and owns_any(revoking, owned):
        return member.moved_to(member.epoch, UNREVOKED_PARTITIONS, kept, revoking)
    for topic, partitions in free.items():
        kept.setdefault(topic, {}).update(dict.fromkeys(partitions, goal.epoch))
    state = UNRELEASED_PARTITIONS if unreleased else STABLE
    return member.moved_to(goal.epoch, state, kept, NOTHING)
