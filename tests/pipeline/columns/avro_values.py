"""Avro for tests: schemas of records, and values in the format of serializers of a schema
registry.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro


def avro(schema: Any, datum: Any, number: int | None = None) -> bytes:
    """The encoded value, after the registry's header if the schema has an id."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return (b"" if number is None else struct.pack(">bI", 0, number)) + out.getvalue()


def record(name: str, **fields: Any) -> dict[str, Any]:
    """The schema of a record with fields of these types."""
    rows = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": rows}
