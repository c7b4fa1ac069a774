"""Metrics over HTTP, and what clients push (KIP-714) among them."""

from __future__ import annotations

import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from uuid import UUID

import pytest

from kstore._fast.record.compression import compress
from kstore.errors import ErrorCode
from tests.broker.harness.wire import Wire
from tests.conformance.kafka_broker import free_port
from tests.conformance.kstore_broker import BrokerDiedError, KstoreBroker
from tests.plain_messages import Ask
from tests.reference.record_batch import uvarint

CLIENT_METRICS = 16
OTLP = (
    # MetricsData > ResourceMetrics > ScopeMetrics > Metric "a.b" > Sum (delta, growing) > 2.0
    b"\x0a\x1a\x12\x18\x12\x16\x0a\x03a.b\x3a\x0f\x0a\x09\x21" + struct.pack("<d", 2.0)
    + b"\x10\x01\x18\x01"
)  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KstoreBroker, str]]:
    """A broker that serves metrics, and their URL."""
    url = f"http://127.0.0.1:{free_port()}"
    settings = {"kstore.metrics.listener": url}
    with KstoreBroker(tmp_path_factory.mktemp("told"), overrides=settings) as broker:
        yield broker, url


def number_of(url: str, name: str) -> float:
    rows = [row.rpartition(" ") for row in read(url).splitlines()]
    return float(next((value for found, _, value in rows if found == name), 0))


def of_client(url: str, instance: UUID) -> list[str]:
    rows = [row for row in read(url).splitlines() if row.startswith("kafka_client_")]
    return [row for row in rows if f'client_instance_id="{instance}"' in row]


def read(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def call(broker: KstoreBroker, *requests):
    with Wire(broker, "app-1") as line:
        return [line.call(request) for request in requests]


def test_metrics_are_told_to_who_asks_for_them(told):
    broker, url = told
    before = number_of(url, 'kstore_requests_total{api="GetTelemetrySubscriptions"}')
    call(broker, Ask.GetTelemetrySubscriptions())
    assert number_of(url, 'kstore_requests_total{api="GetTelemetrySubscriptions"}') == before + 1
    lines = read(url).splitlines()
    assert "# TYPE kstore_loop_hold_seconds histogram" in lines
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url, timeout=20)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"{url}/metrics", data=b"x", timeout=20)


def test_what_waits_for_the_disk_and_how_much_may_are_told(start_broker):
    url = f"http://127.0.0.1:{free_port()}"
    start_broker({"kstore.metrics.listener": url, "kstore.log.write.back.bytes": "33554432"})
    lines = read(url).splitlines()
    assert "kstore_log_cold_reads_total 0" in lines
    assert "kstore_log_unwritten_bytes 0" in lines
    assert "kstore_log_unwritten_budget_bytes 33554432" in lines
    assert "kstore_log_written_early_bytes_total 0" in lines


@pytest.mark.parametrize("garbage", [b"\r\n\r\n", b"x" * 40_000, b"GET\r\n\r\n", b"\0\r\n\r\n"])
def test_garbage_to_the_metrics_address_does_no_harm(told, garbage):
    _, url = told
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(garbage)
        sock.shutdown(socket.SHUT_WR)
        try:
            while sock.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert "kstore_connections" in read(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://0.0.0.0:9404",
        "https://127.0.0.1:9404",
        *(pytest.param(url, marks=pytest.mark.slow) for url in ("127.0.0.1:9404", "http://x:y")),
    ],
)
def test_an_address_that_others_reach_or_that_is_none_is_refused(start_broker, url):
    with pytest.raises(BrokerDiedError, match=r"kstore\.metrics\.listener"):
        start_broker({"kstore.metrics.listener": url})


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_deltas_that_a_client_pushes_are_added_up_and_shown(told, codec):
    broker, url = told
    rows = [
        {"name": name, "value": value, "config_operation": 0}
        for name, value in (("metrics", "*"), ("interval.ms", "100"), ("match", "client_id=app.*"))
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "all", "configs": rows}
    [altered, subscription] = call(
        broker, Ask.IncrementalAlterConfigs(resources=[resource]), Ask.GetTelemetrySubscriptions()
    )
    assert altered.responses[0].error_code == 0
    assert subscription.requested_metrics == ["*"]
    data = compress(codec, OTLP) if codec else OTLP
    push = Ask.PushTelemetry(
        client_instance_id=subscription.client_instance_id,
        subscription_id=subscription.subscription_id, compression_type=codec, metrics=data,
    )  # fmt: skip
    last = Ask.PushTelemetry(
        client_instance_id=push.client_instance_id, subscription_id=push.subscription_id,
        compression_type=codec, metrics=data, terminating=True)  # fmt: skip
    assert [answer.error_code for answer in call(broker, push, last)] == [0, 0]
    [line] = of_client(url, subscription.client_instance_id)
    client = f'client_instance_id="{subscription.client_instance_id}",client_id="app-1"'
    assert line == f"kafka_client_a_b{{{client}}} 4.0"


def test_metrics_that_cannot_be_read_are_taken_and_counted(told):
    broker, url = told
    before = number_of(url, "kstore_client_telemetry_unreadable_total")
    [asked] = call(broker, Ask.GetTelemetrySubscriptions(client_instance_id=UUID(int=5)))
    push = Ask.PushTelemetry(
        client_instance_id=UUID(int=5), subscription_id=asked.subscription_id, metrics=b"\x0a\xff"
    )
    assert call(broker, push)[0].error_code == ErrorCode.NONE
    assert number_of(url, "kstore_client_telemetry_unreadable_total") == before + 1


@pytest.mark.parametrize("codec", [0, 4])
def test_a_push_that_would_cost_more_than_it_carries_is_refused(told, codec):
    broker, url = told
    client = UUID(int=6 + codec)
    [asked] = call(broker, Ask.GetTelemetrySubscriptions(client_instance_id=client))
    attributes, points = b"\x0a\x00" * 50_000, b"\x0a\x00" * 50_000
    resource = b"\x0a" + uvarint(len(attributes)) + attributes
    metric = b"\x0a\x01a\x2a" + uvarint(len(points)) + points
    scope = b"\x12" + uvarint(len(metric)) + metric
    both = resource + b"\x12" + uvarint(len(scope)) + scope
    data = b"\x0a" + uvarint(len(both)) + both
    push = Ask.PushTelemetry(
        client_instance_id=client, subscription_id=asked.subscription_id, compression_type=codec,
        metrics=compress(codec, data) if codec else data)  # fmt: skip
    refused = ErrorCode.INVALID_RECORD if codec else ErrorCode.TELEMETRY_TOO_LARGE
    assert call(broker, push)[0].error_code == refused
    assert not of_client(url, client)
