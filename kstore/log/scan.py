"""A log dir's records as Arrow, for DuckDB, Polars, pandas and anything else that takes a stream of
record batches. Only the requested columns are decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kstore._fast.record.columns import (
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    VALUE,
    ColumnReader,
    Columns,
)
from kstore.items import Items, items_of
from kstore.log.errors import LogNotFoundError
from kstore.log.log_dir import LogDir
from kstore.log.settings import LogConfig
from kstore.record.arrow import binary_array, fixed_array, headers_array, need_pyarrow

if TYPE_CHECKING:
    import pyarrow

    from kstore.log.log import Log
    from kstore.types import TopicPartition

__all__ = ["SCAN_COLUMNS", "scan"]

SCAN_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
FLAGS = {"offset": OFFSET, "timestamp": TIMESTAMP, "key": KEY, "value": VALUE, "headers": HEADERS}
READ_BYTES = 4 << 20
BATCH_BYTES = 64 << 20


def scan(
    path: str | os.PathLike[str],
    topic: str | None = None,
    *,
    partitions: Items[int] | None = None,
    columns: Items[str] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_time: datetime | int | None = None,
    end_time: datetime | int | None = None,
    isolation: str = "read_uncommitted",
    batch_rows: int = 65536,
) -> pyarrow.RecordBatchReader:
    """The records of a topic in a log dir, as they are now, as a stream of Arrow record batches.

    ``topic`` may be omitted if there is only one. The columns, which ``columns`` selects and
    orders: partition int32, offset int64, timestamp timestamp[ms, UTC] (-1 ms if a record has
    none), key and value binary, headers list<struct<key, value>>. ``start_offset`` (inclusive),
    ``end_offset`` (exclusive), ``start_time`` and ``end_time`` (likewise; with a time zone, or in
    ms since 1970) apply to each partition; the index finds where they begin. Another process may
    write meanwhile.

    Raises ImportError without pyarrow, ValueError for an unknown column, LogNotFoundError.
    """
    pa = need_pyarrow()
    names = _names(columns)
    wanted = None if partitions is None else items_of("partitions", partitions, int, "numbers")
    if batch_rows < 1:
        raise ValueError(f"batch_rows is {batch_rows}: a batch has one row or more")
    times = _milliseconds("start_time", start_time), _milliseconds("end_time", end_time)
    stack = ExitStack()
    log_dir = stack.enter_context(_open(path))
    with stack:
        keys = _partitions(log_dir, topic, wanted)
        schema = pa.schema([(name, _type(pa, name)) for name in names])
        rows = _Rows(names, schema, (start_offset, end_offset), times, isolation, batch_rows)
        opened = stack.pop_all()
    return pa.RecordBatchReader.from_batches(schema, _batches(opened, log_dir, keys, rows))


def _open(path: str | os.PathLike[str]) -> LogDir:
    return LogDir(
        os.fspath(path), read_only=True, flush="os", flush_interval_ms=1000, env=None,
        config=LogConfig(),
    )  # fmt: skip


def _names(columns: Items[str] | None) -> list[str]:
    names = list(SCAN_COLUMNS if columns is None else items_of("columns", columns, str, "names"))
    unknown = [name for name in names if name not in SCAN_COLUMNS]
    if unknown or not names:
        raise ValueError(f"columns has {unknown}: use some of {', '.join(SCAN_COLUMNS)}")
    return names


def _milliseconds(name: str, at: datetime | int | None) -> int | None:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"{name} is {at} without a zone: add one, tzinfo=timezone.utc say")
        return int(at.timestamp() * 1000)
    return at


def _partitions(
    log_dir: LogDir, topic: str | None, wanted: list[int] | None
) -> list[TopicPartition]:
    found = log_dir.partitions()
    topics = sorted({key.topic for key in found})
    if topic is None:
        if len(topics) != 1:
            raise ValueError(f"{log_dir.path} has the topics {topics}: say which one to scan")
        topic = topics[0]
    keys = [key for key in found if key.topic == topic]
    there = {key.partition for key in keys}
    missing = [each for each in wanted or () if each not in there]
    if not keys or missing:
        raise LogNotFoundError(
            f"{log_dir.path} has no topic {topic!r}: there is {topics}"
            if not keys
            else f"topic {topic!r} has no partitions {missing}: there is {sorted(there)}"
        )
    return [key for key in keys if wanted is None or key.partition in wanted]


def _type(pa: Any, name: str) -> Any:
    return {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }[name]


class _Rows:
    """Which rows and columns are wanted."""

    def __init__(
        self,
        names: list[str],
        schema: Any,
        offsets: tuple[int | None, int | None],
        times: tuple[int | None, int | None],
        isolation: str,
        batch_rows: int,
    ) -> None:
        self.names = names
        self.schema = schema
        self.offsets = offsets
        self.times = times
        self.isolation = isolation
        self.batch_rows = batch_rows
        self.by_time = times != (None, None)
        self.flags = sum(FLAGS.get(name, 0) for name in set(names))
        if self.by_time:
            self.flags |= TIMESTAMP

    def bounds(self, log: Log) -> tuple[int, int]:
        """The offsets to read of a log."""
        log.refresh()
        start = log.log_start_offset
        end = log.high_watermark
        if self.isolation == "read_committed":
            end = log.last_stable_offset
        first, last = self.offsets
        start = start if first is None else max(start, first)
        end = end if last is None else min(end, last)
        if self.times[0] is not None:
            found = log.offset_for_timestamp(self.times[0])
            start = end if found is None else max(start, found[0])
        return start, end

    def batch(self, pa: Any, columns: Columns, partition: int) -> Any:
        """A record batch of decoded columns."""
        count = columns.count
        arrays = [self._array(pa, name, columns, count, partition) for name in self.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if not self.by_time:
            return batch
        import pyarrow.compute as pc

        at = fixed_array(pa.int64(), count, columns.timestamp)
        first, last = self.times
        keep = pc.greater_equal(at, -(2**62) if first is None else first)
        if last is not None:
            keep = pc.and_(keep, pc.less(at, last))
        return batch.filter(keep)

    def _array(self, pa: Any, name: str, columns: Columns, count: int, partition: int) -> Any:
        if name == "partition":
            return pa.repeat(pa.scalar(partition, pa.int32()), count)
        if name in {"key", "value"}:
            return binary_array(pa.binary(), columns.key if name == "key" else columns.value)
        if name == "headers":
            return headers_array(
                count, columns.header_offsets, columns.header_key, columns.header_value
            )
        memory = columns.offset if name == "offset" else columns.timestamp
        return fixed_array(_type(pa, name), count, memory)


def _batches(
    opened: ExitStack, log_dir: LogDir, keys: list[TopicPartition], rows: _Rows
) -> Iterator[Any]:
    pa = need_pyarrow()
    with opened:
        for key in keys:
            log = log_dir.log(*key, create=False)
            offset, end = rows.bounds(log)
            while offset < end:
                data, following = log.read_slice(offset, READ_BYTES, rows.isolation)
                aborted = None
                if rows.isolation == "read_committed":
                    aborted = log.aborted_transactions(offset, following)
                reader = ColumnReader(
                    data, rows.flags, verify=False, start_offset=offset, end_offset=end,
                    aborted=aborted,
                )  # fmt: skip
                while (columns := reader.read(rows.batch_rows, BATCH_BYTES)).count:
                    batch = rows.batch(pa, columns, key.partition)
                    if batch.num_rows:
                        yield batch
                offset = following
