"""Runs the transaction shards. There is one per partition of __transaction_state. It is loaded from
the partition's log, and driven by requests and timers.

broker/state makes the decisions. This file appends and applies the decided states, and writes the
markers of prepared transactions: directly on a single broker, through marker_sender.py in a
cluster. After a crash, the next broker that serves the partition completes prepared transactions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.coordinators.partition_writer import COMMIT_SECONDS
from kstore.broker.runtime.coordinators.partitions import in_batches, read_records
from kstore.broker.runtime.coordinators.runtime import Coordinator, CoordinatorPartition
from kstore.broker.runtime.slices import Slices
from kstore.broker.runtime.topics.topics import transaction_topic_configs
from kstore.broker.state.transactions.coordinator_shard import TransactionSettings, TransactionShard
from kstore.broker.state.transactions.state import Transaction, TransactionRecord, in_order
from kstore.broker.state.transactions.steps import Claim, Decision
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.coordinator_records.transactions import (
    decode_transaction_key,
    decode_transaction_value,
    encode_key,
    encode_value,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
    from kstore.broker.runtime.coordinators.topic import CoordinatorTopic
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.transactions.markers import MarkerWriter
    from kstore.broker.runtime.transactions.producer_ids import ProducerIds
    from kstore.broker.state.metadata.topic_rules import NewTopic
    from kstore.config import BrokerConfig

__all__ = ["TransactionCoordinator", "TransactionPartition"]

T = TypeVar("T")
LOGGER = logging.getLogger(__name__)
MIN_IN_SYNC = 2
"""The default in a cluster if there are enough replicas."""
RETRY_SECONDS = 1.0
"""How long a response waits for markers that cannot be written."""
EXPIRED_PER_TURN = 500


class TransactionPartition(CoordinatorPartition):
    """One partition of __transaction_state: its log and its shard."""

    def __init__(self, coordinator: TransactionCoordinator, place: TopicPartition) -> None:
        super().__init__(coordinator.topic, coordinator.writer, place)
        self._coordinator = coordinator
        self.shard = TransactionShard(coordinator.settings)
        self.completing: set[str] = set()
        """The transactional ids whose markers are being written."""

    @property
    def coordinator_epoch(self) -> int:
        """The epoch in the markers: it increases with each new leader of the partition."""
        partition = self.writer.partition(self.place)
        return 0 if partition is None else partition.leader_epoch

    async def replay_log(self) -> None:
        """Apply every record of the log."""
        async for record in read_records(self.log):
            key_bytes, value_bytes = record.key, record.value
            key = None if key_bytes is None else decode_transaction_key(key_bytes)
            if key is not None:
                value = None if value_bytes is None else decode_transaction_value(value_bytes)
                self.shard.replay(TransactionRecord(key, value))

    def loaded(self) -> None:
        """Complete prepared transactions."""
        for transaction in self.shard.prepared():
            self._coordinator.complete_later(self, transaction.transactional_id)

    def take(self, transaction: Transaction) -> None:
        """Append and apply a decided state. Raises KafkaError if it cannot be appended; then
        nothing has changed.
        """
        self.append([self.shard.record_of(transaction)])
        self.shard.commit(transaction)

    def append(self, records: Iterable[TransactionRecord]) -> None:
        """Append records. Raises KafkaError with a coordinator's error."""
        self.check()  # fails if it was unloaded meanwhile, also if this broker leads it again
        batch = build_batch(
            [
                (
                    encode_key(item.key),
                    None if item.value is None else encode_value(item.value, item.value_version),
                )
                for item in records
            ],
            timestamp=self._coordinator.now_ms(),
        )
        self.writer.append(self.place, batch, self.append_ended)

    def is_settled(self) -> bool:
        """Whether earlier decisions can no longer be lost, as far as the settings require it.
        Raises KafkaError if this broker does not lead.
        """
        return self.writer.to_be_committed(self.place) is None

    async def settled(self, timeout_s: float | None = COMMIT_SECONDS) -> None:
        """Wait until earlier decisions are on the in-sync replicas, and on the disk if the settings
        require it. Raises KafkaError if that fails or takes too long.
        """
        await self.writer.committed(self.place, timeout_s)


