"""`kstore.scan` and its result: the description of a read. Any library that reads Arrow's C stream
interface can read it, any number of times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kstore._fast.record.arrow_stream import schema_capsule, stream_capsule
from kstore.config.client.configs import client_settings
from kstore.items import Items, items_of
from kstore.pipeline.scanning.layout import SCAN_COLUMNS, decoding, fields, pyarrow_schema
from kstore.pipeline.scanning.sources import (
    Planned,
    Selected,
    archive_batches,
    broker_batches,
    is_archive,
    log_dir_batches,
)
from kstore.record.arrow import need_pyarrow

if TYPE_CHECKING:
    import duckdb
    import polars
    import pyarrow

__all__ = ["Scan", "scan"]

_ISOLATION = ("read_uncommitted", "read_committed")
BATCH_ROWS = 65536
FETCH_BYTES = "max.partition.fetch.bytes"
FEW_BYTES, ROW_BYTES, MOST_BYTES = 64 << 10, 1 << 10, 4 << 20
"""The fetch size for a few rows: so many bytes for each row, between two limits."""


def scan(
    path: str | os.PathLike[str] | None = None,
    topic: str | None = None,
    *,
    bootstrap_servers: str | Items[str] | None = None,
    config: Mapping[str, Any] | None = None,
    partitions: Items[int] | None = None,
    columns: Items[str] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_time: datetime | int | None = None,
    end_time: datetime | int | None = None,
    isolation: str | None = None,
    fail_on_data_loss: bool = True,
    batch_rows: int = BATCH_ROWS,
) -> Scan:
    """Read the records of a topic as a stream of Arrow record batches. Pass the ``path`` of a log
    dir or of an archive (`kstore pipeline archive`), or the ``bootstrap_servers`` of a cluster with
    the ``config`` of a consumer.

    ``topic`` can be omitted if there is only one. ``columns`` selects and orders the columns:

    - partition (int32), offset (int64)
    - timestamp (`timestamp[ms, UTC]`; -1 ms if the record has none)
    - key, value (binary)
    - headers (`list<struct<key, value>>`)

    ``start_offset`` (inclusive) and ``end_offset`` (exclusive) apply to each partition, and so do
    ``start_time`` and ``end_time``. A time is a datetime with a time zone, or a number of ms since
    1970. Records before the start are not read. ``isolation`` is "read_uncommitted" (default) or
    "read_committed". A batch has at most ``batch_rows`` rows.

    Raises ValueError or TypeError for invalid arguments. Raises PipelineError, now or during the
    read, if records are missing, damaged or deleted; the message names the topic, partition and
    offset. With ``fail_on_data_loss=False`` the read continues with the records that exist, and
    reports the missing ones on stderr.

    Example: ``kstore.scan("data/orders", columns=["offset", "value"]).to_pandas()``.
    """
    settings = _settings(path, bootstrap_servers, config)
    isolation = isolation or str(settings.get("isolation.level") or "read_uncommitted")
    if isolation not in _ISOLATION:
        raise ValueError(f"isolation is {isolation!r}: use {' or '.join(_ISOLATION)}")
    if batch_rows < 1:
        raise ValueError(f"batch_rows is {batch_rows}: a batch has one row or more")
    numbers = None if partitions is None else items_of("partitions", partitions, int, "numbers")
    committed = isolation == "read_committed"
    found = Scan(
        None if path is None else os.fspath(path),
        Selected(
            topic=topic,
            partitions=None if numbers is None else tuple(numbers),
            offsets=(start_offset, end_offset),
            times=(_milliseconds("start_time", start_time), _milliseconds("end_time", end_time)),
            committed=committed,
            fails=fail_on_data_loss,
            settings={**settings, "isolation.level": isolation} if settings else {},
        ),
        _names(columns),
        batch_rows,
    )
    found.planned()
    return found


def _settings(
    path: str | os.PathLike[str] | None,
    servers: str | Items[str] | None,
    config: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The settings of a consumer; none for files."""
    if path is None and servers is None and not (config and "bootstrap.servers" in config):
        raise ValueError("pass the path of a log dir or an archive, or bootstrap_servers")
    if path is not None:
        if servers is not None or config:
            raise ValueError("pass either path or bootstrap_servers, not both")
        return {}
    given = dict(config or {})
    if servers is not None:
        listed = servers
        if not isinstance(servers, str):
            listed = items_of("bootstrap_servers", servers, str, '"host:port"')
        given["bootstrap.servers"] = listed
    client_settings("consumer", given)
    return given


