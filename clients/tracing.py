"""OpenTelemetry traces of records: interceptors that add the header `traceparent` to records that
are sent, and read it from received records.

Only this module imports OpenTelemetry (the extra kstore[otel]). The application's TracerProvider
decides which spans are kept and where they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, TracerProvider

if TYPE_CHECKING:
    from kstore.clients.consumer import ConsumerRecord
    from kstore.clients.producer_record import ProducerRecord

__all__ = ["TracingConsumerInterceptor", "TracingProducerInterceptor", "context_of"]

NAME = "kstore.clients"


class TracingProducerInterceptor:
    """Creates a span for each record that is sent, as a child of the caller's current span, and
    adds it to the record's headers. ``provider``: None for the application's global one.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(NAME, tracer_provider=provider)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with the span in its headers; it replaces an existing one."""
        span = self._tracer.start_span(
            f"send {record.topic}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("send", record.topic),
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        kept = [(key, value) for key, value in _pairs(record.headers) if key not in carrier]
        added = [(key, value.encode()) for key, value in carrier.items()]
        span.end()
        return replace(record, headers=[*kept, *added])


class TracingConsumerInterceptor:
    """Creates a span for each received record that has one in its headers, as a child of it.
    ``provider``: None for the application's global one.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(NAME, tracer_provider=provider)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The same records."""
        for record in records:
            context = context_of(record)
            if not trace.get_current_span(context).get_span_context().is_valid:
                continue
            attributes = _attributes("receive", record.topic)
            attributes["messaging.destination.partition.id"] = str(record.partition)
            attributes["messaging.kafka.offset"] = record.offset
            self._tracer.start_span(
                f"receive {record.topic}",
                context=context,
                kind=SpanKind.CONSUMER,
                attributes=attributes,
            ).end()
        return records

    def on_commit(self, offsets: Mapping[Any, Any]) -> None:
        """Does nothing: a commit belongs to no record."""

    def close(self) -> None:
        """Does nothing: the provider belongs to the application."""


def context_of(record: ConsumerRecord) -> Context:
    """The context of a received record, for spans of code that handles it; an empty context if it
    has none.
    """
    carrier = {
        key: value.decode("ascii", "replace")
        for key, value in _pairs(record.headers)
        if isinstance(value, bytes)
    }
    return propagate.extract(carrier, Context())


def _pairs(headers: Any) -> Iterable[tuple[str, Any]]:
    return headers.items() if isinstance(headers, Mapping) else headers


def _attributes(operation: str, topic: str) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }
