"""The steps of a reassignment (KIP-455): begin, complete, cancel.

While a reassignment is in progress, `replicas` has the target replicas followed by those to remove;
`adding` and `removing` list the difference. It is complete when all added replicas are in sync.
Every step starts a new leader epoch, because replicas must be notified. The functions return the
next state of one partition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kstore.broker.state.controller.election import NO_LEADER
from kstore.broker.state.metadata.image import PartitionImage

__all__ = ["begin", "cancel", "complete", "in_progress"]

NOBODY: frozenset[int] = frozenset()


def in_progress(partition: PartitionImage) -> bool:
    """Whether a reassignment has begun and is not complete."""
    return bool(partition.adding or partition.removing)


def begin(
    partition: PartitionImage,
    target: Sequence[int],
    alive: Collection[int],
    leaving: Collection[int] = NOBODY,
) -> PartitionImage | None:
    """The partition with a reassignment in progress, or completed if nothing must be copied. None
    if no remaining replica could lead. Replaces an earlier reassignment, whose other added replicas
    are dropped.
    """
    origin = [each for each in partition.replicas if each not in partition.adding]
    full = (*target, *(each for each in origin if each not in target))
    new = partition._replace(
        replicas=full,
        adding=tuple(each for each in target if each not in origin),
        removing=tuple(each for each in origin if each not in target),
        isr=tuple(each for each in partition.isr if each in full),
        elr=tuple(each for each in partition.elr if each in full),
    )
    if not new.adding and not new.removing:
        return _led(new, alive, leaving)
    return complete(new, alive, leaving) or _led(new, alive, leaving)


def cancel(
    partition: PartitionImage, alive: Collection[int], leaving: Collection[int] = NOBODY
) -> PartitionImage | None:
    """The partition with its former replicas. None if none of them is in sync and could lead."""
    kept = tuple(each for each in partition.replicas if each not in partition.adding)
    new = partition._replace(
        replicas=kept,
        adding=(),
        removing=(),
        isr=tuple(each for each in partition.isr if each in kept),
        elr=tuple(each for each in partition.elr if each in kept),
    )
    return _led(new, alive, leaving)


def complete(
    partition: PartitionImage, alive: Collection[int], leaving: Collection[int] = NOBODY
) -> PartitionImage | None:
    """The partition with its target replicas. None while added replicas are not in sync, or no
    remaining replica could lead.
    """
    if not in_progress(partition) or any(each not in partition.isr for each in partition.adding):
        return None
    target = tuple(each for each in partition.replicas if each not in partition.removing)
    new = partition._replace(
        replicas=target,
        adding=(),
        removing=(),
        isr=tuple(each for each in partition.isr if each in target),
        elr=tuple(each for each in partition.elr if each in target),
    )
    return _led(new, alive, leaving)


def _led(
    partition: PartitionImage, alive: Collection[int], leaving: Collection[int]
) -> PartitionImage | None:
    """The partition in its next leader epoch, with the same leader or else the first replica that
    can lead. None if it would have no leader.
    """
    epoch = partition.leader_epoch + 1
    if partition.leader in partition.isr:
        return partition._replace(leader_epoch=epoch)
    able = [each for each in partition.replicas if each in partition.isr and each in alive]
    chosen = next((each for each in able if each not in leaving), NO_LEADER)
    has_all = partition.isr or partition.elr
    if chosen == NO_LEADER and (partition.leader != NO_LEADER or not has_all):
        return None
    return partition._replace(leader=chosen, leader_epoch=epoch)
