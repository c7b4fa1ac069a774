"""The job table: keeps a topic as an Iceberg table. A call reads the records that the table does
not have, writes them as files, and commits files and progress together; the next call continues.

A killed run leaves only files that no snapshot refers to (`remove_orphan_files` deletes them).
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kstore.pipeline.columns.types import iceberg_type
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.brokers import Brokers, Topic
from kstore.pipeline.jobs.scans.scan import Scan
from kstore.pipeline.jobs.tables.iceberg import OWNER, Catalog, ConflictError, Table
from kstore.pipeline.jobs.tables.latest import merge, write_latest
from kstore.pipeline.jobs.tables.progress import (
    RESYNC,
    Progress,
    Round,
    check_history,
    first_progress,
    note_is_due,
    plan_round,
    policies,
    tombstones_may_be_gone,
)
from kstore.pipeline.jobs.tables.rows import DAY, RAW, Written, write_all
from kstore.pipeline.jobs.tables.schema import schema_of
from kstore.pipeline.jobs.tables.typed import (
    COLUMNS,
    UNDECODED,
    ColumnOptions,
    TypedScan,
    followed,
    values_of,
)
from kstore.pipeline.jobs.topics import topic_configs
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Kept", "TableOptions", "keep_table", "table_name", "target"]

TRIES = 10
ROWS = "kstore.rows"
ALL, LATEST = "all", "latest"
_TARGET = re.compile(r"iceberg:([^/]+)/(.+)")


@dataclass(frozen=True)
class TableOptions:
    """`settings` are a consumer's, for the cluster; `catalog` is one of Spark's."""

    settings: Mapping[str, Any]
    topic: str
    catalog: str
    namespace: str
    table: str
    on_loss: str = "fail"
    """fail or skip, if the cluster has deleted records that the table does not have yet."""
    max_offsets: int = 0
    """The maximum number of offsets of a commit; 0: all."""
    rows: str = "auto"
    """all: each record; latest: the latest value of each key; auto: like the table, or by
    cleanup.policy.
    """
    null_keys: str = "fail"
    """fail or skip, for records without a key with rows=latest."""
    resync: bool = False
    tasks: int = 0
    columns: ColumnOptions | None = None
    """How values are decoded; None: as bytes."""


@dataclass
class Kept:
    """The result of one round."""

    topic: str
    table: str
    records: int = 0
    offsets: int = 0
    bytes: int = 0
    files: int = 0
    lost: int = 0
    behind: int = 0
    """Offsets that are left for the next round."""
    snapshot: int | None = None
    places: dict[int, int] = field(default_factory=dict)


def target(text: str) -> tuple[str, str]:
    """Catalog and namespace of iceberg:CATALOG/NAMESPACE. Raises ValueError."""
    found = _TARGET.fullmatch(text)
    if found is None:
        raise ValueError(
            f"--to must be iceberg:CATALOG/NAMESPACE, such as iceberg:lake/events, not {text!r}"
        )
    return found[1], found[2].replace("/", ".")


def table_name(topic: str) -> str:
    """A name that SQL accepts without quotes: dots and dashes of a topic become underscores."""
    return re.sub(r"[.-]", "_", topic)


def keep_table(
    spark: SparkSession,
    options: TableOptions,
    report: Callable[[str], None],
    catalog: Catalog | None = None,
) -> Kept:
    """Update the table to the current end of the topic, or by `max_offsets`. A caller that repeats
    it opens the catalog once, because each catalog has its own connections.

    Raises JobError, KafkaError, and PipelineError from a task.
    """
    catalog = catalog or Catalog(spark, options.catalog)
    job = _Keeping(catalog, options, report)
    for _ in range(TRIES):
        try:
            return job.round()
        except ConflictError as error:
            report(f"{job.name}: {error}; trying again")
    raise JobError(
        f"{TRIES} times in a row, another program was faster to commit to {job.name}: let one job "
        "keep a table, or run it again when there are fewer other commits",
        passes=True,
    )


class _Keeping:
    """The work on one table. Written files stay valid while the table's progress is the one that
    they continue.
    """

    def __init__(
        self, catalog: Catalog, options: TableOptions, report: Callable[[str], None]
    ) -> None:
        self.catalog = catalog
        self.options = options
        self.report = report
        self.name = f"{options.catalog}.{options.namespace}.{options.table}"
        self._resync = options.resync
        self._written: tuple[str, Round, Written] | None = None

    def round(self) -> Kept:
        """One attempt; raises ConflictError if another program has committed meanwhile."""
        options = self.options
        now_ms = int(time.time() * 1000)
        with Brokers(options.settings) as brokers:
            topic = _found(brokers, options.topic)
            configs = topic_configs(options.settings, options.topic)
            table = self.catalog.load(options.namespace, options.table) or self._create(configs)
            known, on = self._known(table, topic, brokers.cluster_id, now_ms)
            ends = _epoch_ends(brokers, topic, known)
            cluster_id = brokers.cluster_id
        self._check_tombstones(known, configs, now_ms)
        if self._resync:
            known = first_progress(topic, known.cluster_id, known.rows, now_ms)
            ends = {}
        if self._written is None or self._written[0] != known.text():
            self._forget()
            plan = plan_round(
                topic, known, ends, now_ms=now_ms, on_loss=options.on_loss,
                max_offsets=0 if self._resync else options.max_offsets, cluster_id=cluster_id,
                report=self.report,
            )  # fmt: skip
            if not plan.ranges and not plan.lost and not self._resync:
                if known.rows == LATEST and note_is_due(known, configs, now_ms):
                    table.append([], plan.after.text(), uuid.uuid4().hex, on)
                return self._kept(table, topic, plan, None)
            self._written = known.text(), plan, self._write(table, plan)
        _, plan, written = self._written
        self._check_still(plan.after)
        if known.rows == LATEST:
            self._check_time(known, configs)
        self._commit(table, plan, written, on)
        return self._kept(table, topic, plan, written)

    def _check_still(self, after: Progress) -> None:
        """Check that the topic still has what was read: it may have been created again meanwhile,
        or a leader of an unclean election has served the rest.
        """
        with Brokers(self.options.settings) as brokers:
            topic = _found(brokers, self.options.topic)
            ends = _epoch_ends(brokers, topic, after)
            check_history(topic, after, ends, brokers.cluster_id)

    def _commit(self, table: Table, plan: Round, written: Written, on: int | None) -> None:
        commit, progress = written.folder.rsplit("-", 1)[-1], plan.after.text()
        if self._resync:
            table.replace(written.files, progress, commit, on)
        elif plan.after.rows == LATEST:
            merged = merge(table, written, on)
            table.merge(written.files, merged.deletes, progress, commit, on)
        else:
            table.append(written.files, progress, commit, on)

    def _check_tombstones(
        self, known: Progress, configs: Mapping[str, str | None], now_ms: int
    ) -> None:
        """Read the whole topic again if deletes may have been missed."""
        if self._resync or known.rows != LATEST:
            return
        if not tombstones_may_be_gone(known, configs, now_ms):
            return
        message = (
            f"{self.name} was last brought up to date {(now_ms - known.read_ms) / 3_600_000:.1f} "
            "hours ago, longer than delete.retention.ms: tombstones may be gone"
        )
        if policies(configs) != {"compact"}:
            raise JobError(
                f"{message}, and retention has deleted records, so keys that expired look like "
                f"keys that were deleted; nothing was written. {RESYNC}"
            )
        self.report(f"{message}; all of the topic is read again")
        self._resync = True

    def _check_time(self, known: Progress, configs: Mapping[str, str | None]) -> None:
        """Whether the read took so long that tombstones may have been removed meanwhile."""
        if not tombstones_may_be_gone(known, configs, int(time.time() * 1000)):
            return
        message = "it took longer than delete.retention.ms to read"
        if not self._resync:
            raise ConflictError(message)
        self.report(f"{self.name}: {message} all of the topic: deleted keys may have rows")

    def _create(self, configs: Mapping[str, str | None]) -> Table:
        options = self.options
        rows = options.rows
        if rows == "auto":
            rows = LATEST if policies(configs) == {"compact"} else ALL
        what = "the latest value of each key" if rows == LATEST else "each record"
        self.report(f"creating table {self.name}, with a row for {what}")
        columns, properties = RAW, {"format-version": "2", OWNER: options.topic, ROWS: rows}
        if options.columns is not None:
            typed = iceberg_type(values_of(options.columns, options.topic).type)
            columns = {"key": RAW["key"], "value": typed, UNDECODED: "binary"}
            columns |= {name: kind for name, kind in RAW.items() if name not in columns}
            properties[COLUMNS] = options.columns.kind
        return self.catalog.create(
            options.namespace, options.table, schema_of(columns), None if rows == LATEST else DAY,
            properties,
        )  # fmt: skip

    def _known(
        self, table: Table, topic: Topic, cluster_id: str, now_ms: int
    ) -> tuple[Progress, int | None]:
        """The table's progress, and its snapshot. A new table first gets its start, in a commit of
        its own.
        """
        owner = table.properties.get(OWNER)
        if owner != topic.name:
            raise JobError(
                f"table {self.name} does not belong to kstore ({OWNER} is not set): choose another "
                "with --table"
                if owner is None
                else f"table {self.name} has topic {owner}, not {topic.name}: choose another "
                "with --table"
            )
        rows = table.properties.get(ROWS, ALL)
        if self.options.rows not in ("auto", rows):
            raise JobError(
                f"table {self.name} has rows={rows}, not {self.options.rows}: choose another table "
                "with --table"
            )
        self._check_columns(table)
        first = first_progress(topic, cluster_id, rows, now_ms)
        head = table.head()
        if self._resync:
            return first, head.snapshot
        if head.progress is not None:
            return Progress.parse(head.progress), head.snapshot
        if head.snapshot is not None:
            raise JobError(
                f"table {self.name} has rows, but none of the snapshots that it still has says "
                f"how far it has read (they expired, after commits by others): {RESYNC}"
            )
        for part in topic.partitions:
            if part.start:
                self.report(
                    f"topic {topic.name}, partition {part.partition}: its records begin at offset "
                    f"{part.start}, and so does the table"
                )
        table.append([], first.text(), uuid.uuid4().hex, None)
        return first, table.head().snapshot

    def _check_columns(self, table: Table) -> None:
        """Check that the values are decoded as before."""
        has = table.properties.get(COLUMNS)
        requested = None if self.options.columns is None else self.options.columns.kind
        if has != requested:
            shown = "values as bytes" if has is None else f"typed values (--columns {has})"
            raise JobError(
                f"table {self.name} has {shown}: use these, or choose another table with --table"
            )

    def _write(self, table: Table, plan: Round) -> Written:
        folder = f"{table.data_folder}/kstore-{uuid.uuid4().hex}"
        if not plan.ranges:
            return Written(folder, ())
        partitions = len({each.partition for each in plan.ranges})
        self.report(f"{self.name}: {plan.offsets} offsets of {partitions} partitions")
        scan = self._scan(table)
        tasks = self.options.tasks
        if plan.after.rows == LATEST:
            null_keys = self.options.null_keys
            return write_latest(table, scan, plan.ranges, folder, tasks, null_keys=null_keys)
        return write_all(table, scan, plan.ranges, folder, tasks)

    def _scan(self, table: Table) -> Scan:
        """The work of tasks. The schemas of all values that the round reads were registered
        before.
        """
        settings, wanted = self.options.settings, frozenset({"record", "hole"})
        columns = self.options.columns
        if columns is None:
            return Scan(settings, wanted=wanted)
        values = followed(table, columns, self.options.topic)
        return TypedScan(settings, wanted=wanted, values=values, keep_bad=columns.keep_bad)

    def _forget(self) -> None:
        """Files that continue an outdated state: no snapshot refers to them, or will."""
        if self._written is not None:
            self.catalog.delete(self._written[2].folder)
            self._written = None

    def _kept(self, table: Table, topic: Topic, plan: Round, written: Written | None) -> Kept:
        places = {partition: place.next for partition, place in plan.after.positions.items()}
        kept = Kept(topic.name, self.name, lost=sum(each.size for each in plan.lost), places=places)
        # If other programs committed in between, the topic is newer than the plan, and may have
        # been expanded.
        kept.behind = sum(part.end - places.get(part.partition, 0) for part in topic.partitions)
        kept.snapshot = table.head().snapshot
        if written is not None:
            kept.offsets = plan.offsets
            kept.records, kept.bytes = written.records, written.bytes
            kept.files = len(written.files)
        return kept


def _found(brokers: Brokers, name: str) -> Topic:
    found = brokers.topics(re.compile(re.escape(name)))
    if not found:
        raise JobError(f"the cluster has no topic {name}: see `kstore topic list`")
    return found[0]


def _epoch_ends(brokers: Brokers, topic: Topic, known: Progress) -> dict[int, int]:
    """The end of the leader epoch of each known position in the current log."""
    epochs = {
        TopicPartition(topic.name, partition): place.leader_epoch
        for partition, place in known.positions.items()
        if place.leader_epoch >= 0 and partition < len(topic.partitions)
    }
    ends = brokers.epoch_ends(epochs)
    return {tp.partition: end for tp, end in ends.items() if end >= 0}
