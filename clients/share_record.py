"""The results of share consumers: records, and the outcome of acknowledgements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kstore.clients.core.share.acknowledgements import AcknowledgeType, spans
from kstore.clients.core.share.holdings import Acknowledged
from kstore.errors import KafkaError
from kstore.types import Header, TopicPartition

__all__ = [
    "AcknowledgementCallback",
    "AcknowledgementResult",
    "OnError",
    "ShareRecord",
    "result_of",
]

OnError = AcknowledgeType | str | Callable[["ShareRecord", Exception], "AcknowledgeType | str"]
"""How to acknowledge a record whose handler raised, or a function that returns it."""


class AcknowledgementResult(NamedTuple):
    """The outcome of acknowledgements in one partition. `error` is None if the broker accepted
    them.
    """

    partition: TopicPartition
    ranges: tuple[tuple[int, int], ...]
    """(first, last) offsets, inclusive."""
    error: KafkaError | None


AcknowledgementCallback = Callable[[AcknowledgementResult], object]


def result_of(result: Acknowledged) -> AcknowledgementResult:
    """The result in the user's form."""
    return AcknowledgementResult(result.tp, tuple(spans(result.types)), result.error)


class ShareRecord:
    """A record of a share group. This consumer holds it until it is acknowledged. Key and value are
    bytes, or the objects that the deserializers return.
    """

    __slots__ = ("delivery_count", "record")

    def __init__(self, record: Any, delivery_count: int) -> None:
        self.record = record
        """The ConsumerRecord, or DeserializedRecord."""
        self.delivery_count = delivery_count
        """The delivery count, including this delivery."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        name: str = self.record.topic
        return name

    @property
    def partition(self) -> int:
        """The partition's number."""
        index: int = self.record.partition
        return index

    @property
    def offset(self) -> int:
        """The record's offset in its partition."""
        offset: int = self.record.offset
        return offset

    @property
    def key(self) -> Any:
        """The key, or None."""
        return self.record.key

    @property
    def value(self) -> Any:
        """The value, or None."""
        return self.record.value

    @property
    def timestamp(self) -> int:
        """In ms since 1970; -1 if there is none."""
        moment: int = self.record.timestamp
        return moment

    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, 1 for LogAppendTime."""
        kind: int = self.record.timestamp_type
        return kind

    @property
    def headers(self) -> tuple[Header, ...]:
        """The headers, in order."""
        headers: tuple[Header, ...] = self.record.headers
        return headers

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which the record was written; -1 if unknown."""
        epoch: int = self.record.leader_epoch
        return epoch

    def __repr__(self) -> str:
        return (
            f"ShareRecord({self.topic!r}, {self.partition}, offset={self.offset}, "
            f"delivery_count={self.delivery_count})"
        )
