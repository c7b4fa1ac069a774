"""The job replicate: copies topics from any Kafka to kstore with equal offsets (KIP-391). Spark's
executors share the partitions.

Each task is the copier of `kstore replicate`, for some partitions up to given offsets. The job
keeps no state: it continues at each partition's log end offset in the target, so you can start a
killed task, or the whole job, again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kstore.clients.io.cluster import ClusterClient
from kstore.clients.replicator.copying import Copier
from kstore.clients.replicator.groups import GroupCopier
from kstore.clients.replicator.options import Event, ReplicationOptions
from kstore.clients.replicator.replicator import first_of, until_copied
from kstore.clients.replicator.topics import TopicCopier
from kstore.config.client.configs import client_settings
from kstore.errors import KafkaError
from kstore.pipeline.jobs.archive import task_count
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.offset_writer import require_given_offsets
from kstore.pipeline.jobs.scans.brokers import Brokers, Partition
from kstore.pipeline.jobs.topics import admin_settings
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CopyProgress", "ReplicateOptions", "Share", "replicate", "share_out"]

_RESULT = (
    "topic string, partition int, records bigint, bytes bigint, endOffset bigint, problem string, "
    "loss string"
)
PROGRESS_S = 1.0


@dataclass(frozen=True)
class ReplicateOptions:
    """`source` and `target` are a consumer's settings; `copying` selects what is copied, and
    how.
    """

    source: Mapping[str, Any]
    target: Mapping[str, Any]
    copying: ReplicationOptions
    tasks: int = 0
    """The approximate number of tasks; 0: depends on Spark's cores."""


@dataclass(frozen=True)
class CopyProgress:
    """The progress of a round; `offsets` is the number to copy, `lag` the number left."""

    partitions: int
    offsets: int
    lag: int


@dataclass
class Copied:
    """The result of a round. `problems` name the partitions that failed."""

    partitions: int = 0
    records: int = 0
    bytes: int = 0
    group_offsets: int = 0
    losses: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Share:
    """What one task copies: each partition with the source's offset to reach."""

    parts: tuple[tuple[str, int, int], ...]


def share_out(lags: Mapping[TopicPartition, tuple[int, int]], tasks: int) -> list[Share]:
    """Partitions with their (lag, end), in shares of about equal lag: the largest first, each to
    the smallest share.
    """
    behind = sorted(((lag, tp, end) for tp, (lag, end) in lags.items() if lag > 0), reverse=True)
    shares: list[tuple[int, int, list[tuple[str, int, int]]]] = [
        (0, number, []) for number in range(min(tasks, len(behind)))
    ]
    for lag, tp, end in behind:
        least = min(range(len(shares)), key=lambda at: shares[at][:2])
        size, number, parts = shares[least]
        parts.append((tp.topic, tp.partition, end))
        shares[least] = (size + lag, number, parts)
    return [Share(tuple(parts)) for _, _, parts in shares]


def replicate(
    spark: SparkSession,
    options: ReplicateOptions,
    report: Callable[[str], None],
    progress: Callable[[CopyProgress], None],
) -> Copied:
    """One round: topics and configs, then all records that the source had at the start, then
    committed offsets.

    Raises JobError if nothing can be copied; partitions that fail are in `problems`.
    """

    def events(event: Event) -> None:
        report(f"{event.kind}: {event.text}")

    tps = asyncio.run(_prepare(options, events))
    lags = _lags(options, tps)
    shares = share_out(lags, task_count(spark, options.tasks))
    done = Copied(partitions=len(tps))
    if shares:
        with _Watch(options, lags, progress):
            _copy(spark, options, shares, done)
    if options.copying.groups is not None:
        done.group_offsets = asyncio.run(_groups(options, tps, events))
    return done


async def _prepare(
    options: ReplicateOptions, events: Callable[[Event], None]
) -> list[TopicPartition]:
    """Make the target's topics equal to the source's; returns their partitions."""
    source, target = _clusters(options)
    try:
        timeout_ms = source.settings["default.api.timeout.ms"]
        for cluster in (source, target):
            await cluster.retrying(partial(cluster.refresh, []), timeout_ms)
        await require_given_offsets(target)
        if source.view.cluster_id and source.view.cluster_id == target.view.cluster_id:
            raise JobError(f"source and target are the same cluster, {source.view.cluster_id}")
        copier = TopicCopier(source, target, options.copying, events)
        tps = await target.retrying(copier.sync, timeout_ms)
    finally:
        await source.close()
        await target.close()
    if not tps:
        raise JobError(f"no topic of the source matches {options.copying.topics.pattern!r}")
    return tps


def _clusters(options: ReplicateOptions) -> tuple[ClusterClient, ClusterClient]:
    return (
        ClusterClient(client_settings("consumer", options.source, {})),
        ClusterClient(client_settings("admin", admin_settings(options.target), {})),
    )


