"""JSON Schema's types as columns. An object with `properties` is a struct, one with only
`additionalProperties` a map; `date-time` and `date` strings are timestamps and dates. A schema
without a single type (no `type`, several types, recursive) becomes a string with JSON.

Only types are used: rules such as `minimum` or `required` are not checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from kstore.pipeline.columns.decoding import BadValueError, Schema
from kstore.pipeline.columns.types import TIMESTAMP, ColumnTypeError

__all__ = ["JsonDecoder"]

_Convert = Callable[[Any, str], Any]
"""Converts a parsed value; also gets its path."""
_LEAST, _MOST = -(2**63), 2**63 - 1


class JsonDecoder:
    """Reads JSON values of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._documents = {"": _parsed(schema.text)}
        for name, text in schema.references.items():
            self._documents[name] = _parsed(text)
        self.type, self._convert = self._column(self._documents[""], "", ())

    def decode(self, data: bytes) -> Any:
        """The value."""
        try:
            return self._decoded(data)
        except RecursionError:
            raise BadValueError("is JSON that is nested too deeply") from None

    def _decoded(self, data: bytes) -> Any:
        try:
            parsed = json.loads(data)
        except ValueError as error:
            raise BadValueError(f"is not JSON ({error})") from None
        return None if parsed is None else self._convert(parsed, "value")

    def _column(self, schema: Any, document: str, inside: tuple[str, ...]) -> tuple[Any, _Convert]:
        """The type of a schema in a document, and how its values are converted."""
        if not isinstance(schema, dict):
            return pa.string(), _as_text
        if "$ref" in schema:
            target, document = self._resolved(str(schema["$ref"]), document)
            name = f"{document}{schema['$ref']}"
            if name in inside:
                return pa.string(), _as_text
            return self._column(target, document, (*inside, name))
        kinds = [kind for kind in _kinds(schema) if kind != "null"]
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema and "properties" not in schema:
                return self._one_of(schema[key], document, inside)
            if any(_adds_fields(each, schema) for each in schema.get(key, ())):
                return pa.string(), _as_text  # other fields than `properties` must not be lost
        if not kinds and "properties" in schema:
            kinds = ["object"]
        if len(kinds) != 1:
            return pa.string(), _as_text
        if kinds[0] == "object":
            return self._object(schema, document, inside)
        if kinds[0] == "array":
            kind, convert = self._column(schema.get("items"), document, inside)
            return pa.list_(kind), _array(convert)
        if kinds[0] == "string":
            return _STRINGS.get(str(schema.get("format")), (pa.string(), _as_string))
        return _SCALARS.get(kinds[0], (pa.string(), _as_text))

    def _one_of(self, schemas: Any, document: str, inside: tuple[str, ...]) -> tuple[Any, _Convert]:
        others = [each for each in schemas if not _is_null(each)]
        if len(others) != 1:
            return pa.string(), _as_text
        return self._column(others[0], document, inside)

    def _object(self, schema: Any, document: str, inside: tuple[str, ...]) -> tuple[Any, _Convert]:
        properties = schema.get("properties")
        if properties:
            columns = {
                name: self._column(each, document, inside) for name, each in properties.items()
            }
            kind = pa.struct([(name, column[0]) for name, column in columns.items()])
            return kind, _struct({name: column[1] for name, column in columns.items()})
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and others:
            kind, convert = self._column(others, document, inside)
            return pa.map_(pa.string(), kind), _map(convert)
        return pa.string(), _as_text

    def _resolved(self, reference: str, document: str) -> tuple[Any, str]:
        name, _, pointer = reference.partition("#")
        document = name or document
        found = self._documents.get(document)
        for step in pointer.strip("/").split("/") if pointer.strip("/") else ():
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise ColumnTypeError(f"the JSON schema refers to {reference}, which does not exist")
        return found, document


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ColumnTypeError(f"it is not a JSON schema: {error}") from None


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    if not kinds and "enum" in schema and all(isinstance(each, str) for each in schema["enum"]):
        return ["string"]
    return [str(kind) for kind in kinds] if isinstance(kinds, list) else [str(kinds)]


def _adds_fields(part: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a part of allOf and the like has fields that `properties` does not have."""
    if not isinstance(part, dict):
        return False
    return "$ref" in part or not part.get("properties", {}).keys() <= schema["properties"].keys()


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


# ---- values ----


def _bad(value: Any, where: str, wanted: str) -> BadValueError:
    text = json.dumps(value)
    return BadValueError(f"does not match its JSON schema: {where} is {text[:80]}, not {wanted}")


def _as_text(value: Any, where: str) -> Any:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _as_string(value: Any, where: str) -> Any:
    if not isinstance(value, str):
        raise _bad(value, where, "a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _bad(value, where, "a string in UTF-8") from None
    return value


def _as_integer(value: Any, where: str) -> Any:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not _LEAST <= value <= _MOST:
        raise _bad(value, where, "an integer of 64 bits")
    return value


def _as_number(value: Any, where: str) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _bad(value, where, "a number")
    try:
        return float(value)
    except OverflowError:
        raise _bad(value, where, "a number of 64 bits") from None


def _as_boolean(value: Any, where: str) -> Any:
    if not isinstance(value, bool):
        raise _bad(value, where, "true or false")
    return value


def _as_moment(value: Any, where: str) -> Any:
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise _bad(value, where, "a date-time (RFC 3339)") from None


def _as_date(value: Any, where: str) -> Any:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _bad(value, where, "a date (RFC 3339)") from None


def _array(convert: _Convert) -> _Convert:
    def array(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise _bad(value, where, "an array")
        return [
            None if each is None else convert(each, f"{where}[{at}]")
            for at, each in enumerate(value)
        ]

    return array


def _map(convert: _Convert) -> _Convert:
    def mapping(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _bad(value, where, "an object")
        return [
            (_as_string(key, where), None if each is None else convert(each, f"{where}.{key}"))
            for key, each in value.items()
        ]

    return mapping


def _struct(fields: Mapping[str, _Convert]) -> _Convert:
    def struct(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _bad(value, where, "an object")
        return {
            name: convert(value[name], f"{where}.{name}")
            for name, convert in fields.items()
            if value.get(name) is not None
        }

    return struct


_SCALARS: dict[str, tuple[Any, _Convert]] = {
    "integer": (pa.int64(), _as_integer),
    "number": (pa.float64(), _as_number),
    "boolean": (pa.bool_(), _as_boolean),
}
_STRINGS: dict[str, tuple[Any, _Convert]] = {
    "date-time": (TIMESTAMP, _as_moment),
    "date": (pa.date32(), _as_date),
}
