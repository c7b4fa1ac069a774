"""The pure parts of the clients: partitions of keys, versions, metadata, server lists."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.clients.core.metadata import ClusterView
from kstore.clients.core.producer.partitioner import partition_for_key
from kstore.clients.core.versions import BrokerVersions
from kstore.clients.io.nodes import parse_servers
from kstore.errors import (
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kstore.protocol.metadata.metadata import MetadataResponsePartition, MetadataResponseTopic
from kstore.types import TopicPartition
from tests.plain_messages import Answer


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_lies_where_java_puts_it(key: bytes, signed_hash: int) -> None:
    for count in (1, 3, 50):
        assert partition_for_key(key, count) == (signed_hash & 0x7FFFFFFF) % count


def test_the_newest_version_of_both_sides_is_chosen() -> None:
    rows = [{"api_key": 1, "min_version": 0, "max_version": 11}]
    versions = BrokerVersions(Answer.ApiVersions(api_keys=rows))
    assert versions.choose(1) == 11
    assert versions.choose(1, at_most=7) == 7
    with pytest.raises(
        UnsupportedVersionError, match="has versions 0 to 11, but versions 12 to 18"
    ):
        versions.choose(1, at_least=12)
    with pytest.raises(UnsupportedVersionError, match="does not support Produce"):
        versions.choose(0)


def metadata(**topics: MetadataResponseTopic) -> Any:
    """A response with broker 1 and these topics."""
    for name, topic in topics.items():
        topic.name = name
    broker = {"node_id": 1, "host": "h", "port": 9}
    return Answer.Metadata(brokers=[broker], controller_id=1, topics=list(topics.values()))


def test_metadata_names_leaders_and_says_what_is_wrong() -> None:
    view = ClusterView()
    rows = [
        MetadataResponsePartition(partition_index=1, leader_id=-1),
        MetadataResponsePartition(partition_index=0, leader_id=1),
    ]
    view.update(
        metadata(a=MetadataResponseTopic(partitions=rows), b=MetadataResponseTopic(error_code=29))
    )
    assert view.leader(TopicPartition("a", 0)) == 1
    with pytest.raises(LeaderNotAvailableError, match="a-1 has no leader"):
        view.leader(TopicPartition("a", 1))
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1, not 2"):
        view.leader(TopicPartition("a", 2))
    with pytest.raises(TopicAuthorizationFailedError, match="topic 'b'"):
        view.topic("b")
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'c'"):
        view.topic("c")


def test_an_error_for_a_topic_replaces_what_was_known_of_it() -> None:
    view = ClusterView()
    view.update(metadata(a=MetadataResponseTopic()))
    assert view.topic("a").partitions == ()
    view.update(metadata(a=MetadataResponseTopic(error_code=3)))
    with pytest.raises(UnknownTopicOrPartitionError):
        view.topic("a")


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        (["a:1"], [("a", 1)]),
        (["a:1", " b:2"], [("a", 1), ("b", 2)]),
        (["a"], [("a", 9092)]),
        (["[::1]:5"], [("::1", 5)]),
    ],
)
def test_server_lists(text: list[str], servers: list[tuple[str, int]]) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize("text", ["", "a:", ":1", "a:x"])
def test_bad_server_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        parse_servers([text])
