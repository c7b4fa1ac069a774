"""The states of a transactional producer, and the effect of errors on them (KIP-98, KIP-360,
KIP-890).

Pure. A transaction with an error can only be aborted; a producer that was fenced, or has no
permission, can only be closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from kstore.clients.core.consumer.commits import commit_row, commits_of
from kstore.errors import (
    ClusterAuthorizationFailedError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
from kstore.protocol.transactions.transactions import (
    AddPartitionsToTxnTopic,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = ["TransactionMachine", "TxnState", "offset_rows", "topic_rows"]

FATAL = (
    ClusterAuthorizationFailedError,
    # The coordinator has forgotten the transactional id, and may have forgotten that another
    # producer had taken it over. So it can't abort, and a new epoch could repeat what that one did
    # (KAFKA-18019).
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)


class TxnState(Enum):
    """The state of the producer; the text is for messages."""

    UNINITIALIZED = "init_transactions has not been called"
    READY = "no transaction is open: call begin_transaction"
    OPEN = "a transaction is open"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    ABORTABLE = "the transaction has failed: call abort_transaction"
    FATAL = "the producer cannot continue: close it"


class TransactionMachine:
    """One producer's transactions, one after the other."""

    def __init__(self) -> None:
        self.state = TxnState.UNINITIALIZED
        self.error: Exception | None = None
        """Why the state is ABORTABLE or FATAL."""
        self.version_2 = False
        """transaction.version 2 (KIP-890): the leaders add partitions to the transaction, and each
        end of a transaction starts a new epoch.
        """
        self.added: set[TopicPartition] = set()
        self.pending: set[TopicPartition] = set()
        """Partitions that must be added at the coordinator before records are sent to them."""
        self.has_begun = False
        """The coordinator may know the transaction: it must be ended there."""
        self.is_ended = False
        """The coordinator has ended it; without version 2 the next epoch may still be missing."""

    def gate(self) -> Exception | None:
        """Why records are refused; None if they are not."""
        if self.state is TxnState.OPEN:
            return None
        return self.failure()

    def failure(self) -> Exception:
        """The error for a call that the state does not allow. It is not retriable: if a record's
        error is, the call is of no more use before the transaction is aborted.
        """
        if self.error is not None and self.state in {TxnState.ABORTABLE, TxnState.FATAL}:
            if isinstance(self.error, KafkaError) and self.error.retriable:
                return TransactionAbortableError(f"the transaction must be aborted: {self.error}")
            return type(self.error)(*self.error.args)
        return InvalidTxnStateError(self.state.value)

    def need(self, *states: TxnState) -> None:
        """Raise unless the state is one of these."""
        if self.state not in states:
            raise self.failure()

    def ready(self) -> None:
        """The producer has its id, or the last transaction has ended."""
        self.state, self.error = TxnState.READY, None
        self.added.clear()
        self.pending.clear()
        self.has_begun = self.is_ended = False

    def begin(self, *, version_2: bool) -> None:
        """A transaction begins. Raises InvalidTxnStateError or the error of the state."""
        self.need(TxnState.READY)
        self.version_2 = version_2
        self.state = TxnState.OPEN

    def admits(self, tp: TopicPartition) -> bool:
        """Whether records may be sent to the partition now; if not, the partition is pending."""
        if self.state not in {TxnState.OPEN, TxnState.COMMITTING}:
            return False
        if tp in self.added:
            return True
        if self.version_2:
            self.added.add(tp)
            self.has_begun = True
            return True
        self.pending.add(tp)
        return False

    def were_added(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator has added the partitions."""
        self.added.update(partitions)
        self.pending.difference_update(partitions)

    def fail(self, error: Exception, *, is_fatal: bool | None = None) -> None:
        """An error in the transaction. A fatal error stays."""
        if self.state in {TxnState.FATAL, TxnState.UNINITIALIZED}:
            return
        if is_fatal is None:
            is_fatal = isinstance(error, FATAL)
        if is_fatal:
            self.state, self.error = TxnState.FATAL, error
        elif self.state in {TxnState.OPEN, TxnState.COMMITTING}:
            self.state, self.error = TxnState.ABORTABLE, error
        self.pending.clear()


def fences(error: KafkaError) -> bool:
    """Whether a coordinator's error means that another producer uses the transactional id."""
    return isinstance(error, (ProducerFencedError, InvalidProducerEpochError))


def topic_rows(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    """Partitions by topic, in the form of AddPartitionsToTxn."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for tp in sorted(partitions):
        row = topics.setdefault(tp.topic, AddPartitionsToTxnTopic(name=tp.topic))
        row.partitions.append(tp.partition)
    return list(topics.values())


def offset_rows(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> list[TxnOffsetCommitRequestTopic]:
    """Offsets by topic, in the form of TxnOffsetCommit. Raises ValueError for an offset epoch that
    can't be read (KIP-232).
    """
    users = {
        tp: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
        for tp, each in offsets.items()
    }
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for tp, commit in sorted(commits_of(users).items()):
        row = commit_row(
            TxnOffsetCommitRequestPartition, tp.partition, commit, partition_epochs=True
        )
        topic = topics.setdefault(tp.topic, TxnOffsetCommitRequestTopic(name=tp.topic))
        topic.partitions.append(row)
    return list(topics.values())
