"""What is known of topics' expansions and contractions (`kstore.ordered.expansion`): a part of the
image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.metadata.retirement import Retirement

__all__ = ["UNKNOWN", "TopicGates"]

UNKNOWN = -1


class TopicGates(NamedTuple):
    """What is known of one topic."""

    topic_id: UUID
    partitions: int
    """How many partitions were looked at."""
    thresholds: Mapping[int, tuple[tuple[int, int], ...]]
    """Of each partition that was added: (prior partition, offset that has to be committed there);
    UNKNOWN where its leader has not said it yet.
    """
    retirement: Retirement | None = None
    """The contraction that was looked at, whether it holds or not."""
    retired: tuple[tuple[int, int], ...] = ()
    """The same of each partition that retires: what has to be committed before the others are read.
    """

    def is_of(self, topic_id: UUID, retirement: Retirement | None) -> bool:
        """Whether it is about this topic, and its contraction of now."""
        known = self.retirement
        if topic_id != self.topic_id or (known is None) != (retirement is None):
            return False
        return known is None or retirement is None or known.is_same(retirement)
