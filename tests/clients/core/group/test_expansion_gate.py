"""KIP-253's gate as a state machine: what it waits for, and what opens it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstore.clients.core.group.expansion_gate import (
    ExpansionGate,
    PriorEpoch,
    need_rows,
    position_rows,
)
from kstore.types import TopicPartition


def tp(index: int) -> TopicPartition:
    """A partition of ``t``."""
    return TopicPartition("t", index)


def closed_gate(**thresholds: int) -> ExpansionGate:
    """Partition 2 waits for p0, p1... up to the offsets."""
    gate = ExpansionGate()
    gate.hold_back([tp(2)])
    priors = {PriorEpoch(tp(int(name[1:])), 4): end for name, end in thresholds.items()}
    gate.priors_known(tp(2), priors)
    for prior, end in priors.items():
        gate.threshold_known(prior, end)
    return gate


def test_a_gate_opens_when_all_priors_are_read_to_where_they_ended() -> None:
    gate = closed_gate(p0=10, p1=5)
    assert gate.needed() == {tp(0), tp(1)}
    gate.read_up_to({tp(0): 10, tp(1): 4})
    assert gate.open_gates() == set()
    assert gate.needed() == {tp(1)}
    gate.read_up_to({tp(1): 5})
    assert gate.open_gates() == {tp(2)}
    assert not gate.closed


def test_nothing_is_known_yet_is_no_reason_to_open() -> None:
    gate = ExpansionGate()
    gate.hold_back([tp(2)])
    assert gate.open_gates() == set()
    gate.priors_known(tp(2), [PriorEpoch(tp(0), 1)])
    gate.read_up_to({tp(0): 1_000})
    assert gate.open_gates() == set()
    assert gate.without_thresholds() == {PriorEpoch(tp(0), 1)}


def test_a_partition_as_old_as_its_topic_waits_for_nothing() -> None:
    gate = ExpansionGate()
    gate.hold_back([tp(1)])
    assert gate.without_priors() == {tp(1)}
    gate.priors_known(tp(1), [])
    assert gate.open_gates() == {tp(1)}


def test_priors_that_held_nothing_open_the_gate() -> None:
    assert closed_gate(p0=0, p1=0).open_gates() == {tp(2)}


def test_a_prior_whose_records_were_deleted_opens_by_its_log_start_offset() -> None:
    gate = closed_gate(p0=10)
    gate.read_up_to({tp(0): 10})  # the log start offset
    assert gate.open_gates() == {tp(2)}


def test_one_prior_of_two_partitions_has_a_threshold_for_each() -> None:
    gate = ExpansionGate()
    gate.hold_back([tp(1), tp(2)])
    gate.priors_known(tp(1), [PriorEpoch(tp(0), 1)])
    gate.priors_known(tp(2), [PriorEpoch(tp(0), 3)])
    gate.threshold_known(PriorEpoch(tp(0), 1), 5)
    assert gate.without_thresholds() == {PriorEpoch(tp(0), 3)}
    gate.threshold_known(PriorEpoch(tp(0), 3), 8)
    gate.read_up_to({tp(0): 5})
    assert gate.open_gates() == {tp(1)}
    gate.read_up_to({tp(0): 8})
    assert gate.open_gates() == {tp(2)}


def test_a_partition_that_was_taken_away_asks_for_nothing() -> None:
    gate = closed_gate(p0=10)
    gate.drop([tp(2)])
    assert gate.needed() == set()
    gate.priors_known(tp(2), [PriorEpoch(tp(0), 9)])
    assert not gate.closed


def test_only_what_was_asked_for_is_reported_and_news_are_told() -> None:
    gate = ExpansionGate()
    assert gate.requested([tp(0), tp(1)])
    assert gate.is_asked
    assert not gate.requested([tp(1)])
    assert gate.reported({tp(0): 3, tp(1): 4}) == {tp(1): 4}
    assert gate.reported({}) == {}
    assert not gate.requested([])
    assert not gate.is_asked


def test_rows_of_heartbeats_are_by_topic() -> None:
    (need,) = need_rows([tp(1), tp(0)])
    assert (need.topic, need.partitions) == ("t", [0, 1])
    (told,) = position_rows({tp(1): (7, 3)})
    assert [(r.partition, r.position, r.partition_epoch) for r in told.partitions] == [(1, 7, 3)]


@given(
    ends=st.dictionaries(st.integers(0, 5), st.integers(0, 20), min_size=1),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 25))),
)
def test_a_gate_is_open_exactly_when_every_prior_was_read(
    ends: dict[int, int], steps: list[tuple[int, int]]
) -> None:
    gate = closed_gate(**{f"p{index}": end for index, end in ends.items()})
    read: dict[int, int] = {}
    for index, position in steps:
        read[index] = max(read.get(index, 0), position)
        gate.read_up_to({tp(index): position})
    done = all(read.get(index, 0) >= end for index, end in ends.items())
    assert gate.open_gates() == ({tp(2)} if done else set())
