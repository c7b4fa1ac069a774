"""Groups: how many of each kind and state, their members, committed offsets and lag.

A broker reports the groups that it coordinates. It knows the lag in partitions of which it has a
replica. For the others, a dashboard combines this broker's committed offset with the leader's high
watermark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.metrics.measured import OTHERS, Measured, plain
from kstore.broker.state.exposition import Family, Metrics, escaped, sample
from kstore.broker.state.work import ROWS_BETWEEN
from kstore.errors import ErrorCode, error_name

if TYPE_CHECKING:
    from kstore.broker.metrics.topics import SummedUp
    from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
    from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard

__all__ = ["of_groups"]

LIMIT = "kstore.metrics.max.partitions"
STATES = {
    "numgroups": "",
    "numgroupspreparingrebalance": "PreparingRebalance",
    "numgroupscompletingrebalance": "CompletingRebalance",
    "numgroupsstable": "Stable",
    "numgroupsdead": "Dead",
    "numgroupsempty": "Empty",
}
"""Kafka's gauges of classic groups, by state."""
COUNTS = Family(
    "kafka_server_group_coordinator_metrics_group_count", "gauge",
    "Groups that this broker coordinates, by kind",
)  # fmt: skip
BY_STATE = Family("kstore_groups", "gauge", "Groups that this broker coordinates, by state")
MEMBERS = Family("kafka_consumergroup_members", "gauge", "Members of the group")
OFFSET = Family("kafka_consumergroup_current_offset", "gauge", "The committed offset")
LAG = Family(
    "kafka_consumergroup_lag", "gauge",
    "High watermark less committed offset; only of partitions that have a replica here",
)  # fmt: skip
LAG_SUM = Family(
    "kafka_consumergroup_lag_sum", "gauge", "The lag of all these partitions of a topic"
)
REFUSED = Family(
    "kstore_owner_commits_refused_total", "counter",
    "Partitions whose owner's commit was refused, by error",
)  # fmt: skip


class _Committed(NamedTuple):
    """A group's committed offset in one partition."""

    labels: str
    offset: int
    lag: int | None
    """None if this broker has no replica of the partition."""


