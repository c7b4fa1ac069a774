"""Reads and writes the state of share-partitions at any broker, through a socket."""

from __future__ import annotations

import time
from typing import Any

from kstore.broker.state.shares.persisted import SharePartitionKey, StateBatch
from kstore.errors import ErrorCode
from tests.beside.waiting import TIMEOUT_S, until
from tests.broker.harness.wire import Wire
from tests.plain_messages import Ask

MOVING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class ShareStateClient(Wire):
    """A connection to a broker. Each call is about one share-partition and returns its row."""

    def coordinator(self, key: SharePartitionKey) -> int:
        """The broker that stores a share-partition, once there is one. Raises OSError."""
        request = Ask.FindCoordinator(key_type=2, coordinator_keys=[str(key)])
        deadline = time.monotonic() + TIMEOUT_S
        while (found := self.call(request).coordinators[0]).error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return int(found.node_id)

    def wait_served(self, key: SharePartitionKey) -> None:
        """Wait until this broker serves a share-partition, and knows its topic."""
        assert self.coordinator(key) >= 0
        until(lambda: self.read_summary(key, -1).error_code not in MOVING)

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Any:
        row = {"state_epoch": state_epoch, "start_offset": start_offset}
        return self._row(Ask.InitializeShareGroupState, key, row)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Any:
        return self._row(Ask.ReadShareGroupState, key, {"leader_epoch": leader_epoch})

    def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> Any:
        return self._row(Ask.ReadShareGroupStateSummary, key, {"leader_epoch": leader_epoch})

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int = -1,
        delivery_complete_count: int = -1,
        batches: tuple[StateBatch, ...] = (),
    ) -> Any:
        row = {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start_offset,
            "delivery_complete_count": delivery_complete_count,
            "state_batches": [batch._asdict() for batch in batches],
        }
        return self._row(Ask.WriteShareGroupState, key, row)

    def delete(self, key: SharePartitionKey) -> Any:
        return self._row(Ask.DeleteShareGroupState, key, {})

    def _row(self, request: Any, key: SharePartitionKey, row: dict[str, Any]) -> Any:
        rows = [{"partition": key.partition, **row}]
        topics = [{"topic_id": key.topic_id, "partitions": rows}]
        results = self.call(request(group_id=key.group_id, topics=topics)).results
        assert [item.topic_id for item in results] == [key.topic_id]
        [told] = results[0].partitions
        assert told.partition == key.partition
        return told