def _lags(
    options: ReplicateOptions, tps: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """The lag of each partition's copy, and the source's end."""
    committed = options.copying.isolation_level == "read_committed"
    with Brokers(options.source, read_committed=committed) as source:
        topics = source.topics(options.copying.topics)
    parts: dict[TopicPartition, Partition] = {
        TopicPartition(part.topic, part.partition): part for t in topics for part in t.partitions
    }
    with Brokers(options.target, read_committed=False) as target:
        there = target.ends(tps)
    return {
        tp: (parts[tp].end - max(there[tp], parts[tp].start), parts[tp].end)
        for tp in tps
        if tp in parts
    }


def _copy(
    spark: SparkSession, options: ReplicateOptions, shares: Sequence[Share], done: Copied
) -> None:
    copying = options.copying
    if copying.rate_limit is not None:
        at_once = min(len(shares), int(spark.sparkContext.defaultParallelism))
        copying = replace(copying, rate_limit=copying.rate_limit / max(at_once, 1))
    task = CopyTask(replace(options, copying=copying), tuple(shares))
    numbers = spark.range(0, len(shares), 1, len(shares))
    for row in numbers.mapInArrow(task, _RESULT).collect():
        done.records += row.records
        done.bytes += row.bytes
        if row.loss:
            done.losses.append(row.loss)
        if row.problem:
            done.problems.append(row.problem)


async def _groups(
    options: ReplicateOptions, tps: list[TopicPartition], events: Callable[[Event], None]
) -> int:
    """Copy committed offsets, limited to the target's end."""
    with Brokers(options.target, read_committed=False) as brokers:
        ends = await asyncio.to_thread(brokers.ends, tps)
    source, target = _clusters(options)
    try:
        timeout_ms = source.settings["default.api.timeout.ms"]
        for cluster in (source, target):
            await cluster.retrying(partial(cluster.refresh, None), timeout_ms)
        groups = GroupCopier(source, target, options.copying, events)
        await source.retrying(lambda: groups.sync(ends), timeout_ms)
        return sum(groups.copied.values())
    finally:
        await source.close()
        await target.close()


# ---- on executors ----


@dataclass(frozen=True)
class CopyTask:
    """What the executors receive."""

    options: ReplicateOptions
    shares: tuple[Share, ...]

    def __call__(self, tasks: Iterator[Any]) -> Iterator[Any]:
        """A function for Spark's `mapInArrow` over the numbers of shares."""
        import pyarrow as pa

        types = [pa.string(), pa.int32(), *[pa.int64()] * 3, pa.string(), pa.string()]
        names = [part.split()[0] for part in _RESULT.split(", ")]
        for batch in tasks:
            for number in batch.column(0).to_pylist():
                rows = asyncio.run(copy_share(self.options, self.shares[number]))
                columns = zip(*rows, strict=True)
                arrays = [pa.array(list(c), t) for c, t in zip(columns, types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=names)


async def copy_share(options: ReplicateOptions, share: Share) -> list[tuple[Any, ...]]:
    """Copy the partitions up to their offsets; a row of _RESULT for each."""
    source, target = _clusters(options)
    losses: dict[TopicPartition, str] = {}

    def on_event(event: Event) -> None:
        if event.kind == "loss" and event.tp is not None:
            losses[event.tp] = event.text

    try:
        names = sorted({topic for topic, _, _ in share.parts})
        timeout_ms = source.settings["default.api.timeout.ms"]
        for cluster in (source, target):
            cluster.watch_topics(names)
            await cluster.retrying(partial(cluster.refresh, names), timeout_ms)
        copier = Copier(source, target, options.copying, on_event)
        ends = {TopicPartition(topic, partition): end for topic, partition, end in share.parts}
        for tp in ends:
            copier.add(tp)
        moving = asyncio.create_task(copier.run())
        await first_of(moving, asyncio.create_task(until_copied(copier, ends)))
    finally:
        await source.close()
        await target.close()
    return [
        (
            tp.topic,
            tp.partition,
            copy.copied_records,
            copy.copied_bytes,
            copy.position,
            None if copy.problem is None else str(copy.problem),
            losses.get(tp),
        )
        for tp, copy in copier.copies.items()
    ]


# ---- progress ----


class _Watch:
    """Asks the target every second for its progress during a round, because Spark does not report
    on a task before its end.
    """

    def __init__(
        self,
        options: ReplicateOptions,
        lags: Mapping[TopicPartition, tuple[int, int]],
        progress: Callable[[CopyProgress], None],
    ) -> None:
        self._ends = {tp: end for tp, (lag, end) in lags.items() if lag > 0}
        self._total = sum(lag for lag, _ in lags.values() if lag > 0)
        self._settings = options.target
        self._progress = progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kstore-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        tps = list(self._ends)
        with Brokers(self._settings, read_committed=False) as target:
            while not self._over.wait(PROGRESS_S):
                try:
                    there = target.ends(tps)
                except KafkaError:
                    continue  # the copy itself reports an unavailable target
                left = sum(max(end - there[tp], 0) for tp, end in self._ends.items())
                self._progress(CopyProgress(len(tps), self._total, min(left, self._total)))
