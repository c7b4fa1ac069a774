"""Which topics are accepted: every rule with its error, and plans that spread replicas."""

from __future__ import annotations

from uuid import UUID

import pytest

from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.state.metadata.image import (
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kstore.broker.state.metadata.topic_rules import (
    NewPartitions,
    NewTopic,
    TopicError,
    check_configs,
    check_name,
    plan_partitions,
    plan_topic,
)
from kstore.errors import ErrorCode


def image(brokers: int = 1, *topics: str) -> MetadataImage:
    made = MetadataImage("cluster")
    for node in range(1, brokers + 1):
        made = made.with_broker(
            BrokerImage(node, (Endpoint("PLAINTEXT", "localhost", 9000 + node),))
        )
    for number, name in enumerate(topics):
        partition = PartitionImage(1, 0, (1,), (1,))
        made = made.with_topics(TopicImage(name, UUID(int=number + 1), (partition, partition), {}))
    return made


def plan(state: MetadataImage, new: NewTopic) -> tuple[tuple[int, ...], ...]:
    return plan_topic(state, new, default_partitions=3, default_replicas=1)


def code(state: MetadataImage, new: NewTopic) -> int:
    with pytest.raises(TopicError) as failure:
        plan(state, new)
    assert failure.value.message
    return failure.value.code


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_legal_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0"])
def test_illegal_names(name: str) -> None:
    with pytest.raises(TopicError) as failure:
        check_name(name)
    assert failure.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_defaults_stand_in_for_minus_one() -> None:
    assert plan(image(), NewTopic("t")) == ((1,), (1,), (1,))


def test_replicas_go_round_the_brokers() -> None:
    assert plan(image(3), NewTopic("t", 4, 2)) == ((1, 2), (2, 3), (3, 1), (1, 3))


def test_a_broker_that_is_down_follows_where_there_are_too_few_others() -> None:
    """As in Kafka. Its replicas show it."""
    known = image(3).with_topics(
        TopicImage("old", UUID(int=1), (PartitionImage(1, 0, (1, 2, 3), (1, 2)),), {})
    ).without_broker(3)  # fmt: skip
    assert plan(known, NewTopic("t", 2, 2)) == ((1, 2), (2, 1))
    lacks_two = known.without_broker(2)
    assert plan(lacks_two, NewTopic("t", 3, 2)) == ((1, 2), (1, 3), (1, 2)), "each in turn"
    assert plan(known, NewTopic("t", 2, 3)) == ((1, 2, 3), (2, 1, 3))
    assert plan_partitions(known, NewPartitions("old", 2)) == ((1, 2, 3),)
    assert plan(known, NewTopic("t", assignments={0: [3, 1]})) == ((3, 1),)
    assert code(known, NewTopic("t", 2, 4)) == ErrorCode.INVALID_REPLICATION_FACTOR
    for assigned in ([3], [1, 4]):
        new = NewTopic("t", assignments={0: assigned})
        assert code(known, new) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    nobody = known.without_broker(1).without_broker(2)
    assert code(nobody, NewTopic("t", 1, 1)) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    assert plan(image(2), NewTopic("t", assignments={0: [2, 1], 1: [1, 2]})) == ((2, 1), (1, 2))


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("have"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 10_001), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [1], 1: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_a_new_topic_may_not_be(new: NewTopic, error: int) -> None:
    assert code(image(2, "have", "a.b"), new) == error


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewPartitions("none", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("have", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("have", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("have", 20_000), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("have", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("have", 3, [[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_how_a_topic_may_not_grow(new: NewPartitions, error: int) -> None:
    with pytest.raises(TopicError) as failure:
        plan_partitions(image(1, "have"), new)
    assert failure.value.code == error


def test_a_refusal_names_the_numbers_that_do_not_fit() -> None:
    with pytest.raises(TopicError, match=r"2 partition\(s\); 1 would not be an increase\."):
        plan_partitions(image(1, "have"), NewPartitions("have", 1))
    with pytest.raises(TopicError, match=r"^Topic already has 2 partition\(s\)\."):
        plan_partitions(image(1, "have"), NewPartitions("have", 2))
    with pytest.raises(TopicError, match=r"partition 3 time\(s\): brokers known: 2\."):
        plan(image(2), NewTopic("t", 1, 3))
    with pytest.raises(TopicError, match=r"Partition 2 .* \[9\]: the brokers are \[1\]"):
        plan_partitions(image(1, "have"), NewPartitions("have", 3, [[9]]))
    with pytest.raises(TopicError, match="Partition 1 has no replicas"):
        plan(image(2), NewTopic("t", assignments={0: [1], 2: [1]}))
    with pytest.raises(TopicError, match=r"Partition 0 .* \[7\]: the brokers are \[1, 2\]"):
        plan(image(2), NewTopic("t", assignments={0: [7]}))


def test_replicas_of_new_partitions_are_as_many_as_the_topic_has() -> None:
    with pytest.raises(TopicError, match=r"Partition 2 .* \[1, 2\]: partition 0 has 1 of them"):
        plan_partitions(image(2, "have"), NewPartitions("have", 3, [[1, 2]]))
    assert plan_partitions(image(2, "have"), NewPartitions("have", 3, [[2]])) == ((2,),)


def test_growth_keeps_the_number_of_replicas() -> None:
    assert plan_partitions(image(1, "have"), NewPartitions("have", 4)) == ((1,), (1,))


def test_configs_are_checked_by_name_and_value() -> None:
    assert check_configs({"retention.ms": "5"}) == {"retention.ms": "5"}
    for name, value in (("retention.mss", "5"), ("retention.ms", "soon"), ("retention.ms", None)):
        with pytest.raises(TopicError, match=name) as failure:
            check_configs({name: value})
        assert failure.value.code == ErrorCode.INVALID_CONFIG


def test_the_image_finds_by_name_and_id_and_tells_of_changes() -> None:
    changes: list[int] = []
    cache = MetadataCache(MetadataImage("c"), lambda: changes.append(1))
    topic = TopicImage("t", UUID(int=4), (PartitionImage(1, 0, (1,), (1,)),), {})
    first = cache.image.with_topics(topic)
    cache.publish(first)
    assert first.topic_by_id(UUID(int=4)) is topic
    again = topic._replace(topic_id=UUID(int=5))
    second = first.with_topics(again)
    cache.publish(second)
    assert second.topic_by_id(UUID(int=4)) is None
    assert second.partition("t", 0) == PartitionImage(1, 0, (1,), (1,))
    assert second.partition("t", 1) is None
    third = second.without_topics("t")
    cache.publish(third)
    cache.publish(third.without_topics("t"))
    assert third.topic_by_id(UUID(int=5)) is None
    assert (cache.image.version, len(changes)) == (3, 3)
    assert (MetadataImage("c").topics, first.topics) == ({}, {"t": topic})
