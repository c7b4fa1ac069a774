"""Runs the share shards (Kafka's ShareCoordinatorService). There is one per partition of
__share_group_state. It is loaded from the partition's log, and driven by requests of brokers and by
the clock.

broker/state makes the decisions. This file appends and applies the records of a decision, and
periodically deletes superseded records from the logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING
from uuid import UUID

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.coordinators.partitions import in_batches, read_records
from kstore.broker.runtime.coordinators.runtime import Coordinator, CoordinatorPartition
from kstore.broker.runtime.slices import Slices
from kstore.broker.runtime.topics.topics import share_topic_configs
from kstore.broker.state.distribution import Distribution
from kstore.broker.state.shares.share_shard import (
    Refusal,
    ShareRecord,
    ShareShard,
)
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.coordinator_records.shares import (
    decode_share_key,
    decode_share_value,
    encode_key,
    encode_value,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
    from kstore.broker.runtime.coordinators.topic import CoordinatorTopic
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.topic_rules import NewTopic
    from kstore.broker.state.shares.persisted import (
        SharePartitionKey,
        ShareState,
        ShareSummary,
        ShareWrite,
    )
    from kstore.log import Log

__all__ = ["ShareCoordinator"]

LOGGER = logging.getLogger(__name__)
MIN_IN_SYNC = 2
"""The default in a cluster if there are enough replicas."""
RECORDS_PER_BATCH = 100
NOT_HOSTED = "This server does not host this topic-partition."
VERSION = 0
"""The version of all records: Kafka writes it at every level of share.version."""


class ShareStatePartition(CoordinatorPartition):
    """One partition of __share_group_state: its log and its shard."""

    def __init__(self, coordinator: ShareCoordinator, place: TopicPartition) -> None:
        super().__init__(coordinator.topic, coordinator.writer, place)
        self._coordinator = coordinator
        self.shard = coordinator.new_shard()
        self.pruned_below: int | None = None
        """The offset below which records of this log were last deleted."""

    async def replay_log(self) -> None:
        """Apply every record of the log."""
        async for record in read_records(self.log):
            key = None if record.key is None else decode_share_key(record.key)
            if key is not None:
                value = (
                    None
                    if record.value is None
                    else decode_share_value(key.RECORD_TYPE, record.value)
                )
                self.shard.replay(ShareRecord(key, value), record.offset)

    def take(self, records: Sequence[ShareRecord]) -> None:
        """Append and apply the records of a decision, in one batch unless they are large. Raises
        KafkaError if a batch cannot be appended; then that batch has changed nothing.
        """
        self.check()  # fails if it was unloaded meanwhile, also if this broker leads it again
        encoded = [
            (
                item,
                encode_key(item.key),
                None if item.value is None else encode_value(item.value, VERSION),
            )
            for item in records
        ]
        for some in in_batches(encoded, lambda row: len(row[1]) + len(row[2] or b"")):
            batch = build_batch([row[1:] for row in some], timestamp=self._coordinator.now_ms())
            offset = self.writer.append(self.place, batch, self.append_ended)
            for number, (item, _, _) in enumerate(some):
                self.shard.replay(item, offset + number)


class ShareCoordinator(Coordinator[ShareStatePartition]):
    """The partitions of __share_group_state that this broker serves. It has the methods of a
    Persister (persister.py) for the share-partitions in them.
    """

    def __init__(self, node: Node, topic: CoordinatorTopic, writer: PartitionWriter) -> None:
        super().__init__(topic, writer, lambda place: ShareStatePartition(self, place))
        self.now_ms = node.now_ms
        self.write_us = Distribution()
        """How long writes of states took until they were durable."""
        self._node = node
        self._config = node.config

    def new_shard(self) -> ShareShard:
        """An empty shard with the current settings."""
        config = self._config
        return ShareShard(
            config["share.coordinator.snapshot.update.records.per.snapshot"],
            check_invariants=config["kstore.check.invariants"],
        )

    def begin(self) -> None:
        """Called when share groups exist: begins to delete superseded records periodically."""
        prune_ms = self._config["share.coordinator.state.topic.prune.interval.ms"]
        cold_ms = self._config["share.coordinator.cold.partition.snapshot.interval.ms"]
        self._every(cold_ms / 1000, self.snapshot_cold)
        self._every(prune_ms / 1000, self.prune)

    def new_topic(self) -> NewTopic:
        """__share_group_state as the settings specify it."""
        topic = self.topic.as_configured(
            "share.coordinator.state.topic.num.partitions",
            "share.coordinator.state.topic.replication.factor",
            share_topic_configs(self._config),
        )
        if self.topic.is_default("share.coordinator.state.topic.min.isr"):
            in_sync = max(1, min(MIN_IN_SYNC, topic.replication_factor - 1))
            topic = topic._replace(configs={**topic.configs, "min.insync.replicas": str(in_sync)})
        return topic

    # ---- requests ----

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """See Persister."""
        partition = self._partition(key)
        decided = partition.shard.initialize(key, state_epoch, start_offset, self.now_ms())
        await self._carry_out(partition, key, decided)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """See Persister."""
        partition = self._partition(key)
        decided = partition.shard.read(key, leader_epoch, self.now_ms())
        settled = self._carry_out(partition, key, decided)
        state = partition.shard.state_of(key)
        await settled
        return state

    async def write(self, key: SharePartitionKey, change: ShareWrite) -> None:
        """See Persister."""
        began_ns = perf_counter_ns()
        partition = self._partition(key)
        decided = partition.shard.write(key, change, self.now_ms())
        await self._carry_out(partition, key, decided)
        self._written(began_ns)

    def begin_write(self, key: SharePartitionKey, change: ShareWrite) -> asyncio.Future[int] | None:
        """Begin a write. Its record is appended when this returns. Returns None if it is durable
        already, else an awaitable that completes when it is.
        """
        began_ns = perf_counter_ns()
        partition = self._partition(key)
        self._append(partition, key, partition.shard.write(key, change, self.now_ms()))
        future = partition.writer.to_be_committed(partition.place)
        if future is None:
            self._written(began_ns)
        else:
            future.add_done_callback(lambda _: self._written(began_ns))
        return future

    def _written(self, began_ns: int) -> None:
        self.write_us.record((perf_counter_ns() - began_ns) // 1000)

    async def delete(self, key: SharePartitionKey) -> None:
        """See Persister."""
        partition = self._partition(key)
        await self._carry_out(partition, key, partition.shard.delete(key))

    async def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> ShareSummary:
        """See Persister."""
        partition = self._partition(key)
        settled = self._carry_out(partition, key, None)
        summary = partition.shard.summary_of(key)
        await settled
        return summary

    def forget_topic(self, topic_id: UUID) -> None:
        """Delete the share-partitions of a deleted topic."""
        self.spawn(self._forget_topic(topic_id))

    async def _forget_topic(self, topic_id: UUID) -> None:
        await self.wait_loaded()
        for partition in self.partitions:
            if partition.error_code == ErrorCode.NONE:
                keys = partition.shard.keys_of_topic(topic_id)
                await self._append_each(partition, keys, partition.shard.delete)

    def _partition(self, key: SharePartitionKey) -> ShareStatePartition:
        found = self.find(str(key))
        found.check()
        if key.partition < 0:
            raise error_for(
                ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number."
            )
        return found

    def _carry_out(
        self,
        partition: ShareStatePartition,
        key: SharePartitionKey,
        decided: ShareRecord | Refusal | None,
    ) -> Awaitable[None]:
        """Append a decision in this turn of the loop. The result completes when the decision and
        all decisions that it depends on are durable. Raises KafkaError as `_append` does.
        """
        self._append(partition, key, decided)
        return partition.writer.committed(partition.place, self._timeout_s)

    def _append(
        self,
        partition: ShareStatePartition,
        key: SharePartitionKey,
        decided: ShareRecord | Refusal | None,
    ) -> None:
        """Append a decision. Raises KafkaError if the decision is an error, or if the topic has no
        such partition.
        """
        if isinstance(decided, Refusal):
            raise error_for(decided.error_code, decided.message)
        topic = self.topic.image.topic_by_id(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        if decided is not None:
            partition.take([decided])

    # ---- periodic work ----

    async def snapshot_cold(self) -> None:
        """Write snapshots of share-partitions that have no recent one: records can be deleted only
        up to the oldest snapshot.
        """
        interval_ms = self._config["share.coordinator.cold.partition.snapshot.interval.ms"]
        for partition in self.partitions:
            if partition.error_code == ErrorCode.NONE:
                now_ms = self.now_ms()
                keys = partition.shard.cold_keys(interval_ms, now_ms)
                decide = partial(partition.shard.snapshot, now_ms=now_ms)
                await self._append_each(partition, keys, decide)

    async def _append_each(
        self,
        partition: ShareStatePartition,
        keys: Sequence[SharePartitionKey],
        decide: Callable[[SharePartitionKey], ShareRecord | None],
    ) -> None:
        """Make a decision for each key, and append some records at a time. Requests run in
        between.
        """
        slices = Slices()
        for start in range(0, len(keys), RECORDS_PER_BATCH):
            decided = map(decide, keys[start : start + RECORDS_PER_BATCH])
            records = [item for item in decided if item is not None]
            if records:
                partition.take(records)
            await slices.breathe()

    async def prune(self) -> None:
        """Delete records that snapshots have superseded."""
        for partition in self.partitions:
            if partition.error_code == ErrorCode.NONE:
                try:
                    await self._prune(partition)
                except (KafkaError, OSError) as error:
                    LOGGER.info("%s will be pruned later: %s", partition.place, error)

    async def _prune(self, partition: ShareStatePartition) -> None:
        offset, log = partition.shard.redundant_below(), partition.log
        if offset <= log.log_start_offset:
            return
        # A snapshot may not be in the log yet, or not on the disk. Until it is, the records before
        # it are needed.
        await partition.writer.committed(partition.place, self._timeout_s)
        served = partition.writer.partition(partition.place)
        if partition.error_code != ErrorCode.NONE or served is None or served.log is not log:
            return
        what = f"deleting superseded records of {partition.place}"
        await self._node.dirs.run(log.log_dir.path, what, partial(_delete_before, log, offset))
        partition.pruned_below = offset
        served.notify()

    @property
    def _timeout_s(self) -> float:
        timeout_ms: int = self._config["share.coordinator.write.timeout.ms"]
        return timeout_ms / 1000

    def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` periodically. A failure is reported, and does not stop later runs."""

        async def again() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await work()
                except (KafkaError, OSError) as error:
                    LOGGER.info("trying %s again: %s", work.__name__, error)
                except Exception:
                    LOGGER.exception("%s failed; trying again", work.__name__)

        self.spawn(again())


def _delete_before(log: Log, offset: int) -> None:
    """Delete records below an offset. Blocks."""
    log.flush()
    log.delete_before(offset)
