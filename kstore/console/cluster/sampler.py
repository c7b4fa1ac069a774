"""Samples of a cluster over time: rates, sizes and lag for the plots, and changes.

There is one per session, with its permissions. It samples only while the user looks at pages, and
slows down on a cluster that answers slowly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kstore.clients.admin import TopicDescription
from kstore.console.cluster.admin import ConsoleAdmin
from kstore.errors import KafkaError
from kstore.types import TopicPartition

__all__ = ["Event", "Sampler", "Seen", "Series", "changes"]

INTERVAL_S = 5.0
SHARE = 0.1
"""The maximum share of the time that samples take."""
LOOKED_S = 120.0
"""How long to take samples after the last page."""
KEPT = 360
MAX_TOPICS = 300
MAX_PARTITIONS = 5000
MAX_GROUPS = 100
MAX_EVENTS = 500
LOGGER = logging.getLogger("kstore.console")

Series = deque[tuple[float, float]]
"""(seconds since 1970, value), the oldest first."""


class Event(NamedTuple):
    """A change between two samples."""

    time: float
    kind: str
    what: str
    text: str


@dataclass
class Seen:
    """The facts of a sample."""

    time: float
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    brokers: frozenset[int] = frozenset()
    controller: int = -1


class Sampler:
    """Rates, sizes, lag and events that the session's user may see."""

    def __init__(self, admin: ConsoleAdmin) -> None:
        self._admin = admin
        self._series: dict[tuple[str, str], Series] = {}
        self._last: Seen | None = None
        self._task: asyncio.Task[None] | None = None
        self._looked = 0.0
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.began = time.time()

    def look(self) -> None:
        """A page was requested: start or continue."""
        self._looked = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop taking samples."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def series(self, kind: str, name: str) -> Series:
        """A kind is topic-rate, topic-size, broker-rate, broker-size or group-lag."""
        return self._series.get((kind, name)) or deque()

    def now(self, kind: str, name: str) -> float | None:
        """The newest value; None for none."""
        found = self.series(kind, name)
        return found[-1][1] if found else None

    async def _run(self) -> None:
        while time.monotonic() - self._looked < LOOKED_S:
            began = time.monotonic()
            try:
                await self._sample()
            except KafkaError as error:
                LOGGER.info("a sample of the cluster failed: %s", error)
            took = time.monotonic() - began
            await asyncio.sleep(max(INTERVAL_S - took, took / SHARE))

    async def _sample(self) -> None:
        now = time.time()
        cluster = await self._admin.describe_cluster()
        topics = {row.name: row for row in await self._admin.describe_topics()}
        seen = Seen(now, {}, topics, frozenset(row.node_id for row in cluster.brokers))
        seen.controller = cluster.controller_id
        leaders = {
            TopicPartition(name, part.partition): part.leader
            for name, topic in list(topics.items())[:MAX_TOPICS]
            for part in topic.partitions
            if part.leader >= 0
        }
        wanted = dict.fromkeys(list(leaders)[:MAX_PARTITIONS], "latest")
        ends = await self._admin.list_offsets(wanted, raise_errors=False)
        seen.ends = {tp: row.offset for tp, row in ends.items()}
        self._rates(seen, leaders)
        await self._sizes(now, leaders)
        await self._lags(now, seen.ends)
        if self._last is not None:
            self.events.extend(changes(self._last, seen))
        self._last = seen

    def _add(self, now: float, kind: str, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._series.setdefault((kind, name), deque(maxlen=KEPT)).append((now, value))
        gone = [key for key in self._series if key[0] == kind and key[1] not in values]
        for key in gone:
            if now - self._series[key][-1][0] > INTERVAL_S * KEPT:
                del self._series[key]

    def _rates(self, seen: Seen, leaders: Mapping[TopicPartition, int]) -> None:
        """Records per second, from the growth of the partitions' ends."""
        last = self._last
        if last is None or seen.time <= last.time:
            return
        by_topic: dict[str, float] = {}
        by_broker = dict.fromkeys(map(str, sorted(seen.brokers)), 0.0)
        for tp, end in seen.ends.items():
            grown = max(end - last.ends.get(tp, end), 0) / (seen.time - last.time)
            by_topic[tp.topic] = by_topic.get(tp.topic, 0.0) + grown
            leader = str(leaders[tp])
            by_broker[leader] = by_broker.get(leader, 0.0) + grown
        self._add(seen.time, "topic-rate", by_topic)
        self._add(seen.time, "broker-rate", by_broker)

    async def _sizes(self, now: float, leaders: Mapping[TopicPartition, int]) -> None:
        """Bytes on disk: of topics by their leaders' replicas, of brokers by all their replicas."""
        try:
            found = await self._admin.describe_log_dirs()
        except KafkaError:
            return  # without permission there is no plot
        by_topic: dict[str, float] = {}
        by_broker: dict[str, float] = {}
        for broker, dirs in found.items():
            for log_dir in dirs.values():
                for tp, replica in log_dir.replicas.items():
                    size = replica.size_bytes
                    by_broker[str(broker)] = by_broker.get(str(broker), 0.0) + size
                    if leaders.get(tp) == broker and not replica.is_future:
                        by_topic[tp.topic] = by_topic.get(tp.topic, 0.0) + size
        self._add(now, "topic-size", by_topic)
        self._add(now, "broker-size", by_broker)

    async def _lags(self, now: float, ends: Mapping[TopicPartition, int]) -> None:
        lags: dict[str, float] = {}
        for group in (await self._admin.list_groups())[:MAX_GROUPS]:
            if group.group_type == "share":
                continue
            try:
                offsets = await self._admin.list_group_offsets(group.group_id, raise_errors=False)
            except KafkaError:
                continue  # deleted meanwhile, or not visible to this user
            known = [max(ends[tp] - row.offset, 0) for tp, row in offsets.items() if tp in ends]
            if known:
                lags[group.group_id] = float(sum(known))
        self._add(now, "group-lag", lags)


def changes(old: Seen, new: Seen) -> list[Event]:
    """The changes between two samples."""
    found: list[tuple[str, str, str]] = []
    for broker in sorted(new.brokers - old.brokers):
        found.append(("broker", f"broker {broker}", "joined the cluster"))
    for broker in sorted(old.brokers - new.brokers):
        found.append(("broker", f"broker {broker}", "left the cluster"))
    if old.controller != new.controller:
        found.append(("election", "controller", f"{old.controller} → {new.controller}"))
    for name in sorted(new.topics.keys() - old.topics.keys()):
        count = len(new.topics[name].partitions)
        found.append(("topic", name, f"created with {count} partition{'' if count == 1 else 's'}"))
    for name in sorted(old.topics.keys() - new.topics.keys()):
        found.append(("topic", name, "deleted"))
    for name in sorted(new.topics.keys() & old.topics.keys()):
        found += _topic_changes(old.topics[name], new.topics[name])
    return [Event(new.time, *each) for each in found]


def _topic_changes(old: TopicDescription, new: TopicDescription) -> list[tuple[str, str, str]]:
    found = []
    before, after = len(old.partitions), len(new.partitions)
    if after > before:
        found.append(("expansion", new.name, f"{before} → {after} partitions"))
    for was, now in zip(old.partitions, new.partitions, strict=False):
        what = f"{new.name}-{now.partition}"
        if was.leader != now.leader or was.leader_epoch != now.leader_epoch:
            text = f"leader {was.leader} → {now.leader}, leader epoch {now.leader_epoch}"
            found.append(("election", what, text))
        if set(was.isr) != set(now.isr):
            text = f"ISR {_ids(was.isr)} → {_ids(now.isr)}"
            found.append(("isr", what, text))
    return found


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(brokers))) or "none"
