"""Runs the transaction shards: one per partition of __transaction_state, loaded from its log,
driven by requests and by the clock.

The decisions are broker/state's. Here a decided state is appended and taken over, and the markers
of a prepared transaction are written, at once: all partitions are on this broker. What a crash
leaves prepared is completed at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from kstore._fast.builder import build_batch
from kstore.broker.runtime.coordinator_log import (
    append,
    log_of,
    partition_of,
    read_records,
)
from kstore.broker.runtime.markers import MARKERS_PER_TURN, write_markers
from kstore.broker.runtime.producer_ids import producer_ids_of
from kstore.broker.runtime.topics import TRANSACTION_TOPIC, transaction_topic_configs
from kstore.broker.state.topic_rules import NewTopic, TopicError
from kstore.broker.state.transaction_shard import TransactionSettings, TransactionShard
from kstore.broker.state.transaction_state import Transaction, TransactionRecord
from kstore.broker.state.transaction_steps import Claim, Decision
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.log_records_transactions import (
    decode_transaction_key,
    decode_transaction_value,
    encode_key,
    encode_value,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["TransactionCoordinator", "TransactionPartition", "transactions_of"]

T = TypeVar("T")
LOGGER = logging.getLogger(__name__)
LOAD_WAIT_SECONDS = 1.0
"""How long a client that looks for its coordinator may be kept waiting."""
RETRY_SECONDS = 1.0
"""When markers can't be written, they are tried again after so long."""
EXPIRED_PER_TURN = 500


class TransactionPartition:
    """One partition of __transaction_state: its place and its shard."""

    def __init__(self, coordinator: TransactionCoordinator, index: int) -> None:
        self._broker = coordinator.broker
        self.place = TopicPartition(TRANSACTION_TOPIC, index)
        self.shard = TransactionShard(coordinator.settings)
        self.error_code: int = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """NONE once it is loaded; what to answer until then, or after a failure."""

    @property
    def coordinator_epoch(self) -> int:
        """The epoch in the markers: it grows with each new leader of the partition."""
        image = self._broker.image.partition(*self.place)
        return 0 if image is None else image.leader_epoch

    async def load(self) -> None:
        """Replay the log; a bad record makes the partition unavailable."""
        from kstore.log.errors import LogError

        try:
            async for record in read_records(log_of(self._broker, self.place)):
                key_bytes, value_bytes = record.key, record.value
                key = None if key_bytes is None else decode_transaction_key(key_bytes)
                if key is not None:
                    value = None if value_bytes is None else decode_transaction_value(value_bytes)
                    self.shard.replay(TransactionRecord(key, value))
        except (ValueError, LogError, KafkaError) as error:
            self.error_code = ErrorCode.NOT_COORDINATOR
            LOGGER.error("the transactions of %s can't be loaded: %s", self.place, error)
            return
        self.error_code = ErrorCode.NONE

    def take(self, transaction: Transaction) -> None:
        """Append a decided state and take it over. KafkaError if it can't be appended: then
        nothing has changed.
        """
        self.append([self.shard.record_of(transaction)])
        self.shard.commit(transaction)

    def append(self, records: Iterable[TransactionRecord]) -> None:
        """Append records; KafkaError in a coordinator's terms."""
        batch = build_batch(
            [
                (
                    encode_key(item.key),
                    None if item.value is None else encode_value(item.value, item.value_version),
                )
                for item in records
            ],
            timestamp=self._broker.now_ms(),
        )
        append(self._broker, self.place, batch)


