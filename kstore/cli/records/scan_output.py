"""Writers of ``kstore scan``: one function per format. It takes the batches, the names of their
columns and a binary file, and returns the number of records that it has written.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO

from kstore.cli.output import table_lines
from kstore.cli.records.record_text import RecordFormatError, header_json, json_field

if TYPE_CHECKING:
    import pyarrow

__all__ = ["WRITERS"]

Batches = Iterator["pyarrow.RecordBatch"]
CELL = 60
"""The maximum length of a key or a value in a table, in characters."""


def _rows(batches: Batches) -> Iterator[dict[str, Any]]:
    """Records in plain types. Timestamps are in ms, because Arrow's range is larger than
    datetime's.
    """
    import pyarrow

    for batch in batches:
        at = batch.schema.get_field_index("timestamp")
        if at < 0:
            yield from batch.to_pylist()
        else:
            ms = batch.column(at).cast(pyarrow.int64())
            yield from batch.set_column(at, "timestamp", ms).to_pylist()


def _moment(ms: int) -> str | int | None:
    """As ISO 8601; None for a record without a timestamp."""
    if ms < 0:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return ms


def _headers(headers: list[dict[str, Any]]) -> list[list[Any]]:
    return [[each["key"], header_json(each["value"])] for each in headers or ()]


def _table(batches: Batches, columns: Sequence[str], out: BinaryIO) -> int:
    def shown(name: str, value: Any) -> Any:
        if name == "timestamp":
            return _moment(value)
        if name == "headers":
            value = json.dumps(_headers(value), ensure_ascii=False).encode() if value else None
        if not isinstance(value, bytes):
            return value
        text = value.decode("utf-8", "backslashreplace")
        text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
        return text if len(text) <= CELL else text[: CELL - 3] + "..."

    rows = [{name: shown(name, row[name]) for name in columns} for row in _rows(batches)]
    for line in table_lines(rows, columns):
        out.write(line.encode() + b"\n")
    return len(rows)


def _json(batches: Batches, columns: Sequence[str], out: BinaryIO) -> int:
    written = 0
    for row in _rows(batches):
        fields: list[tuple[str, Any]] = []
        for name in columns:
            value = row[name]
            if name in {"key", "value"}:
                fields.append(json_field(name, value))
            else:
                fields.append((name, _headers(value) if name == "headers" else value))
        out.write(json.dumps(dict(fields), ensure_ascii=False).encode() + b"\n")
        written += 1
    return written


def _csv(batches: Batches, columns: Sequence[str], out: BinaryIO) -> int:
    def cell(name: str, value: Any) -> Any:
        if name == "timestamp":
            return _moment(value)
        if name == "headers":
            return json.dumps(_headers(value), ensure_ascii=False) if value else None
        return value.decode() if isinstance(value, bytes) else value

    text = io.TextIOWrapper(out, "utf-8", newline="", write_through=False)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        written = 0
        for row in _rows(batches):
            try:
                writer.writerow([cell(name, row[name]) for name in columns])
            except UnicodeDecodeError:
                raise RecordFormatError(
                    f"record {written} is not UTF-8, which CSV needs: use --format json or parquet"
                ) from None
            written += 1
        text.flush()
        return written
    finally:
        text.detach()


def _parquet(batches: Batches, columns: Sequence[str], out: BinaryIO) -> int:
    import pyarrow.parquet

    from kstore.pipeline.scanning.layout import pyarrow_schema

    written = 0
    with pyarrow.parquet.ParquetWriter(
        out, pyarrow_schema(tuple(columns)), compression="zstd"
    ) as file:
        for batch in batches:
            file.write_batch(batch)
            written += batch.num_rows
    return written


WRITERS: dict[str, Callable[[Batches, Sequence[str], BinaryIO], int]] = {
    "table": _table, "json": _json, "csv": _csv, "parquet": _parquet,
}  # fmt: skip
