"""Client telemetry: OTLP as clients write it, client instances, subscriptions and throttling."""

from __future__ import annotations

import contextlib
import functools
import struct
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.linear_regex import LinearRegex
from kstore.broker.state.telemetry.client_metrics import ClientInstance, Instances
from kstore.broker.state.telemetry.otlp import (
    MAX_ATTRIBUTES,
    MAX_TEXT_BYTES,
    OtlpError,
    OtlpTooLargeError,
    Point,
    decode_metrics,
)
from kstore.errors import ErrorCode
from tests.reference.record_batch import uvarint

ID = UUID(int=7)
SECOND = 1000


class Subscription(NamedTuple):
    interval_ms: int
    metrics: tuple[str, ...]
    match: dict[str, LinearRegex] = {}  # noqa: RUF012 (never changed)


# ---- OTLP, written naively ----


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return uvarint(number << 3) + uvarint(value)
    return uvarint(number << 3 | 2) + uvarint(len(value)) + value


def fixed(number: int, data: bytes) -> bytes:
    return uvarint(number << 3 | 1) + data


@functools.cache
def attribute(key: str, value: str) -> bytes:
    return field(1, key.encode()) + field(2, field(1, value.encode()))


@functools.cache
def resource_attribute(key: str, value: str) -> bytes:
    return field(1, attribute(key, value))


def written(point: Point, resource: list[tuple[str, str]]) -> bytes:
    attributes = b"".join(field(7, attribute(k, v)) for k, v in point.attributes)
    number = fixed(4, struct.pack("<d", point.value))
    if point.value.is_integer() and abs(point.value) < 2**63:
        number = fixed(6, struct.pack("<q", int(point.value)))
    body = field(1, attributes + fixed(3, b"\0" * 8) + number)
    if point.counter or point.delta:
        body += field(2, 1 if point.delta else 2) + field(3, int(point.counter))
        body = field(7, body)
    else:
        body = field(5, body)
    metric = field(2, field(1, point.name.encode()) + field(3, b"unit") + body)
    about = field(1, b"".join(resource_attribute(k, v) for k, v in resource))
    return field(1, field(2, metric) + about)  # the resource may come after its metrics


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PAIRS = st.lists(st.tuples(NAMES, NAMES), max_size=3)
VALUES = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float)


def read(data: bytes) -> list[Point]:
    return [point for point in decode_metrics(data) if point is not None]


@given(st.lists(st.tuples(NAMES, PAIRS, PAIRS, VALUES, st.booleans(), st.booleans())))
def test_what_was_written_is_read(rows):
    points, data = [], b""
    for name, resource, own, value, is_sum, monotonic in rows:
        counter = is_sum and monotonic
        point = Point(name, tuple(resource), tuple(own), value, counter, delta=is_sum)
        points.append(point)
        data += written(point, resource)
    assert read(data) == points


@given(st.binary(max_size=60))
def test_no_bytes_do_anything_but_be_read_or_refused(data):
    with contextlib.suppress(OtlpError):
        list(decode_metrics(data))


@given(st.data())
def test_a_cut_message_is_refused_or_shorter(data):
    whole = written(Point("a.b", (), (("k", "v"),), 2.5, True, True), [])
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(OtlpError):
        list(decode_metrics(whole[:cut]))


POINT = Point("a", (), (), 1.0, False, False)


def test_all_points_of_a_resource_share_its_attributes():
    data = written(POINT, [("k", "v")])
    metrics = field(2, field(2, field(1, b"a") + field(5, field(1, b"") * 1000)))
    about = field(1, field(1, attribute("k", "v")))
    assert read(data)[0].resource == (("k", "v"),)
    points = read(field(1, about + metrics))
    assert len(points) == 1000
    assert len({id(point.resource) for point in points}) == 1


MANY = [(f"k{number}", "") for number in range(MAX_ATTRIBUTES + 1)]
LONG = "x" * (MAX_TEXT_BYTES + 1)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    "data",
    [
        written(POINT, MANY),
        written(POINT._replace(attributes=tuple(MANY)), []),
        written(POINT, [("", "")] * 100_000),
        written(POINT, [(LONG, "")]),
        written(POINT, [("k", LONG)]),
        written(POINT._replace(name=LONG), []),
        written(POINT._replace(attributes=(("k", LONG),)), []),
        field(9, b"") * 100_000,
        field(1, field(9, b"") * 100_000),
        field(1, field(2, field(9, b"") * 100_000)),
        field(1, field(2, field(2, field(5, field(1, b"") * 100_000)))),
        field(1, field(2, field(2, field(5, field(1, field(9, b"") * 100))))),
        field(1, field(2, field(2, field(9, b"") * 100))),
        field(1, field(1, field(1, field(9, b"") * 100))),
        field(1, field(1, field(1, field(2, field(9, b"") * 100)))),
    ],
    ids=lambda data: f"{len(data)} bytes",
)
def test_metrics_that_cost_more_than_a_clients_are_refused(data):
    with pytest.raises(OtlpTooLargeError):
        read(data)


