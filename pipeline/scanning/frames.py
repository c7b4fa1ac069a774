"""A scan for engines that report which columns a query needs: a lazy frame of Polars, a relation of
DuckDB. They filter rows after the read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kstore._fast.record.arrow_stream import Array, schema_capsule, stream_capsule
from kstore.pipeline.scanning.layout import fields, polars_schema

if TYPE_CHECKING:
    import duckdb
    import polars

    from kstore.pipeline.scanning.scan import Scan

__all__ = ["lazy_frame", "relation"]


def lazy_frame(scan: Scan) -> polars.LazyFrame:
    """See `Scan.to_lazy`."""
    from polars.io.plugins import register_io_source

    def source(
        with_columns: list[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        narrowed = scan if with_columns is None else scan.select(*with_columns)
        narrowed = narrowed if n_rows is None else narrowed.for_rows(n_rows)
        left = n_rows
        for came in _frames(narrowed):
            frame = came if left is None else came.head(left)
            yield frame if predicate is None else frame.filter(predicate)
            if left is not None:
                left -= len(frame)
                if not left:
                    return

    return register_io_source(source, schema=polars_schema(scan.columns))


def _frames(scan: Scan) -> Iterator[Any]:
    """The batches, each as a frame."""
    import polars

    for batch in scan.planned()():
        if isinstance(batch, Array):
            yield polars.DataFrame(_One(scan.columns, batch))
        else:
            yield polars.from_arrow(batch)


class _One:
    """A single record batch as a stream."""

    def __init__(self, columns: tuple[str, ...], batch: Array) -> None:
        self._fields = fields(columns)
        self._batch = batch

    def __arrow_c_schema__(self) -> Any:
        return schema_capsule(self._fields)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return stream_capsule(self._fields, [self._batch])


def relation(scan: Scan, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """See `Scan.to_duckdb`."""
    import duckdb

    try:
        dataset: Any = _dataset(scan)
    except ImportError:
        dataset = scan  # DuckDB accepts it, but does not report which columns it needs
    if connection is None:
        return duckdb.from_arrow(dataset)
    return connection.from_arrow(dataset)


def _dataset(scan: Scan) -> Any:
    """A scan as a pyarrow dataset: the only interface through which DuckDB requests a subset of the
    columns.
    """
    import pyarrow.dataset

    from kstore.pipeline.scanning.layout import pyarrow_schema

    class ScanDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
        """The base class is never initialized: this class implements what DuckDB calls."""

        def __init__(self) -> None:
            pass

        @property
        def schema(self) -> Any:
            """All columns."""
            return pyarrow_schema(scan.columns)

        def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
            """The columns that a query needs; the text of ``filter`` names some."""
            text = "" if filter is None else str(filter)
            wanted = scan.columns if columns is None else columns
            needed = [name for name in scan.columns if name in wanted or name in text]
            narrowed = scan.select(*(needed or scan.columns[:1]))
            return pyarrow.dataset.Scanner.from_batches(
                narrowed.to_reader(), columns=columns, filter=filter
            )

    return ScanDataset()