class TransactionCoordinator(Coordinator[TransactionPartition]):
    """All transaction partitions of this broker, and what they share."""

    def __init__(
        self,
        node: Node,
        topic: CoordinatorTopic,
        writer: PartitionWriter,
        producer_ids: ProducerIds,
        markers: MarkerWriter,
    ) -> None:
        super().__init__(topic, writer, lambda place: TransactionPartition(self, place))
        self.settings = _settings(node.config)
        self.producer_ids = producer_ids
        self.waits = topic.replicated or writer.durable
        """Whether a decision takes effect only once followers, or the disk, have it."""
        self.now_ms = node.now_ms
        self._config = node.config
        self._markers = markers

    def begin(self) -> None:
        """Called when transactions exist: begins to check periodically for those past their
        timeout.
        """
        config = self._config
        overdue_ms = config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
        expiry_ms = config["transaction.remove.expired.transaction.cleanup.interval.ms"]
        self._every(overdue_ms / 1000, self._abort_overdue)
        self._every(expiry_ms / 1000, self._forget_expired)

    async def close(self) -> None:
        """Stop loading, timers and work in progress: the next start resumes it."""
        await self._markers.close()
        await super().close()

    def new_topic(self) -> NewTopic:
        """__transaction_state as the settings specify it."""
        topic = self.topic.as_configured(
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
            transaction_topic_configs(self._config),
        )
        if self.topic.is_default("transaction.state.log.min.isr"):
            in_sync = max(1, min(MIN_IN_SYNC, topic.replication_factor - 1))
            topic = topic._replace(configs={**topic.configs, "min.insync.replicas": str(in_sync)})
        return topic

    # ---- partitions ----

    def partition(self, transactional_id: str) -> TransactionPartition:
        """The partition of a transactional id. Raises KafkaError if it is not loaded here."""
        found = self.find(transactional_id)
        found.check()
        return found

    async def settled(self, transactional_id: str) -> None:
        """Wait until earlier decisions about the transactional id can no longer be lost, as far as
        the settings require it. Raises KafkaError if they may be.
        """
        partition = self.partition(transactional_id)
        if self.waits and not partition.is_settled():
            await partition.settled()

    # ---- executing decisions ----

    def with_producer_id(self, decide: Callable[[], T]) -> T | Awaitable[T]:
        """Call ``decide`` now, or once a producer id is available."""
        if self.producer_ids.is_ready:
            return decide()
        return self._decide_later(decide)

    async def _decide_later(self, decide: Callable[[], T]) -> T:
        while not self.producer_ids.is_ready:
            await self.producer_ids.prepare()
        decided = decide()
        if isinstance(decided, Awaitable):
            decided = await decided
        return decided

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, claim: Claim | None
    ) -> Decision | Awaitable[Decision]:
        """InitProducerId. Call it through `with_producer_id`. Raises KafkaError if nothing could be
        decided.
        """
        partition = self.partition(transactional_id)
        decision = partition.shard.handle_init(
            transactional_id,
            timeout_ms,
            claim,
            self.now_ms(),
            self.producer_ids.offered,
            self.producer_ids.least,
        )
        self.producer_ids.given(decision.producer.producer_id)
        return self._carry_out(partition, decision)

    def add_partitions(
        self,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        client_version: int,
    ) -> int:
        """Add partitions to the transaction. Returns an error code."""
        try:
            partition = self.partition(transactional_id)
            decision = partition.shard.handle_add(
                transactional_id, claim, places, client_version, self.now_ms()
            )
            if decision.transaction is not None:
                partition.take(decision.transaction)
        except KafkaError as error:
            return error.code
        return decision.error_code

    def verify_partitions(
        self, transactional_id: str, claim: Claim, places: frozenset[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Check whether the partitions belong to the transaction. Returns an error code for
        each.
        """
        try:
            shard = self.partition(transactional_id).shard
        except KafkaError as error:
            return dict.fromkeys(places, error.code)
        return shard.verify(transactional_id, claim, places)

    def end_transaction(
        self, transactional_id: str, claim: Claim, client_version: int, *, committed: bool
    ) -> Decision | Awaitable[Decision]:
        """EndTxn. Call it through `with_producer_id`. Raises KafkaError if nothing could be
        decided.
        """
        partition = self.partition(transactional_id)
        decision = partition.shard.handle_end(
            transactional_id,
            claim,
            client_version,
            self.now_ms(),
            self.producer_ids.offered,
            committed=committed,
        )
        self.producer_ids.given(decision.producer.producer_id)
        return self._carry_out(partition, decision)

    def _carry_out(
        self, partition: TransactionPartition, decision: Decision
    ) -> Decision | Awaitable[Decision]:
        """Append a decision. The markers of a prepared transaction are written before the response,
        so that consumers, and the producer's next transaction, find it completed.
        """
        transaction = decision.transaction
        if transaction is not None:
            partition.take(transaction)
            if partition.shard.is_prepared(transaction.transactional_id):
                return self._end(partition, transaction, decision)
        # The answer also depends on earlier decisions.
        if partition.is_settled():
            return decision
        return self._when_settled(partition, decision)

    def _end(
        self, partition: TransactionPartition, prepared: Transaction, decision: Decision
    ) -> Decision | Awaitable[Decision]:
        left = None
        if partition.is_settled():
            left = self._markers.write_now(prepared, partition.coordinator_epoch)
        if left is None:
            return self._complete_first(partition, decision)
        if left or not self._completed(partition, prepared.transactional_id):
            self.complete_later(partition, prepared.transactional_id, self._markers.retry_s)
        return decision

    async def _when_settled(self, partition: TransactionPartition, decision: Decision) -> Decision:
        await partition.settled()
        return decision

    async def _complete_first(
        self, partition: TransactionPartition, decision: Decision
    ) -> Decision:
        assert decision.transaction is not None
        work = self.spawn(self._complete(partition, decision.transaction.transactional_id))
        await partition.settled()
        # The end is decided, so a partition that cannot be written now delays the response only
        # briefly.
        await asyncio.wait({work}, timeout=RETRY_SECONDS)
        return decision

    # ---- prepared transactions ----

    def complete_later(
        self, partition: TransactionPartition, transactional_id: str, delay_s: float = 0.0
    ) -> None:
        """Write the markers of a prepared transaction in the background."""

        async def wait_and_complete() -> None:
            await asyncio.sleep(delay_s)
            await self._complete(partition, transactional_id)

        self.spawn(wait_and_complete())

    async def _complete(self, partition: TransactionPartition, transactional_id: str) -> None:
        """Write the markers of a prepared transaction, until all are written or another broker
        serves the partition.
        """
        if transactional_id in partition.completing:
            return
        partition.completing.add(transactional_id)
        try:
            # The markers follow once the decision is durable. If it were lost after some markers,
            # half of a transaction would be committed.
            await partition.settled(timeout_s=None)
            prepared = partition.shard.transactions[transactional_id]
            retry_s = self._markers.retry_s
            left = in_order(prepared.partitions)
            while left and partition.error_code == ErrorCode.NONE:
                left = await self._markers.write(prepared, partition.coordinator_epoch, left)
                if left:
                    await asyncio.sleep(retry_s)
            while partition.error_code == ErrorCode.NONE:
                if self._completed(partition, transactional_id):
                    return
                await asyncio.sleep(retry_s)
        except KafkaError as error:
            LOGGER.info("%r is not completed here: %s", transactional_id, error)
        finally:
            partition.completing.discard(transactional_id)

    def _completed(self, partition: TransactionPartition, transactional_id: str) -> bool:
        completed = partition.shard.handle_completed(transactional_id, self.now_ms())
        if completed is None:
            return True
        try:
            partition.take(completed)
        except KafkaError as error:
            LOGGER.error("the end of %r can't be written: %s", transactional_id, error)
            return False
        return True

    # ---- periodic work ----

    async def _abort_overdue(self) -> None:
        """Abort transactions past their timeout, and fence their producers."""
        slices = Slices()
        for partition in self._loaded():
            try:
                for transactional_id in list(partition.shard.ongoing):
                    self._abort_if_overdue(partition, transactional_id)
                    await slices.breathe()
            except KafkaError as error:
                LOGGER.error(
                    "%s: transactions that timed out stay open: %s", partition.place, error
                )
            await asyncio.sleep(0)

    def _abort_if_overdue(self, partition: TransactionPartition, transactional_id: str) -> None:
        prepared = partition.shard.handle_overdue(transactional_id, self.now_ms())
        if prepared is not None:
            LOGGER.info("the transaction of %r timed out", transactional_id)
            partition.take(prepared)
            self.complete_later(partition, transactional_id)

    async def _forget_expired(self) -> None:
        """Forget transactional ids that were not used for a long time."""
        for partition in self._loaded():
            known = list(partition.shard.transactions)
            for begin in range(0, len(known), EXPIRED_PER_TURN):
                some = known[begin : begin + EXPIRED_PER_TURN]
                records = partition.shard.expired(some, self.now_ms())
                if partition.error_code == ErrorCode.NONE:
                    _forget(partition, records)
                await asyncio.sleep(0)

    def _loaded(self) -> list[TransactionPartition]:
        return [item for item in self.partitions if item.error_code == ErrorCode.NONE]

    def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` periodically. A failure is reported, and does not stop later runs."""

        async def again() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await work()
                except KafkaError as error:
                    LOGGER.info("trying %s again: %s", work.__name__, error)
                except Exception:
                    LOGGER.exception("%s failed; trying again", work.__name__)

        self.spawn(again())


def _forget(partition: TransactionPartition, tombstones: Iterable[TransactionRecord]) -> None:
    for some in in_batches(tombstones, lambda record: len(encode_key(record.key))):
        partition.append(some)
        for record in some:
            partition.shard.replay(record)


def _settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config["transaction.max.timeout.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
    )
