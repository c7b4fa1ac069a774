"""Requests that name a topic's life by a partition epoch (KIP-232) find it, or are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.shares.offsets import DescribeShareGroupOffsetsRequestTopic
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import list_request, only, produce_request

ELSEWHERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DELETED = ErrorCode.INVALID_PARTITION_EPOCH
RECORDS = 5


class Lives:
    """A topic that was deleted and made again, with records, and its partition epochs."""

    def __init__(self, broker: KstoreBroker, name: str) -> None:
        self.client = TopicClient(broker)
        self.name = name
        self.group = f"group-of-{name}"
        self.client.create(name)
        [self.before] = self.client.epochs(name)
        self.client.produce(name, records=2 * RECORDS)
        self.client.delete(name)
        self.client.create(name)
        self.client.produce(name, records=RECORDS)
        [self.now] = self.client.epochs(name)

    def end(self) -> tuple[int, int]:
        """The log's start and end."""
        found = [self.list_offsets(-1, 10, timestamp)[1] for timestamp in (-2, -1)]
        return found[0], found[1]

    def produce(self, epoch: int, version: int) -> int:
        data = build_batch([b"v"], timestamp=1_700_000_000_000)
        request = produce_request(self.name, data, acks=-1, row={"partition_epoch": epoch})
        return int(only(self.client.call(request, version)).error_code)

    def list_offsets(self, epoch: int, version: int, timestamp: int = -1) -> tuple[int, int]:
        request = list_request(self.name, timestamp, row={"partition_epoch": epoch})
        answer = self.client.call(request, version).topics[0].partitions[0]
        return answer.error_code, answer.offset

    def epoch_end(self, epoch: int, version: int) -> tuple[int, int]:
        row = {"partition": 0, "leader_epoch": 0, "partition_epoch": epoch}
        topic = {"topic": self.name, "partitions": [row]}
        request = Ask.OffsetForLeaderEpoch(replica_id=-1, topics=[topic])
        answer = self.client.call(request, version).topics[0].partitions[0]
        return answer.error_code, answer.end_offset

    def delete_records(self, epoch: int, version: int, offset: int = 2) -> tuple[int, int]:
        row = {"partition_index": 0, "offset": offset, "partition_epoch": epoch}
        topic = {"name": self.name, "partitions": [row]}
        request = Ask.DeleteRecords(topics=[topic], timeout_ms=30_000)
        answer = self.client.call(request, version).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    def committed(self, epoch: int, version: int) -> tuple[int, int]:
        if version < 8:
            old = {"name": self.name, "partition_indexes": [0], "partition_epochs": [epoch]}
            answer = self.client.call(Ask.OffsetFetch(group_id=self.group, topics=[old]), version)
        else:
            topic = {"name": self.name, "partition_indexes": [0], "partition_epochs": [epoch]}
            group = {"group_id": self.group, "topics": [topic]}
            answer = self.client.call(Ask.OffsetFetch(groups=[group]), version).groups[0]
        row: Any = answer.topics[0].partitions[0]
        return row.error_code, row.committed_offset

    def alter_share_offset(self, epoch: int) -> int:
        row = {"partition_index": 0, "start_offset": 1, "partition_epoch": epoch}
        topic = {"topic_name": self.name, "partitions": [row]}
        request = Ask.AlterShareGroupOffsets(group_id=f"share-{self.group}", topics=[topic])
        answer = self.client.call(request)
        return int(answer.responses[0].partitions[0].error_code)

    def shared_from(self) -> list[int]:
        topic = DescribeShareGroupOffsetsRequestTopic(topic_name=self.name, partitions=[0])
        group = {"group_id": f"share-{self.group}", "topics": [topic]}
        [found] = self.client.call(Ask.DescribeShareGroupOffsets(groups=[group])).groups
        return [row.start_offset for topic in found.topics for row in topic.partitions]


@pytest.fixture
def lives(running: KstoreBroker, request: pytest.FixtureRequest) -> Iterator[Lives]:
    made = Lives(running, "".join(c if c.isalnum() else "-" for c in request.node.name))
    yield made
    made.client.sock.close()


