"""The transactional ids of one partition of __transaction_state, as a pure shard.

`handle_*` decide and never mutate; `replay` takes over what is in the log, be it read at the start
or just appended. It knows no log, clock or connection: broker/runtime/transactions.py runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kstore.broker.state.regex_syntax import LEGAL
from kstore.broker.state.topic_regex import TopicRegex, regex_error
from kstore.broker.state.transaction_state import (
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
from kstore.broker.state.transaction_steps import (
    Claim,
    Decision,
    NewProducerId,
    add_partitions,
    complete,
    end_transaction,
    fence,
    init_producer_id,
    verify_partitions,
)
from kstore.errors import ErrorCode
from kstore.protocol.transaction_admin import (
    DescribeTransactionsResponseTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponseTransactionState,
    TopicData,
)
from kstore.types import TopicPartition

__all__ = ["TransactionFilter", "TransactionSettings", "TransactionShard"]


class TransactionSettings(NamedTuple):
    """The broker settings that transactions obey, in Kafka's units and with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000


class NamePattern:
    """A pattern of transactional ids in RE2's syntax, which must match the whole id.

    Ids of a topic name's characters are matched in linear time. Python's own engine, which may go
    back on its steps, sees only the others.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._linear = TopicRegex(text)

    def matches(self, transactional_id: str) -> bool:
        """Whether the id matches."""
        if LEGAL.issuperset(transactional_id):
            return self._linear.matches(transactional_id)
        try:
            return re.fullmatch(self._text, transactional_id) is not None
        except re.error:
            return False  # RE2's syntax, but not Python's


class TransactionFilter(NamedTuple):
    """What ListTransactions asks for; empty parts ask for all."""

    states: frozenset[str]
    producer_ids: frozenset[int]
    longer_than_ms: int
    pattern: NamePattern | None

    @classmethod
    def of(cls, request: ListTransactionsRequest) -> TransactionFilter:
        """A request's filter. ValueError for a pattern that is none."""
        pattern = request.transactional_id_pattern
        problem = regex_error(pattern) if pattern else None
        if problem is not None:
            raise ValueError(problem)
        return cls(
            frozenset(request.state_filters),
            frozenset(request.producer_id_filters),
            request.duration_filter,
            NamePattern(pattern) if pattern else None,
        )

    def accepts(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether a transaction is asked for. One that never began is older than all, in Kafka
        too.
        """
        return (
            (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (not self.states or STATE_NAMES[transaction.state] in self.states)
            and (self.longer_than_ms < 0 or now_ms - transaction.started_ms > self.longer_than_ms)
            and (self.pattern is None or self.pattern.matches(transaction.transactional_id))
        )


class TransactionShard:
    """Transactions by transactional id. All its methods are quick, none waits."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: set[str] = set()
        """Those that may run out of time."""

    # ---- decisions ----

    def handle_init(
        self,
        transactional_id: str,
        timeout_ms: int,
        claim: Claim | None,
        now_ms: int,
        new_producer_id: NewProducerId,
    ) -> Decision:
        """InitProducerId with a transactional id."""
        if not transactional_id:
            return Decision(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return Decision(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        current = self.transactions.get(transactional_id)
        return init_producer_id(
            current, transactional_id, timeout_ms, claim, now_ms, new_producer_id
        )

    def handle_add(
        self,
        transactional_id: str,
        claim: Claim,
        partitions: frozenset[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Decision:
        """AddPartitionsToTxn and its like."""
        if not transactional_id:
            return Decision(ErrorCode.INVALID_REQUEST)
        current = self.transactions.get(transactional_id)
        return add_partitions(current, claim, partitions, client_version, now_ms)

    def verify(
        self, transactional_id: str, claim: Claim, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Whether partitions are part of a producer's transaction: an error code for each."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        return verify_partitions(self.transactions.get(transactional_id), claim, partitions)

    def handle_end(
        self,
        transactional_id: str,
        claim: Claim,
        client_version: int,
        now_ms: int,
        new_producer_id: NewProducerId,
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
        """The markers of a prepared transaction are written; None if it is not prepared."""
        current = self.transactions.get(transactional_id)
        if current is None or current.state not in PREPARED:
            return None
        return complete(current, now_ms)

    def handle_overdue(self, transactional_id: str, now_ms: int) -> Transaction | None:
        """The prepared abort of a transaction that has run out of time; None if it has not."""
        current = self.transactions.get(transactional_id)
        if current is None or not current.is_overdue(now_ms):
            return None
        return fence(current, now_ms)

    def expired(self, transactional_ids: Iterable[str], now_ms: int) -> list[TransactionRecord]:
        """The tombstones of those that nobody has used for long."""
        found = (self.transactions.get(transactional_id) for transactional_id in transactional_ids)
        return [
            tombstone(item.transactional_id)
            for item in found
            if item is not None and item.is_forgettable(now_ms, self.settings.id_expiration_ms)
        ]

    # ---- what is in the log ----

    def record_of(self, transaction: Transaction) -> TransactionRecord:
        """The record that makes a decided state last."""
        return record_of(transaction)

    def commit(self, transaction: Transaction) -> None:
        """Take over a decided state whose record is appended."""
        self.transactions[transaction.transactional_id] = transaction
        if transaction.state == ONGOING:
            self.ongoing.add(transaction.transactional_id)
        else:
            self.ongoing.discard(transaction.transactional_id)

    def replay(self, record: TransactionRecord) -> None:
        """Take over one record of the log."""
        transactional_id = record.key.transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            self.ongoing.discard(transactional_id)
        else:
            self.commit(from_value(transactional_id, record.value))

    # ---- questions ----

    def prepared(self) -> list[Transaction]:
        """Those whose markers may be missing: to be completed after a start."""
        return [item for item in self.transactions.values() if item.state in PREPARED]

    def is_prepared(self, transactional_id: str) -> bool:
        """Whether its markers are to be written."""
        return self.transactions[transactional_id].state in PREPARED

    def overdue(self, now_ms: int) -> Iterator[str]:
        """The transactional ids whose transactions have run out of time."""
        for transactional_id in self.ongoing:
            if self.transactions[transactional_id].is_overdue(now_ms):
                yield transactional_id

    def list(
        self, wanted: TransactionFilter, now_ms: int
    ) -> list[ListTransactionsResponseTransactionState]:
        """ListTransactions for this partition."""
        return [
            ListTransactionsResponseTransactionState(
                transactional_id=item.transactional_id,
                producer_id=item.producer_id,
                transaction_state=STATE_NAMES[item.state],
            )
            for item in self.transactions.values()
            if wanted.accepts(item, now_ms)
        ]

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
