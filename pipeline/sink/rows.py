"""Encodes Arrow rows as record batches of one partition each, with the producer's C code but
without a producer. The sink writes them later; this module knows no brokers, and only asks for the
number of partitions of a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from kstore._fast.clients.send_path import SendPath
from kstore.clients.arrow_input import column_runs
from kstore.clients.io.producing import new_accumulator
from kstore.errors import MessageTooLargeError, UnknownTopicOrPartitionError
from kstore.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from kstore.clients.arrow_input import ColumnRun
    from kstore.config.client.configs import ClientSettings

__all__ = ["Encoded", "RowEncoder", "RowGroup", "check_schema", "groups"]

TEXT_OR_BYTES = ("string", "binary")
COLUMNS: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
"""The columns of a sink, with their allowed types; other columns are ignored."""
OBSTACLE_MEMORY = 2
TO_ENCODE = ("value", "key", "headers")


class RowGroup(NamedTuple):
    """Rows for one topic, and for one partition if their column has one; otherwise -1."""

    topic: str
    partition: int
    rows: Any


class Encoded(NamedTuple):
    """A record batch for a partition; its base offset is 0, and it has no producer id yet."""

    topic: str
    partition: int
    records: int
    data: bytes


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raise PipelineError if the columns are not those of Spark's Kafka connector."""
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if topic is None and "topic" not in types:
        raise PipelineError(
            "no topic to write to is given",
            remedy="Set the option topic, or give the rows a column topic",
        )
    if "value" not in types:
        raise PipelineError(
            f"the rows have columns {', '.join(schema.fieldNames()) or '(none)'}, but no value",
            remedy="Name the column that becomes the record's value 'value'",
        )
    for name, allowed in COLUMNS.items():
        found = types.get(name)
        if found is not None and _plain(found).simpleString() not in allowed:
            raise PipelineError(
                f"column {name} is {found.simpleString()}; it must be {' or '.join(allowed)}",
                remedy="Cast it",
            )


def _plain(kind: DataType) -> DataType:
    """Types that differ only in length or collation as one."""
    if isinstance(kind, StringType):
        return StringType()
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = [StructField(f.name, _plain(f.dataType)) for f in kind.elementType.fields]
        return ArrayType(StructType(fields))
    return kind if not isinstance(kind, BinaryType | IntegerType) else type(kind)()


def groups(batch: Any, topic: str | None) -> Iterator[RowGroup]:
    """The rows of a RecordBatch by topic and partition, in their order within each. The option
    topic wins over the column, as in Spark's Kafka connector.
    """
    import pyarrow as pa

    named = {field.name.lower(): batch.column(i) for i, field in enumerate(batch.schema)}
    parts = {name: named[name] for name in TO_ENCODE if name in named}
    rows = pa.RecordBatch.from_arrays(list(parts.values()), names=list(parts))
    topics = named.get("topic") if topic is None else None
    for name, chosen, where in _split(rows, topics, named.get("partition")):
        if topic is None and name is None:
            raise PipelineError(
                "a row's topic is null", remedy="Set the option topic, or filter such rows out"
            )
        for partition, found, _ in _split(chosen, where, None):
            if partition is not None and partition < 0:
                raise PipelineError(
                    f"a row's partition is {partition}",
                    topic=topic or name,
                    remedy="Give it a partition of the topic, or null to have the key choose",
                )
            yield RowGroup(topic or name, -1 if partition is None else partition, found)


def _split(rows: Any, by: Any, along: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(value, rows, rows of another column) for each value of a column, including null."""
    import pyarrow.compute as pc

    values = [None] if by is None else pc.unique(by).to_pylist()
    if len(values) < 2:
        yield from ((value, rows, along) for value in values)
        return
    for value in values:
        chosen = pc.is_null(by) if value is None else pc.fill_null(pc.equal(by, value), False)
        yield value, rows.filter(chosen), None if along is None else along.filter(chosen)


class RowEncoder:
    """Takes rows, and returns batches when they are full; `finish` returns the rest.

    ``partitions`` returns the number of partitions of a topic, or raises.
    """

    def __init__(self, settings: ClientSettings, partitions: Callable[[str], int]) -> None:
        self._accumulator = new_accumulator(settings)
        self._path = SendPath()
        self._path.attach(self._accumulator, plain=True)
        self._partitions = partitions

    def add(self, group: RowGroup) -> Iterator[Encoded]:
        """Encode rows; yields full batches."""
        if not self._accumulator.partition_count(group.topic):
            count = self._partitions(group.topic)
            self._accumulator.set_partitions(group.topic, count)
        for run in column_runs(group.rows):
            done = 0
            while done < run.count:
                done = self._append(group, run, done)
                yield from self._full(group.topic)
                if done < run.count:
                    yield from self.finish()  # memory is full of open batches

    def _append(self, group: RowGroup, run: ColumnRun, start: int) -> int:
        """The index of the first row that did not fit."""
        try:
            if run.headers is None:
                return self._path.append_columns(
                    group.topic, run.count, run.values, run.keys, 0, group.partition, start, 0, [],
                )  # fmt: skip
            partition = None if group.partition < 0 else group.partition
            for at, (value, key, _, headers) in enumerate(run.rows(start)):
                added = self._path.append(
                    group.topic, value, key, partition, None, headers, None, None
                )
                if added is None:
                    return start + at
            return run.count
        except UnknownTopicOrPartitionError as error:
            raise PipelineError(
                str(error),
                topic=group.topic,
                partition=group.partition,
                remedy="Correct the rows' column partition, or create partitions",
            ) from None
        except MessageTooLargeError as error:
            raise PipelineError(
                f"a row is too large: {error}",
                topic=group.topic,
                remedy="Raise kafka.max.request.size and the topic's max.message.bytes",
            ) from None

    def _full(self, topic: str) -> Iterator[Encoded]:
        for queue in self._accumulator.queues(topic):
            while queue.closed:
                yield self._taken(queue)

    def finish(self) -> Iterator[Encoded]:
        """The remaining batches."""
        for topic in self._accumulator.topic_names():
            for queue in self._accumulator.queues(topic):
                while queue.first() is not None:
                    yield self._taken(queue)

    def _taken(self, queue: Any) -> Encoded:
        batch = self._accumulator.take(queue)
        assert batch is not None
        batch.pack(-1, -1, -1, False)
        made = Encoded(queue.topic, queue.partition, batch.count, batch.bytes())
        batch.complete(-1)  # gives its memory back
        return made
