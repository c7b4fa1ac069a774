"""Which configs are accepted, and Kafka's refusals for brokers, groups and client metrics."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.metadata.config_rules import (
    Change,
    ConfigRefusedError,
    Operation,
    apply_changes,
    check_broker,
    check_client_metrics,
    check_cluster_default,
    check_group,
    replacing_changes,
)
from kstore.config import BROKER_CONFIGS
from kstore.errors import ErrorCode

NAMES = st.sampled_from(["a", "b", "c", "list"])
VALUES = st.sampled_from(["", "1", "x", "x,y", "y,z,x"])
CONFIGS = st.dictionaries(NAMES, VALUES)


LISTS = {"list": "x,y"}


def set_(name: str, value: str) -> list[Change]:
    return [Change(name, Operation.SET, value)]


def refused(call: Any, *args: Any, **options: Any) -> tuple[int, str]:
    with pytest.raises(ConfigRefusedError) as caught:
        call(*args, **options)
    return caught.value.code, caught.value.message or ""


@given(CONFIGS, CONFIGS)
def test_replacing_leaves_exactly_what_is_given(current: dict[str, str], wanted: dict[str, str]):
    changes = replacing_changes(current, list(wanted.items()))
    assert apply_changes(current, changes, LISTS) == wanted


@given(CONFIGS, NAMES, VALUES)
def test_a_change_touches_its_own_name_alone(current: dict[str, str], name: str, value: str):
    before = dict(current)
    changed = apply_changes(current, set_(name, value), LISTS)
    assert current == before
    assert changed == {**current, name: value}
    deleted = apply_changes(changed, [Change(name, Operation.DELETE, None)], LISTS)
    assert deleted == {key: current[key] for key in current if key != name}


@given(CONFIGS, VALUES)
def test_an_appended_item_is_there_once_and_a_subtracted_one_not(
    current: dict[str, str], value: str
):
    given_items = [item for item in value.split(",") if item]
    start = [item for item in current.get("list", "x,y").split(",") if item]
    appended = apply_changes(current, [Change("list", Operation.APPEND, value)], LISTS)
    items = [item for item in appended["list"].split(",") if item]
    assert items[: len(start)] == start
    assert set(items) == {*start, *given_items}
    assert all(items.count(item) == 1 for item in items[len(start) :])
    less = apply_changes(appended, [Change("list", Operation.SUBTRACT, value)], LISTS)
    assert set(filter(None, less["list"].split(","))) == set(start) - set(given_items)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (
            [Change("a", Operation.SET, "1"), Change("a", Operation.DELETE, None)],
            ErrorCode.INVALID_REQUEST, "a is changed 2 times",
        ),
        ([Change("a", Operation.SET, None)], ErrorCode.INVALID_REQUEST, "a has no value"),
        ([Change("a", Operation.APPEND, "1")], ErrorCode.INVALID_CONFIG, "APPEND is only for "
                                                                         "lists"),
        ([Change("a", 9, "1")], ErrorCode.UNKNOWN_SERVER_ERROR, ""),
    ],
)  # fmt: skip
def test_what_is_no_change_is_refused(changes: list[Change], code: int, words: str):
    got, message = refused(apply_changes, {}, changes, LISTS)
    assert got == code
    assert words in message


@pytest.mark.parametrize(
    ("name", "value", "cluster", "words"),
    [
        ("num.io.threads", "0", False, "num.io.threads is '0'; it must be"),
        ("num.io.threads", "17", False, "more than twice the current 8"),
        ("num.io.threads", "3", True, "less than half of the current 8"),
        ("log.retention.hours", "5", True, "log.retention.hours can't change"),
        ("ssl.keystore.location", "/x", False, "set listener.name."),
        ("sasl.jaas.config", "x", True, "sasl.jaas.config is set for each broker"),
        ("config.providers", "x", True, "can't be set: a Java class"),
        ("listener.name.a.ssl.client.auth", "required", True, "is set for each broker"),
        ("listener.name.a.plain.sasl.jaas.config", "x", True, "is set for each broker"),
        ("listener.name.a.ssl.client.auth", "maybe", False, "it must be"),
        ("listener.name.a.max.connections", "-1", True, "it must be"),
    ],
)
def test_a_running_broker_refuses(name: str, value: str, cluster: bool, words: str):
    configs = {name: value}
    code, message = refused(check_broker, set_(name, value), configs, {}, cluster=cluster)
    assert code == ErrorCode.INVALID_REQUEST
    assert words in message


def test_a_running_broker_takes_what_kafkas_takes():
    for name, value in (
        ("num.io.threads", "16"), ("log.retention.ms", "-1"), ("some.plugin.config", "x"),
        ("listener.name.x.ssl.keystore.location", "/x"), ("config.providers", ""),
    ):  # fmt: skip
        check_broker(set_(name, value), {name: value}, {}, cluster=False)
    check_broker([Change("node.id", Operation.DELETE, None)], {}, {}, cluster=False)
    check_broker(set_("num.io.threads", "40"), {"num.io.threads": "40"},
                 {"num.io.threads": "20"}, cluster=False)  # fmt: skip


def test_min_insync_replicas_is_the_clusters():
    configs = {"min.insync.replicas": "2"}
    change = set_("min.insync.replicas", "2")
    assert refused(check_broker, change, configs, {}, cluster=False)[0] == ErrorCode.INVALID_CONFIG
    check_broker(change, configs, {}, cluster=True)
    assert refused(check_cluster_default, {})[0] == ErrorCode.INVALID_CONFIG
    check_cluster_default(configs)


IN_FORCE = {name: row.default for name, row in BROKER_CONFIGS.items()}


@given(st.integers(0, 100_000))
def test_a_groups_session_timeout_stays_within_the_brokers_bounds(value: int):
    configs = {"consumer.session.timeout.ms": str(value)}
    if 45_000 <= value <= 60_000:
        check_group(configs, IN_FORCE)
    else:
        assert refused(check_group, configs, IN_FORCE)[0] == ErrorCode.INVALID_CONFIG


def test_a_groups_standby_replicas_have_a_bound_of_their_own_name():
    check_group({"streams.num.standby.replicas": "2"}, IN_FORCE)
    _, message = refused(check_group, {"streams.num.standby.replicas": "3"}, IN_FORCE)
    assert message == (
        "streams.num.standby.replicas is 3, above the 2 of the broker's "
        "group.streams.max.standby.replicas."
    )


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=[", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=(?=a)", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", "shoe_size=4", ErrorCode.INVALID_CONFIG),
        ("colour", "red", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_malformed_subscription_is_refused(name: str, value: str, code: int):
    assert refused(check_client_metrics, {name: value})[0] == code


def test_a_subscription_may_leave_everything_empty():
    check_client_metrics({"interval.ms": "100", "match": "", "metrics": ""})
    check_client_metrics({"match": "client_id=a.*, client_source_port=1[0-9]+"})
