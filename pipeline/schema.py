"""The schema of records in Spark: that of Spark's own Kafka connector, and its twin in Arrow.

A reader may be asked for fewer columns (`.schema("value BINARY")`), in any order: Spark's Python
sources are not told which columns a query needs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kstore.pipeline.errors import PipelineError

__all__ = ["COLUMNS", "HEADERS", "arrow_schema", "checked_columns", "source_schema"]

HEADERS = "headers"
_HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: _HEADERS_TYPE,
}
"""Every column, in order; headers only where includeHeaders asks for them."""


def source_schema(*, include_headers: bool) -> StructType:
    """What a DataFrame of records looks like."""
    names = [name for name in COLUMNS if include_headers or name != HEADERS]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def checked_columns(schema: StructType, *, include_headers: bool) -> tuple[str, ...]:
    """The names of the columns that ``schema`` asks for, in its order.

    Raises PipelineError for a column or a type that records have not.
    """
    given = source_schema(include_headers=include_headers)
    types = {field.name: field.dataType for field in given.fields}
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None:
            hint = " (set includeHeaders to true)" if field.name == HEADERS else ""
            raise PipelineError(
                f"the schema asks for a column {field.name!r}, which records have not{hint}",
                remedy=f"Choose among {', '.join(types)}, or give no schema",
            )
        if field.dataType != expected or not field.nullable:
            found = field.dataType.simpleString() + ("" if field.nullable else " not null")
            raise PipelineError(
                f"the schema asks for column {field.name!r} as {found},"
                f" which is {expected.simpleString()}",
                remedy="Take the column as it is and cast it in the query",
            )
    return tuple(field.name for field in schema.fields)


@lru_cache(maxsize=16)
def arrow_schema(columns: tuple[str, ...]) -> Any:
    """The `pyarrow.Schema` in which Spark takes these columns: timestamps in microseconds, UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = [StructField(name, COLUMNS[name]) for name in columns]
    return to_arrow_schema(StructType(fields), timezone="UTC")
