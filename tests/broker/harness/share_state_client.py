"""Asks any broker for the state of share-partitions, over a socket: for tests of the share
coordinator, Kafka's and ours.
"""

from __future__ import annotations

import socket
import time
from typing import Any
from uuid import UUID

from kstore.broker.state.shares.persisted import SharePartitionKey, StateBatch
from kstore.errors import ErrorCode
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.metadata.topics import CreatableTopic, CreateTopicsRequest
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.shares.state import (
    DeletePartition,
    DeleteShareGroupStateRequest,
    DeleteTopic,
    InitializePartition,
    InitializeShareGroupStateRequest,
    InitializeTopic,
    ReadPartition,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadTopic,
    StateBatchRow,
    WritePartition,
    WriteShareGroupStateRequest,
    WriteTopic,
)

__all__ = ["ShareStateClient"]

PATIENCE_S = 30.0
MOVING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class ShareStateClient:
    """A connection to a broker. Each call is about one share-partition and returns its row."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=PATIENCE_S)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The answer to any request."""
        api = APIS[request.API_KEY]
        version = api.max_version if version is None else version
        self._socket.sendall(encode_request(request, version, 1, "share-test"))
        size = self._file.read(4)
        if len(size) < 4:
            raise ConnectionError("the broker closed the connection")
        return decode_response(self._file.read(int.from_bytes(size)), api.response, version)[1]

    def create_topic(self, name: str, partitions: int, replicas: int = 1) -> UUID:
        """Make a topic; its id."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        made = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[0]
        assert made.error_code == ErrorCode.NONE, made
        topic_id: UUID = made.topic_id
        return topic_id

    def coordinator(self, key: SharePartitionKey) -> int:
        """The broker that keeps a share-partition, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[str(key)])
        while True:
            found = self.ask(request).coordinators[0]
            if found.error_code == ErrorCode.NONE or time.monotonic() > deadline:
                assert found.error_code == ErrorCode.NONE, found
                node_id: int = found.node_id
                return node_id
            time.sleep(0.05)

    def wait_served(self, key: SharePartitionKey) -> None:
        """Wait until this broker serves a share-partition, and knows its topic."""
        deadline = time.monotonic() + PATIENCE_S
        assert self.coordinator(key) >= 0
        while (row := self.read_summary(key, -1)).error_code in MOVING:
            assert time.monotonic() < deadline, row
            time.sleep(0.05)

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Any:
        """InitializeShareGroupState."""
        row = InitializePartition(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        return self._row(InitializeShareGroupStateRequest, InitializeTopic, key, row)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Any:
        """ReadShareGroupState."""
        row = ReadPartition(partition=key.partition, leader_epoch=leader_epoch)
        return self._row(ReadShareGroupStateRequest, ReadTopic, key, row)

    def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> Any:
        """ReadShareGroupStateSummary."""
        row = ReadPartition(partition=key.partition, leader_epoch=leader_epoch)
        return self._row(ReadShareGroupStateSummaryRequest, ReadTopic, key, row)

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int = -1,
        delivery_complete_count: int = -1,
        batches: tuple[StateBatch, ...] = (),
    ) -> Any:
        """WriteShareGroupState."""
        row = WritePartition(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=[StateBatchRow(**batch._asdict()) for batch in batches],
        )
        return self._row(WriteShareGroupStateRequest, WriteTopic, key, row)

    def delete(self, key: SharePartitionKey) -> Any:
        """DeleteShareGroupState."""
        row = DeletePartition(partition=key.partition)
        return self._row(DeleteShareGroupStateRequest, DeleteTopic, key, row)

    def _row(self, request: Any, topic: Any, key: SharePartitionKey, row: Any) -> Any:
        topics = [topic(topic_id=key.topic_id, partitions=[row])]
        results = self.ask(request(group_id=key.group_id, topics=topics)).results
        assert [item.topic_id for item in results] == [key.topic_id]
        [told] = results[0].partitions
        assert told.partition == key.partition
        return told
