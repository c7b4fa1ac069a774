"""Share groups: sessions, fetches and acknowledgements, records in flight of each share-partition
that this broker leads, and writes of the share coordinator.

The names are those that jmx_exporter's rules use for Kafka's SharePartitionMetrics,
ShareGroupMetrics, ShareSessionCache, DelayedShareFetchMetrics, BrokerTopicMetrics and
share-coordinator-metrics. Groups have the label `consumergroup`, as in the rest of the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kstore.broker.metrics.measured import OTHERS, Measured, plain, summary
from kstore.broker.state.exposition import Family, Metrics, sample
from kstore.broker.state.shares.share_figures import (
    ACKNOWLEDGE_TYPES,
    GroupFigures,
    PartitionFigures,
    ShareFigures,
    TopicFigures,
)
from kstore.broker.state.work import ROWS_BETWEEN
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from kstore.broker.metrics.topics import SummedUp
    from kstore.broker.runtime.shares.share_coordinator import ShareCoordinator
    from kstore.broker.runtime.shares.share_partition import SharePartition
    from kstore.broker.state.distribution import Distribution

__all__ = ["of_shares"]

F = TypeVar("F")
LIMIT = "kstore.metrics.max.partitions"
OF_PARTITION = "kafka_server_sharepartitionmetrics"
OF_GROUP = "kafka_server_sharegroupmetrics"
OF_COORDINATOR = "kafka_server_share_coordinator_metrics"
PER_MS = 1000.0
RECORDS = Family(
    f"{OF_PARTITION}_inflightmessagecount", "gauge",
    "Records of a share-partition that are neither acknowledged nor archived",
)  # fmt: skip
RANGES = Family(
    f"{OF_PARTITION}_inflightbatchcount", "gauge", "Ranges of records in flight with the same state"
)
TIMEOUTS = Family(
    f"{OF_PARTITION}_acquisitionlocktimeout_total", "counter",
    "Records whose acquisition lock expired",
)  # fmt: skip
ACKNOWLEDGED = Family(
    f"{OF_GROUP}_recordacknowledgements_total", "counter", "Records that members have acknowledged"
)
LOAD_MS = Family(
    f"{OF_GROUP}_partitionloadtimems", "summary", "How long reading a share-partition's state took"
)
LOADED = Family(
    "kstore_share_partitions", "gauge", "Share-partitions whose state is on this broker"
)
PARTITIONS = Family(f"{OF_COORDINATOR}_num_partitions", "gauge", "Of __share_group_state, by state")
PRUNED = Family(
    f"{OF_COORDINATOR}_last_pruned_offset", "gauge",
    "The offset below which records of __share_group_state are deleted",
)  # fmt: skip


class _Spread(NamedTuple, Generic[F]):
    """A family with quantiles, of share-partitions or of groups."""

    family: Family
    read: Callable[[F], Distribution]
    per: float = 1.0

    def samples(self, figures: F, now_s: float, **labels: str) -> Metrics:
        """The samples of one share-partition or group."""
        return summary(self.family.name, self.read(figures), now_s, self.per, **labels)


OF_PARTITIONS: tuple[_Spread[PartitionFigures], ...] = (
    _Spread(
        Family(f"{OF_PARTITION}_inflightbatchmessagecount", "summary",
               "Records of a range that was acquired for the first time"),
        lambda figures: figures.batch_records,
    ),
    _Spread(
        Family(f"{OF_PARTITION}_fetchlocktimems", "summary",
               "How long a fetch locks a share-partition, in milliseconds"),
        lambda figures: figures.lock_us, PER_MS,
    ),
    _Spread(
        Family(f"{OF_PARTITION}_fetchlockratio", "summary",
               "The share of time that it is locked, in percent"),
        lambda figures: figures.lock_ratio,
    ),
)  # fmt: skip


OF_GROUPS: tuple[_Spread[GroupFigures], ...] = (
    _Spread(
        Family(f"{OF_GROUP}_requesttopicpartitionsfetchratio", "summary",
               "The share of the partitions of a fetch that had records, in percent"),
        lambda figures: figures.fetch_ratio,
    ),
    _Spread(
        Family(f"{OF_GROUP}_topicpartitionsacquiretimems", "summary",
               "From a fetch until it has acquired records, in milliseconds"),
        lambda figures: figures.acquire_us, PER_MS,
    ),
)  # fmt: skip


class _OfTopic(NamedTuple):
    family: Family
    read: Callable[[TopicFigures], int]


def _of_topic(name: str, words: str, read: Callable[[TopicFigures], int]) -> _OfTopic:
    return _OfTopic(Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", words), read)


OF_TOPICS = (
    _of_topic("totalsharefetchrequests", "ShareFetch requests", lambda each: each.fetches),
    _of_topic(
        "failedsharefetchrequests", "ShareFetch requests with an error for the topic",
        lambda each: each.fetches_failed,
    ),
    _of_topic(
        "totalshareacknowledgementrequests", "Requests that acknowledge records of share groups",
        lambda each: each.acknowledgements,
    ),
    _of_topic(
        "failedshareacknowledgementrequests", "The same, with an error for the topic",
        lambda each: each.acknowledgements_failed,
    ),
)  # fmt: skip


class _InFlight(NamedTuple):
    labels: dict[str, str]
    records: int
    ranges: int
    timeouts: int
    figures: PartitionFigures | None
    """None if the row stands for several groups."""


def of_shares(broker: Measured, left_out: SummedUp, *, by_name: bool) -> Metrics:
    """Sessions, fetches and the coordinator; with ``by_name`` also each group, topic and
    share-partition.
    """
    manager = broker.share_partitions.made
    left_out.counts["share_partitions"] = 0
    now_s, most = monotonic(), broker.config[LIMIT]
    coordinator = broker.share_coordinator.made
    if coordinator is not None:
        yield from _coordinator(coordinator, now_s)
    if manager is None:
        return
    loaded, figures = manager.loaded, manager.figures
    for name, words, value in (
        ("sharesessionscount", "Share sessions of members", len(manager.sessions)),
        ("sharepartitionscount", "Partitions of all share sessions", manager.sessions.partitions),
    ):
        yield from plain(f"kafka_server_sharesessioncache_{name}", "gauge", words, value)
    yield from plain(
        "kafka_server_sharesessioncache_sharesessionevictions_total", "counter",
        "Share sessions that ended with their connection", figures.evicted,
    )  # fmt: skip
    yield from plain(
        "kafka_server_delayedsharefetchmetrics_expires_total", "counter",
        "Fetches of share groups that timed out without records", figures.expired,
    )  # fmt: skip
    yield from plain(
        "kstore_share_fetches_waiting", "gauge", "Fetches that wait for records", manager.waiting
    )
    yield LOADED
    yield sample(LOADED.name, len(loaded))
    yield ACKNOWLEDGED
    for kind, name in ACKNOWLEDGE_TYPES.items():
        yield sample(ACKNOWLEDGED.name, figures.acknowledged[kind], ackType=name)
    yield LOAD_MS
    yield from summary(LOAD_MS.name, figures.load_us, now_s, PER_MS)
    yield from _topics(broker, figures, most if by_name else 0)
    rows = (yield from _by_name(loaded, most, left_out)) if by_name else []
    yield TIMEOUTS
    yield sample(TIMEOUTS.name, figures.lock_timeouts)
    for row in rows:
        yield sample(TIMEOUTS.name, row.timeouts, **row.labels)
    if by_name:
        yield from _spread(rows, figures, now_s, most)


def _topics(broker: Measured, figures: ShareFigures, most: int) -> Metrics:
    named: list[tuple[str, TopicFigures]] = []
    for topic_id, each in list(figures.topics.items()):
        topic = broker.image.topic_by_id(topic_id)
        if topic is None:
            del figures.topics[topic_id]
        elif len(named) < most:
            named.append((topic.name, each))
    for family, read in OF_TOPICS:
        yield family
        yield sample(family.name, read(figures.of_all))
        for number, (name, each) in enumerate(named):
            yield sample(family.name, read(each), topic=name)
            if number % ROWS_BETWEEN == 0:
                yield ""


def _by_name(
    loaded: list[SharePartition], most: int, left_out: SummedUp
) -> Generator[Family | str, None, list[_InFlight]]:
    """The share-partitions by name. Those beyond the limit share one row."""
    rows: list[_InFlight] = []
    nowhere = {"consumergroup": OTHERS, "topic": OTHERS, "partition": ""}
    others = _InFlight(nowhere, 0, 0, 0, None)
    for number, each in enumerate(loaded):
        if number % ROWS_BETWEEN == 0:
            yield ""
        records = each.records
        if records is None:
            continue
        found = (records.count(), len(records), each.figures.lock_timeouts)
        if number < most:
            labels = {
                "consumergroup": each.key.group_id,
                "topic": each.partition.entry.name.decode(),
                "partition": str(each.key.partition),
            }
            rows.append(_InFlight(labels, *found, each.figures))
        else:
            others = others._replace(
                records=others.records + found[0],
                ranges=others.ranges + found[1],
                timeouts=others.timeouts + found[2],
            )
    if len(loaded) > most:
        left_out.counts["share_partitions"] = len(loaded) - most
        rows.append(others)
    yield RECORDS
    for row in rows:
        yield sample(RECORDS.name, row.records, **row.labels)
    yield RANGES
    for row in rows:
        yield sample(RANGES.name, row.ranges, **row.labels)
    return rows


def _spread(rows: Iterable[_InFlight], figures: ShareFigures, now_s: float, most: int) -> Metrics:
    """Quantiles of share-partitions and groups that are listed by name."""
    for spread in OF_PARTITIONS:
        yield spread.family
        for row in rows:
            if row.figures is not None:
                yield ""
                yield from spread.samples(row.figures, now_s, **row.labels)
    groups = list(figures.groups.items())[:most]
    for of_group in OF_GROUPS:
        yield of_group.family
        for group_id, each in groups:
            yield ""
            yield from of_group.samples(each, now_s, consumergroup=group_id)


def _coordinator(coordinator: ShareCoordinator, now_s: float) -> Metrics:
    states = Counter(
        {ErrorCode.NONE: "active", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "loading"}.get(
            partition.error_code, "failed"
        )
        for partition in coordinator.partitions
    )
    yield PARTITIONS
    for state in ("loading", "active", "failed"):
        yield sample(PARTITIONS.name, states[state], state=state)
    yield PRUNED
    for partition in coordinator.partitions:
        if partition.pruned_below is not None:
            topic, index = partition.place
            labels = {"topic": topic, "partition": str(index)}
            yield sample(PRUNED.name, partition.pruned_below, **labels)
    writes, loads = coordinator.write_us.lately(now_s), coordinator.load_us.lately(now_s)
    yield from plain(
        f"{OF_COORDINATOR}_write_total", "counter", "Writes of share-partitions' states",
        coordinator.write_us.count,
    )  # fmt: skip
    for name, words, value in (
        ("write_rate", "The same, per second", writes.per_second),
        ("write_latency_avg", "Milliseconds until a write is committed", writes.mean / PER_MS),
        ("write_latency_max", "The longest of them", writes.largest / PER_MS),
        ("partition_load_time_avg", "Milliseconds to load a partition", loads.mean / PER_MS),
        ("partition_load_time_max", "The longest of them", loads.largest / PER_MS),
    ):
        yield from plain(f"{OF_COORDINATOR}_{name}", "gauge", words, value)
