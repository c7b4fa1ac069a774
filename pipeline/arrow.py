"""Converts record batches, as fetched or from a segment, to Arrow with the schema of Spark's Kafka
connector. Bytes are copied once, from the batch to their column. It reads no files and sends no
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kstore._fast.record import columns as native
from kstore.pipeline.ranges import Decoding, OffsetRange
from kstore.pipeline.schema import COLUMNS, HEADERS, Wanted, arrow_schema
from kstore.record.arrow import binary_array, fixed_array, headers_array
from kstore.record.column_decoder import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    NO_END,
    ColumnDecoder,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ArrowDecoder", "arrow_decoding", "to_arrow"]

_WANTED = {
    "key": native.KEY,
    "value": native.VALUE,
    "offset": native.OFFSET,
    "timestamp": native.TIMESTAMP | native.MICROSECONDS,
    "timestampType": native.TIMESTAMP_TYPE,
    HEADERS: native.HEADERS,
}


class ArrowDecoder(ColumnDecoder):
    """Makes Arrow batches of one partition's record batches, with the selected columns."""

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str],
        *,
        verify: bool = True,
        max_rows: int = MAX_BATCH_ROWS,
        max_bytes: int = MAX_BATCH_BYTES,
        texts: frozenset[str] = frozenset(),
    ) -> None:
        wanted = 0
        for name in columns:
            wanted |= _WANTED.get(name, 0)
        super().__init__(wanted, verify=verify, max_rows=max_rows, max_bytes=max_bytes)
        self.schema = arrow_schema(tuple(columns), texts)
        self._topic = topic
        self._partition = partition

    def made(self, found: native.Columns) -> Any:
        """The columns as a RecordBatch, which keeps their memory alive."""
        arrays = [self._array(field, found) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, field: Any, found: native.Columns) -> Any:
        """One column."""
        match field.name:
            case "key":
                return binary_array(field.type, found.key)
            case "value":
                return binary_array(field.type, found.value)
            case "offset":
                return fixed_array(field.type, found.count, found.offset)
            case "timestamp":
                return fixed_array(field.type, found.count, found.timestamp)
            case "timestampType":
                return fixed_array(field.type, found.count, found.timestamp_type)
            case "topic":
                return _repeated(self._topic, field.type, found.count)
            case "partition":
                return _repeated(self._partition, field.type, found.count)
            case _:
                return _headers(field.type, found)


def arrow_decoding(columns: Wanted) -> Decoding:
    """How readers decode for Spark."""

    def decoder(wanted: OffsetRange, verify: bool) -> ArrowDecoder:
        return ArrowDecoder(
            wanted.topic, wanted.partition, columns.names, verify=verify, texts=columns.texts
        )

    return decoder


def to_arrow(
    buffer: Buffer,
    topic: str,
    partition: int,
    start: int,
    end: int = NO_END,
    *,
    include_headers: bool = False,
    aborted: Iterable[tuple[int, int]] | None = None,
    columns: Sequence[str] | None = None,
) -> Any:
    """The records of ``buffer`` from offset ``start`` to below ``end`` as one RecordBatch, with all
    columns unless some are named. Raises the errors of `ArrowDecoder.batches`, and OverflowError
    above 2 GiB of keys or values.
    """
    if columns is None:
        columns = [name for name in COLUMNS if include_headers or name != HEADERS]
    decoder = ArrowDecoder(topic, partition, columns, max_rows=NO_END, max_bytes=NO_END)
    for batch in decoder.batches(buffer, start, end, aborted):
        return batch
    return pa.RecordBatch.from_pylist([], schema=decoder.schema)


def _repeated(value: str | int, arrow_type: Any, count: int) -> Any:
    """An array that repeats one value: usually a slice of a cached one."""
    if count > MAX_BATCH_ROWS:
        return pa.repeat(pa.scalar(value, arrow_type), count)
    return _kept(value, arrow_type).slice(0, count)


@lru_cache(maxsize=16)
def _kept(value: str | int, arrow_type: Any) -> Any:
    return pa.repeat(pa.scalar(value, arrow_type), MAX_BATCH_ROWS)


def _headers(arrow_type: Any, found: native.Columns) -> Any:
    """Headers; null for a record without any, as in Spark's connector."""
    ends = np.frombuffer(memoryview(found.header_offsets), np.int32)
    bitmap = np.packbits(ends[1:] != ends[:-1], bitorder="little")
    return headers_array(
        found.count,
        found.header_offsets,
        found.header_key,
        found.header_value,
        arrow_type=arrow_type,
        validity=bitmap.tobytes(),
    )
