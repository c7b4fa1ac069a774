"""Record batches as a ``pyarrow.RecordBatch``. pyarrow is imported by the first call, not with the
package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from kstore._fast.record.columns import BinaryColumn, ColumnMemory, Columns, decode_columns

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kstore.types import DecodeOptions

__all__ = [
    "binary_array",
    "column_arrays",
    "fixed_array",
    "headers_array",
    "need_pyarrow",
    "to_arrow",
]


def need_pyarrow() -> Any:
    """The module pyarrow. Raises ImportError with the extra to install if it is missing."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"Arrow needs pyarrow, which can't be imported ({error}): pip install 'kstore[arrow]'",
            name="pyarrow",
        ) from None
    return pyarrow


def to_arrow(
    buffer: Buffer,
    **options: Unpack[DecodeOptions],
) -> Any:
    """The records of ``buffer`` as a ``pyarrow.RecordBatch``; the options are those of ``decode``.

    Columns: offset int64, timestamp int64 (ms, -1 for none), key binary, value binary, headers
    list<struct<key: string, value: binary>>. Raises InvalidBatchError, and OverflowError above 2
    GiB of keys or values.
    """
    pa = need_pyarrow()

    columns = decode_columns(buffer, **options)
    arrays = column_arrays(columns)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def column_arrays(columns: Columns, *, headers: bool = True) -> dict[str, Any]:
    """Columns as Arrow arrays by name, as in `to_arrow`, which keep the columns' memory alive."""
    pa = need_pyarrow()

    arrays = {
        "offset": fixed_array(pa.int64(), columns.count, columns.offset),
        "timestamp": fixed_array(pa.int64(), columns.count, columns.timestamp),
        "key": binary_array(pa.binary(), columns.key),
        "value": binary_array(pa.binary(), columns.value),
    }
    if headers:
        arrays["headers"] = headers_array(
            columns.count, columns.header_offsets, columns.header_key, columns.header_value
        )
    return arrays


def fixed_array(arrow_type: Any, count: int, memory: ColumnMemory) -> Any:
    """Fixed-size values, as an array that keeps their memory alive."""
    pa = need_pyarrow()

    return pa.Array.from_buffers(arrow_type, count, [None, pa.py_buffer(memory)])


def binary_array(arrow_type: Any, column: BinaryColumn) -> Any:
    """Variable-size values, or null, as an array that keeps their memory alive."""
    pa = need_pyarrow()

    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(arrow_type, column.count, buffers, column.nulls)


def headers_array(
    count: int,
    offsets: ColumnMemory,
    keys: BinaryColumn,
    values: BinaryColumn,
    *,
    arrow_type: Any = None,
    validity: Buffer | None = None,
) -> Any:
    """Each record's headers, as in `to_arrow`; ``validity`` is a bitmap of the records whose list
    is not null.
    """
    pa = need_pyarrow()

    pairs = pa.StructArray.from_arrays(
        [_header_keys(keys), binary_array(pa.binary(), values)], names=["key", "value"]
    )
    nulls = 0 if validity is None else -1
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets)]
    listed = pa.list_(pairs.type) if arrow_type is None else arrow_type
    return pa.Array.from_buffers(listed, count, buffers, nulls, children=[pairs])


def _header_keys(keys: BinaryColumn) -> Any:
    """Header keys as text. Invalid UTF-8 is replaced."""
    pa = need_pyarrow()

    made = binary_array(pa.string(), keys)
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        raw = binary_array(pa.binary(), keys)
        return pa.array([key.decode("utf-8", "replace") for key in raw.to_pylist()], pa.string())
    return made
