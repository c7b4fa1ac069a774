"""The rows of a table: its columns, in Iceberg and as Spark writes them, and the files of a round.

Every offset of a round must be a row or have no record: otherwise the round does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.scan import Range, Scan, scan, split
from kstore.pipeline.jobs.tables.iceberg import DataFile, Prepared, Table
from kstore.pipeline.jobs.tables.typed import UNDECODED, TypedScan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DAY", "RAW", "Written", "scanned", "task_ranges", "write_all"]

DAY = "timestamp"
FEW = 100_000
"""Tasks have about this number of offsets, up to three tasks per core."""
MAX_ROWS = 2_000_000
"""The number of rows of one file."""

_HEADERS = {
    "type": "list",
    "element": {
        "type": "struct",
        "fields": [
            {"name": "key", "required": False, "type": "string"},
            {"name": "value", "required": False, "type": "binary"},
        ],
    },
    "element-required": False,
}
_HOLE = "array(named_struct('key', 'end', 'value', CAST(CAST(`endOffset` AS string) AS binary)))"
"""The end of a hole, in a column of records: data files have no other columns."""
RAW: dict[str, Any] = {
    "key": "binary",
    "value": "binary",
    "headers": _HEADERS,
    "timestamp": "timestamptz",
    "timestamp_type": "int",
    "partition": "int",
    "offset": "long",
    "leader_epoch": "int",
}
"""Iceberg's types of the columns, in order, without ids."""
_SELECTED = (
    "`key`", "`value`", "`headers`", "`timestamp`", "`timestampType` AS `timestamp_type`",
    "`partition`", "`offset`", "`leaderEpoch` AS `leader_epoch`",
)  # fmt: skip


@dataclass(frozen=True)
class Written:
    """The files of one round, in their own folder."""

    folder: str
    files: tuple[Prepared, ...]

    @property
    def records(self) -> int:
        """Rows of all files."""
        return sum(file.records for file in self.files)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.size for file in self.files)


def task_ranges(spark: SparkSession, ranges: Sequence[Range], requested: int) -> list[Range]:
    """The ranges for tasks, of about equal size."""
    cores = max(int(spark.sparkContext.defaultParallelism), 1)
    total = sum(each.size for each in ranges)
    return split(ranges, requested or max(min(3 * cores, total // FEW), 1))


def scanned(spark: SparkSession, plan: Scan, ranges: Sequence[Range]) -> DataFrame:
    """The entries of these ranges: records with the columns of a table, holes with their ends."""
    selected = (*_SELECTED, f"`{UNDECODED}`") if isinstance(plan, TypedScan) else _SELECTED
    return scan(spark, plan, ranges).selectExpr(
        "`entry`",
        f"CASE WHEN `date` <> 'none' THEN `date` END AS `{DAY}_day`",
        *(f"CASE WHEN `entry` = 'hole' THEN {_HOLE} ELSE `headers` END AS `headers`"
          if name == "`headers`" else name for name in selected),
    )  # fmt: skip


def write_all(
    table: Table, plan: Scan, ranges: Sequence[Range], folder: str, tasks: int
) -> Written:
    """Write the records of these ranges as files, by day. Raises JobError, and PipelineError from a
    task.
    """
    catalog, spark = table.catalog, table.catalog.spark
    _write(scanned(spark, plan, task_ranges(spark, ranges, tasks)), folder)
    files = table.prepared(catalog.files(f"{folder}/entry=record"))
    written = Written(folder, tuple(files))
    missing = _missing(spark, catalog.files(f"{folder}/entry=hole"))
    size = sum(each.size for each in ranges)
    if written.records + missing != size:
        raise JobError(
            f"topic {ranges[0].topic}: {size} offsets gave {written.records} records and {missing} "
            "offsets without one; nothing was committed. This is a defect of kstore: please report "
            "it"
        )
    return written


def _write(entries: DataFrame, folder: str) -> None:
    # A format that other programs also read; Spark's default is its own.
    entries.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    by = ("entry", f"{DAY}_day")
    entries.sortWithinPartitions(*by, "partition", "offset").write.partitionBy(*by).option(
        "compression", "zstd"
    ).option("maxRecordsPerFile", MAX_ROWS).parquet(folder)


def _missing(spark: SparkSession, holes: Sequence[DataFile]) -> int:
    """The number of offsets without a record."""
    if not holes:
        return 0
    end = "CAST(CAST(`headers`[0].`value` AS string) AS bigint)"
    found = spark.read.parquet(*(file.path for file in holes))
    return int(found.selectExpr(f"sum({end} - `offset`) AS missing").collect()[0].missing)