@pytest.mark.slow
def test_what_a_client_pushes_at_most_is_read():
    point = POINT._replace(attributes=tuple(MANY[:MAX_ATTRIBUTES]))
    assert read(written(point, MANY[:MAX_ATTRIBUTES]))[0].attributes == point.attributes
    rows = [POINT._replace(name=f"{number:0100}") for number in range(8000)]
    assert len(read(b"".join(written(row, [("client_rack", "r")]) for row in rows))) == 8000


def test_who_decodes_can_breathe_wherever_there_is_much_to_pass_over():
    for data in (field(9, b"") * 3000, field(1, field(9, b"") * 1500)):
        assert len(list(decode_metrics(data))) >= 3000


# ---- subscriptions ----


def instance(*subscriptions: Subscription, instance_id: UUID = ID) -> ClientInstance:
    return ClientInstance(instance_id, 0, subscriptions)


def push(client: ClientInstance, now_ms: int, **changes: int) -> int:
    asked = {
        "subscription_id": client.subscription_id, "compression": 0, "size": 10, "max_bytes": 100,
        "terminating": False, **changes,
    }  # fmt: skip
    return client.refuse_push(now_ms, **asked)


def test_all_matching_subscriptions_count_with_the_shortest_interval():
    client = instance(Subscription(500, ("a.", "b.")), Subscription(300, ("b.", "c.")))
    assert client.metrics == ["a.", "b.", "c."]
    assert client.interval_ms == 300
    assert instance(Subscription(500, ("a.",)), Subscription(900, ("*",))).metrics == ["*"]
    assert (instance().metrics, instance().interval_ms) == ([], 300_000)


def test_a_subscription_id_depends_on_the_client_and_on_what_it_pushes():
    one, two = Subscription(500, ("a.",)), Subscription(500, ("b.",))
    ids = {
        instance(one).subscription_id,
        instance(two).subscription_id,
        instance(one, instance_id=UUID(int=8)).subscription_id,
        instance(one._replace(interval_ms=501)).subscription_id,
    }
    assert len(ids) == 4
    assert instance(one).subscription_id == instance(one).subscription_id


def test_a_client_pushes_once_after_it_has_asked_and_then_at_its_interval():
    client = instance(Subscription(SECOND, ("*",)))
    assert client.may_get(10_000)
    assert not client.may_get(10_001)
    assert push(client, 10_002) == ErrorCode.NONE
    assert push(client, 10_003) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(client, 11_001) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(client, 11_002) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_push_is_refused_with_kafkas_code(changes, code):
    client = instance(Subscription(SECOND, ("*",)))
    client.may_get(10_000)
    assert push(client, 10_001, **changes) == code


def test_the_last_push_may_come_early_and_nothing_may_come_after_it():
    client = instance(Subscription(SECOND, ("*",)))
    client.may_get(10_000)
    assert push(client, 10_001) == ErrorCode.NONE
    assert push(client, 10_002, terminating=True) == ErrorCode.NONE
    assert push(client, 20_000) == ErrorCode.INVALID_REQUEST
    assert push(client, 20_000, terminating=True) == ErrorCode.INVALID_REQUEST


def test_a_client_that_was_told_to_ask_again_may_do_so_at_once():
    client = instance(Subscription(SECOND, ("*",)))
    client.may_get(10_000)
    client.last_error = push(client, 10_001, subscription_id=1)
    assert client.may_get(10_002)


def test_instances_are_made_anew_when_subscriptions_change_and_match_wholly():
    instances = Instances()
    rows = [Subscription(500, ("a.",), {"client_id": LinearRegex("app-.*")})]

    def find(client_id: str, version: int) -> ClientInstance:
        client = {"client_id": client_id}
        return instances.instance(ID, client, rows, version, 1000)

    assert find("my-app-1", 0).metrics == []
    assert find("app-1", 0).metrics == []  # decided when it first arrived
    assert find("app-1", 1).metrics == ["a."]
    assert find("app-1", 1) is find("app-1", 1)


def test_no_more_instances_are_kept_than_allowed_the_silent_go_first():
    instances, now_ms = Instances(3), 10**12
    for number in range(10):
        instances.instance(UUID(int=number), {}, [], 0, now_ms).may_get(now_ms)
    assert len(instances) == 3
    assert instances.instance(UUID(int=9), {}, [], 0, now_ms).last_get_ms == now_ms
    later_ms = now_ms + 3 * 300_000 + 1
    instances.instance(UUID(int=99), {}, [], 0, later_ms).may_get(later_ms)
    assert len(instances) == 1
