"""The batch read through brokers: the driver plans ranges of offsets once, and executors read
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kstore.pipeline.errors import message_first
from kstore.pipeline.filters import Conditions
from kstore.pipeline.planning import split
from kstore.pipeline.ranges import OffsetRange
from kstore.pipeline.read_options import ReadOptions, read_options
from kstore.pipeline.schema import checked_columns
from kstore.pipeline.topic_client import Life, TopicClient
from kstore.pipeline.worker_process import keep_memory, spare_imports
from kstore.types import TopicPartition

__all__ = ["BatchReader", "tasks_of"]

_NOTHING = OffsetRange("", -1, 0, 0)
"""The input of an empty read: Spark plans a task even if there is nothing to read."""


def tasks_of(ranges: Iterable[OffsetRange]) -> list[InputPartition]:
    """Ranges as Spark's input partitions."""
    return [InputPartition(each) for each in ranges] or [InputPartition(_NOTHING)]


class _OptionalPushdown:
    """Provide `pushFilters` only if spark.sql.python.filterPushdown.enabled is set: otherwise Spark
    would refuse the query.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._conditions.push(filters)


@message_first
class BatchReader(DataSourceReader):
    """Records between two sets of offsets."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._prepare(schema, read_options(options, streaming=False))

    def _prepare(self, schema: StructType, options: ReadOptions) -> None:
        self._options = options
        self._columns = checked_columns(schema, include_headers=options.include_headers)
        self._conditions = Conditions()
        self.pushFilters = _OptionalPushdown(self._conditions)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        """Ranges of offsets from the current state of the brokers."""
        options = self._options
        client = TopicClient(options)
        try:
            ranges = self._ranges(client)
        finally:
            client.close()
        return tasks_of(split(ranges, options.min_partitions, options.max_records_per_partition))

    def _ranges(self, client: TopicClient) -> list[OffsetRange]:
        """The range of each partition after options and filters."""
        lives = client.partitions()
        start = client.resolve(self._options.starting, lives, is_start=True)
        end = client.resolve(self._options.ending, lives, is_start=False)
        kept = [tp for tp in lives if self._conditions.reads(tp.topic, tp.partition)]
        start = self._not_before(client, {tp: start[tp] for tp in kept}, end)
        return [self._range(tp, start[tp], end[tp], lives[tp]) for tp in sorted(kept)]

    def _not_before(
        self,
        client: TopicClient,
        start: dict[TopicPartition, int],
        end: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Skip the records before the first one that can pass a filter on timestamps."""
        earliest = self._conditions.earliest_ms
        if earliest is None:
            return start
        found = client.offsets(dict.fromkeys(start, max(earliest, 0)))
        return {
            tp: max(offset, found[tp].offset) if found[tp].offset >= 0 else end[tp]
            for tp, offset in start.items()
        }

    def _range(self, tp: TopicPartition, start: int, end: int, life: Life) -> OffsetRange:
        start, end = self._conditions.clipped(start, end)
        return OffsetRange(
            tp.topic, tp.partition, start, end, -1, life.partition_epoch, life.topic_id
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One range's records as Arrow batches; in an executor."""
        wanted = partition.value
        assert isinstance(wanted, OffsetRange)
        if wanted.size:
            from kstore.pipeline.arrow import arrow_decoding
            from kstore.pipeline.fetching import read_range

            keep_memory()
            spare_imports()
            for batch in read_range(wanted, self._options, arrow_decoding(self._columns)):
                yield self._conditions.filtered(batch)