def _names(columns: Items[str] | None) -> tuple[str, ...]:
    names = tuple(SCAN_COLUMNS if columns is None else items_of("columns", columns, str, "names"))
    unknown = [name for name in names if name not in SCAN_COLUMNS]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(
            f"columns has {unknown or list(names)}: use some of {', '.join(SCAN_COLUMNS)}, each"
            " once"
        )
    return names


def _milliseconds(name: str, at: datetime | int | None) -> int | None:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(
                f"{name} is {at} without a time zone: add one, such as tzinfo=timezone.utc"
            )
        at = int(at.timestamp() * 1000)
    if at is not None and at < 0:  # brokers treat some of these as "earliest" and "latest"
        raise ValueError(f"{name} is {at} ms: no record is older than 1970; omit it")
    return at


@dataclass(frozen=True)
class Scan:
    """The description of a read. Records are read only when a library reads from it, and each read
    sees the records that exist when it starts. A read keeps a few batches in memory.

    DuckDB, Polars, pyarrow and other libraries read it through Arrow's C stream interface.
    """

    path: str | None
    selected: Selected = field(repr=False)
    columns: tuple[str, ...]
    batch_rows: int = BATCH_ROWS

    def select(self, *columns: str) -> Scan:
        """Return a scan with only these columns. Raises ValueError for an unknown column."""
        return replace(self, columns=_names(columns))

    def for_rows(self, count: int) -> Scan:
        """Return a scan for a reader that stops after ``count`` rows. It decodes no more than that,
        and fetches less at a time from brokers unless the scan's config sets the fetch size.
        """
        selected = self.selected
        if selected.settings and FETCH_BYTES not in selected.settings:
            size = min(max(count * ROW_BYTES, FEW_BYTES), MOST_BYTES)
            selected = replace(selected, settings={**selected.settings, FETCH_BYTES: size})
        rows = min(self.batch_rows, max(count, 1))
        return replace(self, selected=selected, batch_rows=rows)

    # ---- Arrow's C interface ----

    def __arrow_c_schema__(self) -> Any:
        """The schema as an Arrow PyCapsule."""
        return schema_capsule(fields(self.columns))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """The record batches as an Arrow PyCapsule. ``requested_schema`` has no effect."""
        planned = self.planned()
        if self._is_archive:
            return self._pyarrow_reader(planned()).__arrow_c_stream__()
        return stream_capsule(fields(self.columns), planned())

    def planned(self) -> Planned:
        """Plan what can be read now. Returns a function that reads it: pieces for Arrow's C
        interface or, for an archive, pyarrow batches.
        """
        if self._is_archive:
            need_pyarrow()
            schema = pyarrow_schema(self.columns)
            return archive_batches(self.path or "", self.selected, schema, self.batch_rows)
        decode = decoding(self.columns, self.selected.limits, self.batch_rows)
        if self.path is not None:
            return log_dir_batches(self.path, self.selected, decode)
        return broker_batches(self.selected, decode)

    @property
    def _is_archive(self) -> bool:
        return self.path is not None and is_archive(self.path)

    def _pyarrow_reader(self, batches: Iterator[Any]) -> Any:
        return need_pyarrow().RecordBatchReader.from_batches(pyarrow_schema(self.columns), batches)

    # ---- results for users ----

    def to_reader(self) -> pyarrow.RecordBatchReader:
        """Return the record batches as a pyarrow RecordBatchReader. Needs pyarrow."""
        return need_pyarrow().RecordBatchReader.from_stream(self)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Iterate over the record batches. Needs pyarrow."""
        return iter(self.to_reader())

    def to_arrow(self) -> pyarrow.Table:
        """Read all records into a pyarrow Table. Needs pyarrow."""
        return self.to_reader().read_all()

    def to_pandas(self, **options: Any) -> Any:
        """Read all records into a pandas DataFrame. ``options`` are those of
        `pyarrow.Table.to_pandas`. Needs pandas and pyarrow.
        """
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """Read all records into a Polars DataFrame. Needs Polars."""
        import polars

        return polars.DataFrame(self)

    def to_lazy(self) -> polars.LazyFrame:
        """Return a Polars LazyFrame. It reads batch by batch, and only the columns that the query
        needs and the rows of its ``head``. Needs Polars.
        """
        from kstore.pipeline.scanning.frames import lazy_frame

        return lazy_frame(self)

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation on ``connection`` (default: the connection of the duckdb
        module). It reads only the columns that the query needs. Needs DuckDB and pyarrow.
        """
        from kstore.pipeline.scanning.frames import relation

        return relation(self, connection)
