"""What a topology needs from the existing topics: sizes of internal topics, and errors."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.broker.state.groups.streams.topics import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    ConfiguredTopology,
    configure_topology,
)
from kstore.broker.state.groups.streams.topology import StreamsError, Topology, topology_value
from kstore.errors import ErrorCode
from kstore.protocol.groups.streams_groups import CopartitionGroup
from tests.reference.streams_members import subtopology, topic_info, topology

COUNTED = (
    subtopology("0", "lines", repartition_sink_topics=["words"]),
    subtopology(
        "1",
        repartition_source_topics=[topic_info("words")],
        state_changelog_topics=[topic_info("store")],
    ),
)


def configure(*subtopologies: Any, **existing: int) -> ConfiguredTopology:
    return configure_topology(Topology(topology_value(topology(*subtopologies))), existing)


def status(configured: ConfiguredTopology) -> tuple[int, str] | None:
    problem = configured.problem
    return None if problem is None else (problem.status_code, problem.status_detail)


def sizes(configured: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partitions for name, topic in configured.missing_topics.items()}


def tasks(configured: ConfiguredTopology) -> dict[str, int]:
    return {name: item.tasks for name, item in (configured.subtopologies or {}).items()}


def test_internal_topics_are_as_large_as_what_is_read_upstream() -> None:
    configured = configure(*COUNTED, lines=3)
    code, told = status(configured)
    assert code == MISSING_INTERNAL_TOPICS
    assert "store, words" in told
    assert sizes(configured) == {"words": 3, "store": 3}
    assert not configured.is_ready


def test_with_all_topics_there_it_is_ready_and_has_a_task_per_partition() -> None:
    configured = configure(*COUNTED, lines=3, words=3, store=3)
    assert configured.is_ready
    assert tasks(configured) == {"0": 3, "1": 3}
    assert [item.is_stateful for item in (configured.subtopologies or {}).values()] == [False, True]


def test_source_topics_that_are_missing_are_named_three_at_most() -> None:
    configured = configure(subtopology("0", "e", "d", "c", "b", "a"), e=1)
    code, told = status(configured)
    assert code == MISSING_SOURCE_TOPICS
    assert "a, b, c and 1 more" in told
    assert configured.subtopologies is None


def test_an_internal_topic_of_another_size_is_a_problem() -> None:
    code, told = status(configure(*COUNTED, lines=3, words=3, store=2))
    assert code == INCORRECTLY_PARTITIONED_TOPICS
    assert "store has 2 partitions" in told
    assert "needs 3" in told


def test_a_size_goes_through_a_chain_of_repartition_topics() -> None:
    configured = configure(
        subtopology("2", repartition_source_topics=[topic_info("second")]),
        subtopology(
            "1", repartition_source_topics=[topic_info("first")], repartition_sink_topics=["second"]
        ),
        subtopology("0", "lines", "others", repartition_sink_topics=["first"]),
        lines=2,
        others=5,
    )
    assert sizes(configured) == {"first": 5, "second": 5}
    assert list(tasks(configured)) == ["0", "1", "2"]


def test_a_repartition_topic_with_a_size_of_its_own_keeps_it() -> None:
    configured = configure(
        subtopology("0", "lines", repartition_sink_topics=["words"]),
        subtopology("1", repartition_source_topics=[topic_info("words", 7)]),
        lines=2,
    )
    assert sizes(configured) == {"words": 7}
    assert tasks(configured) == {"0": 2, "1": 7}


def test_copartitioned_sources_of_unequal_size_are_a_problem() -> None:
    both = [CopartitionGroup(source_topics=[0, 1])]
    configured = configure(subtopology("0", "b", "a", copartition_groups=both), a=1, b=2)
    code, told = status(configured)
    assert code == INCORRECTLY_PARTITIONED_TOPICS
    assert "a=1, b=2" in told


def test_a_copartitioned_repartition_topic_takes_the_size_of_the_source() -> None:
    group = [CopartitionGroup(source_topics=[0], repartition_source_topics=[0])]
    configured = configure(
        subtopology("0", "small", repartition_sink_topics=["words"]),
        subtopology(
            "1", "large", repartition_source_topics=[topic_info("words")], copartition_groups=group
        ),
        small=2,
        large=6,
    )
    assert sizes(configured) == {"words": 6}


@pytest.mark.parametrize(
    ("subtopologies", "code"),
    [
        ([subtopology("0")], ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            [subtopology("0", "a"), subtopology("1", repartition_source_topics=[topic_info("r")])],
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            [
                subtopology(
                    "0", repartition_source_topics=[topic_info("r")], repartition_sink_topics=["r"]
                )
            ],
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        ([subtopology("0", "a"), subtopology("0", "a")], ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["no source", "nobody writes it", "a loop", "one id twice"],
)
def test_a_topology_that_can_never_work_is_refused(subtopologies: Any, code: int) -> None:
    with pytest.raises(StreamsError) as refused:
        configure(*subtopologies, a=1)
    assert refused.value.code == code


def test_topologies_are_equal_in_any_order_of_their_subtopologies() -> None:
    one, other = (Topology(topology_value(topology(*item))) for item in (COUNTED, COUNTED[::-1]))
    assert one == other
    assert one != Topology(topology_value(topology(*COUNTED, epoch=1)))
    assert one.source_topics == {"lines": "0", "words": "1"}
    assert one.required_topics == {"lines", "words", "store"}
