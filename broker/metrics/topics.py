"""Topics and partitions under the names that jmx_exporter's rules for Kafka use
(kafka_server_brokertopicmetrics_..., kafka_log_log_..., kafka_cluster_partition_...), and those of
kafka_exporter (kafka_topic_partition_...).

Up to kstore.metrics.max.partitions topics, and as many partitions, are listed by name. All others
are summed up as "(others)".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.metrics.measured import OTHERS, Measured, Row
from kstore.broker.state.exposition import Family, Metrics, escaped
from kstore.broker.state.work import ROWS_BETWEEN

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition

__all__ = ["Named", "SummedUp", "of_partitions", "of_topics", "summed_up"]

LIMIT = "kstore.metrics.max.partitions"


def _topic_row(name: str, field: str, words: str) -> Row:
    family = Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", words)
    return Row(family, lambda counts: getattr(counts, field))


OF_TOPICS = (
    _topic_row("messagesin", "messages_in", "Records that producers have written"),
    _topic_row("bytesin", "bytes_in", "Bytes that producers have written"),
    _topic_row("bytesout", "bytes_out", "Bytes that consumers have fetched"),
    _topic_row("bytesrejected", "bytes_rejected", "Bytes of batches that were refused"),
    _topic_row("totalproducerequests", "produce_requests", "Produce requests, by partition"),
    _topic_row("failedproducerequests", "produce_failed", "Produce requests with an error"),
    _topic_row("totalfetchrequests", "fetch_requests", "Fetches, by partition"),
    _topic_row("failedfetchrequests", "fetch_failed", "Fetch requests with an error"),
)
"""Families of TopicCounts. The sample without a topic covers all topics, including deleted ones."""


def _replication(name: str, words: str) -> Family:
    return Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", words)


REPLICATION_OUT = _replication("replicationbytesout", "Bytes that followers have fetched")
REPLICATION_IN = _replication("replicationbytesin", "Bytes that this broker copied from leaders")


def _partition_row(name: str, words: str, read: Callable[[Partition], float]) -> Row:
    return Row(Family(name, "gauge", words), read)


OF_REPLICAS = (
    _partition_row(
        "kafka_log_log_size", "Bytes of the log",
        lambda each: each.log.size_bytes if each.log else 0,
    ),
    _partition_row(
        "kafka_log_log_numlogsegments", "Segments of the log",
        lambda each: len(each.log.core.segments) if each.log else 0,
    ),
    _partition_row(
        "kafka_log_log_logstartoffset", "The first offset that can be read",
        lambda each: each.log_start_offset,
    ),
    _partition_row(
        "kafka_log_log_logendoffset", "The offset that the next record gets",
        lambda each: each.log_end_offset,
    ),
)  # fmt: skip
"""Families of every replica on this broker."""
OF_LEADERS = (
    _partition_row(
        "kafka_topic_partition_current_offset", "The high watermark",
        lambda each: each.high_watermark,
    ),
    _partition_row(
        "kafka_topic_partition_oldest_offset", "The first offset that can be read",
        lambda each: each.log_start_offset,
    ),
    _partition_row(
        "kafka_cluster_partition_laststableoffsetlag",
        "How far open transactions hold back readers: high watermark less last stable offset",
        lambda each: max(0, each.high_watermark - each.last_stable_offset),
    ),
    _partition_row(
        "kafka_cluster_partition_replicascount", "Replicas", lambda each: len(each.replicas)
    ),
    _partition_row(
        "kafka_cluster_partition_insyncreplicascount", "Replicas in sync",
        lambda each: len(each.isr),
    ),
    _partition_row(
        "kafka_cluster_partition_underreplicated", "1: the ISR lacks a replica",
        lambda each: int(len(each.isr) < len(each.replicas)),
    ),
    _partition_row(
        "kafka_cluster_partition_underminisr", "1: the ISR is below min.insync.replicas",
        lambda each: int(each.insync_replicas < each.min_insync_replicas),
    ),
)  # fmt: skip
"""Families of every partition that this broker leads."""


class Named(NamedTuple):
    """A partition, and its formatted labels."""

    labels: str
    partition: Partition


class SummedUp:
    """How many objects are not listed by name, by kind."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}


def summed_up(left_out: SummedUp) -> Metrics:
    """The samples for what the page does not list."""
    family = Family(
        "kstore_metrics_summed_up", "gauge",
        f"How many are not named on this page, but added up as {OTHERS}; {LIMIT} limits the "
        "names",
    )  # fmt: skip
    yield family
    for kind, count in left_out.counts.items():
        yield f'{family.name}{{of="{kind}"}} {count}'


def of_topics(broker: Measured, left_out: SummedUp, *, by_name: bool) -> Metrics:
    """Produced and fetched records and bytes: in total, and by topic if ``by_name``."""
    most: int = broker.config[LIMIT] if by_name else 0
    total = broker.table.counts
    entries = broker.table.topics() if by_name else []
    rest = entries[most:]
    left_out.counts["topics"] = len(rest)
    named = [(escaped(entry.name.decode()), entry.counts) for entry in entries[:most]]
    for family, read in OF_TOPICS:
        yield family
        yield f"{family.name} {read(total)}"
        for number, (name, counts) in enumerate(named):
            yield f'{family.name}{{topic="{name}"}} {read(counts)}'
            if number % ROWS_BETWEEN == 0:
                yield ""
        if rest:
            added = 0
            for number, entry in enumerate(rest):
                added += int(read(entry.counts))
                if number % ROWS_BETWEEN == 0:
                    yield ""
            yield f'{family.name}{{topic="{OTHERS}"}} {added}'
    yield REPLICATION_OUT
    yield f"{REPLICATION_OUT.name} {total.replica_bytes_out}"
    yield REPLICATION_IN
    yield f"{REPLICATION_IN.name} {total.replica_bytes_in}"


def of_partitions(broker: Measured, left_out: SummedUp) -> Metrics:
    """Logs and in-sync replicas of each partition."""
    most: int = broker.config[LIMIT]
    named: list[Named] = []
    rest: list[Partition] = []
    for entry in broker.table.topics():
        topic = escaped(entry.name.decode())
        for partition in entry.partitions:
            if partition is None or partition.log is None:
                continue
            if len(named) < most:
                labels = f'topic="{topic}",partition="{partition.index}"'
                named.append(Named(labels, partition))
            else:
                rest.append(partition)
            if (len(named) + len(rest)) % ROWS_BETWEEN == 0:
                yield ""
    left_out.counts["partitions"] = len(rest)
    yield from _columns(OF_REPLICAS, named, rest)
    yield from _columns(OF_LEADERS, named, rest, led_here=True)


def _columns(
    rows: Iterable[Row],
    named: Sequence[Named],
    rest: Sequence[Partition],
    *,
    led_here: bool = False,
) -> Metrics:
    """A family for each row. ``led_here``: only partitions that this broker leads."""
    for family, read in rows:
        name = family.name
        yield family
        for number, (labels, partition) in enumerate(named):
            if not led_here or partition.online:
                yield f"{name}{{{labels}}} {read(partition)}"
            if number % ROWS_BETWEEN == 0:
                yield ""
        if not rest:
            continue
        added = 0.0
        for number, partition in enumerate(rest):
            if not led_here or partition.online:
                added += read(partition)
            if number % ROWS_BETWEEN == 0:
                yield ""
        yield f'{name}{{topic="{OTHERS}",partition=""}} {added:.0f}'
