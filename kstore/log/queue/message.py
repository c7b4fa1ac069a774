"""Leased messages and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kstore.record import Header, Record

__all__ = ["DeadLetter", "QueueMessage"]


class Leases(Protocol):
    """The queue of a message."""

    def ack(self, *messages: QueueMessage) -> None:
        """Settle messages as done."""

    def nack(self, *messages: QueueMessage, delay_s: float = 0.0, reason: str = "") -> None:
        """Give messages back."""

    def reject(self, *messages: QueueMessage, reason: str = "") -> None:
        """Make messages dead letters."""

    def extend(self, *messages: QueueMessage, lease_s: float | None = None) -> None:
        """Lease messages for longer."""


class QueueMessage:
    """A leased record. Call ``ack``, ``nack`` or ``reject`` before the lease ends. As a context
    manager it is acknowledged at the end of the block, or given back if the block raises.
    """

    __slots__ = ("deliveries", "queue", "record")

    def __init__(self, queue: Leases, record: Record, deliveries: int) -> None:
        self.queue = queue
        self.record = record
        self.deliveries = deliveries
        """How often it was delivered, including this time."""

    @property
    def value(self) -> bytes | None:
        """The record's value."""
        return self.record.value

    @property
    def key(self) -> bytes | None:
        """The record's key."""
        return self.record.key

    @property
    def headers(self) -> tuple[Header, ...]:
        """The record's headers."""
        return self.record.headers

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """The record's timestamp, in ms since 1970."""
        return self.record.timestamp

    def ack(self) -> None:
        """Mark the message as done. Raises LeaseLostError."""
        self.queue.ack(self)

    def nack(self, delay_s: float = 0.0, *, reason: str = "") -> None:
        """Give the message back. It is delivered again, after ``delay_s`` seconds at the earliest,
        or becomes a dead letter with ``reason`` if it has no deliveries left. Raises
        LeaseLostError.
        """
        self.queue.nack(self, delay_s=delay_s, reason=reason)

    def reject(self, reason: str = "") -> None:
        """Make the message a dead letter now. Raises LeaseLostError."""
        self.queue.reject(self, reason=reason)

    def extend(self, lease_s: float | None = None) -> None:
        """Extend the lease to ``lease_s`` seconds from now (default: the queue's lease). Raises
        LeaseLostError.
        """
        self.queue.extend(self, lease_s=lease_s)

    def __enter__(self) -> QueueMessage:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.ack()
        else:
            self.nack(reason=f"{type(error).__name__}: {error}")

    def __repr__(self) -> str:
        return f"QueueMessage(offset {self.offset}, delivery {self.deliveries})"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was delivered ``max_deliveries`` times or was rejected."""

    offset: int
    deliveries: int
    timestamp: int
    """When it became a dead letter, in ms since 1970."""
    reason: str
    record: Record | None
    """The record; None if it was deleted from the log."""
