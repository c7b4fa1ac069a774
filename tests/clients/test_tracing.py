"""Traces: from a producer to a consumer through headers, and a broker's own requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, get_current_span

from kstore.broker.runtime.request_log.request_spans import RequestSpans
from kstore.clients import AdminClient, Consumer, NewTopic, Producer, ProducerRecord, TopicPartition
from kstore.clients.tracing import (
    TracingConsumerInterceptor,
    TracingProducerInterceptor,
    context_of,
)
from kstore.testing import Broker
from tests.beside.http_answers import HttpAnswers, HttpRequest, Reply
from tests.broker.harness.plane_harness import Plane
from tests.fast.network.test_request_times import fetch, produce


class Collector(HttpAnswers):
    """Takes spans by OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__("/v1/traces")
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []

    def answer(self, asked: HttpRequest) -> Reply:
        sent = ExportTraceServiceRequest()
        sent.ParseFromString(asked.body)
        for resource in sent.resource_spans:
            self.resources.append(
                {row.key: row.value.string_value for row in resource.resource.attributes}
            )
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return Reply(200)


@pytest.fixture
def collector():
    with Collector() as found:
        yield found


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


def test_a_trace_goes_from_producer_to_consumer_and_the_brokers_requests_to_a_collector(
    tmp_path: Path, collector: Collector, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    settings = {"kstore.trace.rate": "1", "kstore.trace.endpoint": collector.url}
    with Broker(tmp_path, settings) as broker:
        where = broker.bootstrap_servers
        with AdminClient(bootstrap_servers=where) as admin:
            admin.create_topics([NewTopic("t", 1)])
        sending = TracingProducerInterceptor(provider)
        with (
            Producer(bootstrap_servers=where, interceptors=[sending]) as producer,
            provider.get_tracer("test").start_as_current_span("order"),
        ):
            producer.send("t", b"1", headers=[("kept", b"x")]).result()
        with Consumer(
            bootstrap_servers=where,
            auto_offset_reset="earliest",
            interceptor_classes=[TracingConsumerInterceptor(provider)],
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            records = consumer.poll(60_000)
        assert [record.value for record in records] == [b"1"]
        broker.shut_down()  # what is left to export is exported
    sent, order, received = exporter.get_finished_spans()
    assert [each.name for each in (sent, order, received)] == ["send t", "order", "receive t"]
    assert (sent.kind, received.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.parent == order.context
    assert received.parent is not None
    assert received.parent.span_id == sent.context.span_id
    assert received.context.trace_id == order.context.trace_id
    assert dict(records[0].headers)["kept"] == b"x"
    continued = get_current_span(context_of(records[0])).get_span_context()
    assert continued.span_id == sent.context.span_id

    requests = {span.name for span in collector.spans if not span.parent_span_id}
    assert {"Produce", "Fetch"} <= requests
    [span] = [span for span in collector.spans if span.name == "Produce"]
    below = [each for each in collector.spans if each.parent_span_id == span.span_id]
    assert {each.name for each in below} <= {"queue", "local", "disk", "remote", "behind", "send"}
    assert all(
        span.start_time_unix_nano <= each.start_time_unix_nano <= each.end_time_unix_nano
        <= span.end_time_unix_nano for each in below
    )  # fmt: skip
    assert {row["service.name"] for row in collector.resources} == {"kstore"}


def test_a_request_is_a_span_with_its_client_and_parts(
    tmp_path: Path, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    plane = Plane(tmp_path)
    spans = RequestSpans(provider)
    plane.plane.times.tell = spans.report
    plane.plane.times.set_chance(1, 1.0)
    client = plane.client()
    client.call(9, produce())
    client.send(11, fetch(offset=1))
    client.connection.connection_lost(None)
    plane.loop.turn()
    plane.close()
    found = {span.name: span for span in exporter.get_finished_spans() if span.parent is None}
    assert found.keys() == {"Produce", "Fetch"}
    attributes = found["Produce"].attributes
    assert attributes is not None
    assert attributes["messaging.client.id"] == "me"
    assert attributes["kstore.api.version"] == 9
    assert found["Produce"].status.is_ok
    assert not found["Fetch"].status.is_ok, "its answer was not sent"


@pytest.mark.parametrize("headers", [[("traceparent", b"old"), ("a", b"1")], {"a": b"1"}, ()])
def test_a_sent_record_has_one_trace_and_keeps_its_other_headers(
    headers: Any, provider: TracerProvider
) -> None:
    record = TracingProducerInterceptor(provider).on_send(ProducerRecord("t", b"", headers=headers))
    names = [key for key, _ in record.headers]  # type: ignore[union-attr, str-unpack]
    assert names == (["a", "traceparent"] if headers else ["traceparent"])
