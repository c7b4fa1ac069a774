"""Requests for a partition that lost its leader: which are held, how long, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.metadata import leader_waits
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.runtime.metadata.leader_waits import LeaderWaits
from kstore.broker.state.metadata.image import (
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import ProduceRequest
from tests.broker.harness.plane_harness import NODE_ID, TOPIC_ID, Client, Plane
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, produce_request

METADATA, DESCRIBE = 3, 75
LEADER, OTHER = 6, 7
HERE, THERE, LONE = "t", "there", "lone"
ANSWER = b"kept"


class Story:
    """A data plane. Broker 6 leads its topic `there`, and this broker leads `t`."""

    def __init__(self, folder: Path) -> None:
        self.plane = Plane(folder)
        self.config = {"kstore.metadata.leader.wait.ms": 300}
        self.ids = {HERE: TOPIC_ID, THERE: uuid4(), LONE: uuid4()}
        image = MetadataImage("c").with_topics(
            *(self.topic(name, leader) for name, leader in ((HERE, NODE_ID), (THERE, LEADER)))
        )
        for node_id in (NODE_ID, LEADER, OTHER):
            image = image.with_broker(BrokerImage(node_id, ()))
        self.metadata = MetadataCache(image, self.changed)
        node: Any = SimpleNamespace(loop=self.plane.loop, config=self.config, node_id=NODE_ID)
        self.forgotten = 0
        self.waits = LeaderWaits(node, self.plane.table, self.metadata, self.forget)
        entry = TopicEntry(THERE.encode(), self.ids[THERE].bytes)
        self.plane.table.add_topic(entry)
        self.partition = Partition(entry, 0, None, leader_id=LEADER, leader_epoch=3)
        self.plane.table.add_partition(self.partition)
        self.plane.server.answers = {METADATA: ANSWER, DESCRIBE: ANSWER}

    def topic(self, name: str, leader: int) -> TopicImage:
        partition = PartitionImage(leader, 3, (LEADER, OTHER), (LEADER, OTHER))
        return TopicImage(name, self.ids[name], (partition,), {})

    def forget(self) -> None:
        self.forgotten += 1
        self.plane.plane.forget_answers()

    def changed(self) -> None:
        self.plane.plane.forget_answers()
        self.waits.image_changed()

    def lose(self, node_id: int = LEADER) -> None:
        """A broker ends, and this one learns of it."""
        self.metadata.publish(self.metadata.image.without_broker(node_id))
        self.plane.loop.turn()

    def elect(self, leader: int = OTHER) -> None:
        """The controller has elected another leader of `there`, or none (-1)."""
        self.partition.leader_id = leader
        self.metadata.publish(self.metadata.image.with_topics(self.topic(THERE, leader)))
        self.plane.loop.turn()

    def answered(self, client: Client) -> int:
        """The number of answers since the last call."""
        return len(client.raw_answers())


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    found = Story(tmp_path)
    yield found
    found.plane.close()


def metadata_of(*names: str) -> Any:
    return Ask.Metadata(topics=[{"name": name} for name in names])


def produce_to(name: str) -> ProduceRequest:
    return produce_request(name, build_batch([b"v"], timestamp=1))


def fetch_of(story: Story, *names: str, **fields: Any) -> Any:
    topics = [{"topic_id": story.ids[name], "partitions": [fetch_part()]} for name in names]
    return Ask.Fetch(topics=topics, **{"max_wait_ms": 0, **fields})


def test_a_metadata_request_is_held_until_the_next_leader_is_known(story: Story) -> None:
    story.lose()
    client = story.plane.client()
    client.send(12, metadata_of(THERE))
    story.plane.loop.turn()
    assert (story.answered(client), story.plane.server.dispatched) == (0, [])
    story.elect()
    assert story.answered(client) == 1
    assert story.waits.held_requests == 1


def test_what_is_held_is_let_go_when_the_bound_is_over(story: Story) -> None:
    story.lose()
    client = story.plane.client()
    client.send(12, metadata_of(THERE))
    assert [timer.delay_s for timer in story.plane.loop.timers] == [0.3]
    story.plane.loop.fire_timers()
    story.plane.loop.turn()
    assert story.answered(client) == 1
    client.send(12, metadata_of(THERE))  # it has no leader still, but not just now
    assert story.answered(client) == 1
    assert story.waits.held_requests == 1


def test_a_partition_that_nobody_can_lead_holds_nobody_once_that_is_known(story: Story) -> None:
    story.lose()
    client = story.plane.client()
    client.send(12, metadata_of(THERE))
    story.elect(-1)
    assert story.answered(client) == 1
    client.send(12, metadata_of(THERE))
    assert story.answered(client) == 1


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        (metadata_of(HERE), False),
        (metadata_of("missing"), False),
        (metadata_of(HERE, THERE), True),
        (Ask.Metadata(topics=None), True),
        (Ask.Metadata(topics=[]), False),
        (metadata_of(THERE, *("x" * 200 + str(number) for number in range(50))), True),
    ],
)
def test_only_who_asks_for_such_a_partition_is_held(story: Story, asked: Any, held: bool) -> None:
    story.lose()
    client = story.plane.client()
    client.send(12, asked)
    assert story.answered(client) == (not held)


def test_topics_are_found_by_their_ids_too(story: Story) -> None:
    story.lose()
    client = story.plane.client()
    row = {"name": None, "topic_id": story.ids[THERE]}
    client.send(13, Ask.Metadata(topics=[row]))
    assert story.answered(client) == 0


def test_describe_topic_partitions_is_held_likewise(story: Story) -> None:
    story.lose()
    one, all_of_them, other = (story.plane.client() for _ in range(3))
    one.send(0, Ask.DescribeTopicPartitions(topics=[{"name": THERE}]))
    all_of_them.send(0, Ask.DescribeTopicPartitions())
    other.send(0, Ask.DescribeTopicPartitions(topics=[{"name": HERE}]))
    assert [story.answered(each) for each in (one, all_of_them, other)] == [0, 0, 1]
    story.elect()
    assert [story.answered(each) for each in (one, all_of_them, other)] == [1, 1, 0]


def test_requests_behind_a_held_one_keep_their_order(story: Story) -> None:
    story.lose()
    client = story.plane.client()
    first = client.frame(12, metadata_of(THERE))
    second = client.frame(9, produce_to(HERE))
    client.feed(first + second)
    assert story.answered(client) == 0
    story.elect()
    found = [int.from_bytes(answer[:4], "big") for answer in client.raw_answers()]
    assert found == [1, 2]


def test_held_requests_that_are_alike_are_answered_once_and_kept(story: Story) -> None:
    story.lose()
    clients = [story.plane.client() for _ in range(5)]
    for client in clients:
        client.send(12, metadata_of(THERE))
    story.elect()
    assert [story.answered(client) for client in clients] == [1] * 5
    assert len(story.plane.server.dispatched) == 1


def test_answers_that_were_kept_are_forgotten_when_a_leader_is_lost(story: Story) -> None:
    client = story.plane.client()
    client.send(12, metadata_of(THERE))
    assert story.answered(client) == 1
    story.waits.lost(LEADER)  # nothing has changed in the image yet
    assert story.forgotten == 1
    client.send(12, metadata_of(THERE))
    assert story.answered(client) == 0
    story.waits.found(LEADER)  # the broker only closed a connection
    story.plane.loop.turn()
    assert story.answered(client) == 1


def test_no_more_than_so_many_connections_are_held(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_waits, "MOST_HELD", 2)
    story.lose()
    clients = [story.plane.client() for _ in range(3)]
    for client in clients:
        client.send(12, metadata_of(THERE))
    assert [story.answered(client) for client in clients] == [0, 0, 1]


def test_a_connection_that_is_closed_while_it_waits_leaves_nothing(story: Story) -> None:
    story.lose()
    client = story.plane.client()
    client.send(12, metadata_of(THERE))
    client.connection.connection_lost(None)
    story.elect()
    assert (story.answered(client), story.waits._held) == (0, {})


def test_without_a_wait_nothing_is_held(story: Story) -> None:
    story.config["kstore.metadata.leader.wait.ms"] = 0
    story.lose()
    client = story.plane.client()
    client.send(12, metadata_of(THERE))
    assert story.answered(client) == 1
    assert story.plane.table.lost_leaders is None


def test_a_produce_for_the_lost_leader_is_held_and_then_says_who_leads(story: Story) -> None:
    story.lose()
    client = story.plane.client()
    client.send(9, produce_to(THERE))
    assert (client.answers(), story.plane.produce.requests) == ([], 0)
    story.elect()
    [(_, answer)] = client.answers()
    row = answer.responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert story.plane.produce.requests == 1
    client.call(9, produce_to(HERE))  # partitions that this broker leads are not held


def test_a_fetch_for_the_lost_leader_is_held_and_a_followers_is_not(story: Story) -> None:
    story.lose()
    consumer, follower, other = (story.plane.client() for _ in range(3))
    consumer.send(13, fetch_of(story, HERE, THERE))
    follower.send(13, fetch_of(story, THERE, replica_id=OTHER))
    other.send(13, fetch_of(story, HERE))
    assert [story.answered(each) for each in (consumer, follower, other)] == [0, 1, 1]
    story.elect()
    [(_, answer)] = consumer.answers()
    codes = [row.error_code for topic in answer.responses for row in topic.partitions if topic]
    assert sorted(codes) == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_fetch_session_that_is_held_goes_on_where_it_was(story: Story) -> None:
    client = story.plane.client()
    row = fetch_of(story, HERE, THERE, session_epoch=0)
    opened = client.call(13, row)
    story.lose()
    again = Ask.Fetch(session_id=opened.session_id, session_epoch=1, max_wait_ms=0)
    client.send(13, again)
    assert client.answers() == []
    story.elect()
    [(_, answer)] = client.answers()
    assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, opened.session_id)


def test_who_has_just_gone_is_seen_before_metadata_is_answered(story: Story) -> None:
    """The client lost its leader at the same moment, and the loop has not processed that here
    yet.
    """
    asked = story.plane.client()
    asked.send(12, metadata_of(THERE))  # the answer is kept
    assert story.answered(asked) == 1
    looks: list[int] = []

    def look() -> None:
        looks.append(LEADER)
        story.waits.lost(LEADER)

    story.plane.plane.look_at_peers = look
    client = story.plane.client()
    client.send(9, produce_to(HERE))
    assert (looks, story.answered(client)) == ([], 1)
    client.send(12, metadata_of(THERE))
    assert (looks, story.answered(client)) == ([LEADER], 0)
