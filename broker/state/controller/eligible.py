"""Eligible leader replicas (KIP-966): what leaves an ISR that falls below min.insync.replicas.

The high watermark does not move with so few in sync, so such a replica has all that is committed,
and may lead as those in the ISR may: the ISR can be empty then. It ends with a large enough ISR,
with an unclean election, and for a broker that comes back from an unclean shutdown, since that may
have lost its last records. Who led last is known when the ISR is empty; if nobody is eligible any
more, it leads, as after an unclean election. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kstore.broker.state.metadata.image import PartitionImage

__all__ = ["Rules", "eligible", "last_leaders", "settled", "without"]

NOBODY: frozenset[int] = frozenset()
NO_LEADER = -1


class Rules(NamedTuple):
    """What decides about one partition's eligible replicas, where they are kept."""

    min_isr: int
    reborn: Collection[int] = NOBODY
    """Brokers in another life than that in which they were in sync."""
    unclean: Collection[int] = NOBODY
    """Brokers whose last life did not end with everything on the disk."""


def eligible(before: PartitionImage, isr: Collection[int], rules: Rules) -> tuple[int, ...]:
    """Who may lead beside this ISR, which follows that of the state before, in order of ids."""
    if len(isr) >= min(rules.min_isr, len(before.replicas)):
        return ()
    is_sure = before.leader == NO_LEADER or rules.min_isr >= before.elr_min_isr
    kept = before.elr if is_sure else ()
    found = ({*before.isr, *kept} & {*before.replicas}) - {*isr, *rules.unclean}
    return tuple(sorted(found))


def last_leaders(before: PartitionImage) -> tuple[int, ...]:
    """Who led last, once nobody does. Of a partition that had no leader when eligible replicas
    began to be kept that is one of its ISR.
    """
    if before.leader != NO_LEADER:
        return (before.leader,)
    return before.last_known_elr or before.isr


def settled(before: PartitionImage, new: PartitionImage, rules: Rules | None) -> PartitionImage:
    """The state that follows another, with the eligible replicas that follow from both.

    Without rules none are kept (any more); what was eligible of a partition without an ISR is that
    ISR then.
    """
    if _is_unclean(before, new, rules):
        return new._replace(elr=(), last_known_elr=(), elr_min_isr=0, recovering=True)
    if rules is None:
        return without(new)
    elr = eligible(before._replace(replicas=new.replicas), new.isr, rules)
    least = max(before.elr_min_isr if before.elr else 0, rules.min_isr) if elr else 0
    lasting = () if new.isr else last_leaders(before)
    lasting = tuple(each for each in lasting if each in new.replicas)
    return new._replace(elr=elr, last_known_elr=lasting, elr_min_isr=least)


def _is_unclean(before: PartitionImage, new: PartitionImage, rules: Rules | None) -> bool:
    """Whether a leader is elected that may not have all that was committed."""
    reborn, unclean = (NOBODY, NOBODY) if rules is None else (rules.reborn, rules.unclean)
    if new.leader == NO_LEADER or (new.leader == before.leader and new.leader not in reborn):
        return False
    return new.leader in unclean or new.leader not in {*before.isr, *before.elr}


def without(partition: PartitionImage) -> PartitionImage:
    """The same partition where none are kept."""
    if not (partition.elr or partition.last_known_elr):
        return partition
    isr = partition.isr or partition.elr or partition.last_known_elr
    return partition._replace(isr=isr, elr=(), last_known_elr=(), elr_min_isr=0)
