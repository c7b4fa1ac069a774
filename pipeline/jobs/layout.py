"""An archive of topics: the layout of its folder, and the description of each slice.

    <archive>/data/run=<run>/entry=record/topic=<topic>/date=<date>/*.parquet    the records
                            /entry=hole/..       offsets without a record, and why
                            /entry=block/..      counts and digests as they were read
    <archive>/slices/run=<run>/*.parquet         one row per partition that the run has archived

A run counts when its slices exist: they are written last, in one file. Jobs do not see data/ of a
killed run; it may be deleted. Everything is read and written through Spark, so the folder may be
anywhere that Spark can write to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.entries import ENTRY_COLUMNS, spark_schema
from kstore.pipeline.jobs.session import small_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "PARTITIONED_BY",
    "VERSION",
    "Slice",
    "data_path",
    "entries",
    "read_slices",
    "write_slices",
]

VERSION = 1
PARTITIONED_BY = ("entry", "topic", "date")


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


def read_slices(spark: SparkSession, path: str, *, must_exist: bool = True) -> list[Slice]:
    """The slices of an archive, by topic, partition and offset; [] if there are none, or if it need
    not exist.

    Raises JobError for a folder that is not an archive, or is one of a later version.
    """
    from pyspark.errors import AnalysisException

    try:
        found = spark.read.schema(_SLICE_DDL).parquet(f"{path.rstrip('/')}/slices").collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        if must_exist:
            raise JobError(
                f"{path} is not an archive: it has no folder slices, which the first finished run "
                "of `kstore pipeline archive` writes"
            ) from None
        return []
    slices = [Slice(**row.asDict()) for row in found]
    newest = max((each.version for each in slices), default=VERSION)
    if newest > VERSION:
        raise JobError(
            f"{path} was written in version {newest} of the layout; this kstore reads up to "
            f"{VERSION}: install a newer one"
        )
    return sorted(slices, key=lambda each: (each.topic, each.partition, each.start, each.end))


def write_slices(spark: SparkSession, path: str, slices: Sequence[Slice]) -> None:
    """Write the slices, so that the run counts."""
    frame = small_frame(spark, [asdict(each) for each in slices], _SLICE_DDL).coalesce(1)
    run = slices[0].run
    frame.drop("run").write.parquet(f"{path.rstrip('/')}/slices/run={run}")


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
