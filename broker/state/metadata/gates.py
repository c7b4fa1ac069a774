"""What is known of topics' expansions (`kstore.ordered.expansion`): a part of the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

__all__ = ["UNKNOWN", "TopicGates"]

UNKNOWN = -1


class TopicGates(NamedTuple):
    """What is known of a topic's expansions."""

    topic_id: UUID
    partitions: int
    """How many partitions were looked at."""
    thresholds: Mapping[int, tuple[tuple[int, int], ...]]
    """Of each partition that was added: (prior partition, offset that has to be committed there);
    UNKNOWN where its leader has not said it yet.
    """
