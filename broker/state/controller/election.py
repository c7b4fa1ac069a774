"""Elects the leader and the ISR of one partition when brokers join or leave. The controller writes
the results and sends them to brokers.

`alive` are the registered brokers. `leaving` are those in a controlled shutdown: they continue to
lead if no other replica can, but are not elected. A partition's leader is in its ISR. Without
eligible leader replicas the ISR is never empty: the last in-sync replicas stay in it when they are
offline, because only they have all acknowledged records. With them, eligible.py has such replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kstore.broker.state.controller.eligible import Rules, eligible, last_leaders, without
from kstore.broker.state.metadata.image import PartitionImage

__all__ = ["NO_LEADER", "after_change", "prefer", "unclean"]

NO_LEADER = -1
NOBODY: frozenset[int] = frozenset()


def after_change(
    partition: PartitionImage,
    alive: Collection[int],
    leaving: Collection[int] = NOBODY,
    *,
    allow_unclean: bool = False,
    rules: Rules | None = None,
) -> PartitionImage | None:
    """The next leader and ISR after brokers have joined or left, with a new leader epoch. None if
    nothing changes.

    Dead and leaving brokers leave the ISR. If there is no leader, the first live replica in the ISR
    is elected. If there is none, and unclean elections are allowed, the first live replica is
    elected, unless it has just begun to copy; then records are lost. With ``rules``, an eligible
    replica comes before that, and a broker that has restarted is not in the ISR.
    """
    if rules is not None:
        return _among_eligible(partition, alive, leaving, rules, allow_unclean=allow_unclean)
    partition = without(partition)
    staying = [each for each in partition.isr if each in alive and each not in leaving]
    leader = partition.leader
    if leader in alive and leader not in leaving:
        return _next(partition, leader, staying)
    chosen = next((each for each in partition.replicas if each in staying), NO_LEADER)
    if chosen != NO_LEADER:
        return _next(partition, chosen, staying)
    if leader in alive:
        return _next(partition, leader, [each for each in partition.isr if each in alive])
    if allow_unclean:
        taken = unclean(partition, set(alive) - set(partition.adding), leaving)
        if taken is not None:
            return taken
    return _next(partition, NO_LEADER, partition.isr)


def _among_eligible(
    partition: PartitionImage,
    alive: Collection[int],
    leaving: Collection[int],
    rules: Rules,
    *,
    allow_unclean: bool,
) -> PartitionImage | None:
    present = [each for each in partition.isr if each in alive and each not in rules.reborn]
    staying = [each for each in present if each not in leaving]
    leader = partition.leader
    if leader in staying:
        return _next(partition, leader, staying)
    able = [each for each in partition.replicas if each in alive and each not in leaving]
    chosen = next((each for each in able if each in staying), NO_LEADER)
    if chosen != NO_LEADER:
        return _next(partition, chosen, staying)
    fit = eligible(partition, (), rules)
    chosen = next((each for each in able if each in fit), NO_LEADER)
    if chosen == NO_LEADER and leader in present:
        return _next(partition, leader, present)
    if chosen == NO_LEADER and not fit:
        last = last_leaders(partition)
        chosen = next((each for each in able if each in last), NO_LEADER)
    if chosen != NO_LEADER:
        return _next(partition, chosen, [chosen], reborn=rules.reborn)
    if allow_unclean:
        none_fit = partition._replace(isr=(), elr=())
        taken = unclean(none_fit, set(alive) - set(partition.adding), leaving)
        if taken is not None:
            return taken
    return _next(partition, NO_LEADER, ())


def unclean(
    partition: PartitionImage, alive: Collection[int], leaving: Collection[int] = NOBODY
) -> PartitionImage | None:
    """Elect any live replica of a partition without a leader, in sync or not. None if there is
    none. A replica that a reassignment adds may be empty, so it is the last choice.
    """
    able = [each for each in partition.replicas if each in alive and each not in leaving]
    able.sort(key=lambda each: each in partition.adding)
    clean = next((each for each in able if each in partition.isr), None)
    if clean is not None:
        return _next(partition, clean, [each for each in able if each in partition.isr])
    clean = next((each for each in able if each in partition.elr), None)
    if clean is not None:
        return _next(partition, clean, [clean])
    return _next(partition, able[0], [able[0]]) if able else None


def prefer(
    partition: PartitionImage, alive: Collection[int], leaving: Collection[int] = NOBODY
) -> PartitionImage | None:
    """Elect the first replica, if it is alive and in sync. None if it leads already, or cannot
    lead.
    """
    first = partition.replicas[0]
    able = first in alive and first not in leaving and first in partition.isr
    if partition.leader == first or not able:
        return None
    kept = [each for each in partition.isr if each in alive]
    return _next(partition, first, kept)


def _next(
    partition: PartitionImage, leader: int, isr: Iterable[int], reborn: Collection[int] = NOBODY
) -> PartitionImage | None:
    found = tuple(isr)
    if leader == partition.leader and found == partition.isr and leader not in reborn:
        return None
    return partition._replace(leader=leader, isr=found, leader_epoch=partition.leader_epoch + 1)
