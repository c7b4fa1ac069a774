"""The records that a share consumer holds, and the state of each.

A record waits until poll() returns it. Then the user has it until it is acknowledged. Then it waits
to be sent, and is done when the broker has answered. A renewed record waits again. A record is
always in at most one of these states, so it can't be acknowledged twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kstore.clients.core.share.acknowledgements import GAP, AcknowledgeType
from kstore.errors import KafkaError
from kstore.types import TopicPartition

__all__ = ["Acknowledged", "Held", "Holdings"]

RecordKey = tuple[TopicPartition, int]


class Held:
    """An acquired offset: its record (None: it has none), the broker that holds the lock, and the
    lock's expiry.
    """

    __slots__ = ("delivery_count", "expires_ms", "node_id", "offset", "record", "tp", "type")

    def __init__(
        self, tp: TopicPartition, offset: int, record: Any, node_id: int, *,
        delivery_count: int, expires_ms: float,
    ) -> None:  # fmt: skip
        self.tp = tp
        self.offset = offset
        self.record = record
        self.node_id = node_id
        self.delivery_count = delivery_count
        self.expires_ms = expires_ms
        self.type = GAP


class Acknowledged(NamedTuple):
    """The result of the acknowledgements of one partition in one request."""

    tp: TopicPartition
    types: dict[int, int]
    """The type that was sent for each offset."""
    error: KafkaError | None


class Holdings:
    """All records that one consumer holds."""

    def __init__(self) -> None:
        self._waiting: deque[Held] = deque()
        self._in_hand: dict[RecordKey, Held] = {}
        self._to_send: dict[RecordKey, Held] = {}
        self._sent: dict[RecordKey, Held] = {}

    # ---- records arrive, and are returned ----

    def arrived(self, rows: Iterable[Held]) -> None:
        """Records were acquired. Offsets without a record are acknowledged as gaps at once."""
        for row in rows:
            if row.record is None:
                self._to_send[row.tp, row.offset] = row
            else:
                self._waiting.append(row)

    def take(self, most: int, now_ms: float) -> list[Held]:
        """Records for the user. Those whose lock has expired meanwhile are dropped."""
        found: list[Held] = []
        while self._waiting and len(found) < most:
            row = self._waiting.popleft()
            if row.expires_ms > now_ms:
                self._in_hand[row.tp, row.offset] = row
                found.append(row)
        return found

    @property
    def waiting(self) -> int:
        """The number of records that poll() could return."""
        return len(self._waiting)

    def has(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the user has a record that is not acknowledged."""
        return (tp, offset) in self._in_hand

    @property
    def in_hand(self) -> list[Held]:
        """The records that the user has and did not acknowledge."""
        return list(self._in_hand.values())

    @property
    def is_settled(self) -> bool:
        """Whether nothing has to be sent, and nothing is in flight."""
        return not (self._to_send or self._sent)

    # ---- acknowledgements of the user ----

    def acknowledge(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Set the acknowledgement of a record; until it is sent, another type may replace it.

        Raises ValueError for a record that this consumer does not hold.
        """
        key = tp, offset
        row = self._in_hand.pop(key, None) or self._to_send.get(key)
        if row is None:
            found = (each for each in self._waiting if (each.tp, each.offset) == key)
            row = next(found, None)
            if row is None or row.type != AcknowledgeType.RENEW:
                raise ValueError(
                    f"{tp} offset {offset} is not held by this consumer: poll() "
                    "did not return it, or it is already acknowledged"
                )
            self._waiting.remove(row)
        if row.record is None:
            raise ValueError(f"{tp} offset {offset} has no record")
        row.type = kind
        self._to_send[key] = row

    def acknowledge_range(
        self, tp: TopicPartition, first_offset: int, last_offset: int, kind: AcknowledgeType
    ) -> int:
        """The same for the user's records from first to last, both included; returns their number.

        Raises ValueError if there are none.
        """
        found = [
            row for row in self._in_hand.values()
            if row.tp == tp and first_offset <= row.offset <= last_offset
        ]  # fmt: skip
        if not found:
            raise ValueError(
                f"{tp}: no record from {first_offset} to {last_offset} waits for acknowledgement"
            )
        for row in found:
            self.acknowledge(tp, row.offset, kind)
        return len(found)

    def acknowledge_all(self, kind: AcknowledgeType) -> None:
        """The same for all records that the user has."""
        for tp, offset in list(self._in_hand):
            self.acknowledge(tp, offset, kind)

    # ---- acknowledgements are sent ----

    def nodes_to_send(self) -> set[int]:
        """The brokers that have acknowledgements to receive."""
        return {row.node_id for row in self._to_send.values()}

    def nodes_to_notify(self) -> set[int]:
        """These, and the brokers that have not answered yet."""
        return self.nodes_to_send() | {row.node_id for row in self._sent.values()}

    def begin_sending(
        self, node_id: int, wanted: Callable[[TopicPartition, int], bool] = lambda tp, kind: True
    ) -> dict[TopicPartition, dict[int, int]]:
        """Take the acknowledgements for a broker: for each partition the types by offset. `wanted`
        selects partitions and types.
        """
        found: dict[TopicPartition, dict[int, int]] = {}
        for key, row in list(self._to_send.items()):
            if row.node_id == node_id and wanted(row.tp, row.type):
                self._sent[key] = self._to_send.pop(key)
                found.setdefault(row.tp, {})[row.offset] = row.type
        return found

    def sent(
        self, tp: TopicPartition, types: dict[int, int], error: KafkaError | None,
        expires_ms: float,
    ) -> Acknowledged:  # fmt: skip
        """The broker has answered, or the request failed. Renewed records wait for the user again,
        before all others, until `expires_ms`.
        """
        renewed = []
        for offset, kind in types.items():
            row = self._sent.pop((tp, offset))
            if kind == AcknowledgeType.RENEW and error is None:
                row.expires_ms = expires_ms
                renewed.append(row)
        self._waiting.extendleft(reversed(renewed))
        return Acknowledged(tp, {o: kind for o, kind in types.items() if kind != GAP}, error)

    def lose(self, node_id: int) -> None:
        """The session with a broker is over: drop its records that the user has not seen."""
        self._waiting = deque(row for row in self._waiting if row.node_id != node_id)
        for key, row in list(self._to_send.items()):
            if row.node_id == node_id and row.record is None:
                del self._to_send[key]
