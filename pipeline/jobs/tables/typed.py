"""Tables with a typed `value`: by a schema of Avro, JSON Schema or Protobuf, from a registry or a
file. The column follows the schemas; values that do not match stay in `undecoded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kstore.pipeline.columns.decoding import Schema, ValueFormat
from kstore.pipeline.columns.registry import RegistryError, subject_schemas
from kstore.pipeline.columns.types import (
    ColumnTypeError,
    arrow_type,
    check_type,
    iceberg_type,
    merged,
)
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.scan import Range, Scan
from kstore.pipeline.jobs.session import BAD_VALUE

if TYPE_CHECKING:
    from kstore.pipeline.jobs.tables.iceberg import Table

__all__ = ["COLUMNS", "UNDECODED", "ColumnOptions", "TypedScan", "followed", "values_of"]

COLUMNS = "kstore.columns"
"""The table property with the kind of schemas of its values."""
UNDECODED = "undecoded"
"""The column with the bytes of values that could not be decoded."""


@dataclass(frozen=True)
class ColumnOptions:
    """The source of the schemas of a topic's values: a registry, or a file (then values start with
    no schema id).
    """

    kind: str
    """avro, json or protobuf."""
    registry: str | None = None
    subject: str | None = None
    """None: TOPIC-value."""
    schema_file: str | None = None
    message: str | None = None
    """For Protobuf in a file: the full name of the message."""
    keep_bad: bool = False
    """Keep values that do not match their schema in `undecoded`; otherwise they fail the job."""


def values_of(options: ColumnOptions, topic: str) -> ValueFormat:
    """The current schemas, and the type that holds them all. Raises JobError."""
    subject = options.subject or f"{topic}-value"
    try:
        if options.registry is not None:
            values = ValueFormat(subject_schemas(options.registry, subject, options.kind))
        else:
            values = ValueFormat({None: _schema_in(options)})
        return replace(values, type=values.schema_type())
    except (ColumnTypeError, ImportError, RegistryError) as error:
        of = subject if options.registry is not None else options.schema_file
        raise JobError(f"the values of topic {topic} can't have columns by {of}: {error}") from None


def _schema_in(options: ColumnOptions) -> Schema:
    assert options.schema_file is not None
    try:
        data = Path(options.schema_file).read_bytes()
        if options.kind == "protobuf":
            from kstore.pipeline.columns.protobuf import descriptor_files

            if options.message is None:
                raise JobError("choose a message of the descriptor set: --message NAME")
            return Schema("protobuf", files=descriptor_files(data), message=options.message)
        return Schema(options.kind, data.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"the schema {options.schema_file} can't be read: {error}") from None


def followed(table: Table, options: ColumnOptions, topic: str) -> ValueFormat:
    """The schemas of a topic, for the column of a table, which is changed first if necessary.
    Raises JobError if that is not possible, and ConflictError.
    """
    values = values_of(options, topic)
    try:
        has = arrow_type(table.column_type("value"))
        wanted = merged(has, values.type)
        check_type(wanted)
    except ColumnTypeError as error:
        raise JobError(
            f"table {table.name} can't follow the schemas of topic {topic}: {error}. Nothing was "
            "written; make another table with --table, or the schemas compatible"
        ) from None
    if wanted != has:
        table.grow({"value": iceberg_type(wanted)})
    return replace(values, type=wanted)


@dataclass(frozen=True)
class TypedScan(Scan):
    """A scan whose entries have a typed `value`, and `undecoded`."""

    values: ValueFormat | None = None
    keep_bad: bool = False

    def spark_schema(self) -> Any:
        """The columns of the entries, for Spark."""
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import BinaryType, StructField, StructType

        assert self.values is not None
        typed = from_arrow_type(self.values.type, prefer_timestamp_ntz=True)
        entries: Any = StructType.fromDDL(str(super().spark_schema()))
        fields = [
            StructField("value", typed) if field.name == "value" else field for field in entries
        ]
        return StructType([*fields, StructField(UNDECODED, BinaryType())])

    def read(self, part: Range) -> Iterator[Any]:
        """The entries of one range as RecordBatches."""
        for batch in super().read(part):
            yield self._typed(batch, part)

    def _typed(self, batch: Any, part: Range) -> Any:
        assert self.values is not None
        raw = batch.column("value")
        typed, bad = self.values.decode(raw)
        if bad and not self.keep_bad:
            at, why = bad[0]
            raise PipelineError(
                f"the value {why}",
                topic=part.topic,
                partition=part.partition,
                offset=batch.column("offset")[at].as_py(),
                remedy=f"{BAD_VALUE} has such values in the column undecoded",
            )
        missing = pc.and_(raw.is_valid(), typed.is_null())
        undecoded = pc.if_else(missing, raw, pa.scalar(None, pa.binary()))
        columns = {name: batch.column(name) for name in batch.schema.names}
        return pa.RecordBatch.from_pydict(columns | {"value": typed, UNDECODED: undecoded})
