"""The schema of records in Spark: that of Spark's own Kafka connector, and its twin in Arrow.

A reader may be asked for fewer columns (`.schema("value BINARY")`), in any order: Spark's Python
sources are not told which columns a query needs. Keys and values may be asked for as STRING, which
is what a cast would make of them, and costs the JVM less: it makes no array of a text's bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

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

__all__ = ["COLUMNS", "HEADERS", "Wanted", "arrow_schema", "checked_columns", "source_schema"]

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
_MAY_BE_TEXT = ("key", "value")


class Wanted(NamedTuple):
    """The columns to read, and those among them that are wanted as text."""

    names: tuple[str, ...]
    texts: frozenset[str] = frozenset()


def source_schema(*, include_headers: bool) -> StructType:
    """What a DataFrame of records looks like."""
    names = [name for name in COLUMNS if include_headers or name != HEADERS]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def checked_columns(schema: StructType, *, include_headers: bool) -> Wanted:
    """The columns that ``schema`` asks for, in its order.

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
        as_text = field.name in _MAY_BE_TEXT and field.dataType == StringType()
        if (field.dataType != expected and not as_text) or not field.nullable:
            found = field.dataType.simpleString() + ("" if field.nullable else " not null")
            raise PipelineError(
                f"the schema asks for column {field.name!r} as {found},"
                f" which is {expected.simpleString()}"
                + (" or string" if field.name in _MAY_BE_TEXT else ""),
                remedy="Take the column as it is and cast it in the query",
            )
    texts = (f.name for f in schema.fields if f.dataType != types[f.name])
    return Wanted(tuple(field.name for field in schema.fields), frozenset(texts))


@lru_cache(maxsize=16)
def arrow_schema(columns: tuple[str, ...], texts: frozenset[str] = frozenset()) -> Any:
    """The `pyarrow.Schema` in which Spark takes these columns: timestamps in microseconds, UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = [StructField(n, StringType() if n in texts else COLUMNS[n]) for n in columns]
    return to_arrow_schema(StructType(fields), timezone="UTC")
