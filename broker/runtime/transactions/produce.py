"""Checks transactional batches before they are appended: their partitions are added to the
transaction, or verified to belong to it (KIP-890). The data plane calls this only for partitions
where the producer has no open transaction yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kstore.broker.state.transactions.steps import Claim
from kstore.errors import ErrorCode
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.transactions.admission import TransactionAdmission

__all__ = [
    "WAIT_S",
    "AwaitedBatches",
    "TransactionalProduce",
    "error_for_version",
    "has_transaction",
]

_Writer: TypeAlias = "tuple[Partition, int, int]"
"""A partition, and a producer's id and epoch."""
FIRST_VERSION_THAT_ADDS = 12
FIRST_VERSION_WITH_ABORTABLE = 11
RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Errors that producers get as NOT_ENOUGH_REPLICAS. All clients retry after this error without new
metadata.
"""
WAIT_S = 30.0
"""How long a refused batch is expected to arrive again. After that, sequences are checked as
usual.
"""
MANY = 1000
"""The limit of batches that are expected again. Beyond it, only the append checks the order."""


class AwaitedBatches:
    """Batches that were refused for a temporary reason, so that the producer sends them again.
    Until then, later batches of the producer are refused with the same error. An error for their
    sequence would make librdkafka abort its transaction, although nothing is lost.
    """

    def __init__(self) -> None:
        self._first: dict[_Writer, tuple[int, float]] = {}

    def is_behind(self, writer: _Writer, base_sequence: int, now: float) -> bool:
        """Whether a batch before this one is expected first."""
        first, until = self._first.get(writer, (base_sequence, now))
        return base_sequence > first and now < until

    def add(self, writer: _Writer, base_sequence: int, now: float) -> None:
        """Note that the batch was refused and is expected again."""
        if len(self._first) >= MANY:
            self._first = {each: row for each, row in self._first.items() if row[1] > now}
        if len(self._first) < MANY:
            self._first[writer] = base_sequence, now + WAIT_S

    def discard(self, writer: _Writer) -> None:
        """Note that the batch has arrived, or is no longer expected."""
        self._first.pop(writer, None)


class TransactionalProduce:
    """Decides which batches of Produce requests belong to a transaction."""

    def __init__(self, node: Node, admission: Lazy[TransactionAdmission]) -> None:
        self._node = node
        self._admission = admission
        self._awaited = AwaitedBatches()

    def admit(
        self,
        connection: Connection,
        transactional_id: str,
        producer: tuple[int, int],
        version: int,
        requested: list[tuple[Partition, int]],
    ) -> dict[Partition, int] | None:
        """Return the error codes of those partitions of a Produce request whose batch may not be
        appended. None: they are not known yet. The connection's request then waits and is handled
        again.

        ``requested`` are partitions with the batch's base sequence, ``producer`` is an id and an
        epoch. From version 12 on a client does not add partitions itself: writing to them adds
        them.
        """
        claim = Claim(*producer)
        adds = version >= FIRST_VERSION_THAT_ADDS
        if not adds and not self._node.config["transaction.partition.verification.enable"]:
            return {}
        now = self._node.loop.time()
        refused: dict[Partition, int] = {
            partition: ErrorCode.NOT_ENOUGH_REPLICAS
            for partition, base_sequence in requested
            if self._awaited.is_behind((partition, *producer), base_sequence, now)
        }
        places = {
            partition: TopicPartition(partition.entry.name.decode(), partition.index)
            for partition, _ in requested
            if partition not in refused
        }
        if not places:
            return refused
        wanted = frozenset(places.values())
        found = self._admission().admit(connection, transactional_id, claim, wanted, adds=adds)
        if found is None:
            return None
        abortable = version >= FIRST_VERSION_WITH_ABORTABLE
        for partition, base_sequence in requested:
            if partition not in places:
                continue
            error_code = found[places[partition]]
            self._await(error_code, (partition, *producer), base_sequence, now)
            code = _producer_error(error_code, abortable=abortable)
            if code == ErrorCode.NONE and adds and _is_late(partition, base_sequence, claim):
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if code != ErrorCode.NONE:
                refused[partition] = code
        return refused

    def _await(self, error_code: int, writer: _Writer, base_sequence: int, now: float) -> None:
        if error_code in RETRIABLE:
            self._awaited.add(writer, base_sequence, now)
        else:
            self._awaited.discard(writer)


def _is_late(partition: Partition, base_sequence: int, claim: Claim) -> bool:
    """Whether a batch that would begin a transaction is not the first one. The first has sequence
    0; otherwise an earlier batch is missing.
    """
    return base_sequence > 0 and not _is_known(partition, claim.producer_id)


def has_transaction(partition: Partition | None, claim: Claim) -> bool:
    """Whether the producer has an open transaction on the partition, and no marker that ends it is
    queued. ``partition`` is None if this broker does not lead it.
    """
    if partition is None or claim.producer_id in (partition.ending or ()):
        return False
    entry = partition.log.core.producers.entries.get(claim.producer_id)
    return (
        entry is not None
        and entry.txn_first_offset >= 0
        and entry.producer_epoch == claim.producer_epoch
    )


def _is_known(partition: Partition, producer_id: int) -> bool:
    """Whether the partition knows a batch of the producer."""
    entry = partition.log.core.producers.entries.get(producer_id)
    return entry is not None and entry.last_offset >= 0


def _producer_error(code: int, *, abortable: bool) -> int:
    return (
        ErrorCode.NOT_ENOUGH_REPLICAS
        if code in RETRIABLE
        else error_for_version(code, abortable=abortable)
    )


def error_for_version(code: int, *, abortable: bool) -> int:
    """The coordinator's error, as a producer gets it for records or offsets. ``abortable``: the
    producer knows TRANSACTION_ABORTABLE.
    """
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
