"""Reads metrics in OpenTelemetry's protobuf format (MetricsData), as Kafka's clients push them
(KIP-714): gauges and sums. Histograms and summaries, which clients do not send, are skipped.

Only the necessary message types are parsed. Everything else is skipped by its wire type. Bytes that
are not MetricsData raise OtlpError. More attributes, longer texts or more fields than metrics of a
real client have raise OtlpTooLargeError before they use memory or time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

__all__ = ["Attributes", "OtlpError", "OtlpTooLargeError", "Point", "decode_metrics"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10
MAX_ATTRIBUTES = 32
"""The limit of attributes of a resource, and of a point. Clients send three or four."""
MAX_TEXT_BYTES = 1024
"""The limit in bytes of a name, and of an attribute's key and value."""
MAX_SMALL_FIELDS = 16
"""The limit of fields of a message without repeated fields, and of a point or resource without its
attributes.
"""
FREE_FIELDS, BYTES_PER_FIELD = 4096, 4
"""The limit of fields in a push: a fixed number, and one more for each of this many bytes. Clients
send one per six bytes.
"""

Field: TypeAlias = "tuple[int, int, int | memoryview]"
Attributes: TypeAlias = "tuple[tuple[str, str], ...]"

# Field numbers of opentelemetry/proto/metrics/v1.
METRICS_RESOURCES = 1
RESOURCE, RESOURCE_SCOPES = 1, 2
RESOURCE_ATTRIBUTES = 1
SCOPE_METRICS = 2
METRIC_NAME, METRIC_GAUGE, METRIC_SUM = 1, 5, 7
POINTS, SUM_TEMPORALITY, SUM_MONOTONIC = 1, 2, 3
POINT_DOUBLE, POINT_INT, POINT_ATTRIBUTES = 4, 6, 7
KEY, VALUE = 1, 2
DELTA = 1


class OtlpError(ValueError):
    """The bytes are not metrics in OTLP format."""


class OtlpTooLargeError(OtlpError):
    """The metrics have more attributes, longer texts or more fields than a client's can have."""


class Point(NamedTuple):
    """One measured value."""

    name: str
    resource: Attributes
    """Attributes of the client. All points of a resource share the object."""
    attributes: Attributes
    """Attributes of the point."""
    value: float
    counter: bool
    """Whether it is a sum that only increases; otherwise it is a gauge."""
    delta: bool
    """Whether the value is the increase since the last push."""


