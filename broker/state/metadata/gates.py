"""The gates of topics with `kstore.ordered.expansion`: the offsets that a group must have committed
before it gets other partitions. A part of the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.metadata.retirement import Retirement

__all__ = ["UNKNOWN", "TopicGates"]

UNKNOWN = -1


class TopicGates(NamedTuple):
    """The gates of one topic."""

    topic_id: UUID
    partitions: int
    """The partition count that the gates are for."""
    thresholds: Mapping[int, tuple[tuple[int, int], ...]]
    """For each added partition: (prior partition, offset that must be committed there). UNKNOWN
    until its leader has reported the offset.
    """
    retirement: Retirement | None = None
    """The contraction that the gates are for, decided or not."""
    retired: tuple[tuple[int, int], ...] = ()
    """The same for each retired partition: the offset that must be committed before the remaining
    partitions are read.
    """

    def is_of(self, topic_id: UUID, retirement: Retirement | None) -> bool:
        """Whether the gates are for this topic and its current contraction."""
        known = self.retirement
        if topic_id != self.topic_id or (known is None) != (retirement is None):
            return False
        return known is None or retirement is None or known.is_same(retirement)
