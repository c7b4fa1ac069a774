"""Transactions: the requests of a producer to coordinators. core/producer/transactions.py decides
what is allowed when.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kstore.clients.core.producer.transactions import (
    TransactionMachine,
    TxnState,
    fences,
    offset_rows,
    topic_rows,
)
from kstore.clients.io.cluster import GROUP, TRANSACTION
from kstore.errors import (
    CoordinatorNotAvailableError,
    ErrorCode,
    KafkaError,
    NetworkError,
    NotCoordinatorError,
    OperationNotAttemptedError,
    RequestTimedOutError,
    error_for,
    raise_for,
)
from kstore.items import by_partition
from kstore.protocol.schema import Message
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kstore.protocol.transactions.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kstore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore._fast.clients.accumulator import Accumulator
    from kstore.clients.core.producer.sender import Sender
    from kstore.clients.core.producer.state import ProducerState
    from kstore.clients.io.cluster import ClusterClient
    from kstore.clients.io.sender import SendLoop
    from kstore.config.client.configs import ClientSettings

__all__ = ["Transactions"]

# The last versions without KIP-890's second part, and the last one of AddPartitionsToTxn for
# clients.
PRODUCE_V1, END_V1, COMMIT_V1, ADD_V1 = 11, 4, 4, 3
# A coordinator that was replaced and does not know it can answer CONCURRENT_TRANSACTIONS, or that
# it is loading, forever. After this number of consecutive errors, another broker is asked for the
# coordinator.
PATIENCE = 3
# After these errors the coordinator may be another broker.
ELSEWHERE = (
    CoordinatorNotAvailableError,
    NetworkError,
    NotCoordinatorError,
    RequestTimedOutError,
)


class TransactionalProducer(Protocol):
    """What transactions need from their producer."""

    settings: ClientSettings
    accumulator: Accumulator
    cluster: ClusterClient
    state: ProducerState
    sender: Sender
    sending: SendLoop

    async def flush(self) -> None:
        """Send all waiting records; returns when each is delivered or has failed."""

    def take_error(self) -> Exception | None:
        """The first error of a failed record since the last call."""


class Transactions:
    """The transactions of one producer, on its loop."""

    def __init__(self, producer: TransactionalProducer, transactional_id: str) -> None:
        self.machine = TransactionMachine()
        self._producer = producer
        self._id = transactional_id
        self._adding: asyncio.Task[None] | None = None
        producer.sender.admits = self._admits
        producer.sender.on_given_up = self.record_failed
        self._set_gate()

    def _set_gate(self) -> None:
        self._producer.accumulator.gate = self.machine.gate()

    # ---- calls of users ----

    async def init(self) -> None:
        """Get the producer id. This ends an open transaction of an earlier producer with the same
        transactional id, and fences that producer.
        """
        self.machine.need(TxnState.UNINITIALIZED, TxnState.READY)
        await self._init_producer_id(-1, -1)
        self.machine.ready()
        self._set_gate()

    async def begin(self) -> None:
        """Begin a transaction. The coordinator's cluster decides which protocol it uses."""
        node = await self._producer.cluster.retrying(self._coordinator, self._patience_ms)
        connection = await self._producer.cluster.connection(node)
        version_2 = connection.versions.levels.get("transaction.version", 0) >= 2
        self.machine.begin(version_2=version_2)
        self._producer.sending.at_most_version = 32767 if version_2 else PRODUCE_V1
        self._set_gate()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata,
    ) -> None:
        """Commit offsets for a group as part of the transaction."""
        rows = offset_rows(by_partition("offsets", offsets, "offset", (int, tuple)))
        self.machine.need(TxnState.OPEN)
        if not rows:
            return
        state = self._producer.state
        self.machine.has_begun = True
        if not self.machine.version_2:
            add = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                group_id=group.group_id,
            )
            await self._ask(TRANSACTION, self._id, add, _code_of(AddOffsetsToTxnResponse))
        commit = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=rows,
        )
        at_most = 32767 if self.machine.version_2 else COMMIT_V1
        await self._ask(GROUP, group.group_id, commit, _commit_code, at_most=at_most)

    async def commit(self) -> None:
        """Flush and commit. Raises the error of a record that failed: then abort. After a timeout
        it may be called again.
        """
        self.machine.need(TxnState.OPEN, TxnState.COMMITTING)
        self.machine.state = TxnState.COMMITTING
        self._set_gate()
        await self._producer.flush()
        self.machine.need(TxnState.COMMITTING)
        await self._end(committed=True)

    async def abort(self) -> None:
        """Fail what was not sent, and abort."""
        self.machine.need(TxnState.OPEN, TxnState.ABORTABLE, TxnState.ABORTING)
        self.machine.state = TxnState.ABORTING
        self._set_gate()
        producer = self._producer
        producer.sender.drop_all(KafkaError("the transaction was aborted"))
        if self._adding is not None:
            await asyncio.wait([self._adding])
        while not producer.sender.is_idle:
            await producer.sending.landed()
        producer.take_error()
        await self._end(committed=False)

    async def leave(self) -> None:
        """The producer is being closed: abort an open transaction."""
        if self.machine.state in {TxnState.OPEN, TxnState.ABORTABLE}:
            with contextlib.suppress(KafkaError):  # the coordinator aborts it after its timeout
                await self.abort()

    # ---- called by the sender ----

    def _admits(self, tp: TopicPartition) -> bool:
        if self.machine.admits(tp):
            return True
        if self.machine.pending and self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add_partitions())
        return False

    def record_failed(self, error: Exception) -> None:
        """A record of the transaction has failed, so the transaction can only be aborted."""
        if self.machine.state not in {TxnState.OPEN, TxnState.COMMITTING}:
            return
        self.machine.fail(error)
        self._set_gate()
        asyncio.get_running_loop().call_soon(self._producer.sender.drop_waiting, error)

    async def _add_partitions(self) -> None:
        machine, state = self.machine, self._producer.state
        try:
            while machine.pending:
                requested = set(machine.pending)
                machine.has_begun = True
                request = AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self._id,
                    v3_and_below_producer_id=state.producer_id,
                    v3_and_below_producer_epoch=state.epoch,
                    v3_and_below_topics=topic_rows(requested),
                )
                await self._ask(TRANSACTION, self._id, request, _added_code, at_most=ADD_V1)
                machine.were_added(requested)
        except KafkaError as error:
            self.record_failed(error)
        finally:
            self._adding = None
            self._producer.sending.soon()

    # ---- requests ----

    @property
    def _patience_ms(self) -> int:
        wait_ms: int = self._producer.settings["max.block.ms"]
        return wait_ms

    async def _coordinator(self) -> int:
        return await self._producer.cluster.coordinator(TRANSACTION, self._id)

    async def _init_producer_id(self, producer_id: int, epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._producer.settings["transaction.timeout.ms"],
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        at_least = 3 if producer_id >= 0 else 0
        answer = await self._ask(
            TRANSACTION, self._id, request, _code_of(InitProducerIdResponse), at_least=at_least
        )
        assert isinstance(answer, InitProducerIdResponse)
        self._producer.state.take(answer.producer_id, answer.producer_epoch)

    async def _end(self, *, committed: bool) -> None:
        machine, state = self.machine, self._producer.state
        if machine.has_begun and not machine.is_ended:
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                committed=committed,
            )
            at_most = 32767 if machine.version_2 else END_V1
            answer = await self._ask(
                TRANSACTION, self._id, request, _code_of(EndTxnResponse), at_most=at_most
            )
            assert isinstance(answer, EndTxnResponse)
            machine.is_ended = True
            if answer.producer_id >= 0:
                state.take(answer.producer_id, answer.producer_epoch)
        if not committed and machine.has_begun and not machine.version_2:
            # Sequences may have gaps: the next transaction has another epoch (KIP-360).
            await self._init_producer_id(state.producer_id, state.epoch)
        machine.ready()
        self._set_gate()

    async def _ask(
        self,
        kind: int,
        key: str,
        request: Message,
        code_of: Callable[[Any], int],
        *,
        at_least: int = 0,
        at_most: int = 32767,
    ) -> Message:
        """Ask a coordinator until it succeeds. Raises its error otherwise, and sets it for the
        transaction.
        """
        cluster = self._producer.cluster
        failures = 0

        async def attempt() -> Message:
            nonlocal failures
            try:
                node = await cluster.coordinator(kind, key)
                answer = await cluster.ask(node, request, at_least=at_least, at_most=at_most)
                raise_for(code_of(answer))
            except KafkaError as error:
                failures += 1
                if isinstance(error, ELSEWHERE) or failures >= PATIENCE:
                    cluster.forget_coordinator(kind, key)
                raise
            return answer

        try:
            return await cluster.retrying(attempt, self._patience_ms)
        except KafkaError as error:
            if not error.retriable:
                self.machine.fail(error, is_fatal=True if fences(error) else None)
                self._set_gate()
                if self.machine.state is TxnState.FATAL:  # nothing sends what waits any more
                    asyncio.get_running_loop().call_soon(self._producer.sender.drop_waiting, error)
            raise


def _code_of(response: type[Message]) -> Callable[[Any], int]:
    def code(answer: Any) -> int:
        assert isinstance(answer, response)
        return int(answer.error_code)  # type: ignore[attr-defined]

    return code


def _commit_code(answer: Any) -> int:
    assert isinstance(answer, TxnOffsetCommitResponse)
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    return _worst(codes)


def _added_code(answer: Any) -> int:
    assert isinstance(answer, AddPartitionsToTxnResponse)
    codes = [
        row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]
    return _worst(codes)


def _worst(codes: list[int]) -> int:
    """The first error that a retry does not solve, else the first error; partitions that were not
    tried because of another one do not count.
    """
    bad = [code for code in codes if code != ErrorCode.NONE]
    final = [
        code
        for code in bad
        if not error_for(code).retriable
        and not isinstance(error_for(code), OperationNotAttemptedError)
    ]
    return (final or bad or [0])[0]
