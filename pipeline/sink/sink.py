"""The sink: `df.write.format("kstore")` and `df.writeStream.format("kstore")`, rows in Arrow.

Columns and options are those of Spark's Kafka connector: topic (or the option), key, value,
headers, partition; kafka.* goes to the clients. With kstore brokers every row is written once,
without transactions, whatever is killed and tried again:

1. A task encodes its rows into record batches and *stages* them in the sink's own topic (its name
   begins with __kstore_sink_). It tells the driver where. A task that dies leaves batches there
   that nobody will ask for; its next attempt stages again. So it matters neither whether an attempt
   wrote half of its rows, nor whether two run at once, nor whether a repeated one has its rows in
   another order.
2. Once all tasks are done the driver writes the *plan* into the sink's journal (partition 0 of that
   topic): which attempts count, and at which offset each target partition ended. The plan of
   version n is at offset 2n: offsets are given (KIP-391), so there is one plan of a version for
   ever, whoever comes later with another, a driver thought dead included.
3. The driver has the leaders of the target partitions copy the staged batches, as they are, to
   given offsets (placing.py says how this is done once only), puts a mark at 2n + 1 and deletes
   what was staged.

A version is the micro-batch's id, a sink the query's id, which is in the checkpoint. A query that
starts again from its checkpoint repeats its last micro-batch: the journal's end offset says whether
to plan it (<= 2n), to carry out the plan that is there, with what was staged then (2n + 1), or
that nothing is left to do. Even rows that come out differently when computed again are so written
once. Consumers see nothing of a batch before all its tasks have succeeded; a job that fails has
written nothing.

Others may write to the same topics; their records come in between. Expansion (KIP-253): rows go to
the partitions that there were when they were staged.

A batch job is a sink by itself with one version, and its topic goes with it. Rows of a *job* that
is run again are written again, unless it says who it is: with the options kstore.writeId and
kstore.writeVersion (a number that grows, a micro-batch's id in foreachBatch, say), a version that
was written is not written again, and one that was begun is finished as it was.

What it costs: brokers write rows twice. They cross the network once, and pass the driver only where
a leader can't copy them: it has no replica of what was staged, or packs batches again.
kstore.delivery=at-least-once lets tasks write straight to the topic, as Spark's Kafka connector
does: less work, any Kafka broker, duplicates after failures.
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
    """The task's rows; tasks without any ask nothing of the brokers."""
    first = next((batch for batch in iterator if batch.num_rows), None)
    if first is None:
        return Written(task.sink, task.version)
    return task.write(itertools.chain([first], iterator))


@message_first
class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. It is made in the driver and travels to the tasks and to the commit."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> None:
        self._settings = SinkSettings.of(schema, options)
        if overwrite:
            raise PipelineError("a topic can't be overwritten", remedy="Write with mode append")
        named = text(options, "kstore.writeId")
        version = number(options, "kstore.writeVersion", at_least=0)
        if (named is None) != (version is None):
            raise PipelineError(
                "of kstore.writeId and kstore.writeVersion only one is set",
                remedy="Set both or none",
            )
        self._is_anonymous = named is None
        self._sink = named or f"job-{uuid.uuid4().hex[:16]}"
        self._version = version or 0
        if self._is_anonymous and self._settings.exactly_once:
            from kstore.pipeline.sink.commit import prepare

            prepare(self._settings, self._sink)

    def write(self, iterator: Iterator[Any]) -> Written:
        """A task."""
        from kstore.pipeline.sink.tasks import Task

        creates = not self._is_anonymous
        return _run(Task(self._settings, self._sink, self._version, creates=creates), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        from kstore.pipeline.sink.commit import commit

        commit(self._settings, _written(messages), is_last=self._is_anonymous)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job failed: what was staged goes, and tasks that Spark has not ended yet create
        nothing again.
        """
        from kstore.pipeline.sink.commit import forget

        if self._is_anonymous and self._settings.exactly_once:
            forget(self._settings, self._sink)


@message_first
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> None:
        # overwrite: output mode complete, whose results are appended as in Spark's connector.
        self._settings = SinkSettings.of(schema, options)

    def write(self, iterator: Iterator[Any]) -> Written:
        """A task of a micro-batch."""
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
        """All tasks of a micro-batch are done."""
        from kstore.pipeline.sink.commit import commit

        commit(self._settings, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The micro-batch failed, and will be tried again: nothing was written, or all will be."""


def _written(messages: list[WriterCommitMessage | None]) -> list[Written]:
    return [each for each in messages if isinstance(each, Written)]
