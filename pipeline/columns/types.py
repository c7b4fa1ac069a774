"""The types of columns: the common types of Arrow, Iceberg and the three kinds of schemas, and how
a column's type changes.

All fields may be null. A column never loses a field. The type of a field changes only to a wider
type that Iceberg allows: int to long, float to double, and a decimal with more digits.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = [
    "ColumnTypeError",
    "arrow_type",
    "check_type",
    "iceberg_type",
    "merged",
]

TIMESTAMP = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
_SIMPLE: dict[str, Any] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": LOCAL_TIMESTAMP,
    "timestamptz": TIMESTAMP,
}
"""Iceberg's name -> Arrow's type."""
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


class ColumnTypeError(ValueError):
    """A schema that no column can have, or a change that a column can't follow."""


def merged(known: Any, new: Any, where: str = "value") -> Any:
    """The type of a column of type `known` that gets `new`. Raises ColumnTypeError if no type fits
    both.
    """
    if known == new:
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        return _merged_fields(known, new, where)
    if pa.types.is_list(known) and pa.types.is_list(new):
        return pa.list_(merged(known.value_type, new.value_type, f"{where}[]"))
    if pa.types.is_map(known) and pa.types.is_map(new):
        key = merged(known.key_type, new.key_type, f"{where}{{key}}")
        return pa.map_(key, merged(known.item_type, new.item_type, f"{where}{{}}"))
    if pa.types.is_decimal(known) and pa.types.is_decimal(new) and known.scale == new.scale:
        return pa.decimal128(max(known.precision, new.precision), known.scale)
    if (known, new) in _WIDER:
        return new
    if (new, known) in _WIDER:
        return known
    raise ColumnTypeError(
        f"{where} is {_shown(known)} in the table, and {_shown(new)} in a schema of the topic"
    )


def _merged_fields(known: Any, new: Any, where: str) -> Any:
    fields = {field.name: field.type for field in known}
    for field in new:
        have = fields.get(field.name)
        fields[field.name] = (
            field.type if have is None else merged(have, field.type, f"{where}.{field.name}")
        )
    return pa.struct(list(fields.items()))


def check_type(kind: Any, where: str = "value") -> None:
    """Raise ColumnTypeError for a type that a Parquet file can't have: a struct without fields, or
    with names that differ only in case, which Spark does not distinguish.
    """
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise ColumnTypeError(f"{where} is a record without fields, which a table can't have")
        names: dict[str, str] = {}
        for field in kind:
            other = names.setdefault(field.name.lower(), field.name)
            if other != field.name:
                raise ColumnTypeError(
                    f"{where} has fields {other} and {field.name}, which differ only in case"
                )
            check_type(field.type, f"{where}.{field.name}")
    elif pa.types.is_list(kind):
        check_type(kind.value_type, f"{where}[]")
    elif pa.types.is_map(kind):
        check_type(kind.item_type, f"{where}{{}}")


def iceberg_type(kind: Any) -> Any:
    """The type in Iceberg's JSON, without ids."""
    if pa.types.is_struct(kind):
        fields = [
            {"name": field.name, "required": False, "type": iceberg_type(field.type)}
            for field in kind
        ]
        return {"type": "struct", "fields": fields}
    if pa.types.is_list(kind):
        element = iceberg_type(kind.value_type)
        return {"type": "list", "element": element, "element-required": False}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "key": iceberg_type(kind.key_type),
            "value": iceberg_type(kind.item_type),
            "value-required": False,
        }
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return _NAMES[kind]


def arrow_type(kind: Any) -> Any:
    """The Arrow type of Iceberg's JSON. Raises ColumnTypeError for a type that no schema
    creates.
    """
    if isinstance(kind, str):
        found = _SIMPLE.get(kind)
        if found is not None:
            return found
        if kind.startswith("decimal("):
            precision, scale = kind.removeprefix("decimal(").rstrip(")").split(",")
            return pa.decimal128(int(precision), int(scale))
    elif kind["type"] == "struct":
        return pa.struct([(field["name"], arrow_type(field["type"])) for field in kind["fields"]])
    elif kind["type"] == "list":
        return pa.list_(arrow_type(kind["element"]))
    elif kind["type"] == "map":
        return pa.map_(arrow_type(kind["key"]), arrow_type(kind["value"]))
    raise ColumnTypeError(f"a column of type {kind} is not a type that kstore writes")


def _shown(kind: Any) -> str:
    made = iceberg_type(kind)
    return made if isinstance(made, str) else f"a {made['type']}"
