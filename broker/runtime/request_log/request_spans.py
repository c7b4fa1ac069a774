"""Requests as spans of OpenTelemetry: a span for the request, with a child span for each part of
its time. Kafka's requests contain no trace context, so each span is the root of a trace. Records
have a trace context in their headers, which clients handle (kstore.clients.tracing).

Spans are created after the response was sent. The SDK batches and exports them in its own thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from kstore.broker.runtime.request_log.request_lines import NOT_SENT, api_name, client_name

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection
    from kstore._fast.network.request_times import TimedRequest

__all__ = ["RequestSpans"]

NS_PER_US = 1000
UNNAMED = "unknown_service"
"""OpenTelemetry's name for a service whose environment does not name it."""


class RequestSpans:
    """Creates the spans with a separate provider, which nothing else in the process uses."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("kstore.broker")

    @classmethod
    def exporting(cls, node_id: int, endpoint: str | None) -> RequestSpans:
        """Export by OTLP over HTTP; None: to the destination in OpenTelemetry's environment
        variables.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        resource = Resource.create({"service.instance.id": str(node_id)})
        if str(resource.attributes["service.name"]).startswith(UNNAMED):
            resource = resource.merge(Resource({"service.name": "kstore"}))
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        return cls(provider)

    def report(self, connection: Connection, timed: TimedRequest) -> None:
        """Create the spans of a completed request."""
        parts = timed.parts()
        ago_ns = time.monotonic_ns() - timed.ended_us * NS_PER_US
        end_ns = time.time_ns() - ago_ns
        start_ns = end_ns - parts.pop("total") * NS_PER_US
        name = api_name(timed.api_key)
        span = self._tracer.start_span(
            name,
            kind=SpanKind.SERVER,
            start_time=start_ns,
            attributes=_attributes(connection, timed, name),
        )
        below = set_span_in_context(span)
        for part, us in parts.items():
            after_ns = start_ns + us * NS_PER_US
            if us:
                child = self._tracer.start_span(part, context=below, start_time=start_ns)
                child.end(after_ns)
            start_ns = after_ns
        if timed.lost:
            span.set_status(Status(StatusCode.ERROR, NOT_SENT))
        span.end(end_ns)

    def close(self) -> None:
        """Export the remaining spans. Blocks."""
        self._provider.shutdown()


def _attributes(connection: Connection, timed: TimedRequest, name: str) -> dict[str, Any]:
    return {
        "messaging.system": "kafka",
        "messaging.client.id": client_name(timed.client_id),
        "client.address": connection.client_host,
        "enduser.id": connection.principal,
        "kstore.api": name,
        "kstore.api.version": timed.api_version,
        "kstore.correlation.id": timed.correlation_id,
        "kstore.request.bytes": timed.size_bytes,
        "kstore.listener": connection.listener,
    }
