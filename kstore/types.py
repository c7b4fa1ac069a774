"""Small value types that all layers share. They have only names and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, Self, TypedDict

__all__ = [
    "ConsumerGroupMetadata",
    "DecodeOptions",
    "Header",
    "KafkaNumber",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]


class KafkaNumber(IntEnum):
    """Kafka's numbers for something. A number that this version does not know is UNKNOWN, 0."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)


class TopicPartition(NamedTuple):
    """A topic's name and a partition's number. The log's folder is named ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Header(NamedTuple):
    """A record header: its name, and its value, which can be None."""

    key: str
    value: bytes | None


class OffsetAndMetadata(NamedTuple):
    """What a group commits for a partition: the offset of the next record to read, and a text of
    the user's.

    ``leader_epoch`` is the leader epoch of the last record before the offset (KIP-320); -1 if
    unknown. ``offset_epoch`` is an opaque value that identifies the incarnation of the topic to
    which the offset belongs (KIP-232); None if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    offset_epoch: bytes | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, its timestamp (ms since 1970), and the
    epochs as in OffsetAndMetadata.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1
    offset_epoch: bytes | None = None


class ConsumerGroupMetadata(NamedTuple):
    """The group member that commits offsets in a transaction (KIP-447). A generation or member
    epoch of -1 with an empty member id means: not a member of the group.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class DecodeOptions(TypedDict, total=False):
    """The records of a buffer to decode: the keyword arguments of all decoding functions, with the
    defaults of `kstore.record.decode`.
    """

    verify: bool
    """Check the CRC of each batch."""
    start_offset: int
    """Records before this offset are skipped."""
    end_offset: int | None
    """Records at or after this offset are skipped."""
    control: bool
    """Include control batches."""
    aborted: Iterable[tuple[int, int]] | None
    """(producer id, first offset) pairs of a Fetch response. Records of these transactions are
    skipped (read_committed).
    """
    max_decompressed_bytes: int
    """The maximum size of a decompressed batch; below 0: 256 MiB."""
