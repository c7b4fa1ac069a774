"""Eligible leader replicas (KIP-966): replicas that leave an ISR that falls below
min.insync.replicas.

The high watermark does not advance with so few in-sync replicas, so an eligible replica has all
committed records and may be elected like a replica in the ISR. The ISR can therefore be empty.
Eligibility ends when the ISR is large enough again, with an unclean election, and for a broker that
returns from an unclean shutdown, because it may have lost its last records. While the ISR is empty,
the last leader is known. If no replica is eligible any more, the last leader is elected, as in an
unclean election.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kstore.broker.state.metadata.image import PartitionImage

__all__ = ["Rules", "eligible", "last_leaders", "settled", "without", "without_elr"]

NOBODY: frozenset[int] = frozenset()
NO_LEADER = -1


class Rules(NamedTuple):
    """What the eligible replicas of one partition depend on."""

    min_isr: int
    writes: int = 0
    """How often the settings with min.insync.replicas were written, until this value."""
    reborn: Collection[int] = NOBODY
    """Brokers that have restarted since they were in sync."""
    unclean: Collection[int] = NOBODY
    """Brokers whose last run did not end with everything on the disk."""


def eligible(before: PartitionImage, isr: Collection[int], rules: Rules) -> tuple[int, ...]:
    """The replicas outside the ISR that may be elected, sorted by id. ``isr`` is the next ISR after
    the state ``before``.
    """
    if len(isr) >= min(rules.min_isr, len(before.replicas)):
        return ()
    kept = before.elr if before.leader == NO_LEADER or _was_never_lower(before, rules) else ()
    found = ({*before.isr, *kept} & {*before.replicas}) - {*isr, *rules.unclean}
    return tuple(sorted(found))


def _was_never_lower(before: PartitionImage, rules: Rules) -> bool:
    """Whether min.insync.replicas was at no time below its value for the ELR. The setting can be
    lowered and raised again before the controller reads it, but not in a single write.
    """
    return rules.min_isr >= before.elr_min_isr and 0 <= rules.writes - before.elr_writes <= 1


def last_leaders(before: PartitionImage) -> tuple[int, ...]:
    """The last leader of a partition without a leader. If the partition had no leader when eligible
    replicas were first used, a member of its ISR.
    """
    if before.leader != NO_LEADER:
        return (before.leader,)
    return before.last_known_elr or before.isr


def settled(before: PartitionImage, new: PartitionImage, rules: Rules | None) -> PartitionImage:
    """The state ``new``, with the eligible replicas that follow from both states.

    Without rules there are no eligible replicas: those of a partition without an ISR become its
    ISR.
    """
    if _is_unclean(before, new, rules):
        return without_elr(new)._replace(recovering=True)
    if rules is None:
        return without(new)
    elr = eligible(before._replace(replicas=new.replicas), new.isr, rules)
    least = max(before.elr_min_isr if before.elr else 0, rules.min_isr) if elr else 0
    lasting = () if new.isr else last_leaders(before)
    lasting = tuple(each for each in lasting if each in new.replicas)
    return new._replace(
        elr=elr,
        last_known_elr=lasting,
        elr_min_isr=least,
        elr_writes=rules.writes if elr else 0,
    )


def _is_unclean(before: PartitionImage, new: PartitionImage, rules: Rules | None) -> bool:
    """Whether the new leader may not have all committed records: also if it was eligible until
    min.insync.replicas was lowered.
    """
    if rules is None:
        return new.leader not in {NO_LEADER, before.leader, *before.isr, *before.elr}
    if new.leader == NO_LEADER or (new.leader == before.leader and new.leader not in rules.reborn):
        return False
    return new.leader not in eligible(before, (), rules)


def without(partition: PartitionImage) -> PartitionImage:
    """The partition without eligible replicas."""
    if not (partition.elr or partition.last_known_elr):
        return partition
    isr = partition.isr or partition.elr or partition.last_known_elr
    return without_elr(partition)._replace(isr=isr)


def without_elr(partition: PartitionImage) -> PartitionImage:
    """The partition as if no replica had ever been eligible."""
    return partition._replace(elr=(), last_known_elr=(), elr_min_isr=0, elr_writes=0)
