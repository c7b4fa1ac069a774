"""Moves the current assignment of one member towards its target: which partitions it keeps, must
give up, and gets. The result depends on the member, its target, and what others own.

A partition that the member keeps has the same assignment epoch when the member's epoch increases.
The assignment epoch of a new partition is the epoch in which the member gets it (KAFKA-19779).
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
"""The partitions that a member's client reports to own."""


class Goal(NamedTuple):
    """The goal of a member."""

    epoch: int
    target: Target
    topic_ids: Collection[UUID]
    """The existing topics that it subscribes to."""
    subscription_changed: bool
    taken: Collection[tuple[UUID, int]]
    """The partitions that any member owns or has not given up yet."""


def reconcile(member: Member, goal: Goal, owned: Owned | None) -> Member:
    """The member after its next step. ``owned`` is None if the client did not report what it
    owns.
    """
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
    """Revoke topics that the member no longer subscribes to, in its current epoch."""
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
    """Move towards the target. First the member gives up all partitions to revoke, in the current
    epoch. Then it enters the target's epoch and gets the free partitions.
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
            # A partition that the member itself has just given up is free for it.
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
