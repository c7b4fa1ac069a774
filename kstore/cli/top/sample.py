"""The answers of one moment, and the rates between two of them. Only data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kstore.types import TopicPartition

__all__ = [
    "BrokerSample",
    "GroupSample",
    "Hold",
    "Sample",
    "TopicSample",
    "rows_between",
]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hold:
    """What blocked a broker's loop, since that broker started."""

    held_by: str
    count: int
    total_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """One broker. ``counters``: the values of its HTTP listener, by name; empty without one."""

    address: str
    is_controller: bool
    leaders: int
    replicas: int
    log_bytes: int
    free_bytes: int
    counters: Mapping[str, float] = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicSample:
    """One topic, with the end offset and the leader's size of each partition."""

    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    partitions: int
    offline: int
    under_replicated: int


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One group, with its committed offsets."""

    state: str
    members: int
    lag: int
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything at one moment."""

    unix_s: float
    monotonic_s: float
    brokers: Mapping[int, BrokerSample]
    topics: Mapping[str, TopicSample]
    groups: Mapping[str, GroupSample]
    leaders: Mapping[TopicPartition, int]
    left_out_groups: int = 0
    """Groups that were not asked, because there are too many."""


def rows_between(before: Sample, after: Sample) -> dict[str, Any]:
    """The brokers, topics, groups and holds of the later sample, with their rates since the earlier
    one: one line of `--json`.
    """
    seconds = max(after.monotonic_s - before.monotonic_s, 1e-3)
    written = {
        name: _growth(before.topics[name].ends, topic.ends) if name in before.topics else {}
        for name, topic in after.topics.items()
    }
    led: dict[int, float] = {}
    for growth in written.values():
        for tp, count in growth.items():
            leader = after.leaders.get(tp, -1)
            led[leader] = led.get(leader, 0.0) + count
    return {
        "time": after.unix_s,
        "seconds": seconds,
        "brokers": [
            _broker_row(node_id, before.brokers.get(node_id), row, led.get(node_id, 0.0), seconds)
            for node_id, row in sorted(after.brokers.items())
        ],
        "topics": [
            _topic_row(name, before.topics.get(name), row, sum(written[name].values()), seconds)
            for name, row in sorted(after.topics.items())
        ],
        "groups": [
            _group_row(name, before.groups.get(name), row, seconds)
            for name, row in sorted(after.groups.items())
        ],
        "holds": [
            each
            for node_id, row in sorted(after.brokers.items())
            for each in _hold_rows(node_id, before.brokers.get(node_id), row)
        ],
        "left_out_groups": after.left_out_groups,
    }


def _growth(
    before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The increase of each value; a value that decreased, or is new, counts as 0."""
    return {tp: max(value - before[tp], 0) for tp, value in after.items() if tp in before}


def _broker_row(
    node_id: int, before: BrokerSample | None, after: BrokerSample, records: float, seconds: float
) -> Row:
    def rate(name: str) -> float | None:
        if before is None or name not in before.counters or name not in after.counters:
            return None
        # A broker that was restarted counts from zero.
        return max(after.counters[name] - before.counters[name], 0.0) / seconds

    cpu = rate("cpu_seconds")
    return {
        "broker": node_id,
        "address": after.address,
        "controller": after.is_controller,
        "leaders": after.leaders,
        "replicas": after.replicas,
        "records_per_s": records / seconds,
        "cpu_percent": None if cpu is None else 100 * cpu,
        "requests_per_s": rate("requests"),
        "in_bytes_per_s": rate("in_bytes"),
        "out_bytes_per_s": rate("out_bytes"),
        "connections": after.counters.get("connections"),
        "log_bytes": after.log_bytes,
        "free_bytes": after.free_bytes,
    }


def _topic_row(
    name: str, before: TopicSample | None, after: TopicSample, records: int, seconds: float
) -> Row:
    grown = 0 if before is None else sum(_growth(before.sizes, after.sizes).values())
    return {
        "topic": name,
        "partitions": after.partitions,
        "records_per_s": records / seconds,
        "bytes_per_s": grown / seconds,
        "size_bytes": sum(after.sizes.values()),
        "offline": after.offline,
        "under_replicated": after.under_replicated,
    }


def _group_row(name: str, before: GroupSample | None, after: GroupSample, seconds: float) -> Row:
    read = 0 if before is None else sum(_growth(before.committed, after.committed).values())
    return {
        "group": name,
        "state": after.state,
        "members": after.members,
        "lag": after.lag,
        "lag_change": None if before is None else after.lag - before.lag,
        "records_per_s": read / seconds,
    }


def _hold_rows(node_id: int, before: BrokerSample | None, after: BrokerSample) -> list[Row]:
    earlier = {each.held_by: each for each in before.holds} if before is not None else {}
    none = Hold("", 0, 0.0, 0.0)
    return [
        {
            "broker": node_id,
            "held_by": each.held_by,
            "holds": max(each.count - earlier.get(each.held_by, none).count, 0),
            "held_ms": max(1000 * (each.total_s - earlier.get(each.held_by, none).total_s), 0.0),
            "max_ms": 1000 * each.max_s,
        }
        for each in after.holds
    ]
