"""Compares committed offsets with the logs, to find out whether a group has processed records that
no longer exist. It interprets responses and sends no requests.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kstore.clients.core.consumer.epoch_history import EpochHistory
from kstore.clients.core.consumer.lost_records import Divergence, LostRecords, lost_records
from kstore.clients.core.consumer.positions import committed_position
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = ["OffsetCheck", "OffsetFinding", "check_offset"]

NO_EPOCHS = EpochHistory()


class OffsetFinding(Enum):
    """The result for one committed offset."""

    IN_LOG = "in log"
    """The log still has the records below the offset, except for those that retention deleted."""
    LOST = "lost"
    """An unclean leader election truncated the log below the offset."""
    BEYOND_END = "beyond end"
    """The offset is above the end of the log. Its leader epoch, which would explain why, is
    unknown.
    """
    OTHER_TOPIC = "other topic"
    """The offset belongs to a deleted topic with the same name (KIP-232)."""
    UNCHECKED = "unchecked"
    """The offset is within the log, and its leader epoch is unknown."""


class OffsetCheck(NamedTuple):
    """A committed offset and its comparison with the log."""

    committed: OffsetAndMetadata
    end_offset: int
    """The partition's high watermark."""
    finding: OffsetFinding
    lost: LostRecords | None = None
    """The lost records, if the finding is LOST."""

    @property
    def is_wrong(self) -> bool:
        """True if the group has processed records that are not in the log."""
        return self.finding not in (OffsetFinding.IN_LOG, OffsetFinding.UNCHECKED)


def check_offset(
    tp: TopicPartition,
    committed: OffsetAndMetadata,
    end_offset: int,
    partition_epoch: int,
    current_leader_epoch: int,
    epoch_end: tuple[int, int] | None,
) -> OffsetCheck:
    """Compare a committed offset with its partition: the high watermark, the partition epoch (-1:
    unknown), the leader's epoch and its answer to OffsetForLeaderEpoch for the commit's leader
    epoch; None for a commit without one, and for a leader that has no answer.
    """
    position = committed_position(committed, uses_partition_epochs=True)
    finding, lost = OffsetFinding.UNCHECKED, None
    if -1 < partition_epoch != position.partition_epoch > -1:
        finding = OffsetFinding.OTHER_TOPIC
    elif epoch_end is not None and position.leader_epoch >= 0:
        found = Divergence(position, NO_EPOCHS)
        found.on_epoch_end(*epoch_end)
        finding = OffsetFinding.LOST if found.is_lost else OffsetFinding.IN_LOG
        if found.is_lost:
            lost = lost_records(tp, found, NO_EPOCHS, current_leader_epoch)
    elif position.offset > end_offset:
        finding = OffsetFinding.BEYOND_END
    return OffsetCheck(committed, end_offset, finding, lost)
