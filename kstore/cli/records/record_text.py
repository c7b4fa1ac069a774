"""Records as text: the input of ``kstore produce`` and the output of ``kstore consume``. No input
or output happens here.

Lines have values, or keys and values with a separator; JSON has everything. In JSON a key or value
that is not UTF-8 is in ``key_base64`` or ``value_base64``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = [
    "Coder",
    "Decoded",
    "InputRecord",
    "OutputRecord",
    "RecordFormatError",
    "header_json",
    "json_field",
    "parse_json",
    "parse_line",
    "to_json",
]

_JSON_KEYS = {"key", "key_base64", "value", "value_base64", "partition", "timestamp", "headers"}
Encode = Callable[[Any], bytes]


class RecordFormatError(ValueError):
    """A line of input, or a template, is malformed; the message says what was expected."""


class InputRecord(NamedTuple):
    """A record to send. If the partition or timestamp is None, the client chooses it."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Decoded(NamedTuple):
    """A key or value in a known format: as text, as a JSON value, and its original length."""

    text: bytes
    data: Any
    size: int


class Coder(NamedTuple):
    """How a format is parsed and written. Each method raises RecordFormatError, which says what is
    wrong.
    """

    decode: Callable[[bytes], Decoded]
    encode_text: Callable[[bytes], bytes]
    """Parse a part of a line of text."""
    encode_data: Callable[[Any], bytes]
    """Parse a JSON value; never None, which means no key or no value."""


class OutputRecord(NamedTuple):
    """A record that was read, in plain types."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | Decoded | None
    value: bytes | Decoded | None
    headers: tuple[tuple[str, bytes | None], ...]


def parse_line(
    line: bytes, separator: bytes | None, encode_key: Encode | None = None,
    encode_value: Encode | None = None,
) -> InputRecord:  # fmt: skip
    """Parse ``value``, or ``key<separator>value``; raises RecordFormatError if the separator is
    missing.
    """
    if separator is None:
        return InputRecord(_encoded("value", line, encode_value))
    key, found, value = line.partition(separator)
    if not found:
        raise RecordFormatError(f"there is no key separator {separator.decode()!r} in the line")
    return InputRecord(_encoded("value", value, encode_value), _encoded("key", key, encode_key))


def _encoded(name: str, data: Any, encode: Encode | None) -> bytes:
    """Data of a line in its format. A RecordFormatError begins with the field's name."""
    try:
        found: bytes = data if encode is None else encode(data)
    except RecordFormatError as error:
        raise RecordFormatError(f"the {name} {error}") from None
    return found


def parse_json(
    line: bytes, encode_key: Encode | None = None, encode_value: Encode | None = None
) -> InputRecord:
    """Parse one JSON object with value, key, headers, partition and timestamp (ms), all
    optional.
    """
    try:
        given = json.loads(line)
    except ValueError as error:
        raise RecordFormatError(f"the line is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise RecordFormatError(
            'the line must be a JSON object, such as {"key": "a", "value": "b"}'
        )
    # The output of consume --json can be produced again: topic and offset are accepted and ignored.
    unknown = set(given) - _JSON_KEYS - {"topic", "offset"}
    if unknown:
        raise RecordFormatError(
            f"unknown field {sorted(unknown)[0]!r}; the fields are {', '.join(sorted(_JSON_KEYS))}"
        )
    headers = given.get("headers") or []
    if isinstance(headers, dict):
        headers = list(headers.items())
    try:
        pairs = tuple((str(name), _encode(value)) for name, value in headers)
    except (TypeError, ValueError):
        raise RecordFormatError("headers must be an object, or a list of [name, value]") from None
    return InputRecord(
        _bytes(given, "value", encode_value), _bytes(given, "key", encode_key),
        _integer(given, "partition"), _integer(given, "timestamp"), pairs,
    )  # fmt: skip


def _encode(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return (
        base64.b64decode(value["base64"], validate=True)
        if isinstance(value, dict)
        else str(value).encode()
    )


def _bytes(given: dict[str, Any], name: str, encode: Encode | None) -> bytes | None:
    coded = given.get(f"{name}_base64")
    if coded is not None:
        try:
            return base64.b64decode(coded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise RecordFormatError(f"{name}_base64 is not base64") from None
    value = given.get(name)
    if value is not None and encode is not None:
        return _encoded(name, value, encode)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _integer(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise RecordFormatError(f"{name} must be an integer, not {value!r}")
    return value


def to_json(record: OutputRecord) -> bytes:
    """Write a record as one line of JSON. Bytes that are not UTF-8 are in ``..._base64``."""
    out: dict[str, Any] = {
        "topic": record.topic, "partition": record.partition, "offset": record.offset,
        "timestamp": record.timestamp,
    }  # fmt: skip
    for name, data in (("key", record.key), ("value", record.value)):
        if isinstance(data, Decoded):
            out[name] = data.data
            continue
        key, found = json_field(name, data)
        out[key] = found
    out["headers"] = [[name, header_json(value)] for name, value in record.headers]
    return json.dumps(out, ensure_ascii=False).encode() + b"\n"


def json_field(name: str, data: bytes | None) -> tuple[str, str | None]:
    """A key or a value, with its name in JSON."""
    try:
        return name, None if data is None else data.decode()
    except UnicodeDecodeError:
        return f"{name}_base64", base64.b64encode(data or b"").decode()


def header_json(value: bytes | None) -> Any:
    """A header's value."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value or b"").decode()}