def decode_metrics(data: bytes | bytearray) -> Iterator[Point | None]:
    """Yield each point, and None for each step without one, so that the caller can let other work
    run. Raises OtlpError if the bytes are malformed.
    """
    whole = memoryview(data)
    reader = _Reader(FREE_FIELDS + len(whole) // BYTES_PER_FIELD)
    for number, kind, resource in reader.fields(whole):
        yield None
        if number == METRICS_RESOURCES:
            yield from reader.resource(_message(kind, resource))


class _Reader:
    """Reads one push and counts its fields."""

    def __init__(self, max_fields: int) -> None:
        self._left = max_fields

    def fields(self, data: memoryview) -> Iterator[Field]:
        """Yield the fields of a message, and count them."""
        for found in _fields(data):
            self._left -= 1
            if self._left < 0:
                raise OtlpTooLargeError("it has more fields than metrics of this size can have")
            yield found

    def few(self, data: memoryview, most: int = MAX_SMALL_FIELDS) -> Iterator[Field]:
        """Yield the fields of a small message, which has so few that no other work must run in
        between.
        """
        for count, found in enumerate(self.fields(data)):
            if count == most:
                raise OtlpTooLargeError(f"one message has more than {most} fields")
            yield found

    def resource(self, data: memoryview) -> Iterator[Point | None]:
        """The points of one resource. Its attributes may come after them."""
        attributes: Attributes = ()
        for number, kind, value in self.fields(data):
            yield None
            if number == RESOURCE:
                attributes, _ = self.attributes(_message(kind, value), RESOURCE_ATTRIBUTES)
        for number, kind, scope in _fields(data):
            yield None
            if number != RESOURCE_SCOPES:
                continue
            for inner, inner_kind, metric in self.fields(_message(kind, scope)):
                yield None
                if inner == SCOPE_METRICS:
                    yield from self.metric(_message(inner_kind, metric), attributes)

    def metric(self, data: memoryview, attributes: Attributes) -> Iterator[Point | None]:
        """The points of one metric."""
        name, body, is_sum = "", None, False
        for number, kind, value in self.few(data):
            if number == METRIC_NAME:
                name = _text(_message(kind, value))
            elif number in (METRIC_GAUGE, METRIC_SUM):
                body, is_sum = _message(kind, value), number == METRIC_SUM
        if body is None:
            return
        numbers: dict[int, int | memoryview] = {}
        for number, _, value in self.fields(body):
            yield None
            if number in (SUM_TEMPORALITY, SUM_MONOTONIC):
                numbers[number] = value
        counter = is_sum and bool(numbers.get(SUM_MONOTONIC, 0))
        delta = is_sum and numbers.get(SUM_TEMPORALITY) == DELTA
        for number, kind, point in _fields(body):
            if number == POINTS:
                own, measured = self.attributes(_message(kind, point), POINT_ATTRIBUTES)
                yield Point(name, attributes, own, measured, counter, delta)
            else:
                yield None

    def attributes(self, data: memoryview, field: int) -> tuple[Attributes, float]:
        """The (key, value) pairs of a resource or a point, and a point's number."""
        found: list[tuple[str, str]] = []
        measured = 0.0
        for number, kind, value in self.few(data, MAX_ATTRIBUTES + MAX_SMALL_FIELDS):
            if number == field:
                if len(found) == MAX_ATTRIBUTES:
                    raise OtlpTooLargeError(f"it has more than {MAX_ATTRIBUTES} attributes")
                found.append(self.pair(_message(kind, value)))
            elif kind == FIXED64 and number in (POINT_DOUBLE, POINT_INT):
                assert isinstance(value, int)
                form = "<d" if number == POINT_DOUBLE else "<q"
                measured = float(struct.unpack(form, struct.pack("<Q", value))[0])
        return tuple(found), measured

    def pair(self, data: memoryview) -> tuple[str, str]:
        """A key and its value."""
        key, value = "", ""
        for number, kind, raw in self.few(data):
            if number == KEY:
                key = _text(_message(kind, raw))
            elif number == VALUE:
                value = _any_value(self.few(_message(kind, raw)))
        return key, value


def _any_value(fields: Iterator[Field]) -> str:
    """A value of any type as text. Lists and maps become ""."""
    for number, kind, raw in fields:
        if number == 1:
            return _text(_message(kind, raw))
        if isinstance(raw, int):
            if number == 2:
                return "true" if raw else "false"
            if number == 3:
                return str(raw - (1 << 64) if raw >> 63 else raw)
            if number == 4 and kind == FIXED64:
                return repr(struct.unpack("<d", struct.pack("<Q", raw))[0])
    return ""


def _message(kind: int, value: int | memoryview) -> memoryview:
    if kind != BYTES or isinstance(value, int):
        raise OtlpError(f"a message was expected where wire type {kind} is")
    return value


def _text(data: memoryview) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise OtlpTooLargeError(
            f"a text has {len(data)} bytes, at most {MAX_TEXT_BYTES} are allowed"
        )
    return bytes(data).decode("utf-8", "replace")


def _fields(data: memoryview) -> Iterator[Field]:
    """The fields of one message: number, wire type, value."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise OtlpError(f"wire type {kind} is unknown")
        if size > len(data) - at:
            raise OtlpError(f"a field of {size} bytes is cut off after {len(data) - at}")
        part = data[at : at + size]
        at += size
        yield number, kind, part if kind == BYTES else int.from_bytes(part, "little")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[at : at + MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & (2**64 - 1), at + count + 1
    raise OtlpError("a number is not complete")
