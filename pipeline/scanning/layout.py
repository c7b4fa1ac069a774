"""The columns of a scan in Arrow's layout: decoded records as trees of buffers, without pyarrow;
and the same schema for pyarrow and for Polars.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from kstore._fast.record import columns as native
from kstore._fast.record.arrow_stream import Array, Field
from kstore.pipeline.ranges import Decoding, OffsetRange
from kstore.record.column_decoder import MAX_BATCH_BYTES, ColumnDecoder

__all__ = ["SCAN_COLUMNS", "decoding", "fields", "polars_schema", "pyarrow_schema"]

_HEADER = (Field("key", "u"), Field("value", "z"))
_FIELDS = {
    "partition": Field("partition", "i", nullable=False),
    "offset": Field("offset", "l", nullable=False),
    "timestamp": Field("timestamp", "tsm:UTC", nullable=False),
    "key": Field("key", "z"),
    "value": Field("value", "z"),
    "headers": Field("headers", "+l", [Field("item", "+s", _HEADER)], nullable=False),
}
_FLAGS = {
    "offset": native.OFFSET,
    "timestamp": native.TIMESTAMP,
    "key": native.KEY,
    "value": native.VALUE,
    "headers": native.HEADERS,
}
SCAN_COLUMNS = tuple(_FIELDS)
"""The columns in order."""


def fields(names: Sequence[str]) -> list[Field]:
    """The schema of these columns."""
    return [_FIELDS[name] for name in names]


def decoding(names: Sequence[str], times: tuple[int, int] | None, batch_rows: int) -> Decoding:
    """How readers decode for a scan."""

    def decoder(wanted: OffsetRange, verify: bool) -> ColumnDecoder:
        return _ScanDecoder(wanted.partition, names, verify, times, batch_rows)

    return decoder


class _ScanDecoder(ColumnDecoder):
    """Makes record batches for a C stream, which own the memory of the decoded columns."""

    def __init__(
        self,
        partition: int,
        names: Sequence[str],
        verify: bool,
        times: tuple[int, int] | None,
        batch_rows: int,
    ) -> None:
        flags = sum({_FLAGS.get(name, 0) for name in names})
        super().__init__(
            flags, verify=verify, max_rows=batch_rows, max_bytes=MAX_BATCH_BYTES, times=times
        )
        self._names = names
        self._partition = partition

    def made(self, found: native.Columns) -> Array:
        """A piece as one struct of columns."""
        count = found.count
        return Array(count, [None], [self._column(name, found, count) for name in self._names])

    def _column(self, name: str, found: native.Columns, count: int) -> Array:
        match name:
            case "partition":
                return Array(count, [None, _repeated(self._partition, count)])
            case "offset":
                return Array(count, [None, found.offset])
            case "timestamp":
                return Array(count, [None, found.timestamp])
            case "headers":
                pairs = [_header_keys(found.header_key), _binary(found.header_value)]
                listed = Array(found.header_key.count, [None], pairs)
                return Array(count, [None, found.header_offsets], [listed])
            case _:
                return _binary(found.key if name == "key" else found.value)


def _binary(column: native.BinaryColumn) -> Array:
    return Array(column.count, [column.validity, column.offsets, column.data], nulls=column.nulls)


def _header_keys(column: native.BinaryColumn) -> Array:
    """As text. Invalid UTF-8 is replaced."""
    data = bytes(column.data)
    if data.isascii():
        return _binary(column)
    ends = memoryview(column.offsets).cast("i")
    keys = [
        data[start:end].decode("utf-8", "replace").encode()
        for start, end in itertools.pairwise(ends)
    ]
    offsets = array("i", [0])
    for key in keys:
        offsets.append(offsets[-1] + len(key))
    return Array(len(keys), [None, offsets, b"".join(keys)])


@lru_cache(maxsize=64)
def _kept(value: int, room: int) -> memoryview:
    return memoryview(array("i", [value]) * room)


def _repeated(value: int, count: int) -> memoryview:
    """An array that repeats an int32: a slice of one that is cached for all batches of about this
    size.
    """
    return _kept(value, 1 << max(count - 1, 0).bit_length())[:count]


def pyarrow_schema(names: Sequence[str]) -> Any:
    """The same schema as a `pyarrow.Schema`."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "headers": pa.list_(header),
    }
    return pa.schema(
        [pa.field(n, types.get(n, pa.binary()), nullable=_FIELDS[n].nullable) for n in names]
    )


def polars_schema(names: Sequence[str]) -> dict[str, Any]:
    """The same schema for a Polars frame."""
    import polars as pl

    types = {
        "partition": pl.Int32(),
        "offset": pl.Int64(),
        "timestamp": pl.Datetime("ms", "UTC"),
        "headers": pl.List(pl.Struct({"key": pl.String(), "value": pl.Binary()})),
    }
    return {name: types.get(name, pl.Binary()) for name in names}
