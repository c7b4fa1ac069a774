"""Share groups: sessions, and what is in flight of each share-partition that this broker leads. The
names are those that jmx_exporter's rules give to Kafka's SharePartitionMetrics and
ShareSessionCache; groups have the label `consumergroup`, as in the rest of the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.metrics.measured import OTHERS, Measured, plain
from kstore.broker.state.exposition import Family, Metrics, sample
from kstore.broker.state.work import ROWS_BETWEEN

if TYPE_CHECKING:
    from kstore.broker.metrics.topics import SummedUp
    from kstore.broker.runtime.shares.share_partition import SharePartition

__all__ = ["of_shares"]

LIMIT = "kstore.metrics.max.partitions"
RECORDS = Family(
    "kafka_server_sharepartitionmetrics_inflightmessagecount", "gauge",
    "Records of a share-partition that are neither acknowledged nor archived",
)  # fmt: skip
RANGES = Family(
    "kafka_server_sharepartitionmetrics_inflightbatchcount", "gauge",
    "Ranges of records in flight that are alike",
)  # fmt: skip


class _InFlight(NamedTuple):
    records: int
    ranges: int


def of_shares(broker: Measured, left_out: SummedUp, *, by_name: bool) -> Metrics:
    """Sessions, timeouts, and each share-partition if ``by_name``."""
    manager = broker.share_partitions.made
    left_out.counts["share_partitions"] = 0
    if manager is None:
        return
    loaded = manager.loaded
    for name, words, value in (
        ("sharesessionscount", "Share sessions of members", len(manager.sessions)),
        ("sharepartitionscount", "Share-partitions whose state is here", len(loaded)),
    ):
        yield from plain(f"kafka_server_sharesessioncache_{name}", "gauge", words, value)
    yield from plain(
        "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", "counter",
        "Records whose acquisition lock ended by time", manager.lock_timeouts,
    )  # fmt: skip
    if by_name:
        yield from _by_name(loaded, broker.config[LIMIT], left_out)


def _by_name(loaded: list[SharePartition], most: int, left_out: SummedUp) -> Metrics:
    rows: list[tuple[dict[str, str], _InFlight]] = []
    others = _InFlight(0, 0)
    for number, each in enumerate(loaded):
        if number % ROWS_BETWEEN == 0:
            yield ""
        records = each.records
        if records is None:
            continue
        found = _InFlight(records.count(), len(records))
        if number < most:
            labels = {
                "consumergroup": each.key.group_id,
                "topic": each.partition.entry.name.decode(),
                "partition": str(each.key.partition),
            }
            rows.append((labels, found))
        else:
            others = _InFlight(others.records + found.records, others.ranges + found.ranges)
    if len(loaded) > most:
        left_out.counts["share_partitions"] = len(loaded) - most
        rows.append(({"consumergroup": OTHERS, "topic": OTHERS, "partition": ""}, others))
    yield RECORDS
    for labels, found in rows:
        yield sample(RECORDS.name, found.records, **labels)
    yield RANGES
    for labels, found in rows:
        yield sample(RANGES.name, found.ranges, **labels)
