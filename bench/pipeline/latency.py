"""The time from a record's append until a continuous stream has written it to its sink: 1,000
records a second through Spark, micro-batch after micro-batch, at full speed.

Both sides write with Spark's own connector, to a topic with LogAppendTime: the broker's clock says
when a record has arrived. Only the readers differ. With asynchronous progress tracking, a
micro-batch does not wait for the checkpoint. Spark allows this only for the connector's sink.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping

import kstore
from bench.measure import Figures, percentile, progress
from bench.pipeline.session import Bench
from kstore.clients import Producer

__all__ = ["Stream"]

PER_SECOND = 1000
BURSTS = 100
"""Records are sent this many times a second, so that the producer needs little CPU time."""
WARM_S = 10.0
"""Until then, queries are compiled, and Python workers start."""
PATIENCE_S = 60.0
ASYNCHRONOUS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "1000",
}


class Stream:
    """Runs of one query through "kafka" (Spark's connector) or "kstore"."""

    def __init__(self, bench: Bench, seconds: float) -> None:
        self._bench = bench
        self._seconds = seconds
        self._number = 0

    def by(self, form: str, *, asynchronous: bool = False) -> Callable[[], Figures]:
        """The query with its source, if requested with asynchronous progress tracking."""
        return lambda: self._run(form, ASYNCHRONOUS if asynchronous else {})

    def _run(self, form: str, tracking: Mapping[str, str]) -> Figures:
        self._number += 1
        source, sink = (f"latency-{kind}-{form}-{self._number}" for kind in ("in", "out"))
        bench = self._bench
        bench.create(source, partitions=1)
        bench.create(sink, partitions=1, message_timestamp_type="LogAppendTime")
        checkpoint = bench.folder / source
        options = {"kafka.bootstrap.servers": bench.broker.bootstrap}
        rows = bench.spark.readStream.format(form).options(
            **options, subscribe=source, startingOffsets="earliest"
        )
        query = (
            rows.load()
            .select("value")
            .writeStream.format("kafka")
            .options(**options, **tracking, topic=sink, checkpointLocation=str(checkpoint))
            .start()
        )
        try:
            count = self._send(source)
            before = bench.spark_cpu_s()
            count += self._send(source, self._seconds)
            spark = bench.spark_cpu_s() - before
            took_ms = self._arrived(sink, count)[-int(self._seconds * PER_SECOND) :]
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        batches = [p for p in query.recentProgress if int(p["numInputRows"])]
        progress(f"    {form}: {len(batches)} of the last micro-batches had records")
        return {
            "p50_ms": percentile(took_ms, 0.5),
            "p99_ms": percentile(took_ms, 0.99),
            "cpu_share": spark / self._seconds,
        }

    def _send(self, topic: str, seconds: float = WARM_S) -> int:
        """Records with the time of their append as value, evenly distributed over these seconds."""
        sent = 0
        with Producer(bootstrap_servers=self._bench.broker.bootstrap, linger_ms=0) as producer:
            begin = time.monotonic()
            for burst in range(int(seconds * BURSTS)):
                time.sleep(max(begin + burst / BURSTS - time.monotonic(), 0))
                for _ in range(PER_SECOND // BURSTS):
                    producer.send(topic, b"%d" % (time.time_ns() // 1_000_000))
                    sent += 1
        return sent

    def _arrived(self, topic: str, count: int) -> list[int]:
        """The latency of each record in ms, in order."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            out = kstore.scan(topic=topic, bootstrap_servers=self._bench.broker.bootstrap)
            rows = out.select("timestamp", "value").to_polars().rows()
            if len(rows) >= count or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        found = [round(at.timestamp() * 1000) - int(value) for at, value in rows]
        if len(found) != count:
            raise RuntimeError(f"{len(found)} records arrived, and {count} were sent")
        return found
