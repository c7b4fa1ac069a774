"""The sink: `df.write.format("kstore")` and `df.writeStream.format("kstore")`, rows in Arrow.

Columns and options are those of Spark's Kafka connector: topic (or the option), key, value,
headers, partition; kafka.* goes to the clients. With kstore brokers every row is written exactly
once, without transactions, even after failures and retries:

1. A task encodes its rows into record batches, *stages* them in the sink's own topic (its name
   begins with __kstore_sink_), and reports their offsets to the driver. If a task dies, its
   batches stay there unused, and the next attempt stages all rows again. So an attempt may stop
   halfway, two attempts may run at once, and a repeated attempt may have its rows in another
   order.
2. When all tasks are done, the driver writes the *plan* to the sink's journal (partition 0 of that
   topic): which attempts count, and the log end offset of each target partition. The plan of
   version n has the given offset 2n (KIP-391), so each version has only one plan. A second driver,
   or a driver that was believed dead, cannot write another.
3. The driver asks the leaders of the target partitions to copy the staged batches unchanged to
   given offsets (placing.py describes how each is copied only once). Then it writes a mark at
   2n + 1 and deletes the staged batches.

The version is the micro-batch's id; the sink is the query's id, which is in the checkpoint. A query
that restarts from its checkpoint repeats its last micro-batch. The journal's log end offset decides
what happens: up to 2n, the driver plans the batch; at 2n + 1, it carries out the existing plan,
with the batches that were staged for it; above, nothing is left to do. So rows are written once
even if computing them again gives other rows. Consumers see no record of a micro-batch until all
its tasks have succeeded; a job that fails writes nothing.

Other producers may write to the same topics; their records may lie between the sink's. Expansion
(KIP-253): rows go to the partitions that existed when the rows were staged.

A batch job is a sink of its own with one version; its topic is deleted with it. If a *job* runs
again, its rows are written again, unless the options kstore.writeId and kstore.writeVersion
identify the write. (The version increases; in foreachBatch it can be the micro-batch's id.) Then a
version that was written is not written again, and one that was started is finished with its first
plan.

The cost: brokers write rows twice. Rows cross the network once. They pass through the driver only
if a leader can't copy them because it has no replica of the staged batches, or recompresses
batches. With kstore.delivery=at-least-once, tasks write directly to the topic, as Spark's Kafka
connector does: less work, any Kafka broker, duplicates after failures.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kstore.pipeline.errors import PipelineError, message_first
from kstore.pipeline.options import number, text
from kstore.pipeline.sink.settings import SinkSettings
from kstore.pipeline.sink.written import Written

if TYPE_CHECKING:
    from kstore.pipeline.sink.tasks import Task

__all__ = ["BatchWriter", "StreamWriter"]

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def _run(task: Task, iterator: Iterator[Any]) -> Written:
    """Write the task's rows. A task without rows sends no request."""
    first = next((batch for batch in iterator if batch.num_rows), None)
    if first is None:
        return Written(task.sink, task.version)
    return task.write(itertools.chain([first], iterator))


@message_first
class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Created on the driver; Spark sends copies to the tasks and the commit."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> None:
        self._settings = SinkSettings.of(schema, options)
        if overwrite:
            raise PipelineError("a topic can't be overwritten", remedy="Write with mode append")
        named = text(options, "kstore.writeId")
        version = number(options, "kstore.writeVersion", at_least=0)
        if (named is None) != (version is None):
            raise PipelineError(
                "only one of kstore.writeId and kstore.writeVersion is set",
                remedy="Set both or neither",
            )
        self._is_anonymous = named is None
        self._sink = named or f"job-{uuid.uuid4().hex[:16]}"
        self._version = version or 0
        if self._is_anonymous and self._settings.exactly_once:
            from kstore.pipeline.sink.commit import prepare

            prepare(self._settings, self._sink)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Run one task."""
        from kstore.pipeline.sink.tasks import Task

        creates = not self._is_anonymous
        return _run(Task(self._settings, self._sink, self._version, creates=creates), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write what the tasks staged; all of them are done."""
        from kstore.pipeline.sink.commit import commit

        commit(self._settings, _written(messages), is_last=self._is_anonymous)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job failed: delete the staged batches. Tasks that still run do not create the topic
        again.
        """
        from kstore.pipeline.sink.commit import forget

        if self._is_anonymous and self._settings.exactly_once:
            forget(self._settings, self._sink)


@message_first
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> None:
        # overwrite means output mode complete; results are appended, as in Spark's connector.
        self._settings = SinkSettings.of(schema, options)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Run one task of a micro-batch."""
        from pyspark import TaskContext

        from kstore.pipeline.sink.tasks import Task

        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context else None
        batch = context.getLocalProperty(BATCH_ID) if context else None
        if not query or batch is None:
            raise PipelineError(
                f"Spark passes neither {QUERY_ID} nor {BATCH_ID} to the task",
                remedy="Use Spark 4.2 or newer, with df.writeStream",
            )
        return _run(Task(self._settings, query, int(batch)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write what the tasks of a micro-batch staged; all of them are done."""
        from kstore.pipeline.sink.commit import commit

        commit(self._settings, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The micro-batch failed. Nothing was written, or the retry will write all of it."""


def _written(messages: list[WriterCommitMessage | None]) -> list[Written]:
    return [each for each in messages if isinstance(each, Written)]
