"""Injected faults as rules: which requests they strike, in which order, how often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.faults import (
    ACTIONS,
    MAX_RULES,
    Fault,
    FaultError,
    FaultRules,
    PartitionKey,
    RequestFacts,
    read_fault,
    shown,
)
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS

PRODUCE, FETCH, METADATA = 0, 1, 3


def facts(
    api: int = PRODUCE,
    *partitions: PartitionKey,
    client_id: str = "me",
    node: int = 1,
    broker: bool = False,
) -> RequestFacts:
    return RequestFacts(api, client_id, node, broker, partitions)


def rules_of(*faults: Fault) -> FaultRules:
    rules = FaultRules()
    for fault in faults:
        rules.add(fault)
    return rules


def struck(rules: FaultRules) -> list[int]:
    return [row["struck"] for row in rules.rows()]


def test_a_rule_strikes_what_it_names_and_nothing_else() -> None:
    rules = rules_of(Fault("error", PRODUCE, "t", 1, "app-*", node=1, code=6))
    assert [
        s.partitions for s in rules.strike(facts(0, ("t", 0), ("t", 1), client_id="app-7"))
    ] == [(("t", 1),)]
    others = [
        facts(FETCH, ("t", 1), client_id="app-7"),
        facts(PRODUCE, ("t", 0), client_id="app-7"),
        facts(PRODUCE, ("u", 1), client_id="app-7"),
        facts(PRODUCE, ("t", 1), client_id="other"),
        facts(PRODUCE, ("t", 1), client_id="app-7", node=2),
        facts(PRODUCE, ("t", 1), client_id="app-7", broker=True),
        facts(PRODUCE, client_id="app-7"),
    ]
    assert [rules.strike(each) for each in others] == [[]] * len(others)
    assert struck(rules) == [1]


def test_a_count_counts_requests_not_partitions() -> None:
    rules = rules_of(Fault("error", topic="t", code=6, count=2))
    request = facts(PRODUCE, ("t", 0), ("t", 1), ("t", 2))
    assert [len(rules.strike(request)) for _ in range(4)] == [1, 1, 0, 0]
    assert struck(rules) == [2]
    assert not rules.concerns(PRODUCE), "a rule that is spent costs nothing"


def test_the_first_error_has_a_partition_and_delays_add_up() -> None:
    rules = rules_of(
        Fault("delay", delay_ms=10),
        Fault("error", topic="t", partition=0, code=6),
        Fault("error", topic="t", code=7),
        Fault("delay", delay_ms=20, when="after"),
    )
    found = rules.strike(facts(PRODUCE, ("t", 0), ("t", 1)))
    assert [(s.fault.delay_ms, s.fault.code, s.partitions) for s in found] == [
        (10, 0, ()), (0, 6, (("t", 0),)), (0, 7, (("t", 1),)), (20, 0, ())
    ]  # fmt: skip
    rules.strike(facts(PRODUCE, ("t", 0)))
    assert struck(rules) == [2, 2, 1, 2], "the second error had nothing left to strike"


def test_what_ends_a_request_lets_nothing_else_strike() -> None:
    rules = rules_of(Fault("drop"), Fault("error", code=6), Fault("disconnect"))
    rules.strike(facts())
    assert struck(rules) == [1, 0, 0]
    after = rules_of(Fault("drop", when="after"), Fault("disconnect"), Fault("error", code=6))
    after.strike(facts())
    assert struck(after) == [1, 0, 1], "it is carried out, so its answer may be an error too"


def test_requests_of_brokers_are_struck_only_by_rules_for_them() -> None:
    rules = rules_of(Fault("drop", FETCH), Fault("drop", FETCH, brokers=True))
    rules.strike(facts(FETCH, broker=True))
    assert struck(rules) == [0, 1]


def test_a_topic_as_a_whole_is_struck_by_a_rule_for_one_of_its_partitions() -> None:
    rules = rules_of(Fault("error", METADATA, "t", 5, code=5))
    assert rules.strike(facts(METADATA, ("t", -1)))
    assert not rules.strike(facts(METADATA, ("u", -1)))


def test_chance_repeats_with_its_seed() -> None:
    def draws(seed: int, share: float) -> list[bool]:
        rules = rules_of(Fault("drop", probability=share, seed=seed))
        return [bool(rules.strike(facts())) for _ in range(400)]

    assert draws(1, 0.5) == draws(1, 0.5) != draws(2, 0.5)
    assert 140 < sum(draws(7, 0.5)) < 260
    assert sum(draws(7, 0.0)) == 0
    assert sum(draws(7, 1.0)) == 400


def test_rules_are_removed_and_shown() -> None:
    rules = rules_of(Fault("drop"), Fault("error", METADATA, code=5))
    assert rules.remove(1)
    assert not rules.remove(1)
    assert rules.rows() == [
        {"id": 2, "action": "error", "api": "Metadata", "code": "LEADER_NOT_AVAILABLE", "struck": 0}
    ]
    rules.clear()
    assert len(rules) == 0
    assert rules.add(Fault("drop")) == 3, "a number is not given twice"


# ---- what a rule is read from ----


def test_apis_and_errors_have_names_and_numbers() -> None:
    assert read_fault({"action": "error", "api": "produce", "code": "not_leader_or_follower"}) == (
        Fault("error", PRODUCE, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    )
    assert read_fault({"action": "error", "api": 3, "code": -1}) == Fault("error", 3, code=-1)
    own = {"action": "error", "api": "Produce", "code": "INVALID_PRODUCE_OFFSET"}
    assert read_fault(own).code == ErrorCode.INVALID_PRODUCE_OFFSET


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "an object"),
        ({}, "action is None"),
        ({"action": "explode"}, "one of error, delay"),
        ({"action": "drop", "topics": ["t"]}, "no field 'topics'"),
        ({"action": "drop", "partition": 1}, "needs its topic"),
        ({"action": "drop", "topic": "t", "partition": -1}, "partition is -1"),
        ({"action": "drop", "topic": 5}, "topic is 5"),
        ({"action": "error"}, "needs code"),
        ({"action": "error", "code": 0}, "code is 0"),
        ({"action": "error", "code": "NONE"}, "code is 'NONE'"),
        ({"action": "error", "code": "NO_SUCH"}, "NOT_LEADER_OR_FOLLOWER"),
        ({"action": "error", "code": True}, "code is True"),
        ({"action": "drop", "code": 6}, "code is for the action error"),
        ({"action": "delay"}, "needs delay_ms"),
        ({"action": "delay", "delay_ms": 0}, "delay_ms is 0"),
        ({"action": "delay", "delay_ms": 0.5}, "delay_ms is 0.5"),
        ({"action": "drop", "api": "Prodoce"}, "such as Produce"),
        ({"action": "drop", "api": 9999}, "api is 9999"),
        ({"action": "drop", "count": 0}, "at least 1"),
        ({"action": "drop", "probability": 1.5}, "from 0 to 1"),
        ({"action": "drop", "when": "never"}, "before or after"),
        ({"action": "drop", "brokers": "yes"}, "true or false"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_with_a_sentence(row: Any, words: str) -> None:
    with pytest.raises(FaultError, match=words):
        read_fault(row)


def test_there_is_an_end_to_rules() -> None:
    rules = rules_of(*[Fault("drop")] * MAX_RULES)
    with pytest.raises(FaultError, match="remove some"):
        rules.add(Fault("drop"))


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    action = draw(st.sampled_from(ACTIONS))
    topic = draw(st.sampled_from([None, "t", "u"]))
    return Fault(
        action,
        draw(st.sampled_from([None, PRODUCE, FETCH])),
        topic,
        draw(st.sampled_from([None, 0, 1])) if topic is not None else None,
        code=draw(st.sampled_from([5, 6])) if action == "error" else 0,
        delay_ms=draw(st.integers(1, 9)) if action == "delay" else 0,
        when=draw(st.sampled_from(["before", "after"])),
        count=draw(st.sampled_from([None, 1, 2])),
    )


@given(faults())
def test_a_rule_is_shown_as_it_is_read(fault: Fault) -> None:
    assert read_fault(shown(fault)) == fault


def reference(
    rules: list[list[Any]], api: int, partitions: frozenset[PartitionKey]
) -> Iterator[Any]:
    """The rules that match a place, checked one by one. ``rules``: [fault, struck]."""
    errors: dict[PartitionKey | None, int] = {}
    ended = False
    for row in rules:
        fault, times = row
        if fault.count is not None and times >= fault.count:
            continue
        if fault.api is not None and fault.api != api:
            continue
        here = [
            p for p in sorted(partitions)
            if fault.topic == p[0] and (fault.partition is None or fault.partition == p[1])
        ]  # fmt: skip
        if fault.action == "error":
            if None in errors:
                continue
            here = [p for p in here if p not in errors]
        if fault.topic is not None and not here:
            continue
        if fault.action in {"drop", "disconnect"} and ended:
            continue
        row[1] += 1
        yield fault, tuple(here)
        if fault.action == "error":
            for place in here or [None]:
                errors[place] = fault.code
        if fault.action in {"drop", "disconnect"}:
            ended = True
            if fault.when == "before":
                return


@given(
    st.lists(faults(), max_size=6),
    st.lists(
        st.tuples(
            st.sampled_from([PRODUCE, FETCH, METADATA]),
            st.frozensets(st.tuples(st.sampled_from("tuv"), st.integers(0, 2)), max_size=4),
        ),
        max_size=8,
    ),
)
def test_rules_strike_as_a_plain_model_says(
    listed: list[Fault], requests: list[tuple[int, frozenset[PartitionKey]]]
) -> None:
    rules = rules_of(*listed)
    model: list[list[Any]] = [[fault, 0] for fault in listed]
    for api, partitions in requests:
        assert api in APIS
        expected = list(reference(model, api, partitions))
        assert [tuple(s) for s in rules.strike(facts(api, *partitions))] == expected
    assert struck(rules) == [row[1] for row in model]
