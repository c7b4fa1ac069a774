"""Calls on topics through one socket, with kstore's own fields."""

from __future__ import annotations

from typing import Any

from kstore._fast.record.builder import build_batch
from tests.broker.harness.wire import Wire
from tests.plain_messages import Ask
from tests.record_requests import (
    commit_request,
    fetch_part,
    fetch_request,
    list_request,
    only,
    produce_request,
)


class TopicClient(Wire):
    """The caller checks errors. The connection has kstore's fields unless ``extended`` is false."""

    def __init__(self, broker: Any, *, extended: bool = True) -> None:
        super().__init__(broker)
        if extended:
            self.ask_for_fields()

    def ask_for_fields(self) -> None:
        """Ask for kstore's tagged fields in responses, in ApiVersions."""
        hello = Ask.ApiVersions(
            client_software_name="t", client_software_version="1", extension_fields=True
        )
        assert self.call(hello).error_code == 0

    create = Wire.make_topic

    def grow(self, name: str, count: int) -> None:
        topic = {"name": name, "count": count, "assignments": None}
        request = Ask.CreatePartitions(topics=[topic], timeout_ms=30_000)
        answer = self.call(request).results[0]
        assert answer.error_code == 0, answer

    def delete(self, name: str) -> None:
        topic = {"name": name}
        answer = self.call(Ask.DeleteTopics(topics=[topic], timeout_ms=30_000)).responses[0]
        assert answer.error_code == 0, answer

    def metadata(self, name: str) -> Any:
        """The whole response about one topic."""
        topic = {"name": name}
        return self.call(Ask.Metadata(topics=[topic], allow_auto_topic_creation=False))

    def epochs(self, name: str) -> list[int]:
        """The partition epochs, by partition."""
        [topic] = self.metadata(name).topics
        found = {row.partition_index: row.partition_epoch for row in topic.partitions}
        return [found[index] for index in sorted(found)]

    def produce(
        self, name: str, index: int = 0, records: int = 1, *, count: int = -1, acks: int = -1
    ) -> Any:
        data = build_batch([b"v"] * records, timestamp=1_700_000_000_000)
        request = produce_request(
            name, data, first=index, count=count, acks=acks, timeout_ms=30_000
        )
        return only(self.call(request, 12))

    def fetch(self, name: str, index: int = 0, version: int = 12, **fields: Any) -> Any:
        """By name; the whole response."""
        request = fetch_request(name, fetch_part(0, index), **({"min_bytes": 0} | fields))
        return self.call(request, version)

    def fetch_at(self, name: str, offset: int, max_bytes: int) -> Any:
        """From an offset of partition 0 on; the partition's part of the response."""
        request = fetch_request(name, fetch_part(offset, max_bytes=max_bytes), min_bytes=0)
        return only(self.call(request, 12))

    def list_offsets(self, name: str, index: int = 0, version: int = 8) -> Any:
        answer = self.call(list_request(name, partition=index), version)
        return answer.topics[0].partitions[0]

    def priors(self, name: str, index: int) -> Any:
        topic = {"name": name, "partitions": [index]}
        answer = self.call(Ask.LeaderEpochForPartition(topics=[topic]), 0)
        return answer.topics[0].partitions[0]

    def epoch_end(self, name: str, index: int, epoch: int) -> Any:
        part = {"partition": index, "leader_epoch": epoch}
        topic = {"topic": name, "partitions": [part]}
        return self.call(Ask.OffsetForLeaderEpoch(topics=[topic])).topics[0].partitions[0]

    def commit(
        self, name: str, offsets: dict[int, int], partition_epoch: int = -1, **fields: Any
    ) -> list[int]:
        """Commit in the group g, as no member unless ``fields`` say otherwise. The error codes."""
        group, row = fields.pop("group_id", "g"), {"partition_epoch": partition_epoch}
        request = commit_request(name, offsets, group, row=row, **fields)
        return [row.error_code for row in self.call(request, 9).topics[0].partitions]

    def beat(self, member: str, epoch: int, **fields: Any) -> Any:
        """A heartbeat of the group g by the consumer protocol."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": []} | fields
        return self.call(
            Ask.ConsumerGroupHeartbeat(
                **({"group_id": "g", "member_id": member, "member_epoch": epoch} | fields)
            )
        )


def held(answer: Any) -> list[int] | None:
    """The partitions that a heartbeat's response assigns; None: as before."""
    if answer.assignment is None:
        return None
    return sorted(i for row in answer.assignment.topic_partitions for i in row.partitions)
