"""Partitions whose logs have later leader epochs than the coordination store, because the store was
restored from an older copy. Then its leaders and in-sync replicas are outdated, too. So a doubted
partition has no leader and no ISR until all of its replicas have reported where their logs end. The
log that is furthest, by leader epoch and then by offset, has all committed records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kstore.broker.state.controller.election import NO_LEADER
from kstore.broker.state.controller.eligible import without_elr
from kstore.broker.state.controller.state import ControllerState, PartitionChange
from kstore.broker.state.metadata.image import PartitionImage

__all__ = ["FIRST_BY_CLOCK", "LARGEST_EPOCH", "MOST_BY_CLOCK", "START_MS", "LogEnd", "doubted",
           "epochs_by_clock", "is_doubted", "most_complete", "partition_epoch_after"]  # fmt: skip

START_MS = 1_735_689_600_000
"""1 January 2025, in Unix milliseconds. The next epoch of a doubted partition is the number of
seconds since then. So it is above all epochs in logs of brokers that are down, and above those that
were given out after an earlier restore, also if no log has one of these.
"""
FIRST_BY_CLOCK = 60_000_000
"""26 November 2026, when no version gave out such epochs yet: an earlier clock is wrong."""
UNKNOWN_EPOCHS = 500
"""If the clock is wrong, the next epoch is this far above the known epochs instead."""
UNKNOWN_PARTITIONS = 1 << 20
"""The number of partition epochs that are left out after a restore."""
LARGEST_EPOCH = 1 << 30
"""A larger leader epoch in a log is damage."""
MOST_BY_CLOCK = LARGEST_EPOCH - (1 << 20)
"""Leaves a million epochs above the largest that a clock gives, in December 2058."""
_DAY_S = 86_400


class LogEnd(NamedTuple):
    """The end of a replica's log, from its broker's response to LeaderAndIsr."""

    role_epoch: int
    """The leader epoch of the role."""
    latest_epoch: int
    log_end_offset: int
    refused: bool
    """Whether the broker has refused the role, because the log has later epochs."""

    @property
    def place(self) -> tuple[int, int]:
        """The order of logs. Of two logs, the one that is further has all records of the other that
        may be committed.
        """
        return self.latest_epoch, self.log_end_offset


def is_doubted(partition: PartitionImage) -> bool:
    """Whether no replica is known to have all committed records."""
    known = partition.isr or partition.elr or partition.last_known_elr
    return partition.leader == NO_LEADER and not known


def epochs_by_clock(now_ms: int) -> range:
    """The epochs that recovered partitions may have by now. Clocks may differ by a day."""
    until_now = (now_ms - START_MS) // 1000
    return range(FIRST_BY_CLOCK, min(until_now + _DAY_S, LARGEST_EPOCH) + 1)


def _by_clock(known: int, now_ms: int) -> int:
    """The epoch that the clock gives. 0 if it is not above the known one, or the clock is wrong."""
    by_clock = (now_ms - START_MS) // 1000
    is_usable = known < by_clock and FIRST_BY_CLOCK <= by_clock <= MOST_BY_CLOCK
    return by_clock if is_usable else 0


def partition_epoch_after(known: int, now_ms: int) -> int:
    """A partition epoch (KIP-232) above all that were given out before the store was restored, of
    which the store knows the first ones, up to ``known``.
    """
    return max(known, _by_clock(known, now_ms)) + UNKNOWN_PARTITIONS


def doubted(
    state: ControllerState, topic: str, index: int, latest_epoch: int, now_ms: int
) -> PartitionChange | None:
    """The change after a broker has reported this leader epoch in one of a partition's logs: no
    replica leads. None if the epoch cannot be valid.
    """
    partition = state.partition(topic, index)
    if partition is None or latest_epoch > LARGEST_EPOCH:
        return None
    known = max(partition.leader_epoch, latest_epoch)
    new = without_elr(partition)._replace(
        leader=NO_LEADER,
        leader_epoch=_by_clock(known, now_ms) or known + UNKNOWN_EPOCHS,
        isr=(),
        recovering=False,
    )
    return PartitionChange(topic, index, new)


def most_complete(
    state: ControllerState, topic: str, index: int, ends: Mapping[int, LogEnd]
) -> PartitionChange | None:
    """The election of a doubted partition's leader, once all of its replicas have reported in its
    current epoch. Logs that end in the same epoch at the same offset are equal, so they are in
    sync. None if only one log has the latest epoch and another log is longer: a single wrong bit
    could look the same, since no checksum covers epochs. Then the operator must choose.
    """
    partition = state.partition(topic, index)
    if partition is None or not is_doubted(partition):
        return None
    alive = state.alive(topic, index)
    known = {
        node: end
        for node, end in ends.items()
        if node in alive and end.role_epoch == partition.leader_epoch and not end.refused
    }
    if not known.keys() >= set(partition.replicas):
        return None
    furthest = max(known[node].place for node in partition.replicas)
    latest = [end for end in known.values() if end.latest_epoch == furthest[0]]
    if len(latest) == 1 and any(end.log_end_offset > furthest[1] for end in known.values()):
        return None
    isr = tuple(node for node in partition.replicas if known[node].place == furthest)
    staying = [node for node in isr if node not in state.leaving]
    leader = (staying or isr)[0]
    epoch = max(partition.leader_epoch, furthest[0]) + 1
    new = partition._replace(leader=leader, isr=isr, leader_epoch=epoch)
    return PartitionChange(topic, index, new)
