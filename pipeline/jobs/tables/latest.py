"""Tables of the latest value per key: the last record of each key in a round, and the rows of the
table that it replaces. Position deletes (merge on read) delete the replaced rows.

In one partition, the record with the larger offset is later. If an expansion has moved a key to
another partition, the record with the later timestamp is later, and with equal timestamps the one
in the larger partition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.scan import Range, Scan
from kstore.pipeline.jobs.session import small_frame
from kstore.pipeline.jobs.tables.iceberg import Live, Prepared, Table
from kstore.pipeline.jobs.tables.rows import Written, write_all
from kstore.pipeline.jobs.tables.typed import UNDECODED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Merged", "merge", "write_latest"]

_LATER = "struct(coalesce(`{0}timestamp`, timestamp_micros(-1)), `{0}partition`)"
_SLASHES = re.compile(":/+")
"""Slashes after a scheme: Hadoop and Spark write one or three."""
_PATH_ID, _POS_ID = 2147483546, 2147483545
"""Iceberg's own field ids of position deletes."""


@dataclass(frozen=True)
class Merged:
    """Rows to add, and files of position deletes."""

    written: Written
    deletes: tuple[Prepared, ...]


def write_latest(
    table: Table, plan: Scan, ranges: Sequence[Range], folder: str, tasks: int, *, null_keys: str
) -> Written:
    """Write the last record of each key: records with a value below kind=row, others below
    kind=gone. Raises JobError for a record without a key, unless `null_keys` is skip.
    """
    spark = table.catalog.spark
    staged = f"{folder}/staged"
    all_of_them = write_all(table, plan, ranges, staged, tasks)
    if not all_of_them.files:
        return Written(folder, ())
    records = spark.read.parquet(f"{staged}/entry=record").drop("timestamp_day")
    nulls = [f"`{name}` IS NULL" for name in ("value", UNDECODED) if name in records.columns]
    if null_keys != "skip":
        _check_keys(ranges[0].topic, records)
    kept = (
        records.where("`key` IS NOT NULL")
        .repartition("key")
        .selectExpr(
            "*",
            "row_number() OVER (PARTITION BY `key`, `partition` ORDER BY `offset` DESC) AS `nth`",
        )
        .where("`nth` = 1")
        .selectExpr(
            "*",
            "row_number() OVER (PARTITION BY `key` "
            f"ORDER BY {_LATER.format('')} DESC) AS `of_partitions`",
        )
        .where("`of_partitions` = 1")
        .drop("nth", "of_partitions")
        .selectExpr("*", f"if({' AND '.join(nulls)}, 'gone', 'row') AS `kind`")
    )
    kept.sortWithinPartitions("kind", "key").write.partitionBy("kind").option(
        "compression", "zstd"
    ).parquet(f"{folder}/latest")
    files = table.prepared(table.catalog.files(f"{folder}/latest/kind=row"))
    table.catalog.delete(staged)
    return Written(folder, tuple(files))


def _check_keys(topic: str, records: DataFrame) -> None:
    without = records.where("`key` IS NULL").select("partition", "offset").limit(1).collect()
    if without:
        partition, offset = without[0]
        raise JobError(
            f"topic {topic}, partition {partition}: the record at offset {offset} has no key, so "
            "there is no latest value of it; nothing was committed. --null-keys skip leaves such "
            "records out, --rows all makes a row of each record"
        )


def merge(table: Table, written: Written, on: int | None) -> Merged:
    """The position deletes after which the rows of `written` are the latest on the snapshot
    `on`.
    """
    live = table.live(on)
    if not live or not written.folder:
        return Merged(written, ())
    spark, catalog = table.catalog.spark, table.catalog
    new_files = catalog.files(f"{written.folder}/latest")
    if not new_files:
        return Merged(written, ())
    paths = {file.path: catalog.qualified(file.path) for file in new_files}
    new = _placed(table, paths).selectExpr(
        "`key`", "`partition` AS `new_partition`", "`timestamp` AS `new_timestamp`",
        "`file_path` AS `new_path`", "`pos` AS `new_pos`",
    )  # fmt: skip
    old = _without_deleted(
        table, _placed(table, {each.path: catalog.qualified(each.path) for each in live}), live
    )
    both = old.join(new, "key").selectExpr(
        "*",
        "`partition` = `new_partition` OR "
        f"{_LATER.format('new_')} > {_LATER.format('')} AS `is_newer`",
    )
    # A row that is outdated on arrival is added and deleted at once.
    ended = (
        both.where("`is_newer`")
        .select("file_path", "pos")
        .union(
            both.where("NOT `is_newer` AND `new_path` LIKE '%/kind=row/%'").select(
                "new_path", "new_pos"
            )
        )
    )
    folder = f"{written.folder}/deletes-{on}"
    catalog.delete(folder)
    tasks = max(min(int(spark.sparkContext.defaultParallelism), len(live)), 1)
    _with_ids(
        ended.repartition(tasks, "file_path").sortWithinPartitions("file_path", "pos")
    ).write.option("compression", "zstd").parquet(folder)
    deletes = table.prepared_deletes(catalog.files(folder))
    return Merged(written, tuple(each for each in deletes if each.records))


def _placed(table: Table, paths: Mapping[str, str]) -> DataFrame:
    """The keys of files with their positions: the path as Iceberg knows it (the key of `paths`),
    Spark's form of it (the value), and the row number.
    """
    spark = table.catalog.spark
    names = small_frame(
        spark, [{"file_path": k, "same_path": _SLASHES.sub(":/", v, 1)} for k, v in paths.items()],
        "file_path string, same_path string",
    )  # fmt: skip
    read = (
        spark.read.schema("`key` binary, `partition` int, `timestamp` timestamp")
        .parquet(*paths)
        .selectExpr(
            "`key`", "`partition`", "`timestamp`", "`_metadata`.`row_index` AS `pos`",
            "regexp_replace(`_metadata`.`file_path`, '^([^:/]+):/+', '$1:/') AS `same_path`",
        )
        .join(names.hint("broadcast"), "same_path", "left")
    )  # fmt: skip
    # A row of a file that is not in `paths` could not be deleted; that must fail.
    known = "coalesce(`file_path`, raise_error(concat('kstore does not know ', `same_path`)))"
    return read.selectExpr(
        "`key`", "`partition`", "`timestamp`", "`pos`", f"{known} AS `file_path`"
    )


def _without_deleted(table: Table, rows: DataFrame, live: Sequence[Live]) -> DataFrame:
    deletes = sorted({path for each in live for path in each.deletes})
    if not deletes:
        return rows
    gone = table.catalog.spark.read.schema("`file_path` string, `pos` bigint").parquet(*deletes)
    return rows.join(gone, ["file_path", "pos"], "left_anti")


def _with_ids(frame: DataFrame) -> Any:
    """The two columns with the field ids by which Iceberg finds them in Parquet."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    schema = StructType(
        [
            StructField("file_path", StringType(), True, {"parquet.field.id": _PATH_ID}),
            StructField("pos", LongType(), True, {"parquet.field.id": _POS_ID}),
        ]
    )
    return frame.to(schema)
