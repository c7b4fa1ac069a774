"""The effect of each request on a transactional id: fencing, the next epoch, the next state.
Kafka's TransactionCoordinator with transaction.version 2 (KIP-98, KIP-360, KIP-890).

Every function takes the current state and returns a Decision. Nothing is changed here.
"""

from __future__ import annotations

from typing import NamedTuple

from kstore.broker.state.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED,
    EMPTY,
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TV_0,
    TV_2,
    Transaction,
    is_epoch_exhausted,
)
from kstore.errors import ErrorCode
from kstore.types import TopicPartition

__all__ = [
    "Claim",
    "Decision",
    "add_partitions",
    "complete",
    "end_transaction",
    "fence",
    "init_producer_id",
    "verify_partitions",
]


class Claim(NamedTuple):
    """The producer id and epoch that a producer claims to have."""

    producer_id: int
    producer_epoch: int


class Decision(NamedTuple):
    """An error code, or NONE with the next state (None: no change) and the producer's new
    identity.
    """

    error_code: int
    transaction: Transaction | None = None
    producer: Claim = Claim(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


# ---- InitProducerId ----


def init_producer_id(
    current: Transaction | None,
    transactional_id: str,
    timeout_ms: int,
    claim: Claim | None,
    now_ms: int,
    new_producer_id: int,
    least_producer_id: int = 0,
) -> Decision:
    """Give a producer its id and next epoch, which fences the producer with the previous epoch. An
    id below ``least_producer_id`` is replaced, since a producer of a cluster whose logs are copied
    to this one may have the same id.

    A producer that continues after an error makes a claim (KIP-360), which must be the current id
    and epoch. An ongoing transaction is aborted first: the decision is CONCURRENT_TRANSACTIONS,
    with the prepared abort.
    """
    if current is None:
        current = Transaction(transactional_id, new_producer_id, timeout_ms=timeout_ms)
    if current.state in PREPARED:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if claim is not None and not _is_known_producer(current, claim, least_producer_id):
        return Decision(ErrorCode.PRODUCER_FENCED)
    if current.state == ONGOING:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, fence(current, now_ms))
    if _needs_new_id(current, claim):
        producer_id, epoch = new_producer_id, 0
        last_epoch = claim.producer_epoch if claim is not None else NO_PRODUCER_EPOCH
    else:
        found = _next_epoch(current, claim)
        if found is None:
            return Decision(ErrorCode.PRODUCER_FENCED)
        producer_id = current.producer_id
        epoch, last_epoch = found
        if producer_id < least_producer_id:
            producer_id, epoch = new_producer_id, 0
            last_epoch = claim.producer_epoch if claim is not None else NO_PRODUCER_EPOCH
    successor = current._replace(
        producer_id=producer_id,
        previous_producer_id=current.producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=EMPTY,
        partitions=frozenset(),
        started_ms=NO_TIMESTAMP,
        updated_ms=now_ms,
    )
    return Decision(ErrorCode.NONE, successor, Claim(producer_id, epoch))


def _is_known_producer(current: Transaction, claim: Claim, least_producer_id: int) -> bool:
    """Whether the claimed id is the current one, or the previous one (if the producer has not
    received the response with the new id).
    """
    return (
        current.producer_epoch == NO_PRODUCER_EPOCH
        or claim.producer_id == current.producer_id
        or (
            claim.producer_id == current.previous_producer_id
            and (
                is_epoch_exhausted(claim.producer_epoch)
                or (
                    claim.producer_id < least_producer_id
                    and claim.producer_epoch == current.last_producer_epoch
                )
            )
        )
    )


def _needs_new_id(current: Transaction, claim: Claim | None) -> bool:
    """Whether the id has no epoch left for the producer. An abort may have used the last epoch,
    which no client may have; its producer has the epoch before.
    """
    if not is_epoch_exhausted(current.producer_epoch):
        return False
    if claim is None or claim.producer_epoch == current.producer_epoch:
        return True
    return current.producer_epoch == LAST_EPOCH and claim.producer_epoch == (
        current.last_producer_epoch
    )


def _next_epoch(current: Transaction, claim: Claim | None) -> tuple[int, int] | None:
    """The next epoch and the previous one. None if the claim is fenced.

    Without a claim there is no previous epoch, since a repeated request of the producer that was
    just fenced must not succeed.
    """
    if claim is None:
        return current.producer_epoch + 1, NO_PRODUCER_EPOCH
    if claim.producer_epoch == current.last_producer_epoch != NO_PRODUCER_EPOCH:
        return current.producer_epoch, current.last_producer_epoch  # a repeated request
    if is_epoch_exhausted(current.producer_epoch):
        return None
    if current.producer_epoch in (NO_PRODUCER_EPOCH, claim.producer_epoch):
        return current.producer_epoch + 1, current.producer_epoch
    return None


# ---- partitions ----


