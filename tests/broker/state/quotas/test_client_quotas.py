"""Client quotas: valid entities and values, filters, precedence, and their form in the store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.runtime.metadata.entity_configs import DEFAULT, desanitize, sanitize
from kstore.broker.runtime.quotas.client_quotas import ClientQuotas
from kstore.broker.state.quotas.client_quotas import (
    CLIENT_ID,
    IP,
    USER,
    Alteration,
    Entity,
    Filter,
    QuotaError,
    check_entity,
    check_filter,
    check_value,
    entity_of,
    matches,
    precedence,
)

NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ENTITIES = st.one_of(
    st.fixed_dictionaries({USER: NAMES}, optional={CLIENT_ID: NAMES}),
    st.fixed_dictionaries({CLIENT_ID: NAMES}),
    st.fixed_dictionaries({IP: st.none() | st.ip_addresses(v=4).map(str)}),
).map(lambda names: entity_of(names.items()))


def alter(quotas: ClientQuotas, entity: Entity, **values: float | None) -> None:
    changes = [Alteration(key, value) for key, value in values.items()]
    quotas.alter(entity, changes, lambda name: True, validate_only=False)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_sanitized_name_is_one_part_of_a_path_and_comes_back(name):
    part = sanitize(name)
    assert set(part) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-%")
    assert desanitize(part) == name


@pytest.mark.parametrize(
    ("name", "part"),
    [("a b", "a%20b"), ("*", "%2A"), ("+~", "%2B%7E"), (None, DEFAULT), ("..", "%2E%2E")],
)
def test_names_are_sanitized_as_kafka_does(name, part):
    assert sanitize(name) == part


@given(st.dictionaries(ENTITIES, st.integers(1, 2**31 - 1)))
def test_quotas_are_read_from_the_store_as_they_were_set(values):
    store = MemoryStore()
    quotas = ClientQuotas(store)
    expected = {}
    for entity, value in values.items():
        key = "connection_creation_rate" if entity[0][0] == IP else "producer_byte_rate"
        alter(quotas, entity, **{key: float(value)})
        expected[entity] = {key: float(value)}
    assert quotas.quotas == expected
    assert ClientQuotas(store).quotas == expected
    for entity, held in expected.items():
        alter(quotas, entity, **dict.fromkeys(held))
    assert quotas.quotas == {}
    assert ClientQuotas(store).quotas == {}


def test_a_refused_alteration_changes_nothing():
    quotas = ClientQuotas(MemoryStore())
    entity = entity_of([(USER, "ann")])
    with pytest.raises(QuotaError):
        alter(quotas, entity, producer_byte_rate=5.0, no_such=1.0)
    assert quotas.quotas == {}


def test_quotas_lie_where_kafka_kept_them():
    store = MemoryStore()
    quotas = ClientQuotas(store)
    alter(quotas, entity_of([(CLIENT_ID, None), (USER, "a b")]), request_percentage=0.5)
    data, _ = store.get("/config/users/a%20b/clients/<default>")
    assert data == b'{"version":1,"config":{"request_percentage":"0.5"}}'


@pytest.mark.parametrize("value", [0.0, -1.0, 1.5, 9.3e18])
def test_values_that_are_no_rate_are_refused(value):
    with pytest.raises(QuotaError):
        check_value({"producer_byte_rate": "LONG"}, "producer_byte_rate", value)


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ((), "client-id, user, ip"),
        ((("team", "a"),), "'team'"),
        (((USER, ""),), "user"),
        (((USER, "a"), (IP, "127.0.0.1")), "leave out user"),
    ],
)
def test_an_entity_that_can_t_be_is_named_in_the_refusal(entity, words):
    with pytest.raises(QuotaError, match=words):
        check_entity(entity)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([Filter(USER, 1, None), Filter(USER, 2, None)], "two parts for 'user'"),
        ([Filter("", 1, None)], "client-id, user, ip"),
        ([Filter("team", 1, None)], "'team'"),
        ([Filter(USER, 7, None)], "'user' has the match type 7"),
        ([Filter(USER, 0, None)], "'user' has the match type exact"),
        ([Filter(USER, 1, "a")], "'default'; leave out the name 'a'"),
        ([Filter(USER, 2, "a")], "'any'; leave out the name 'a'"),
        ([Filter(IP, 2, None), Filter(USER, 2, None)], "leave out user"),
    ],
)
def test_a_filter_that_can_t_be_is_refused_with_what_to_change(parts, words):
    with pytest.raises(QuotaError, match=words):
        check_filter(parts)


@given(ENTITIES, st.lists(ENTITIES, max_size=3))
def test_exact_filters_name_those_entities_that_have_these_names(entity, others):
    for other in [entity, *others]:
        parts = [Filter(kind, 1 if name is None else 0, name) for kind, name in entity]
        names = dict(other)
        held = all(kind in names and names[kind] == name for kind, name in entity)
        assert matches(other, parts, strict=False) == held
        assert matches(other, parts, strict=True) == (other == entity)


def test_the_first_entity_that_has_a_quota_counts_users_before_clients():
    assert precedence("u", "c") == (
        (("client-id", "c"), ("user", "u")),
        (("client-id", None), ("user", "u")),
        (("user", "u"),),
        (("client-id", "c"), ("user", None)),
        (("client-id", None), ("user", None)),
        (("user", None),),
        (("client-id", "c"),),
        (("client-id", None),),
    )


def test_an_entity_whose_name_is_too_long_to_be_kept_is_refused():
    quotas = ClientQuotas(MemoryStore())
    with pytest.raises(QuotaError):
        alter(quotas, entity_of([(USER, "é" * 200)]), producer_byte_rate=5.0)
    assert quotas.quotas == {}
