"""Runs a query as Spark does, without Spark: the micro-batches of a StreamReader one after the
other, and all rows of a read. The checkpoint is kept as text, as in Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kstore.clients import Producer
from kstore.pipeline.batch_reader import BatchReader
from kstore.pipeline.schema import source_schema
from kstore.pipeline.stream_reader import StreamReader

SCHEMA = source_schema(include_headers=False)


def write(servers: str, topic: str, values: Iterable[int], partition: int = 0) -> None:
    """Records whose values are numbers, into one partition."""
    with Producer(servers) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=partition)
        producer.flush()


def batch_rows(servers: str, topic: str, **options: str) -> list[dict[str, Any]]:
    """All rows of a batch read."""
    reader = BatchReader(SCHEMA, {"kafka.bootstrap.servers": servers, "subscribe": topic} | options)
    return rows_of(reader)


def rows_of(reader: Any, tasks: Iterable[Any] | None = None) -> list[dict[str, Any]]:
    """What executors read: Spark sends them a reader and tasks. Without tasks, those of a batch
    read.
    """
    tasks = reader.partitions() if tasks is None else tasks
    serializer = CloudPickleSerializer()
    sent = serializer.loads(serializer.dumps(reader.read))
    return [
        row
        for task in tasks
        for batch in sent(serializer.loads(serializer.dumps(task)))
        for row in batch.to_pylist()
    ]


class Query:
    """A streaming query; a second one with the `log` of the first is its restart."""

    def __init__(
        self, servers: str, topic: str, *, log: list[str] | None = None, **options: str
    ) -> None:
        given = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest"} | options
        if not {"assign", "subscribePattern"} & given.keys():
            given["subscribe"] = topic
        self._given = given
        self.reader = StreamReader(SCHEMA, given)
        self.log: list[str] = [] if log is None else log
        """The ends of the micro-batches, as in Spark's offset log."""
        self._start = json.loads(self.log[-1]) if self.log else self.reader.initialOffset()

    def step(self, *, all_available: bool = False) -> list[dict[str, Any]] | None:
        """The rows of the next micro-batch; None if there is none yet."""
        limit = ReadAllAvailable() if all_available else self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self._start, limit)
        if end == self._start:
            return None
        self.log.append(json.dumps(end))
        rows = self._run(self._start, end)
        self._start = end
        return rows

    def again(self) -> list[dict[str, Any]]:
        """The last micro-batch again, as after a crash in the middle of it: in another process,
        from the checkpoint.
        """
        if len(self.log) > 1:
            start = json.loads(self.log[-2])
        else:
            start = StreamReader(SCHEMA, self._given).initialOffset()
        return self._run(start, json.loads(self.log[-1]))

    def _run(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        fresh = StreamReader(SCHEMA, self._given)
        return rows_of(fresh, self.reader.partitions(start, end))

    def close(self) -> None:
        self.reader.stop()


def values(rows: list[dict[str, Any]] | None) -> list[int]:
    """The numbers that `write` wrote."""
    assert rows is not None, "there was no micro-batch"
    return [int(row["value"]) for row in rows]
