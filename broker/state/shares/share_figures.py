"""Metrics of share groups on the broker that leads their partitions (Kafka's SharePartitionMetrics
and ShareGroupMetrics). Times are in microseconds, ratios in percent.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kstore.broker.state.distribution import Distribution

__all__ = ["ACKNOWLEDGE_TYPES", "GroupFigures", "PartitionFigures", "ShareFigures", "TopicFigures"]

ACKNOWLEDGE_TYPES = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}
MOST_GROUPS = 1000
"""The limit of groups with separate figures, since clients choose the ids."""
OTHERS = "(others)"


class PartitionFigures:
    """Figures of one share-partition."""

    __slots__ = ("_free_since_us", "batch_records", "lock_ratio", "lock_timeouts", "lock_us")

    def __init__(self) -> None:
        self.lock_timeouts = 0
        """Records whose acquisition lock has expired."""
        self.batch_records = Distribution()
        """The number of records in each range that was acquired for the first time."""
        self.lock_us = Distribution()
        """How long a fetch locked the partition (Kafka's fetch lock)."""
        self.lock_ratio = Distribution()
        """The lock's percentage of the time since the end of the previous fetch."""
        self._free_since_us = -1

    def lock_ended(self, began_us: int, now_us: int) -> None:
        """Note that a fetch locked the share-partition from ``began_us`` until ``now_us``."""
        held_us = now_us - began_us
        self.lock_us.record(held_us)
        if self._free_since_us >= 0:
            since_us = max(1, now_us - self._free_since_us)
            self.lock_ratio.record(100 * held_us // since_us)
        self._free_since_us = now_us


class GroupFigures:
    """Figures of one share group."""

    __slots__ = ("acquire_us", "fetch_ratio")

    def __init__(self) -> None:
        self.acquire_us = Distribution()
        """The time from a fetch until it has acquired records."""
        self.fetch_ratio = Distribution()
        """The percentage of requested partitions that had records."""


class TopicFigures:
    """Counts requests for a topic, or for all topics. As in Kafka, requests for a topic that is
    unknown, or that the member may not read, are not counted.
    """

    __slots__ = ("acknowledgements", "acknowledgements_failed", "fetches", "fetches_failed")

    def __init__(self) -> None:
        self.fetches = self.fetches_failed = 0
        self.acknowledgements = self.acknowledgements_failed = 0


class ShareFigures:
    """Figures of all share groups."""

    def __init__(self) -> None:
        self.acknowledged = dict.fromkeys(ACKNOWLEDGE_TYPES, 0)
        """Acknowledged records, by type of acknowledgement."""
        self.lock_timeouts = 0
        self.load_us = Distribution()
        """How long reading a share-partition's state took."""
        self.expired = 0
        """Fetches that timed out without records."""
        self.evicted = 0
        """Share sessions that ended with their connection."""
        self.groups: dict[str, GroupFigures] = {}
        self.of_all = TopicFigures()
        """Requests for all topics. A request counts once for each of its topics."""
        self.topics: dict[UUID, TopicFigures] = {}
        """By topic id. The page of metrics removes deleted topics."""

    def group(self, group_id: str) -> GroupFigures:
        """The figures of a group. Beyond a limit, groups share one object."""
        found = self.groups.get(group_id)
        if found is None:
            name = group_id if len(self.groups) < MOST_GROUPS else OTHERS
            found = self.groups.setdefault(name, GroupFigures())
        return found

    def topic_fetched(self, topic_id: UUID, *, failed: bool) -> None:
        """Note that a member has fetched from a topic."""
        for figures in (self.of_all, self._topic(topic_id)):
            figures.fetches += 1
            figures.fetches_failed += failed

    def topic_acknowledged(self, topic_id: UUID, *, failed: bool) -> None:
        """Note that a member has acknowledged records of a topic."""
        for figures in (self.of_all, self._topic(topic_id)):
            figures.acknowledgements += 1
            figures.acknowledgements_failed += failed

    def _topic(self, topic_id: UUID) -> TopicFigures:
        found = self.topics.get(topic_id)
        if found is None:
            found = self.topics[topic_id] = TopicFigures()
        return found

    def fetched(self, group_id: str, requested: int, acquired: int, took_us: int) -> None:
        """Note a fetch: the number of its partitions, and of those with records."""
        figures = self.group(group_id)
        figures.fetch_ratio.record(100 * acquired // max(1, requested))
        if acquired:
            figures.acquire_us.record(took_us)

    def acknowledge(self, ranges: Iterable[tuple[int, int, bytes]]) -> None:
        """Note acknowledged ranges: first offset, last offset, and one type for all offsets or one
        for each.
        """
        for first, last, types in ranges:
            if len(types) == 1:
                self._count(types[0], last - first + 1)
            else:
                for kind in ACKNOWLEDGE_TYPES:
                    self._count(kind, types.count(kind))

    def _count(self, kind: int, records: int) -> None:
        if kind in self.acknowledged:
            self.acknowledged[kind] += records
