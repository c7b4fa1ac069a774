"""A streaming read while no broker can say what must be read before an added partition. The brokers
are doubles; test_stream_reader.py has the reads themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from kstore.clients.core.group.expansion_gate import PriorEpoch
from kstore.clients.io.list_offsets import EpochEnd, FoundOffset
from kstore.pipeline.expansion import TELL_EVERY_S, Expansion
from kstore.types import TopicPartition

PLACES = [TopicPartition("t", index) for index in range(4)]
FIRST = PriorEpoch(PLACES[0], 0)
BEGIN = dict.fromkeys(PLACES, 0)
ENDS = dict.fromkeys(PLACES, 10)


class Brokers:
    """Knows the prior partitions of some partitions, and where the epoch of the first partition
    ended.
    """

    def __init__(self) -> None:
        self.known: set[TopicPartition] = set(PLACES)
        self.knows_ends = True

    def priors(self, asked: Collection[TopicPartition]) -> dict[TopicPartition, list[PriorEpoch]]:
        return {tp: [FIRST] for tp in asked if tp in self.known}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return dict.fromkeys(epochs, EpochEnd(0, 5)) if self.knows_ends else {}

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        return dict.fromkeys(asked, FoundOffset(0, -1, 0, 1))


class Clock:
    """Continues when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def expansion(brokers: Brokers, clock: Clock) -> Expansion:
    return Expansion(brokers, clock)  # type: ignore[arg-type]


Capture = pytest.CaptureFixture[str]


def test_partitions_that_wait_for_others_to_be_read_are_no_news(
    expansion: Expansion, capsys: Capture
) -> None:
    assert expansion.held_back(BEGIN, ENDS) == set(PLACES[1:])
    assert expansion.held_back(BEGIN | {PLACES[0]: 5}, ENDS) == set()
    assert capsys.readouterr().err == ""


def test_it_is_said_which_partitions_wait_because_no_broker_can_tell_what_for(
    expansion: Expansion, brokers: Brokers, capsys: Capture
) -> None:
    brokers.known -= {PLACES[2], PLACES[3]}
    read = BEGIN | {PLACES[0]: 5}
    assert expansion.held_back(read, ENDS) == {PLACES[2], PLACES[3]}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kstore: topic t, partitions 2, 3: not read yet, because no broker")
    assert "coordination store" in line
    assert "kstore.orderedExpansion=false" in line


def test_so_are_those_whose_prior_partitions_are_known_but_not_where_those_ended(
    expansion: Expansion, brokers: Brokers, capsys: Capture
) -> None:
    brokers.knows_ends = False
    assert expansion.held_back(BEGIN, ENDS) == set(PLACES[1:])
    assert "topic t, partitions 1, 2, 3: not read yet" in capsys.readouterr().err


def test_it_is_said_once_a_minute_of_each_and_at_once_of_one_that_comes_later(
    expansion: Expansion, brokers: Brokers, clock: Clock, capsys: Capture
) -> None:
    def told() -> list[str]:
        expansion.held_back(BEGIN, ends)
        return [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()]

    brokers.known -= {PLACES[2], PLACES[3]}
    ends = dict.fromkeys(PLACES[:3], 10)
    assert told() == ["topic t, partitions 2"]
    assert told() == []
    clock.now_s += 1
    ends = ENDS
    assert told() == ["topic t, partitions 3"]
    clock.now_s += TELL_EVERY_S - 1
    assert told() == ["topic t, partitions 2"]
    assert told() == []
    clock.now_s += TELL_EVERY_S
    assert told() == ["topic t, partitions 2, 3"]
    brokers.known |= set(PLACES)
    clock.now_s += TELL_EVERY_S
    assert told() == []