class _Groups:
    """The result of one pass over all groups."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.states: Counter[tuple[str, str]] = Counter()
        self.members: list[tuple[str, int]] = []
        self.committed: list[_Committed] = []
        self.lag_sums: dict[tuple[str, str], int] = {}
        self.other_groups = self.other_members = 0
        self.other_places = self.other_offsets = self.other_lag = 0
        self.places = 0


def of_groups(broker: Measured, left_out: SummedUp, *, by_name: bool) -> Metrics:
    """Counts of groups, and each group if ``by_name``."""
    coordinator = broker.groups.made
    found = _Groups(broker.config[LIMIT])
    if coordinator is not None:
        for shard in _shards(coordinator):
            yield from _look(broker, shard, found, by_name=by_name)
        yield REFUSED
        for code, count in sorted(coordinator.commits_refused.items()):
            yield sample(REFUSED.name, count, reason=error_name(code))
        yield from _rebalances(coordinator, monotonic())
    left_out.counts["groups"] = found.other_groups
    left_out.counts["group_partitions"] = found.other_places
    yield from _counts(found)
    if by_name:
        yield from _by_name(found)


def _rebalances(coordinator: GroupCoordinator, now_s: float) -> Metrics:
    for kind, seen in coordinator.rebalances.items():
        lately = seen.lately(now_s)
        prefix = f"kafka_server_group_coordinator_metrics_{kind}_group_rebalance"
        words = f"New epochs of {kind} groups"
        yield from plain(f"{prefix}_count", "gauge", words, seen.count)
        yield from plain(f"{prefix}_rate", "gauge", f"{words}, a second", lately.per_second)


def _shards(coordinator: GroupCoordinator) -> Iterator[GroupShard]:
    for partition in coordinator.partitions:
        if partition.error_code == ErrorCode.NONE:
            yield partition.shard


def _look(broker: Measured, shard: GroupShard, found: _Groups, *, by_name: bool) -> Metrics:
    for number, (group_id, group) in enumerate(list(shard.groups.items())):
        if number % ROWS_BETWEEN == 0:
            yield ""
        found.states[group.kind, group.state] += 1
        members = len(group.members)
        if len(found.members) < found.most:
            found.members.append((group_id, members))
        else:
            found.other_groups += 1
            found.other_members += members
    for group_id in list(shard.offsets.group_ids()):
        group_label = escaped(group_id)
        for topic, places in list(shard.offsets.topics(group_id).items()):
            entry = broker.table.topic(topic.encode())
            partitions = [] if entry is None else entry.partitions
            labels = f'consumergroup="{group_label}",topic="{escaped(topic)}"'
            for index, committed in list(places.items()):
                found.places += 1
                if found.places % ROWS_BETWEEN == 0:
                    yield ""
                known = partitions[index] if index < len(partitions) else None
                lag = None
                if known is not None and known.log is not None:
                    lag = max(0, known.high_watermark - committed.offset)
                if by_name:
                    row = _Committed(f'{labels},partition="{index}"', committed.offset, lag)
                    _keep(found, row, (group_id, topic))


def _keep(found: _Groups, row: _Committed, whose: tuple[str, str]) -> None:
    if len(found.committed) >= found.most:
        found.other_places += 1
        found.other_offsets += row.offset
        found.other_lag += row.lag or 0
        return
    found.committed.append(row)
    if row.lag is not None:
        found.lag_sums[whose] = found.lag_sums.get(whose, 0) + row.lag


def _counts(found: _Groups) -> Metrics:
    kinds: Counter[str] = Counter()
    for (kind, _), count in found.states.items():
        kinds[kind] += count
    yield COUNTS
    for kind in ("classic", "consumer", "share", "streams"):
        yield sample(COUNTS.name, kinds[kind], protocol=kind)
    for kind in ("consumer", "share", "streams"):
        family = Family(
            f"kafka_server_group_coordinator_metrics_{kind}_group_count", "gauge",
            f"Groups of the {kind} protocol, by state",
        )  # fmt: skip
        yield family
        for (own, state), count in sorted(found.states.items()):
            if own == kind:
                yield sample(family.name, count, state=state.lower())
    yield BY_STATE
    for (kind, state), count in sorted(found.states.items()):
        yield sample(BY_STATE.name, count, kind=kind, state=state)
    for name, state in STATES.items():
        count = found.states["classic", state] if state else found.states.total()
        words = f"Classic groups in the state {state}" if state else "Groups of all kinds"
        yield from plain(
            f"kafka_coordinator_group_groupmetadatamanager_{name}", "gauge", words, count
        )
    yield from plain(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets", "gauge", "Committed offsets",
        found.places,
    )  # fmt: skip


def _by_name(found: _Groups) -> Metrics:
    yield MEMBERS
    for number, (group_id, count) in enumerate(found.members):
        yield sample(MEMBERS.name, count, consumergroup=group_id)
        if number % ROWS_BETWEEN == 0:
            yield ""
    if found.other_groups:
        yield sample(MEMBERS.name, found.other_members, consumergroup=OTHERS)
    rest = {"consumergroup": OTHERS, "topic": OTHERS, "partition": ""}
    yield OFFSET
    for number, row in enumerate(found.committed):
        yield f"{OFFSET.name}{{{row.labels}}} {row.offset}"
        if number % ROWS_BETWEEN == 0:
            yield ""
    if found.other_places:
        yield sample(OFFSET.name, found.other_offsets, **rest)
    yield LAG
    for number, row in enumerate(found.committed):
        if row.lag is not None:
            yield f"{LAG.name}{{{row.labels}}} {row.lag}"
        if number % ROWS_BETWEEN == 0:
            yield ""
    if found.other_places:
        yield sample(LAG.name, found.other_lag, **rest)
    yield LAG_SUM
    for (group_id, topic), lag in found.lag_sums.items():
        yield sample(LAG_SUM.name, lag, consumergroup=group_id, topic=topic)
