"""The offsets that consumer groups have committed in a log dir that a broker served, in the form of
cursors; and the transfer of cursors to `__consumer_offsets` before a broker serves a log dir.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kstore.errors import ProtocolError
from kstore.log.errors import LogNotFoundError
from kstore.log.settings import LogConfig
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kstore.protocol.coordinator_records.classic import OffsetCommitValue
    from kstore.record import Record, RecordSet

__all__ = ["OFFSETS_TOPIC", "GroupOffsets", "GroupOffsetsDirectory", "offsets_partition_for"]

OFFSETS_TOPIC = "__consumer_offsets"
DEFAULT_OFFSETS_PARTITIONS = 50
# As Kafka's offsets.topic.segment.bytes; the topic is compacted.
OFFSETS_CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=100 * 2**20)
COMMIT_VERSION = 3
_READ_BYTES = 1 << 20

Key = tuple[str, str, int]


def offsets_partition_for(name: str, partitions: int) -> int:
    """The partition of a group in Kafka: Java's ``String.hashCode``, made positive, modulo
    partitions.
    """
    units = name.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    if code == 0x80000000:
        return 0
    return min(code, (1 << 32) - code) % partitions


class OffsetsLog(Protocol):
    """A log of `__consumer_offsets`; a ``Log``."""

    @property
    def log_start_offset(self) -> int:
        """The log start offset."""

    @property
    def log_end_offset(self) -> int:
        """The log end offset."""

    def read(self, offset: int, max_bytes: int = ..., *, isolation: str = ...) -> RecordSet:
        """The records from ``offset`` on."""

    def append(self, value: Buffer | None, key: Buffer | None = None) -> int:
        """Append one record; return its offset."""


class GroupOffsetsDirectory(Protocol):
    """The directory of ``__consumer_offsets``; a ``LogDir``."""

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log here."""

    @property
    def log(self) -> Callable[..., OffsetsLog]:
        """The log of a topic-partition, opened or created."""


class GroupOffsets:
    """The committed offsets of one log dir, replayed from ``__consumer_offsets`` on demand."""

    def __init__(self, log_dir: GroupOffsetsDirectory) -> None:
        self._dir = log_dir
        self._lock = threading.RLock()
        self._values: dict[Key, OffsetCommitValue] = {}
        self._next_offsets: dict[int, int] = {}
        self._count = 0
        self._complete = False

    def committed(self, name: str, tp: TopicPartition) -> OffsetCommitValue | None:
        """The last commit of ``name`` for a partition, or None."""
        with self._lock:
            index = offsets_partition_for(name, self._partition_count())
            self._catch_up(index)
            return self._values.get((name, tp.topic, tp.partition))

    def commit(self, name: str, tp: TopicPartition, value: OffsetCommitValue | None) -> None:
        """Append a commit, or a deletion with None; its durability follows the dir's flush
        policy.
        """
        from kstore.protocol.coordinator_records.classic import OffsetCommitKey
        from kstore.protocol.coordinator_records.framing import encode_key, encode_value

        key = OffsetCommitKey(group=name, topic=tp.topic, partition=tp.partition)
        body = None if value is None else encode_value(value, COMMIT_VERSION)
        log = self._dir.log(*self._writable_partition(name), config=OFFSETS_CONFIG)
        log.append(body, encode_key(key))

    def _partition_count(self) -> int:
        if not self._count:
            found = [tp.partition for tp in self._dir.partitions() if tp.topic == OFFSETS_TOPIC]
            if not found:
                return DEFAULT_OFFSETS_PARTITIONS
            self._count = max(found) + 1
        return self._count

    def _writable_partition(self, name: str) -> TopicPartition:
        """The partition of ``name``. The first commit creates the whole topic, as in Kafka.

        If only some partitions existed, the topic's partition count would be unknown.
        """
        with self._lock:
            count = self._partition_count()
            index = offsets_partition_for(name, count)
            if self._complete:
                return TopicPartition(OFFSETS_TOPIC, index)
            there = {tp.partition for tp in self._dir.partitions() if tp.topic == OFFSETS_TOPIC}
            # The last one is created first: after a crash in between, the count is already right.
            for missing in sorted(set(range(count)) - there, reverse=True):
                self._dir.log(OFFSETS_TOPIC, missing, config=OFFSETS_CONFIG)
            self._complete = True
        return TopicPartition(OFFSETS_TOPIC, index)

    def _catch_up(self, index: int) -> None:
        try:
            log = self._dir.log(OFFSETS_TOPIC, index, create=False)
        except LogNotFoundError:
            return
        offset = max(self._next_offsets.get(index, 0), log.log_start_offset)
        while offset < log.log_end_offset:
            records = log.read(offset, _READ_BYTES, isolation="read_committed")
            for record in records:
                self._replay(record)
            if records.next_offset is None or records.next_offset <= offset:
                break
            offset = records.next_offset
        self._next_offsets[index] = offset

    def _replay(self, record: Record) -> None:
        from kstore.protocol.coordinator_records.classic import OffsetCommitKey, OffsetCommitValue
        from kstore.protocol.coordinator_records.framing import decode_key, decode_value

        if record.key is None:
            return
        try:
            key = decode_key(record.key)
        except ProtocolError:
            # A record type of newer brokers: not a committed offset.
            return
        if not isinstance(key, OffsetCommitKey):
            return
        place = (key.group, key.topic, key.partition)
        if record.value is None:
            self._values.pop(place, None)
            return
        value, _ = decode_value(key, record.value)
        assert isinstance(value, OffsetCommitValue)
        self._values[place] = value
