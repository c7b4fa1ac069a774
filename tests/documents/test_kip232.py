"""KIP-232 on three real brokers, one of which is cut off from the controller: no client accepts its
outdated metadata, and an offset of a deleted topic is never used in another topic of the same name.
Each failure reappears if kstore.kip232.enable is false.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Self, TypeVar

import pytest

from kstore.clients import AdminClient, Consumer
from kstore.clients.core.metadata import ClusterView
from kstore.clients.io.cluster import ClusterClient
from kstore.config.client.configs import client_settings
from kstore.errors import InvalidPartitionEpochError
from kstore.types import TopicPartition
from tests.beside.topic_records import polled
from tests.beside.waiting import until
from tests.documents.cut_off import CutOffCluster, write
from tests.documents.cut_off import cluster as cluster  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ON_AND_OFF = pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])


async def only_connected_to(client: ClusterClient, node_id: int) -> None:
    """Close the client's other connections, so that this broker is the one it asks first."""
    for other in list(client.view.brokers):
        if other != node_id:
            (await client.connection(other)).close()
    await client.connection(node_id)


T = TypeVar("T")


def seen_by_a_client(
    first: str, lagging: int, topic: str, enabled: bool, look: Callable[[ClusterView], T]
) -> list[T]:
    """What a client sees that asks a broker once, and then, five times, only the lagging one."""

    async def ask() -> list[T]:
        client = ClusterClient(
            client_settings("consumer", first, {"kstore_kip232_enable": enabled})
        )
        await client.refresh([topic])
        seen = [look(client.view)]
        await only_connected_to(client, lagging)
        for _ in range(5):
            await client.refresh([topic])
            seen.append(look(client.view))
        await client.close()
        return seen

    return asyncio.run(ask())


@ON_AND_OFF
def test_a_client_does_not_go_back_to_what_a_lagging_broker_knows(
    cluster: CutOffCluster, enabled: bool
) -> None:
    lagging, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)
    asked = cluster.brokers[first].bootstrap
    with cluster.cut_off(lagging):
        with cluster.admin(first) as admin:
            admin.create_partitions(topic, 3, replicas=[[first, second]] * 2)
        counts = seen_by_a_client(
            asked, lagging, topic, enabled, lambda view: view.partition_count(topic)
        )
    assert counts[0] == 3
    if enabled:
        assert counts == [3] * 6
    else:
        assert 1 in counts  # two partitions are deleted again


@ON_AND_OFF
def test_a_topic_that_was_deleted_does_not_come_back(cluster: CutOffCluster, enabled: bool) -> None:
    lagging, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)
    asked = cluster.brokers[first].bootstrap
    with cluster.cut_off(lagging):
        delete(cluster, topic, first)
        seen = seen_by_a_client(asked, lagging, topic, enabled, lambda view: topic in view.topics)
    assert not seen[0]
    assert any(seen) is not enabled


def delete(cluster: CutOffCluster, topic: str, asked: int) -> None:
    """Delete a topic while a broker is unreachable; do not wait for that broker."""
    bootstrap = cluster.brokers[asked].bootstrap
    with AdminClient(bootstrap, request_timeout_ms=1000) as admin:
        admin.delete_topics([topic], raise_errors=False)
    with cluster.admin(asked) as admin:
        until(lambda: topic not in admin.list_topics(), f"{topic} is deleted")


# ---- offsets of a topic that was deleted and made again ----


class Reader:
    """A consumer of partition 0 that begins at the earliest record by default."""

    def __init__(self, cluster: CutOffCluster, topic: str, enabled: bool, node_id: int) -> None:
        self.tp = TopicPartition(topic, 0)
        self.consumer = Consumer(
            cluster.brokers[node_id].bootstrap, group_id=f"group-of-{topic}",
            enable_auto_commit=False, auto_offset_reset="earliest", retry_backoff_ms=20,
            kstore_kip232_enable=enabled,
        )  # fmt: skip
        self.consumer.assign([self.tp])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def read(self, count: int) -> list[bytes | None]:
        """The values of the next records; AssertionError if they do not arrive."""
        return [row.value for row in polled(self.consumer, count)]


OLD = [b"old-%d" % n for n in range(5)]
NEW = [b"new-%d" % n for n in range(10)]


def recreate(cluster: CutOffCluster, topic: str, *replicas: int) -> int:
    """Delete a topic, make another one of that name with more records; its partition epoch."""
    delete(cluster, topic, replicas[0])
    cluster.create_topic(topic, replicas={0: replicas})
    write(cluster, replicas[0], topic, *NEW)
    return cluster.topic(topic, replicas[0]).partitions[0].partition_epoch


@ON_AND_OFF
def test_reading_does_not_go_on_in_another_topic_of_that_name(
    cluster: CutOffCluster, enabled: bool
) -> None:
    _, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)
    write(cluster, first, topic, *OLD)
    with Reader(cluster, topic, enabled, first) as reader:
        assert reader.read(5) == OLD
        reader.consumer.pause(reader.tp)  # what it would fetch meanwhile depends on the moment
        epoch = recreate(cluster, topic, first, second)
        reader.consumer.resume(reader.tp)
        if not enabled:
            assert reader.read(5) == NEW[5:]  # half of the new records are missing
            return
        with pytest.raises(InvalidPartitionEpochError) as caught:
            reader.read(1)
        assert caught.value.partition_epochs == {reader.tp: epoch}
        reader.consumer.seek_to_beginning(reader.tp)
        assert reader.read(10) == NEW


