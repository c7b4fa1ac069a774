"""KIP-232: a client's metadata never gets older, whichever broker answers, and newer metadata is
always accepted. The test invents a cluster's history, and lagging brokers answer with earlier
states.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.clients.core.metadata import Broker, ClusterView
from kstore.errors import ErrorCode
from kstore.protocol.metadata.metadata import MetadataResponse
from kstore.types import TopicPartition
from tests.plain_messages import Answer

TOPICS = ("a", "b")


@dataclass(frozen=True)
class State:
    """The cluster at one time: topics with (partition epoch, leader epoch) of each partition."""

    max_partition_epoch: int = 0
    topics: dict[str, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)

    def answer(self, names: tuple[str, ...] | None, cluster_id: str = "c") -> MetadataResponse:
        """What a broker in this state says."""
        rows = []
        for name in self.topics if names is None else names:
            if name not in self.topics:
                rows.append({"name": name, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
                continue
            topic_id, partitions = self.topics[name]
            parts = [
                {"partition_index": i, "leader_id": 1, "leader_epoch": leader,
                 "partition_epoch": epoch}
                for i, (epoch, leader) in enumerate(partitions)
            ]  # fmt: skip
            rows.append({"name": name, "topic_id": uuid.UUID(int=topic_id), "partitions": parts})
        return Answer.Metadata(
            cluster_id=cluster_id, brokers=[{"node_id": 1, "host": "h", "port": 1}], topics=rows,
            max_partition_epoch=self.max_partition_epoch,
        )  # fmt: skip


def after(state: State, event: str, topic: str) -> State:
    """The state after an event, as a controller brings it about (KIP-232, 1 and 2)."""
    epoch = state.max_partition_epoch
    topics = dict(state.topics)
    if event == "delete":
        if topic not in topics:
            return state
        del topics[topic]
        return State(epoch + 1, topics)
    if event == "grow":
        topic_id, partitions = topics.get(topic, (epoch + 1, []))
        topics[topic] = (topic_id, [*partitions, (epoch + 1, 0)])
        return State(epoch + 1, topics)
    if topic not in topics:
        return state
    topic_id, partitions = topics[topic]
    topics[topic] = (topic_id, [(life, leader + 1) for life, leader in partitions])
    return State(epoch, topics)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["grow", "grow", "elect", "delete"]), st.sampled_from(TOPICS)),
    min_size=1,
    max_size=12,
)
ASKED = st.sampled_from([None, ("a",), ("b",), ("a", "b")])
# How far the answering broker is behind, when, and what it is asked.
ANSWERS = st.lists(st.tuples(st.integers(0, 12), ASKED), min_size=1, max_size=12)


def history(events: list[tuple[str, str]]) -> list[State]:
    states = [State()]
    for event, topic in events:
        states.append(after(states[-1], event, topic))
    return states


def epochs(view: ClusterView) -> dict[str, list[tuple[int, int]]]:
    """Partition and leader epochs of what the view has."""
    return {
        name: [(row.partition_epoch, row.leader_epoch) for row in topic.partitions]
        for name, topic in view.topics.items()
    }


@given(EVENTS, ANSWERS)
def test_nothing_that_is_known_gets_older(
    events: list[tuple[str, str]], answers: list[tuple[int, Any]]
) -> None:
    states = history(events)
    view = ClusterView()
    for at, names in answers:
        before, newest = epochs(view), view.max_partition_epoch
        view.update(states[min(at, len(states) - 1)].answer(names))
        assert view.max_partition_epoch >= newest
        for name, rows in epochs(view).items():
            if name not in before:
                assert name not in view.topic_errors
                continue
            same_life = rows[0][0] == before[name][0][0]
            if same_life:
                assert len(rows) >= len(before[name])
            for new, old in zip(rows, before[name], strict=False):
                assert new >= old


@given(EVENTS, ANSWERS)
def test_a_deleted_topic_does_not_come_back(
    events: list[tuple[str, str]], answers: list[tuple[int, Any]]
) -> None:
    states = history(events)
    view = ClusterView()
    # Topic -> the partition epoch up to which no earlier topic may be seen again.
    gone: dict[str, int] = {}
    for at, names in answers:
        state = states[min(at, len(states) - 1)]
        view.update(state.answer(names))
        for name, rows in epochs(view).items():
            assert rows[0][0] > gone.get(name, -1)
        for name in view.topic_errors:
            if name in (names or ()) and name not in state.topics:
                gone[name] = max(gone.get(name, -1), state.max_partition_epoch)


@given(EVENTS, ANSWERS)
def test_the_newest_state_is_always_taken(
    events: list[tuple[str, str]], answers: list[tuple[int, Any]]
) -> None:
    states = history(events)
    view = ClusterView()
    for at, names in answers:
        view.update(states[min(at, len(states) - 1)].answer(names))
    assert view.update(states[-1].answer(TOPICS))
    assert epochs(view) == {name: rows for name, (_, rows) in states[-1].topics.items()}


@given(EVENTS, st.integers(0, 12), st.integers(0, 12))
def test_states_in_their_order_are_all_taken(
    events: list[tuple[str, str]], first: int, second: int
) -> None:
    states = history(events)
    first, second = sorted(min(at, len(states) - 1) for at in (first, second))
    view = ClusterView()
    assert view.update(states[first].answer(TOPICS))
    assert view.update(states[second].answer(TOPICS))


def grown(*steps: str) -> list[State]:
    """The history of topic a."""
    return history([(step, "a") for step in steps])


@pytest.mark.parametrize(
    ("steps", "known", "answer"),
    [
        (("grow", "grow"), 2, 1),  # a partition was added
        (("grow", "elect"), 2, 1),  # a new leader
        (("grow", "delete"), 2, 1),  # deleted
        (("grow", "delete", "grow"), 3, 1),  # deleted and made again
        (("grow", "delete", "grow"), 3, 2),  # not made again yet
    ],
)
def test_an_older_answer_changes_nothing(steps: tuple[str, ...], known: int, answer: int) -> None:
    states = grown(*steps)
    view = ClusterView()
    assert view.update(states[known].answer(("a",)))
    kept = replace(view, topics=dict(view.topics))
    assert not view.update(states[answer].answer(("a",)))
    assert view == kept
    off = ClusterView(uses_partition_epochs=False)
    assert off.update(states[known].answer(("a",)))
    assert off.update(states[answer].answer(("a",)))
    assert off.partition_epoch(TopicPartition("a", 0)) == -1


def test_topics_without_interest_may_be_old() -> None:
    states = history([("grow", "a"), ("grow", "b"), ("elect", "b")])
    view = ClusterView()
    assert view.update(states[3].answer(TOPICS))
    assert view.update(states[2].answer(TOPICS), interest={"a"})
    assert not view.update(states[1].answer(TOPICS), interest={"a"})
    assert view.update(states[1].answer(()), interest=None)  # about brokers only


def test_another_cluster_begins_anew() -> None:
    view = ClusterView()
    assert view.update(grown("grow", "grow")[2].answer(("a",), "first"))
    assert view.update(grown("grow")[1].answer(("a",), "second"))
    assert view.cluster_id == "second"
    assert view.partition_count("a") == 1
    assert view.max_partition_epoch == 1


def test_without_partition_epochs_leader_epochs_of_one_topic_do_not_go_back() -> None:
    """KIP-320, as brokers of Apache Kafka are treated."""
    states = grown("grow", "elect", "delete", "grow")
    for state in states:
        answer = state.answer(("a",))
        answer.max_partition_epoch = -1
    view = ClusterView()

    def told(at: int) -> MetadataResponse:
        answer = states[at].answer(("a",))
        answer.max_partition_epoch = -1
        for topic in answer.topics:
            for row in topic.partitions:
                row.partition_epoch = -1
        return answer

    tp = TopicPartition("a", 0)
    assert view.update(told(2))
    assert view.update(told(1))
    assert view.leader_epoch(tp) == 1
    assert view.update(told(4))
    assert view.leader_epoch(tp) == 0  # another topic of that name


def test_a_broker_without_partition_epochs_takes_none_away() -> None:
    states = grown("grow")
    view = ClusterView()
    view.update(states[1].answer(("a",)))
    answer = states[1].answer(("a",))
    answer.max_partition_epoch = answer.topics[0].partitions[0].partition_epoch = -1
    assert view.update(answer)
    assert view.partition_epoch(TopicPartition("a", 0)) == 1
    assert view.max_partition_epoch == 1


def test_a_start_from_a_committed_offset_waits_for_metadata_that_is_not_older() -> None:
    states = grown("grow", "elect", "elect")
    tp = TopicPartition("a", 0)
    view = ClusterView()
    assert view.is_behind(tp, 1, 0)  # nothing is known yet
    view.update(states[2].answer(("a",)))
    assert not view.is_behind(tp, 1, 1)
    assert view.is_behind(tp, 1, 2)
    assert view.is_behind(tp, 2, 0)
    assert not view.is_behind(tp, -1, 5)
    assert not view.is_behind(tp, 0, 9)  # an earlier topic: the fetch will show it
    assert not ClusterView(uses_partition_epochs=False).is_behind(tp, 9, 9)


def test_leaders_and_brokers_are_heard_of_in_other_answers() -> None:
    view = ClusterView()
    view.update(grown("grow", "elect")[2].answer(("a",)))
    tp = TopicPartition("a", 0)
    view.update_broker(Broker(2, "other", 2))
    assert not view.update_leader(tp, 2, 1)
    assert not view.update_leader(TopicPartition("x", 0), 2, 9)
    assert view.update_leader(tp, 2, 2)
    assert view.leader(tp) == 2
    assert view.leader_epoch(tp) == 2
