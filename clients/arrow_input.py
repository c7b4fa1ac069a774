"""Arrow rows in the form of the accumulator: the addresses of their columns. pyarrow is imported by
the first call, not with the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kstore.record.arrow import need_pyarrow

__all__ = ["ColumnRun", "column_runs"]

_Column = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class ColumnRun:
    """Rows of one RecordBatch, kept alive by `owner`. See SendPath.append_columns."""

    owner: Any
    count: int
    values: _Column
    keys: _Column | None
    timestamps: int
    headers: Any

    def rows(
        self, start: int = 0
    ) -> Iterator[tuple[bytes | None, bytes | None, int | None, list[Any]]]:
        """Value, key, timestamp and headers of each row from `start` on, as Python objects."""
        columns = self.owner
        for n in range(start, self.count):
            headers = self.headers[n].as_py() if self.headers is not None else None
            yield (
                _encoded(columns["value"][n].as_py()),
                _encoded(columns["key"][n].as_py()) if "key" in columns else None,
                columns["timestamp"][n].as_py() if "timestamp" in columns else None,
                [(pair["key"], pair["value"]) for pair in headers or ()],
            )


def _encoded(cell: Any) -> bytes | None:
    return cell.encode() if isinstance(cell, str) else cell


def column_runs(batch: Any) -> Iterator[ColumnRun]:
    """The rows of a RecordBatch or a Table, batch by batch. Raises ValueError if there is no column
    value, a column is neither binary nor text, or a timestamp is missing.
    """
    pa = need_pyarrow()

    for part in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
        names = set(part.schema.names)
        if "value" not in names:
            raise ValueError(f"the Arrow batch has columns {sorted(names)}: one must be value")
        given = {"value": _bytes(pa, part.column("value"), "value")}
        if "key" in names:
            given["key"] = _bytes(pa, part.column("key"), "key")
        address = 0
        if "timestamp" in names:
            stamps = _timestamps(pa, part.column("timestamp"))
            given["timestamp"] = stamps
            address = stamps.buffers()[1].address + 8 * stamps.offset if len(stamps) else 0
        headers = part.column("headers") if "headers" in names else None
        if headers is not None and not len(headers.flatten()):
            headers = None
        keys = _column(pa, given["key"]) if "key" in given else None
        yield ColumnRun(given, part.num_rows, _column(pa, given["value"]), keys, address, headers)


def _bytes(pa: Any, column: Any, name: str) -> Any:
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_dictionary(kind):
        return column.cast(pa.binary())
    if not (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    ):
        raise ValueError(f"the Arrow column {name} is {kind}: it must be binary or text")
    return column


def _timestamps(pa: Any, column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms"))
    column = column.cast(pa.int64())
    if column.null_count:
        raise ValueError(
            "the Arrow column timestamp has nulls: set it for all rows, or omit the column"
        )
    return column


def _column(pa: Any, column: Any) -> _Column:
    validity, offsets, data = column.buffers()
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    return (
        0 if validity is None or not column.null_count else validity.address,
        offsets.address if offsets is not None else 0,
        8 if wide else 4,
        data.address if data is not None else 0,
        column.offset,
    )
