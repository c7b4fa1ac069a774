"""The partitions of its topic that a coordinator manages: all, or in a cluster the led ones."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kstore.broker.runtime.coordinators.topic import ClusterTopic, CoordinatorTopic, StandaloneTopic
from kstore.broker.state.metadata.image import (
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kstore.broker.state.metadata.topic_rules import NewTopic, TopicError
from kstore.config import BrokerConfig
from kstore.errors import ErrorCode, KafkaError

NAME, ME, OTHER, GONE = "__consumer_offsets", 1, 2, 3
COUNT, FACTOR = "offsets.topic.num.partitions", "offsets.topic.replication.factor"


class Place:
    """What a topic needs from a broker: broker 1. The image also has broker 2."""

    def __init__(self, *leaders: int, online: tuple[int, ...] = (), **given: str) -> None:
        self.node_id = ME
        self.config = BrokerConfig.load(None, {"log.dirs": "unused"} | given, {})
        self.image = MetadataImage("cluster")
        for node_id in (ME, OTHER):
            self.image = self.image.with_broker(
                BrokerImage(node_id, (Endpoint("PLAINTEXT", "h", node_id),))
            )
        if leaders:
            partitions = tuple(PartitionImage(each, 0, (each,), (each,)) for each in leaders)
            self.image = self.image.with_topics(TopicImage(NAME, UUID(int=1), partitions, {}))
        self.online = online
        self.sure = True
        self.made: list[NewTopic] = []
        self.problem: TopicError | None = None

    def topic(self, name: bytes) -> Any:
        rows = [SimpleNamespace(index=index, online=True) for index in self.online]
        return SimpleNamespace(partitions=[None, *rows, SimpleNamespace(index=9, online=False)])

    async def ensure(self, new: NewTopic) -> None:
        if self.problem is not None:
            raise self.problem
        self.made.append(new)

    def alone(self) -> CoordinatorTopic:
        given: Any = self
        return StandaloneTopic(NAME, given, given, given)

    def in_cluster(self) -> CoordinatorTopic:
        given: Any = self
        return ClusterTopic(NAME, given, given, given, given, lambda: self.sure)


def test_a_broker_that_is_alone_serves_all_partitions() -> None:
    topic = Place(ME, ME, ME).alone()
    assert list(topic.led()) == [0, 1, 2]
    assert [topic.leader(index) for index in (0, 2)] == [ME, ME]
    assert topic.may_answer()
    assert list(Place().alone().led()) == []


def test_in_a_cluster_a_broker_serves_the_partitions_that_it_leads() -> None:
    place = Place(OTHER, ME, ME, online=(1, 2))
    topic = place.in_cluster()
    assert list(topic.led()) == [1, 2]
    assert [topic.leader(index) for index in (0, 1)] == [OTHER, ME]
    place.sure = False
    assert not topic.may_answer()


@pytest.mark.parametrize("index", [0, 1, 7])
def test_nobody_serves_a_partition_without_a_leader_that_lives(index: int) -> None:
    topic = Place(GONE, -1).in_cluster()
    with pytest.raises(KafkaError) as refused:
        topic.leader(index)
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_how_many_partitions_there_are() -> None:
    """A single broker manages the partitions that are served: a name keeps its partition until the
    next start.
    """
    place = Place(ME, ME, ME)
    assert (place.alone().count(2), place.in_cluster().count(2)) == (2, 3)
    assert (Place().alone().count(0), Place().in_cluster().count(0)) == (0, 0)


def test_when_the_topic_has_to_be_made() -> None:
    there, missing = Place(ME), Place()
    assert [there.alone().is_missing(served) for served in (0, 1)] == [True, False]
    assert missing.alone().is_missing(1)
    assert [place.in_cluster().is_missing(0) for place in (there, missing)] == [False, True]


def test_who_looks_for_the_coordinator_waits_for_what_may_answer() -> None:
    place = Place(ME, ME)
    assert place.alone().awaited(["a", "b"], "a") == ["a", "b"]
    assert place.in_cluster().awaited(["a", "b"], "a") == ["a"]
    assert place.in_cluster().awaited(["a", "b"], None) == []


def test_replicas_that_nobody_has_set_are_as_many_as_there_are_brokers() -> None:
    place = Place()
    assert place.in_cluster().as_configured(COUNT, FACTOR, {}).replication_factor == 2
    assert place.alone().as_configured(COUNT, FACTOR, {}).replication_factor == 1
    place = Place(**{COUNT: "7", FACTOR: "1"})
    new = place.in_cluster().as_configured(COUNT, FACTOR, {"cleanup.policy": "compact"})
    assert (new.name, new.num_partitions, new.replication_factor) == (NAME, 7, 1)
    assert new.configs == {"cleanup.policy": "compact"}


def test_a_topic_that_can_not_be_made_leaves_no_coordinator() -> None:
    place = Place()
    new = NewTopic(NAME, 1, 1)
    asyncio.run(place.alone().make(new))
    assert place.made == [new]
    place.problem = TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, "too many")
    with pytest.raises(KafkaError) as refused:
        asyncio.run(place.alone().make(new))
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
