"""Reads metrics in OpenTelemetry's protobuf form (MetricsData), as Kafka's clients push them
(KIP-714): gauges and sums; histograms and summaries, which clients do not send, are passed over.

Only the few message types that are needed are known here; everything else is skipped by its wire
type. Bytes that are no MetricsData raise OtlpError, and never take more memory than they have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

__all__ = ["OtlpError", "Point", "decode_metrics"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10

Field: TypeAlias = "tuple[int, int, int | memoryview]"
Attributes: TypeAlias = "tuple[tuple[str, str], ...]"

# Numbers of fields, as opentelemetry/proto/metrics/v1 gives them.
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
    """The bytes are no metrics in OTLP form."""


class Point(NamedTuple):
    """One measured value."""

    name: str
    attributes: Attributes
    """Of the resource (the client), then of the point."""
    value: float
    counter: bool
    """A sum that only grows; else a gauge."""
    delta: bool
    """The value is what was added since the last push."""


def decode_metrics(data: bytes | bytearray) -> Iterator[Point]:
    """Every point, as it is met; OtlpError where the bytes can't be read."""
    for number, kind, resource in _fields(memoryview(data)):
        if number == METRICS_RESOURCES:
            yield from _resource(_message(kind, resource))


def _resource(data: memoryview) -> Iterator[Point]:
    """The points of one resource; its attributes may stand behind them."""
    fields = list(_fields(data))
    attributes: Attributes = ()
    for number, kind, value in fields:
        if number == RESOURCE:
            attributes = _attributes(_message(kind, value), RESOURCE_ATTRIBUTES)
    for number, kind, scope in fields:
        if number != RESOURCE_SCOPES:
            continue
        for inner, inner_kind, metric in _fields(_message(kind, scope)):
            if inner == SCOPE_METRICS:
                yield from _metric(_message(inner_kind, metric), attributes)


def _metric(data: memoryview, attributes: Attributes) -> Iterator[Point]:
    name, body, is_sum = "", None, False
    for number, kind, value in _fields(data):
        if number == METRIC_NAME:
            name = _text(_message(kind, value))
        elif number in (METRIC_GAUGE, METRIC_SUM):
            body, is_sum = _message(kind, value), number == METRIC_SUM
    if body is None:
        return
    fields = list(_fields(body))
    numbers = {number: value for number, _, value in fields if number != POINTS}
    counter = is_sum and bool(numbers.get(SUM_MONOTONIC, 0))
    delta = is_sum and numbers.get(SUM_TEMPORALITY) == DELTA
    for number, kind, point in fields:
        if number == POINTS:
            own, measured = _point(_message(kind, point))
            yield Point(name, attributes + own, measured, counter, delta)


def _point(data: memoryview) -> tuple[Attributes, float]:
    value = 0.0
    for number, kind, raw in _fields(data):
        if kind == FIXED64 and number in (POINT_DOUBLE, POINT_INT):
            assert isinstance(raw, int)
            form = "<d" if number == POINT_DOUBLE else "<q"
            value = float(struct.unpack(form, struct.pack("<Q", raw))[0])
    return _attributes(data, POINT_ATTRIBUTES), value


def _attributes(data: memoryview, field: int) -> Attributes:
    """The (key, value) pairs of a repeated KeyValue field."""
    found = []
    for number, kind, pair in _fields(data):
        if number == field:
            key, value = "", ""
            for inner, inner_kind, raw in _fields(_message(kind, pair)):
                if inner == KEY:
                    key = _text(_message(inner_kind, raw))
                elif inner == VALUE:
                    value = _any_value(_message(inner_kind, raw))
            found.append((key, value))
    return tuple(found)


def _any_value(data: memoryview) -> str:
    """A value of any type as text; lists and maps are left empty."""
    for number, kind, raw in _fields(data):
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
            raise OtlpError(f"wire type {kind} is none")
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
    raise OtlpError("a number has no end")
