"""Metrics that clients push are kept within a limit of bytes, under the labels of their client."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from kstore.broker.runtime.telemetry import client_metrics as telemetry
from kstore.broker.runtime.telemetry.client_metrics import MAX_BYTES, MAX_CLIENT_BYTES, Telemetry
from kstore.broker.state.exposition import OPENMETRICS, TEXT, Form, page_lines
from kstore.broker.state.telemetry.otlp import OtlpError, OtlpTooLargeError, Point
from tests.broker.state.telemetry.test_telemetry import MANY, written

GAUGE = Point("a", (), (), 1.0, False, False)
ONE, TWO = UUID(int=1), UUID(int=2)


def push(to: Telemetry, *points: Point, who: UUID = ONE, client_id: str = "c") -> None:
    data = b"".join(written(point, list(point.resource)) for point in points)
    asyncio.run(to.take(who, client_id, data))


def rows(of: Telemetry) -> list[str]:
    return [line for line in of.metrics() if line and isinstance(line, str)]


def test_the_last_value_counts_and_deltas_are_added_up() -> None:
    found = Telemetry()
    delta = GAUGE._replace(name="d", counter=True, delta=True, attributes=(("k", "v"),))
    push(found, GAUGE, delta)
    size = found.bytes
    push(found, GAUGE._replace(value=5.0), delta)
    whose = f'client_instance_id="{ONE}",client_id="c"'
    assert rows(found) == [f"kafka_client_a{{{whose}}} 5.0", f'kafka_client_d{{{whose},k="v"}} 2.0']
    assert found.bytes == size


@pytest.mark.parametrize(
    ("form", "parse", "kind"),
    [
        (TEXT, text_string_to_metric_families, "counter"),
        (OPENMETRICS, openmetrics_families, "unknown"),
    ],
)
def test_what_is_pushed_is_read_in_both_forms(form: Form, parse: Any, kind: str) -> None:
    found = Telemetry()
    counter = GAUGE._replace(name="a.total", counter=True, attributes=(("k", 'v"\n\\'),))
    push(found, GAUGE._replace(name="a"), counter, GAUGE._replace(name="a-total"))
    page = "\n".join((*filter(None, page_lines(found.metrics(), form)), ""))
    gauge, pushed = parse(page)
    assert (gauge.name, gauge.type) == ("kafka_client_a", "gauge")
    assert pushed.type == kind
    assert {row.name for row in pushed.samples} == {"kafka_client_a_total"}
    assert {row.labels.get("k") for row in pushed.samples} == {'v"\n\\', None}


@pytest.mark.parametrize("key", ["client_id", "client.id", "client-instance-id"])
def test_nobody_pushes_under_anothers_name(key: str) -> None:
    found = Telemetry()
    push(found, GAUGE._replace(resource=((key, "x"),), attributes=((key, "y"), ("rack", "r"))))
    whose = f'client_instance_id="{ONE}",client_id="c"'
    assert rows(found) == [f'kafka_client_a{{{whose},rack="r"}} 1.0']


def test_many_attributes_are_refused_before_a_series_has_them() -> None:
    found = Telemetry()
    with pytest.raises(OtlpTooLargeError):
        push(found, GAUGE._replace(resource=tuple(MANY)), GAUGE)
    assert rows(found) == []
    assert found.bytes == 0


def test_a_client_has_a_limit_in_bytes() -> None:
    found = Telemetry()
    value = "\U0001f600" * 200
    points = [GAUGE._replace(attributes=((f"k{n}", value),)) for n in range(6000)]
    with pytest.raises(OtlpTooLargeError):
        push(found, *points)
    assert MAX_CLIENT_BYTES - 10_000 < found.bytes <= MAX_CLIENT_BYTES
    push(found, points[0]._replace(value=7.0))  # existing series continue
    assert rows(found)[0].endswith(" 7.0")


def test_all_clients_together_have_a_limit_the_silent_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry, "MAX_BYTES", 100_000)
    found = Telemetry()
    for number in range(50):
        push(found, GAUGE, who=UUID(int=number), client_id="c" * 5000)
        assert found.bytes <= 100_000
    shown = rows(found)
    assert 10 < len(shown) < 20
    assert str(UUID(int=49)) in shown[-1]
    assert MAX_BYTES <= 64 << 20


def test_a_longer_client_id_counts_and_is_counted_once() -> None:
    found = Telemetry()
    push(found, GAUGE, client_id="c")
    size = found.bytes
    push(found, GAUGE, client_id="c" * 1001)
    assert found.bytes == size + 1000
    push(found, GAUGE, client_id="c")
    assert found.bytes == size


def test_bytes_without_a_point_leave_nothing() -> None:
    found = Telemetry()
    with pytest.raises(OtlpError):
        asyncio.run(found.take(ONE, "c", b"\x0a\xff"))
    asyncio.run(found.take(TWO, "c" * 30_000, b"\x4a\x00" * 100))
    assert found.bytes == 0
