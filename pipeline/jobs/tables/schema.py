"""A table's schema in Iceberg's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

__all__ = ["schema_of"]


def schema_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The schema in Iceberg's JSON, with ids in the order of a walk."""
    fields = [
        {"name": name, "required": name in ("partition", "offset"), "type": kind}
        for name, kind in columns.items()
    ]
    made: dict[str, Any] = _with_ids({"type": "struct", "fields": fields}, count(1))
    return {"schema-id": 0} | made


def _with_ids(kind: Any, counter: Iterator[int]) -> Any:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [{"id": next(counter)} | field for field in kind["fields"]]
        fields = [field | {"type": _with_ids(field["type"], counter)} for field in fields]
        return {"type": "struct", "fields": fields}
    if kind["type"] == "list":
        made = {"element-id": next(counter)} | kind
        return made | {"element": _with_ids(kind["element"], counter)}
    made = {"key-id": next(counter), "value-id": next(counter)} | kind
    return made | {
        "key": _with_ids(kind["key"], counter),
        "value": _with_ids(kind["value"], counter),
    }
