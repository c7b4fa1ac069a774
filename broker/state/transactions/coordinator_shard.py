"""The transactional ids of one partition of __transaction_state.

`handle_*` methods make decisions and change nothing. `replay` applies records of the log, which
were read at the start or just appended. The shard has no log, clock or connection:
broker/runtime/transactions/transaction_coordinator.py runs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kstore.broker.state.linear_regex import LinearRegex
from kstore.broker.state.transactions.state import (
    ONGOING,
    PREPARED,
    STATE_NAMES,
    Transaction,
    TransactionRecord,
    from_value,
    record_of,
    tombstone,
    topics_of,
)
from kstore.broker.state.transactions.steps import (
    Claim,
    Decision,
    add_partitions,
    complete,
    end_transaction,
    fence,
    init_producer_id,
    verify_partitions,
)
from kstore.errors import ErrorCode
from kstore.protocol.transactions.admin import (
    DescribeTransactionsResponseTransactionState,
    ListTransactionsRequest,
    TopicData,
)
from kstore.types import TopicPartition

__all__ = ["TransactionFilter", "TransactionSettings", "TransactionShard"]


class TransactionSettings(NamedTuple):
    """The broker settings for transactions, in Kafka's units and with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000


class TransactionFilter(NamedTuple):
    """The filter of ListTransactions. Empty parts match everything."""

    states: frozenset[str]
    producer_ids: frozenset[int]
    longer_than_ms: int
    pattern: LinearRegex | None

    @classmethod
    def of(cls, request: ListTransactionsRequest) -> TransactionFilter:
        """The filter of a request. Raises ValueError for an invalid pattern."""
        text = request.transactional_id_pattern
        pattern = LinearRegex(text) if text else None
        if pattern is not None and pattern.problem is not None:
            raise ValueError(pattern.problem)
        return cls(
            frozenset(request.state_filters),
            frozenset(request.producer_id_filters),
            request.duration_filter,
            pattern,
        )

    def accepts(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether a transaction matches, apart from the pattern. As in Kafka, a transaction that
        has never begun counts as older than all others.
        """
        return (
            (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (not self.states or STATE_NAMES[transaction.state] in self.states)
            and (self.longer_than_ms < 0 or now_ms - transaction.started_ms > self.longer_than_ms)
        )

    def matches(self, transactional_id: str) -> bool:
        """Whether an id matches the pattern, if there is one. Check this last, since it costs the
        most.
        """
        return self.pattern is None or self.pattern.matches(transactional_id)

    def cost(self, transactional_id: str) -> int:
        """The largest number of steps of `matches`."""
        return 0 if self.pattern is None else self.pattern.cost(transactional_id)


class TransactionShard:
    """Transactions by transactional id. All its methods are fast and never wait."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: set[str] = set()
        """The ids of ongoing transactions, which may time out."""

    # ---- decisions ----

    def handle_init(
        self,
        transactional_id: str,
        timeout_ms: int,
        claim: Claim | None,
        now_ms: int,
        new_producer_id: int,
        least_producer_id: int = 0,
    ) -> Decision:
        """InitProducerId with a transactional id."""
        if not transactional_id:
            return Decision(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return Decision(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        current = self.transactions.get(transactional_id)
        return init_producer_id(
            current,
            transactional_id,
            timeout_ms,
            claim,
            now_ms,
            new_producer_id,
            least_producer_id,
        )

    def handle_add(
        self,
        transactional_id: str,
        claim: Claim,
        partitions: frozenset[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Decision:
        """AddPartitionsToTxn and similar requests."""
        if not transactional_id:
            return Decision(ErrorCode.INVALID_REQUEST)
        current = self.transactions.get(transactional_id)
        return add_partitions(current, claim, partitions, client_version, now_ms)

    def verify(
        self, transactional_id: str, claim: Claim, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Verify that partitions belong to a producer's transaction. Returns an error code for
        each.
        """
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        return verify_partitions(self.transactions.get(transactional_id), claim, partitions)

    def handle_end(
        self,
        transactional_id: str,
        claim: Claim,
        client_version: int,
        now_ms: int,
        new_producer_id: int,
        *,
        committed: bool,
    ) -> Decision:
        """EndTxn."""
        if not transactional_id:
            return Decision(ErrorCode.INVALID_REQUEST)
        current = self.transactions.get(transactional_id)
        return end_transaction(
            current, claim, client_version, now_ms, new_producer_id, committed=committed
        )

    def handle_completed(self, transactional_id: str, now_ms: int) -> Transaction | None:
        """The next state when the markers of a prepared transaction are written. None if it is not
        prepared.
        """
        current = self.transactions.get(transactional_id)
        if current is None or current.state not in PREPARED:
            return None
        return complete(current, now_ms)

    def handle_overdue(self, transactional_id: str, now_ms: int) -> Transaction | None:
        """The prepared abort of a transaction past its timeout. None if it is not past it."""
        current = self.transactions.get(transactional_id)
        if current is None or not current.is_overdue(now_ms):
            return None
        return fence(current, now_ms)

    def expired(self, transactional_ids: Iterable[str], now_ms: int) -> list[TransactionRecord]:
        """The tombstones of transactional ids that were not used for a long time."""
        found = (self.transactions.get(transactional_id) for transactional_id in transactional_ids)
        return [
            tombstone(item.transactional_id)
            for item in found
            if item is not None and item.is_forgettable(now_ms, self.settings.id_expiration_ms)
        ]

    # ---- replay ----

    def record_of(self, transaction: Transaction) -> TransactionRecord:
        """The record that stores a decided state."""
        return record_of(transaction)

    def commit(self, transaction: Transaction) -> None:
        """Apply a decided state whose record is appended."""
        self.transactions[transaction.transactional_id] = transaction
        if transaction.state == ONGOING:
            self.ongoing.add(transaction.transactional_id)
        else:
            self.ongoing.discard(transaction.transactional_id)

    def replay(self, record: TransactionRecord) -> None:
        """Apply one record of the log."""
        transactional_id = record.key.transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            self.ongoing.discard(transactional_id)
        else:
            self.commit(from_value(transactional_id, record.value))

    # ---- questions ----

    def prepared(self) -> list[Transaction]:
        """Prepared transactions. Their markers may be missing, so they are completed after a
        start.
        """
        return [item for item in self.transactions.values() if item.state in PREPARED]

    def is_prepared(self, transactional_id: str) -> bool:
        """Whether the markers of a transactional id must be written."""
        return self.transactions[transactional_id].state in PREPARED

    def describe(self, transactional_id: str) -> DescribeTransactionsResponseTransactionState:
        """DescribeTransactions for one transactional id."""
        if not transactional_id:
            return DescribeTransactionsResponseTransactionState(
                error_code=ErrorCode.INVALID_REQUEST
            )
        found = self.transactions.get(transactional_id)
        if found is None:
            return DescribeTransactionsResponseTransactionState(
                error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
            )
        return DescribeTransactionsResponseTransactionState(
            transactional_id=transactional_id,
            transaction_state=STATE_NAMES[found.state],
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.started_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                TopicData(topic=topic, partitions=indexes)
                for topic, indexes in topics_of(found.partitions).items()
            ],
        )
