"""Avro's types as columns: a record is a struct, an enum a string, a fixed binary. `decimal`,
`date` and timestamps are converted; times and UUIDs keep their stored type.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kstore.pipeline.columns.decoding import BadValueError, Schema
from kstore.pipeline.columns.types import LOCAL_TIMESTAMP, TIMESTAMP, ColumnTypeError

__all__ = ["AvroDecoder"]

_NOT_OF_IT = (ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError)
"""What fastavro raises for data that does not match the schema."""
_SIMPLE: dict[str, Any] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[str, Any] = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": LOCAL_TIMESTAMP,
    "local-timestamp-micros": LOCAL_TIMESTAMP,
}


class AvroDecoder:
    """Reads values of one Avro schema."""

    def __init__(self, schema: Schema) -> None:
        try:
            import fastavro
        except ImportError:
            raise ImportError(
                "Avro columns need fastavro: pip install 'kstore[avro]'", name="fastavro"
            ) from None
        self._read = fastavro.schemaless_reader
        try:
            named: dict[str, Any] = {}
            for text in schema.references.values():
                fastavro.parse_schema(_plain(json.loads(text)), named)
            self._schema = fastavro.parse_schema(_plain(json.loads(schema.text)), named)
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
            raise ColumnTypeError(f"it is not a valid Avro schema: {error}") from None
        self.type = _Types(named).of(self._schema, "value", ())

    def decode(self, data: bytes) -> Any:
        """The datum."""
        stream = io.BytesIO(data)
        try:
            datum = self._read(stream, self._schema)
        except _NOT_OF_IT as error:
            raise BadValueError(
                f"does not match its Avro schema ({error or type(error).__name__})"
            ) from None
        if stream.tell() != len(data):
            raise BadValueError(f"has {len(data) - stream.tell()} bytes after its Avro datum")
        return datum


def _plain(schema: Any) -> Any:
    """Remove the logical types that have no column type, so that values stay as they are stored."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "default"}
    logical = kept.get("logicalType")
    if logical is not None and logical != "decimal" and logical not in _LOGICAL:
        del kept["logicalType"]
    base = "int" if logical == "date" else "long"
    if logical in _LOGICAL and kept.get("type") != base:
        del kept["logicalType"]  # Avro requires readers to ignore it there
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _plain(kept[key])
    if "name" not in kept and not isinstance(kept.get("type", ""), str):
        return kept["type"]  # a type within a type adds nothing
    if "fields" in kept:
        kept["fields"] = [_plain(field) for field in kept["fields"]]
    return kept


class _Types:
    """Arrow types of parsed schemas; `named` has the named schemas."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def of(self, schema: Any, where: str, inside: tuple[str, ...]) -> Any:
        """Raises ColumnTypeError for a union of several types, and for a recursive record."""
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) != 1:
                raise ColumnTypeError(
                    f"{where} is a union of {len(others)} types; a column can have one, and null"
                )
            return self.of(others[0], where, inside)
        if isinstance(schema, str):
            if schema in _SIMPLE:
                return _SIMPLE[schema]
            if schema not in self._named:
                raise ColumnTypeError(f"{where} has the Avro type {schema}, which no column has")
            schema = self._named[schema]
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal":
            return self._decimal(schema, where)
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind in ("record", "error"):
            return self._record(schema, where, inside)
        if kind == "array":
            return pa.list_(self.of(schema["items"], f"{where}[]", inside))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], f"{where}{{}}", inside))
        return self.of(kind, where, inside) if kind not in _SIMPLE else _SIMPLE[kind]

    def _record(self, schema: Any, where: str, inside: tuple[str, ...]) -> Any:
        name = schema["name"]
        if name in inside:
            raise ColumnTypeError(f"{where} is recursive ({name}); a column can't be")
        inside = (*inside, name)
        return pa.struct(
            [
                (field["name"], self.of(field["type"], f"{where}.{field['name']}", inside))
                for field in schema["fields"]
            ]
        )

    def _decimal(self, schema: Any, where: str) -> Any:
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if not 0 < precision <= 38 or not 0 <= scale <= precision:
            raise ColumnTypeError(
                f"{where} is a decimal({precision}, {scale}); a column has 38 digits at most"
            )
        return pa.decimal128(precision, scale)
