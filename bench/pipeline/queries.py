"""The compared queries: each counts its rows, and fails if their number is wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bench.measure import Figures
from bench.pipeline.session import Bench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Work"]

_SCHEMAS = {
    "only column value": "value BINARY",
    "only column offset": "offset BIGINT",
    "only column value, as STRING": "value STRING",
}


class Work:
    """One topic's queries."""

    def __init__(self, bench: Bench, topic: str, count: int) -> None:
        self.topic = topic
        self._bench = bench
        self._count = count
        self._number = 0

    def read(self, query: str, way: str, note: str) -> Callable[[], Figures]:
        """A query through "kafka" (Spark's connector), "brokers" or "segments"."""
        run = {
            "count": self._run_count,
            "sum": self._run_sum,
            "text": self._run_text,
            "Parquet": self._run_parquet,
            "stream": self._run_stream,
        }[query]
        return lambda: self._measured(lambda: run(way, note))

    def write(self, form: str, delivery: str, size: int, tasks: int) -> Callable[[], Figures]:
        """Write rows made by Spark to a new topic."""
        return lambda: self._measured(lambda: self._run_write(form, delivery, size, tasks))

    def _measured(self, run: Callable[[], int]) -> Figures:
        bench = self._bench
        before, broker_before = bench.spark_cpu_s(), bench.broker_cpu_s()
        parts_before = bench.parts_s()
        begin = time.monotonic()
        found = run()
        took = time.monotonic() - begin
        spark, broker = bench.spark_cpu_s() - before, bench.broker_cpu_s() - broker_before
        parts = bench.parts_s()
        if found != self._count:
            raise RuntimeError(f"{found} rows, and {self._count} were to be there")
        return {
            "rate": found / took,
            "per_cpu_s": found / spark,
            "cpu_us": spark / found * 1e6,
            "all_us": (spark + broker) / found * 1e6,
        } | {part: (parts[part] - parts_before[part]) / found * 1e6 for part in parts}

    # ---- reading ----

    def _options(self, way: str) -> dict[str, str]:
        if way == "segments":
            return {"path": str(self._bench.log_dir), "subscribe": self.topic}
        return {
            "kafka.bootstrap.servers": self._bench.broker.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }

    def _frame(self, way: str, note: str) -> DataFrame:
        reader = self._bench.spark.read.format("kafka" if way == "kafka" else "kstore")
        if note:
            reader = reader.schema(_SCHEMAS[note])
        return reader.options(**self._options(way)).load()

    def _run_count(self, way: str, note: str) -> int:
        return self._frame(way, note).count()

    def _run_sum(self, way: str, note: str) -> int:
        from pyspark.sql.functions import count, length
        from pyspark.sql.functions import sum as total

        row = self._frame(way, note).agg(total(length("value")), count("value")).collect()[0]
        return int(row[1])

    def _run_text(self, way: str, note: str) -> int:
        from pyspark.sql.functions import col, count, octet_length
        from pyspark.sql.functions import sum as total

        text = col("value").cast("string")
        row = self._frame(way, note).agg(total(octet_length(text)), count(text)).collect()[0]
        return int(row[1])

    def _run_parquet(self, way: str, note: str) -> int:
        folder = self._bench.folder / "parquet"
        self._frame(way, note).write.mode("overwrite").parquet(str(folder))
        return self._count  # counting them would be another query

    def _run_stream(self, way: str, note: str) -> int:
        self._number += 1
        checkpoint = self._bench.folder / f"checkpoint-{self._number}"
        reader = self._bench.spark.readStream.format("kafka" if way == "kafka" else "kstore")
        frame = reader.options(**self._options(way)).load()
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        shutil.rmtree(checkpoint, ignore_errors=True)
        return sum(int(progress["numInputRows"]) for progress in query.recentProgress)

    # ---- writing ----

    def _run_write(self, form: str, delivery: str, size: int, tasks: int) -> int:
        self._number += 1
        topic = f"{self.topic}-{form}-{self._number}"
        self._bench.create(topic)
        options: dict[str, Any] = {"kafka.bootstrap.servers": self._bench.broker.bootstrap}
        if delivery == "at least once":
            options["kstore.delivery"] = "at-least-once"
        # One long literal costs the JVM almost nothing. Padding with lpad would cost most of its
        # time.
        value = f"concat(lpad(cast(id as string), 10, '0'), '{'x' * (size - 10)}') as value"
        frame = self._bench.spark.range(0, self._count, 1, tasks).selectExpr(
            "cast(id % 100000 as string) as key", value
        )
        frame.write.format(form).options(topic=topic, **options).mode("append").save()
        found = self._bench.record_count(topic)
        self._bench.delete(topic)
        return found
