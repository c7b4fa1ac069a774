"""Finds the records below a position that an unclean leader election removed: where the consumer's
history of a partition and the leader's log diverge. It interprets responses to OffsetForLeaderEpoch
and sends no requests.
"""

from __future__ import annotations

from typing import NamedTuple

from kstore.clients.core.consumer.epoch_history import EpochHistory
from kstore.clients.core.consumer.subscription import Position
from kstore.types import TopicPartition

__all__ = ["Divergence", "LostRecords", "lost_records"]


class LostRecords(NamedTuple):
    """Records below a consumer's position, or below a committed offset, that no longer exist. The
    log was truncated there. Other records may have these offsets now.
    """

    topic: str
    partition: int
    first_offset: int
    """The first offset that is certainly lost; -1 if no common part of the logs is known."""
    last_offset: int
    """The offset before the position."""
    first_leader_epoch: int
    """The leader epoch of the first lost record; -1 if unknown."""
    last_leader_epoch: int
    """The leader epoch of the last lost record."""
    partition_epoch: int
    """The partition epoch of the position (KIP-232); -1 if unknown."""
    current_leader_epoch: int
    """The leader epoch in which the loss was found."""
    is_exact: bool
    """True if first_offset is exactly the first lost offset. If False, records below it may be lost
    too, because the leader epochs before a commit are not all known.
    """

    def __str__(self) -> str:
        start = "an unknown offset" if self.first_offset < 0 else f"{self.first_offset}"
        more = "" if self.is_exact or self.first_offset < 0 else "; others below may be lost, too"
        return (
            f"{self.topic}-{self.partition}: the records from {start} to {self.last_offset} "
            f"(leader epoch {self.last_leader_epoch}) no longer exist in leader epoch "
            f"{self.current_leader_epoch}{more}"
        )


class Divergence:
    """Finds the offset at which the history of a position and the leader's log diverge.

    Ask the leader for the end of the epoch ``ask`` and pass the answer to ``on_epoch_end``, until
    ``ask`` is -1. Each epoch has one leader, so two logs with the same epoch are equal up to its
    end in either of them. Records of epochs that the leader's log does not have are lost: the
    search continues with the epoch before them.
    """

    def __init__(self, position: Position, history: EpochHistory) -> None:
        self.position = position
        self.ask = position.leader_epoch
        self.offset = position.offset
        """Records at or above it are lost; the position means that none are. -1: unknown."""
        self.leader_epoch = position.leader_epoch
        """The leader epoch of the last record that both have."""
        self.is_exact = False
        self._entries = [row for row in history.entries if row[1] < position.offset]

    @property
    def is_lost(self) -> bool:
        """Whether records below the position are lost."""
        return self.offset != self.position.offset

    def on_epoch_end(self, leader_epoch: int, end_offset: int) -> None:
        """The leader's answer: the largest leader epoch in the log that is not above the asked one,
        and its end.
        """
        requested, self.ask = self.ask, -1
        if end_offset < 0 or leader_epoch < 0:
            self.leader_epoch = -1
            if requested == self.position.leader_epoch:
                self.offset = -1
            return
        if requested == self.position.leader_epoch and end_offset >= self.offset and (
            leader_epoch == requested or not self._is_known(requested)
        ):  # fmt: skip
            self.is_exact = leader_epoch == requested
            return
        self.leader_epoch = leader_epoch
        self.offset = min(self.offset, end_offset)
        if leader_epoch >= requested:
            self.is_exact = True
            return
        below = [row for row in self._entries if row[0] <= leader_epoch]
        if above := self._entries[len(below) :]:
            self.offset = min(self.offset, above[0][1])
        if below and below[-1][0] < leader_epoch:
            self.ask = self.leader_epoch = below[-1][0]
        else:
            self.is_exact = bool(below) or not self.offset

    def _is_known(self, epoch: int) -> bool:
        return any(row[0] == epoch for row in self._entries)


def lost_records(
    tp: TopicPartition, found: Divergence, history: EpochHistory, current_leader_epoch: int
) -> LostRecords:
    """The event for a divergence below the position."""
    position = found.position
    return LostRecords(
        topic=tp.topic,
        partition=tp.partition,
        first_offset=found.offset,
        last_offset=position.offset - 1,
        first_leader_epoch=history.epoch_at(found.offset),
        last_leader_epoch=position.leader_epoch,
        partition_epoch=position.partition_epoch,
        current_leader_epoch=current_leader_epoch,
        is_exact=found.is_exact,
    )