@pytest.mark.parametrize("version", range(9, 13))
def test_what_was_meant_for_the_deleted_topic_is_not_appended(lives: Lives, version: int) -> None:
    assert lives.produce(lives.before, version) == ELSEWHERE
    assert lives.produce(lives.now + 1, version) == ELSEWHERE
    assert lives.end() == (0, RECORDS)
    assert lives.produce(lives.now, version) == lives.produce(-1, version) == ErrorCode.NONE
    assert lives.end() == (0, RECORDS + 2)


def test_a_topic_id_says_it_all(lives: Lives) -> None:
    """Version 13 has no such field: one that is sent all the same is skipped."""
    topic_id = lives.client.metadata(lives.name).topics[0].topic_id
    data = build_batch([b"v"], timestamp=1_700_000_000_000)
    request = produce_request(topic_id, data, acks=-1, row={"partition_epoch": lives.before})
    assert only(lives.client.call(request, 13)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [6, 11])
@pytest.mark.parametrize("timestamp", [-1, -2, -3, 0])
def test_offsets_are_of_the_topic_that_is_meant(lives: Lives, version: int, timestamp: int) -> None:
    if timestamp == -3 and version < 7:
        timestamp = 1
    none = lives.list_offsets(-1, version, timestamp)
    assert none[0] == ErrorCode.NONE
    assert lives.list_offsets(lives.now, version, timestamp) == none
    assert lives.list_offsets(lives.before, version, timestamp) == (DELETED, -1)
    assert lives.list_offsets(lives.now + 1, version, timestamp) == (ELSEWHERE, -1)


def test_ends_of_epochs_are_of_the_topic_that_is_meant(lives: Lives) -> None:
    assert lives.epoch_end(-1, 4) == lives.epoch_end(lives.now, 4) == (0, RECORDS)
    assert lives.epoch_end(lives.before, 4) == (DELETED, -1)
    assert lives.epoch_end(lives.now + 1, 4) == (ELSEWHERE, -1)


def test_records_of_the_successor_are_not_deleted(lives: Lives) -> None:
    assert lives.delete_records(lives.before, 2) == (DELETED, -1)
    assert lives.delete_records(lives.now + 1, 2) == (ELSEWHERE, -1)
    assert lives.end() == (0, RECORDS)
    assert lives.delete_records(lives.now, 2) == (0, 2)
    assert lives.delete_records(-1, 2, 3) == (0, 3)
    assert lives.end() == (3, RECORDS)


@pytest.mark.parametrize("version", [6, 7, 8, 9])
def test_committed_offsets_are_of_the_topic_that_is_meant(lives: Lives, version: int) -> None:
    client = lives.client
    assert client.commit(lives.name, {0: 3}, lives.now, group_id=lives.group) == [0]
    assert lives.committed(-1, version) == lives.committed(lives.now, version) == (0, 3)
    assert lives.committed(lives.before, version) == (DELETED, -1)
    assert lives.committed(lives.now + 1, version) == (ELSEWHERE, -1)
    assert client.commit(lives.name, {0: 4}, lives.now + 1, group_id=lives.group) == [0]
    # The client that committed knows a later topic, and this broker does not know it yet.
    assert lives.committed(lives.now, version) == (DELETED, -1)


def test_a_share_group_begins_at_an_offset_of_the_topic_that_is_meant(lives: Lives) -> None:
    assert lives.alter_share_offset(lives.before) == DELETED
    assert lives.alter_share_offset(lives.now + 1) == ELSEWHERE
    assert lives.shared_from() in ([], [-1])
    assert lives.alter_share_offset(lives.now) == 0
    assert lives.shared_from() == [1]
    assert lives.alter_share_offset(-1) == 0


def test_versions_without_tags_are_not_checked(lives: Lives) -> None:
    assert lives.produce(lives.before, 8) == ErrorCode.NONE
    assert lives.list_offsets(lives.before, 5)[0] == ErrorCode.NONE
    assert lives.epoch_end(lives.before, 3)[0] == ErrorCode.NONE
    assert lives.committed(lives.before, 5) == (0, -1)
    assert lives.delete_records(lives.before, 1) == (0, 2)