class TransactionCoordinator:
    """All transaction partitions of this broker, and what is common to them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.loop = asyncio.get_running_loop()
        self.settings = _settings(broker.config)
        self.producer_ids = producer_ids_of(broker)
        self.durable = broker.config["kstore.flush.policy"] == "always"
        """Whether a decision counts only once it is on the disk."""
        self._partitions: list[TransactionPartition] = []
        self._loading: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._completing: set[str] = set()

    # ---- start and end ----

    def start(self) -> None:
        """Begin to load what there is; prepared transactions are completed then."""
        topic = self.broker.image.topics.get(TRANSACTION_TOPIC)
        if topic is None or self._partitions:
            return
        self._partitions = [TransactionPartition(self, i) for i in range(len(topic.partitions))]
        self._loading = self.loop.create_task(self._load())
        config = self.broker.config
        overdue_ms = config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
        expiry_ms = config["transaction.remove.expired.transaction.cleanup.interval.ms"]
        self._every(overdue_ms / 1000, self._abort_overdue)
        self._every(expiry_ms / 1000, self._forget_expired)

    async def _load(self) -> None:
        for partition in self._partitions:
            await partition.load()
            for transaction in partition.shard.prepared():
                self._complete_later(partition, transaction.transactional_id)

    async def close(self) -> None:
        """Stop loading, timers and what is under way: the next start takes it up again."""
        tasks = list(self._tasks)
        if self._loading is not None:
            tasks.append(self._loading)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for partition in self._partitions:
            partition.error_code = ErrorCode.NOT_COORDINATOR

    async def ensure(self) -> None:
        """Make __transaction_state if it is missing, and wait a moment for it to be loaded;
        KafkaError.
        """
        if not self._partitions:
            config = self.broker.config
            try:
                await self.broker.topics.ensure(
                    NewTopic(
                        TRANSACTION_TOPIC,
                        config["transaction.state.log.num.partitions"],
                        config["transaction.state.log.replication.factor"],
                        configs=transaction_topic_configs(config),
                    )
                )
            except TopicError as error:
                LOGGER.error("%s can't be made: %s", TRANSACTION_TOPIC, error)
                raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
            self.start()
        if self._loading is not None and not self._loading.done():
            await asyncio.wait({self._loading}, timeout=LOAD_WAIT_SECONDS)

    # ---- who is asked ----

    @property
    def partitions(self) -> list[TransactionPartition]:
        """All partitions; none if nobody has used a transaction yet."""
        return self._partitions

    def partition(self, transactional_id: str) -> TransactionPartition:
        """The loaded partition that keeps a transactional id; KafkaError if there is none."""
        if not self._partitions:
            raise error_for(ErrorCode.NOT_COORDINATOR)
        found = self._partitions[partition_of(transactional_id, len(self._partitions))]
        if found.error_code != ErrorCode.NONE:
            raise error_for(found.error_code)
        return found

    # ---- decisions made to happen ----

    def with_producer_id(self, decide: Callable[[], T]) -> T | Awaitable[T]:
        """Decide now, or, if no producer id is at hand, once there is one."""
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
        """InitProducerId; call it by `with_producer_id`. KafkaError if nothing could be
        decided.
        """
        partition = self.partition(transactional_id)
        decision = partition.shard.handle_init(
            transactional_id, timeout_ms, claim, self.broker.now_ms(), self.producer_ids.take
        )
        return self._carry_out(partition, decision)

    def add_partitions(
        self,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        client_version: int,
    ) -> int:
        """Add partitions to the transaction; an error code."""
        try:
            partition = self.partition(transactional_id)
            decision = partition.shard.handle_add(
                transactional_id, claim, places, client_version, self.broker.now_ms()
            )
            if decision.transaction is not None:
                partition.take(decision.transaction)
        except KafkaError as error:
            return error.code
        return decision.error_code

    def verify_partitions(
        self, transactional_id: str, claim: Claim, places: frozenset[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Whether the partitions are in the transaction; an error code for each."""
        try:
            shard = self.partition(transactional_id).shard
        except KafkaError as error:
            return dict.fromkeys(places, error.code)
        return shard.verify(transactional_id, claim, places)

    def end_transaction(
        self, transactional_id: str, claim: Claim, client_version: int, *, committed: bool
    ) -> Decision | Awaitable[Decision]:
        """EndTxn; call it by `with_producer_id`. KafkaError if nothing could be decided."""
        partition = self.partition(transactional_id)
        decision = partition.shard.handle_end(
            transactional_id,
            claim,
            client_version,
            self.broker.now_ms(),
            self.producer_ids.take,
            committed=committed,
        )
        return self._carry_out(partition, decision)

    def _carry_out(
        self, partition: TransactionPartition, decision: Decision
    ) -> Decision | Awaitable[Decision]:
        """Append what was decided; a prepared transaction's markers follow before the answer, so
        that who reads it and who goes on with the next transaction finds it done.
        """
        transaction = decision.transaction
        if transaction is None:
            return decision
        partition.take(transaction)
        if not partition.shard.is_prepared(transaction.transactional_id):
            return self._when_durable(partition, decision) if self.durable else decision
        if self.durable or len(transaction.partitions) > MARKERS_PER_TURN:
            return self._complete_first(partition, decision)
        self._complete_now(partition, transaction)
        return decision

    async def _when_durable(self, partition: TransactionPartition, decision: Decision) -> Decision:
        await self._flushed(partition)
        return decision

    async def _complete_first(
        self, partition: TransactionPartition, decision: Decision
    ) -> Decision:
        assert decision.transaction is not None
        # Not before the decision is on the disk: a marker without it would be half a transaction.
        if self.durable:
            await self._flushed(partition)
        work = self._complete(partition, decision.transaction.transactional_id)
        # It is decided: a partition that can't be written now does not hold the answer up for long.
        await asyncio.wait({self._spawn(work)}, timeout=RETRY_SECONDS)
        return decision

    async def _flushed(self, partition: TransactionPartition) -> None:
        log = log_of(self.broker, partition.place)
        done: asyncio.Future[bool] = self.loop.create_future()

        def tell(good: bool) -> None:
            if not done.done():
                done.set_result(good)

        self.broker.commits.wait([(log, log.log_end_offset)], tell)
        if not await done:
            raise error_for(ErrorCode.NOT_COORDINATOR)

    # ---- prepared transactions ----

    def _complete_now(self, partition: TransactionPartition, prepared: Transaction) -> None:
        """In this turn of the loop; what fails is tried again later."""
        left = write_markers(self.broker, prepared, partition.coordinator_epoch)
        if left or not self._completed(partition, prepared.transactional_id):
            self._complete_later(partition, prepared.transactional_id, RETRY_SECONDS)

    def _complete_later(
        self, partition: TransactionPartition, transactional_id: str, delay_s: float = 0.0
    ) -> None:
        async def wait_and_complete() -> None:
            await asyncio.sleep(delay_s)
            await self._complete(partition, transactional_id)

        self._spawn(wait_and_complete())

    async def _complete(self, partition: TransactionPartition, transactional_id: str) -> None:
        """Write the markers of a prepared transaction, some per turn, until all are written."""
        if transactional_id in self._completing:
            return
        self._completing.add(transactional_id)
        try:
            prepared = partition.shard.transactions[transactional_id]
            left = sorted(prepared.partitions)
            while left:
                left = await self._write_some(partition, prepared, left)
                if left:
                    await asyncio.sleep(RETRY_SECONDS)
            while not self._completed(partition, transactional_id):
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._completing.discard(transactional_id)

    async def _write_some(
        self, partition: TransactionPartition, prepared: Transaction, places: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Try each place once; those that failed are returned."""
        failed: list[TopicPartition] = []
        for begin in range(0, len(places), MARKERS_PER_TURN):
            some = places[begin : begin + MARKERS_PER_TURN]
            epoch = partition.coordinator_epoch
            failed += sorted(write_markers(self.broker, prepared, epoch, some))
            await asyncio.sleep(0)
        return failed

    def _completed(self, partition: TransactionPartition, transactional_id: str) -> bool:
        completed = partition.shard.handle_completed(transactional_id, self.broker.now_ms())
        if completed is None:
            return True
        try:
            partition.take(completed)
        except KafkaError as error:
            LOGGER.error("the end of %r can't be written: %s", transactional_id, error)
            return False
        return True

    # ---- by the clock ----

    async def _abort_overdue(self) -> None:
        """Abort transactions that have run out of time, and fence their producers."""
        for partition in self._loaded():
            for transactional_id in list(partition.shard.overdue(self.broker.now_ms())):
                now_ms = self.broker.now_ms()
                prepared = partition.shard.handle_overdue(transactional_id, now_ms)
                if prepared is None:
                    continue
                LOGGER.info("the transaction of %r has timed out", transactional_id)
                partition.take(prepared)
                if self.durable:
                    await self._flushed(partition)
                self._complete_later(partition, transactional_id)
            await asyncio.sleep(0)

    async def _forget_expired(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        for partition in self._loaded():
            known = list(partition.shard.transactions)
            for begin in range(0, len(known), EXPIRED_PER_TURN):
                some = known[begin : begin + EXPIRED_PER_TURN]
                records = partition.shard.expired(some, self.broker.now_ms())
                if records:
                    partition.append(records)
                    for record in records:
                        partition.shard.replay(record)
                await asyncio.sleep(0)

    def _loaded(self) -> list[TransactionPartition]:
        return [item for item in self._partitions if item.error_code == ErrorCode.NONE]

    def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do it now and then; a failure is told, and the next time comes."""

        async def again() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await work()
                except Exception:
                    LOGGER.exception("%s failed; it is tried again", work.__name__)

        self._spawn(again())

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            LOGGER.error("a transaction could not be completed", exc_info=problem)


def transactions_of(broker: Broker) -> TransactionCoordinator:
    """The broker's coordinator; the first call makes it and begins to load what there is."""
    if broker.transactions is None:
        broker.transactions = TransactionCoordinator(broker)
        broker.transactions.start()
    coordinator: TransactionCoordinator = broker.transactions
    return coordinator


def _settings(config: Any) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config["transaction.max.timeout.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
    )
