"""An archive of topics: the layout of its folder, and the description of each slice.

    <archive>/data/run=<run>/entry=record/topic=<topic>/date=<date>/*.parquet    the records
                            /entry=hole/..       offsets without a record, and why
                            /entry=block/..      counts and digests as they were read
    <archive>/slices/run=<run>/*.parquet         one row per partition that the run has archived

A run counts when its slices exist: they are written last, in one file. Jobs do not see data/ of a
killed run; it may be deleted. With Spark, the folder may be anywhere that Spark can write to. If
the driver can reach it as a folder of its machine, it writes the slices itself, as a job without
Spark (`spark` is None) writes all: local_files.py and local_rows.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.local_files import sync_run, write_slice_rows
from kstore.pipeline.jobs.local_rows import stored_records
from kstore.pipeline.jobs.scans.entries import ENTRY_COLUMNS, PARTITIONED_BY, spark_schema
from kstore.pipeline.jobs.session import small_frame, small_table
from kstore.pipeline.segments.slices import (
    VERSION,
    check_version,
    missing_records,
    slice_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "PARTITIONED_BY",
    "Slice",
    "check_files",
    "data_path",
    "entries",
    "is_url",
    "read_slices",
    "write_slices",
]

_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL_URL = re.compile("file:(//)?(?=/)")


@dataclass(frozen=True)
class Slice:
    """Offsets `start` to below `end` of one partition that one run has archived.

    `records` and `digest` are sums over its blocks. `configs` is JSON: the configs that were set on
    the topic.
    """

    run: str
    topic: str
    topic_id: str
    partition: int
    partitions: int
    start: int
    end: int
    records: int
    missing: int
    digest: int
    partition_epoch: int
    cluster_id: str
    read_committed: bool
    configs: str
    archived_ms: int
    version: int = VERSION


_TYPES = {"str": "string", "int": "bigint", "bool": "boolean"}
_SLICE_DDL = ", ".join(f"`{f.name}` {_TYPES[str(f.type)]}" for f in fields(Slice))


def data_path(path: str, run: str) -> str:
    """The folder of a run's entries."""
    return f"{path.rstrip('/')}/data/run={run}"


def is_url(path: str) -> bool:
    """Whether it is of another file system than this machine's, which only Spark reaches."""
    return _URL.match(path) is not None


def read_slices(spark: SparkSession | None, path: str, *, must_exist: bool = True) -> list[Slice]:
    """The slices of an archive, by topic, partition and offset; [] if there are none, or if it need
    not exist.

    Raises JobError for a folder that is not an archive, and PipelineError for one that can't be
    read.
    """
    found = slice_rows(path) if spark is None else _spark_slice_rows(spark, path)
    if found is None and must_exist:
        raise JobError(
            f"{path} is not an archive: it has no folder slices, which the first finished run "
            "of `kstore pipeline archive` writes"
        )
    check_version(path, found or [])
    slices = [Slice(**row) for row in found or ()]
    return sorted(slices, key=lambda each: (each.topic, each.partition, each.start, each.end))


def _spark_slice_rows(spark: SparkSession, path: str) -> list[dict[str, Any]] | None:
    from pyspark.errors import AnalysisException

    try:
        found = spark.read.schema(_SLICE_DDL).parquet(f"{path.rstrip('/')}/slices").collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    return [row.asDict() for row in found]


def write_slices(
    spark: SparkSession | None,
    path: str,
    slices: Sequence[Slice],
    check: Callable[[Sequence[Slice], list[Slice]], None],
) -> None:
    """Make a run count, unless `check` raises for these slices and those that the archive has by
    then. In a folder of this machine, no other run can start to count in between.
    """
    run = slices[0].run
    if spark is None:
        _write_here(path, slices, check)
    elif (here := _here(path, run)) is not None:
        sync_run(here, run)
        _write_here(here, slices, check)
    else:
        check(slices, read_slices(spark, path, must_exist=False))
        frame = small_frame(spark, _rows(slices), _SLICE_DDL).coalesce(1)
        frame.drop("run").write.parquet(f"{path.rstrip('/')}/slices/run={run}")


def _write_here(
    path: str, slices: Sequence[Slice], check: Callable[[Sequence[Slice], list[Slice]], None]
) -> None:
    def checked() -> None:
        check(slices, read_slices(None, path, must_exist=False))

    table = small_table(_rows(slices), _SLICE_DDL).drop(["run"])
    write_slice_rows(path, slices[0].run, table, checked)


def _rows(slices: Sequence[Slice]) -> list[dict[str, Any]]:
    return [asdict(each) for each in slices]


def _here(path: str, run: str) -> str | None:
    """The archive as a folder of this machine; None if Spark has written this run's entries
    elsewhere: without a scheme, a path can belong to another file system.
    """
    folder = _LOCAL_URL.sub("", path)
    return folder if Path(data_path(folder, run)).is_dir() else None


def entries(spark: SparkSession, path: str, runs: Iterable[str], *kinds: str) -> DataFrame:
    """The entries of these kinds and runs, with the columns of ENTRY_COLUMNS and the run."""
    from pyspark.sql.functions import col

    wanted = sorted(set(runs))
    schema = spark_schema() + ", `run` string"
    if not wanted:
        return spark.createDataFrame([], schema)
    base = f"{path.rstrip('/')}/data"
    frame = (
        spark.read.schema(schema)
        .option("basePath", base)
        .parquet(*(data_path(path, run) for run in wanted))
    )
    columns: list[Any] = [col(name) for name in (*ENTRY_COLUMNS, "run")]
    return frame.where(col("entry").isin(*kinds)).select(*columns)


def check_files(spark: SparkSession | None, path: str, slices: Iterable[Slice]) -> None:
    """Check that the files have all records of these slices, which must be all that their runs have
    of a topic. Raises PipelineError.
    """
    archived: Counter[tuple[str, str]] = Counter()
    for each in slices:
        archived[each.run, each.topic] += each.records
    there = _stored(spark, path, archived)
    for (run, topic), count in archived.items():
        if there[run, topic] != count:
            raise missing_records(path, run, topic, there[run, topic], count)


def _stored(
    spark: SparkSession | None, path: str, places: Iterable[tuple[str, str]]
) -> Counter[tuple[str, str]]:
    """The records that the files have of these runs and topics."""
    if spark is None:
        return Counter({place: stored_records(path, *place) for place in places})
    from pyspark.sql.functions import col

    runs, topics = ({place[at] for place in places} for at in (0, 1))
    frame = entries(spark, path, runs, "record").where(col("topic").isin(topics))
    counts = frame.groupBy("run", "topic").count().collect()
    return Counter({(row["run"], row["topic"]): row["count"] for row in counts})
