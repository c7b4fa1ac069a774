"""The schema of records in Spark, which is that of Spark's Kafka connector, and the same schema in
Arrow.

A reader can be asked for fewer columns (`.schema("value BINARY")`), in any order, because Spark
does not tell Python sources which columns a query needs. Keys and values can be requested as
STRING, which has the same result as a cast, and is faster in the JVM: it creates no array of the
text's bytes.
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
"""Every column, in order; headers only if includeHeaders requests them."""
_MAY_BE_TEXT = ("key", "value")


class Wanted(NamedTuple):
    """The columns to read, and those that are requested as text."""

    names: tuple[str, ...]
    texts: frozenset[str] = frozenset()


def source_schema(*, include_headers: bool) -> StructType:
    """The schema of a DataFrame of records."""
    names = [name for name in COLUMNS if include_headers or name != HEADERS]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def checked_columns(schema: StructType, *, include_headers: bool) -> Wanted:
    """The columns that ``schema`` requests, in its order.

    Raises PipelineError for a column or a type that records do not have.
    """
    given = source_schema(include_headers=include_headers)
    types = {field.name: field.dataType for field in given.fields}
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None:
            hint = " (set includeHeaders to true)" if field.name == HEADERS else ""
            raise PipelineError(
                f"the schema asks for a column {field.name!r}, which records do not have{hint}",
                remedy=f"Use some of {', '.join(types)}, or give no schema",
            )
        as_text = field.name in _MAY_BE_TEXT and field.dataType == StringType()
        if (field.dataType != expected and not as_text) or not field.nullable:
            found = field.dataType.simpleString() + ("" if field.nullable else " not null")
            raise PipelineError(
                f"the schema asks for column {field.name!r} as {found},"
                f" which is {expected.simpleString()}"
                + (" or string" if field.name in _MAY_BE_TEXT else ""),
                remedy="Read the column with its type and cast it in the query",
            )
    texts = (f.name for f in schema.fields if f.dataType != types[f.name])
    return Wanted(tuple(field.name for field in schema.fields), frozenset(texts))


@lru_cache(maxsize=16)
def arrow_schema(columns: tuple[str, ...], texts: frozenset[str] = frozenset()) -> Any:
    """The `pyarrow.Schema` of these columns for Spark: timestamps in microseconds, UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = [StructField(n, StringType() if n in texts else COLUMNS[n]) for n in columns]
    return to_arrow_schema(StructType(fields), timezone="UTC")