@ON_AND_OFF
def test_a_late_commit_does_not_say_where_the_topics_successor_begins(
    cluster: CutOffCluster, enabled: bool
) -> None:
    """Deleting a topic deletes its committed offsets; later commits would stay."""
    _, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)
    write(cluster, first, topic, *OLD)
    with Reader(cluster, topic, enabled, first) as late:
        assert late.read(5) == OLD
        late.consumer.pause(late.tp)
        recreate(cluster, topic, first, second)
        with pytest.raises(InvalidPartitionEpochError) if enabled else nullcontext():
            late.consumer.commit()
    with Reader(cluster, topic, enabled, first) as reader:
        wanted = NEW if enabled else NEW[5:]  # half of the new records are missing
        assert reader.read(len(wanted)) == wanted


@ON_AND_OFF
def test_a_late_commit_does_not_replace_a_newer_one(cluster: CutOffCluster, enabled: bool) -> None:
    _, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)
    write(cluster, first, topic, *OLD)
    with Reader(cluster, topic, enabled, first) as late:
        assert late.read(5) == OLD
        late.consumer.pause(late.tp)
        recreate(cluster, topic, first, second)
        with Reader(cluster, topic, enabled, first) as reader:
            assert reader.read(10) == NEW
            reader.consumer.commit()
        with pytest.raises(InvalidPartitionEpochError) if enabled else nullcontext():
            late.consumer.commit()
    with Reader(cluster, topic, enabled, first) as reader:
        assert reader.consumer.position(reader.tp) == (10 if enabled else 5)


def test_an_offset_that_was_kept_elsewhere_says_which_topic_it_belongs_to(
    cluster: CutOffCluster,
) -> None:
    _, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)
    write(cluster, first, topic, *OLD)
    with Reader(cluster, topic, True, first) as reader:
        assert reader.read(5) == OLD
        kept = reader.consumer.position_and_offset_epoch(reader.tp)
    assert kept.offset == 5
    with Reader(cluster, topic, True, first) as reader:
        reader.consumer.seek(reader.tp, kept.offset, kept.offset_epoch)
        assert reader.consumer.position(reader.tp) == 5
        write(cluster, first, topic, b"one more")
        assert reader.read(1) == [b"one more"]
        with pytest.raises(ValueError, match="offset epoch"):
            reader.consumer.seek(reader.tp, 5, b"what somebody made up")
    epoch = recreate(cluster, topic, first, second)
    with Reader(cluster, topic, True, first) as reader:
        reader.consumer.seek(reader.tp, kept.offset, kept.offset_epoch)
        with pytest.raises(InvalidPartitionEpochError) as caught:
            reader.read(1)
        assert caught.value.partition_epochs == {reader.tp: epoch}
        reader.consumer.seek(reader.tp, kept.offset)  # without it, the offset is just a number
        assert reader.read(5) == NEW[5:]


@ON_AND_OFF
def test_a_start_from_a_committed_offset_waits_for_metadata_that_is_not_older(
    cluster: CutOffCluster, enabled: bool
) -> None:
    """The failure for which the document was written. The lagging broker believes that it leads,
    and its log is short. A consumer that trusts it is out of range and starts again.
    """
    lagging, first, second = cluster.victim()
    topic = cluster.new_topic(lagging, first, second)
    write(cluster, first, topic, *OLD)
    with Reader(cluster, topic, enabled, lagging) as reader:
        assert reader.read(5) == OLD
        reader.consumer.commit()  # now there is a coordinator, which all brokers know
    tp = TopicPartition(topic, 0)
    with cluster.cut_off(lagging):
        with cluster.admin(first) as admin:
            admin.alter_partition_reassignments({tp: [first, second]})
        until(lambda: cluster.leader(topic, 0, first) == first, "another one leads")
        write(cluster, first, topic, *NEW)
        with Reader(cluster, topic, enabled, first) as reader:
            assert reader.read(10) == NEW
            reader.consumer.commit()
        write(cluster, first, topic, b"next")
        with Reader(cluster, topic, enabled, lagging) as reader:
            assert reader.read(1)[0] == (b"next" if enabled else OLD[0])


def test_a_broker_that_remembers_the_predecessor_is_no_dead_end(cluster: CutOffCluster) -> None:
    """A client that starts at the lagging broker learns of the deleted topic. If the others refuse
    one of its requests for that reason, it asks another broker, instead of the lagging one for
    ever.
    """
    lagging, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)
    tp = TopicPartition(topic, 0)
    write(cluster, first, topic, *OLD)
    with Reader(cluster, topic, True, first) as reader:
        assert reader.read(5) == OLD
        reader.consumer.commit()
    with cluster.admin(first) as admin:  # the groups' coordinator is not the one that is cut off
        admin.alter_partition_reassignments({TopicPartition("__consumer_offsets", 0): [first]})
        until(lambda: not admin.list_partition_reassignments(), "the coordinator has moved")
    until(cluster.is_same_everywhere, "all brokers know the coordinator")
    with cluster.cut_off(lagging):
        recreate(cluster, topic, first, second)
        with Reader(cluster, topic, True, first) as reader:
            assert reader.read(10) == NEW
            reader.consumer.commit()
        with Reader(cluster, topic, True, lagging) as reader:  # OffsetFetch, by the topic's id
            assert reader.consumer.position(tp, 30_000) == 10
        write(cluster, lagging, topic, b"next")  # Produce
        with Reader(cluster, topic, True, lagging) as reader:  # Fetch
            reader.consumer.seek(tp, 10)
            assert reader.read(1) == [b"next"]
        with Reader(cluster, topic, True, lagging) as reader:  # ListOffsets
            assert reader.consumer.end_offsets([tp]) == {tp: 11}
        with Reader(cluster, topic, True, lagging) as reader:  # OffsetCommit
            reader.consumer.commit({tp: 7})
        with Reader(cluster, topic, True, first) as reader:
            assert reader.consumer.position(tp) == 7