def add_partitions(
    current: Transaction | None,
    claim: Claim,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Decision:
    """Add partitions to the transaction. The first one begins it."""
    if current is not None and current.state in PREPARED:
        # This is checked first: the producer may already know its next id, which is about to
        # replace this one.
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    error_code = _producer_error(current, claim)
    if error_code != ErrorCode.NONE:
        return Decision(error_code)
    assert current is not None
    if current.state == ONGOING and partitions <= current.partitions:
        return Decision(ErrorCode.NONE)
    successor = current._replace(
        previous_producer_id=current.producer_id,
        state=ONGOING,
        partitions=current.partitions | partitions,
        started_ms=current.started_ms if current.state == ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )
    return Decision(ErrorCode.NONE, successor)


def verify_partitions(
    current: Transaction | None, claim: Claim, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, int]:
    """For each partition NONE if it belongs to the producer's transaction, else
    TRANSACTION_ABORTABLE.
    """
    error_code = _producer_error(current, claim)
    if error_code == ErrorCode.NONE and current is not None and current.state in PREPARED:
        error_code = ErrorCode.CONCURRENT_TRANSACTIONS
    if error_code != ErrorCode.NONE or current is None:
        return dict.fromkeys(partitions, error_code)
    return {
        place: (ErrorCode.NONE if place in current.partitions else ErrorCode.TRANSACTION_ABORTABLE)
        for place in partitions
    }


def _producer_error(current: Transaction | None, claim: Claim) -> int:
    if current is None or current.producer_id != claim.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != claim.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


# ---- the end ----


def end_transaction(
    current: Transaction | None,
    claim: Claim,
    client_version: int,
    now_ms: int,
    new_producer_id: int,
    *,
    committed: bool,
) -> Decision:
    """Prepare the commit or the abort that a producer requests."""
    if current is None:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_version >= TV_2:
        return _end_with_new_epoch(current, claim, now_ms, new_producer_id, committed=committed)
    error_code = _producer_error(current, claim)
    if error_code != ErrorCode.NONE:
        return Decision(error_code)
    if current.state == ONGOING:
        prepared = _prepared(current, PREPARE_COMMIT if committed else PREPARE_ABORT, now_ms)
        return Decision(ErrorCode.NONE, prepared._replace(client_version=TV_0))
    if current.state == (COMPLETE_COMMIT if committed else COMPLETE_ABORT):
        return Decision(ErrorCode.NONE)  # a repeated request
    if current.state in PREPARED:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    return Decision(ErrorCode.INVALID_TXN_STATE)


def _end_with_new_epoch(
    current: Transaction,
    claim: Claim,
    now_ms: int,
    new_producer_id: int,
    *,
    committed: bool,
) -> Decision:
    """End a transaction with transaction.version 2. The epoch distinguishes a repeated request,
    which has the previous epoch, from a new one.

    As in Kafka, a producer whose transaction the coordinator has aborted (because of a timeout or
    another producer) gets the next epoch if it requests an abort. No other producer has that epoch,
    and another producer's InitProducerId fences it again.
    """
    if current.state in PREPARED:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    raised = current.client_version >= TV_2  # otherwise the last end did not begin an epoch
    overflowed = raised and (
        current.previous_producer_id == claim.producer_id
        and claim.producer_epoch == LAST_EPOCH - 1
        and current.producer_epoch == 0
    )
    # No producer may have the last epoch, since its own end would have none left.
    one_behind = current.producer_epoch == claim.producer_epoch + 1 < LAST_EPOCH
    repeated = overflowed or (raised and one_behind)
    is_present = current.producer_epoch == claim.producer_epoch
    if current.producer_id != claim.producer_id and not overflowed:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not is_present and not (repeated and current.state in COMPLETED):
        return Decision(ErrorCode.PRODUCER_FENCED)
    if current.state != ONGOING:
        if repeated:
            if current.state == (COMPLETE_COMMIT if committed else COMPLETE_ABORT):
                return Decision(
                    ErrorCode.NONE, None, Claim(current.producer_id, current.producer_epoch)
                )
            return Decision(ErrorCode.INVALID_TXN_STATE)
        if committed:
            return Decision(ErrorCode.INVALID_TXN_STATE)
        # An abort of a transaction without partitions only begins an epoch.
        current = current._replace(started_ms=now_ms)
    state = PREPARE_COMMIT if committed else PREPARE_ABORT
    prepared = _prepared_with_new_epoch(current, state, now_ms)
    if not is_epoch_exhausted(current.producer_epoch):
        producer = Claim(prepared.producer_id, prepared.producer_epoch)
        return Decision(ErrorCode.NONE, prepared, producer)
    prepared = prepared._replace(next_producer_id=new_producer_id)
    return Decision(ErrorCode.NONE, prepared, Claim(prepared.next_producer_id, 0))


def fence(current: Transaction, now_ms: int) -> Transaction:
    """The prepared abort of an ongoing transaction, at an epoch that fences its producer."""
    assert current.state == ONGOING, current
    return _prepared_with_new_epoch(current, PREPARE_ABORT, now_ms)


def _prepared(current: Transaction, state: int, now_ms: int) -> Transaction:
    return current._replace(
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=state,
        updated_ms=now_ms,
    )


def _prepared_with_new_epoch(current: Transaction, state: int, now_ms: int) -> Transaction:
    """A prepared state whose markers have the new epoch, so that no batch of the ended transaction
    can follow them.
    """
    return _prepared(current, state, now_ms)._replace(
        producer_epoch=min(current.producer_epoch + 1, LAST_EPOCH),
        last_producer_epoch=current.producer_epoch,
        client_version=TV_2,
    )


def complete(current: Transaction, now_ms: int) -> Transaction:
    """The state after a prepared transaction, when all its markers are written."""
    assert current.state in PREPARED, current
    producer_id, epoch = current.producer_id, current.producer_epoch
    if current.client_version >= TV_2 and current.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = current.next_producer_id, 0
    return current._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=COMPLETE_COMMIT if current.state == PREPARE_COMMIT else COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
