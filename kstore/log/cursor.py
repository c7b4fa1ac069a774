"""Named cursors: a log as a durable queue. A cursor reads on from where it last committed.

A commit is a record in ``__consumer_offsets`` of the same log dir, in Kafka's own form with the
cursor's name as group id: served by ``kstore serve``, the cursor is a consumer group, and a group's
offsets are cursors here. Nothing is kept in memory or in the index that this log does not say.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from kstore.errors import ProtocolError
from kstore.log.errors import LogNotFoundError, OffsetOutOfRangeError, ReadOnlyLogError
from kstore.log.settings import LogConfig
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kstore.protocol.coordinator_records.classic import OffsetCommitValue
    from kstore.record import Record, RecordSet

__all__ = ["OFFSETS_TOPIC", "CommittedOffsets", "Cursor", "offsets_partition_for"]

OFFSETS_TOPIC = "__consumer_offsets"
DEFAULT_OFFSETS_PARTITIONS = 50
# As Kafka's offsets.topic.segment.bytes; the topic is compacted.
OFFSETS_CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=100 * 2**20)
COMMIT_VERSION = 3
_READ_BYTES = 1 << 20

Key = tuple[str, str, int]


def offsets_partition_for(name: str, partitions: int) -> int:
    """Where Kafka keeps a group: Java's ``String.hashCode``, made positive, modulo partitions."""
    units = name.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    if code == 0x80000000:
        return 0
    return min(code, (1 << 32) - code) % partitions


class CursorLog(Protocol):
    """The log that a cursor reads, or commits to; a ``Log``."""

    topic_partition: TopicPartition

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def high_watermark(self) -> int:
        """The end of what anybody may see."""

    def read(
        self, offset: int, max_bytes: int = ..., *, isolation: str = "read_uncommitted"
    ) -> RecordSet:
        """The records from ``offset`` on."""

    def wait(
        self, offset: int, timeout: float | None = None, *, isolation: str = "read_uncommitted"
    ) -> bool:
        """Wait until a record at or after ``offset`` can be read."""

    def refresh(self) -> bool:
        """Look for what another process has written."""

    def append(self, value: Buffer | None, key: Buffer | None = None) -> int:
        """Append one record; return its offset."""


class CursorDirectory(Protocol):
    """The directory of ``__consumer_offsets``; a ``LogDir``."""

    path: str
    read_only: bool

    def now_ms(self) -> int:
        """The environment's time."""

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log here."""

    def log(
        self,
        topic: str,
        partition: int = 0,
        *,
        create: bool = True,
        config: LogConfig | None = None,
    ) -> CursorLog:
        """The log of a topic-partition, opened or made."""


class CommittedOffsets:
    """The committed offsets of one log dir, replayed from ``__consumer_offsets`` as they are asked
    for.
    """

    def __init__(self, log_dir: CursorDirectory) -> None:
        self._dir = log_dir
        self._lock = threading.RLock()
        self._values: dict[Key, OffsetCommitValue] = {}
        self._next_offsets: dict[int, int] = {}
        self._count = 0
        self._complete = False

    def now_ms(self) -> int:
        """The time of the log dir's environment."""
        return self._dir.now_ms()

    def committed(self, name: str, tp: TopicPartition) -> OffsetCommitValue | None:
        """What ``name`` last committed for a partition, or None."""
        with self._lock:
            index = offsets_partition_for(name, self._partition_count())
            self._catch_up(index)
            return self._values.get((name, tp.topic, tp.partition))

    def commit(self, name: str, tp: TopicPartition, value: OffsetCommitValue | None) -> None:
        """Append a commit, or its deletion with None; durable as the dir's flush policy says.

        Raises ReadOnlyLogError in a dir that was opened for reading, and LogStorageError.
        """
        from kstore.protocol.coordinator_records.classic import OffsetCommitKey
        from kstore.protocol.coordinator_records.framing import encode_key, encode_value

        if self._dir.read_only:
            raise ReadOnlyLogError(
                f"cursor {name!r} of {tp} can't commit: {self._dir.path} is open for reading only; "
                "commit in the process that writes, or keep the offset yourself"
            )
        key = OffsetCommitKey(group=name, topic=tp.topic, partition=tp.partition)
        body = None if value is None else encode_value(value, COMMIT_VERSION)
        log = self._dir.log(*self._writable_partition(name), config=OFFSETS_CONFIG)
        # Not under the lock: with flush="always" commits of many threads share one fdatasync.
        log.append(body, encode_key(key))

    def _partition_count(self) -> int:
        if not self._count:
            found = [tp.partition for tp in self._dir.partitions() if tp.topic == OFFSETS_TOPIC]
            if not found:
                return DEFAULT_OFFSETS_PARTITIONS
            self._count = max(found) + 1
        return self._count

    def _writable_partition(self, name: str) -> TopicPartition:
        """The partition of ``name``; with the first commit the whole topic is made, as Kafka does.

        A topic of which only some partitions were there could not say how many it has.
        """
        with self._lock:
            count = self._partition_count()
            index = offsets_partition_for(name, count)
            if self._complete:
                return TopicPartition(OFFSETS_TOPIC, index)
            there = {tp.partition for tp in self._dir.partitions() if tp.topic == OFFSETS_TOPIC}
            # The last one comes first: after a crash in between, the count is right already.
            for missing in sorted(set(range(count)) - there, reverse=True):
                self._dir.log(OFFSETS_TOPIC, missing, config=OFFSETS_CONFIG)
            self._complete = True
        return TopicPartition(OFFSETS_TOPIC, index)

    def _catch_up(self, index: int) -> None:
        try:
            log = self._dir.log(OFFSETS_TOPIC, index, create=False)
        except LogNotFoundError:
            return
        if self._dir.read_only:
            log.refresh()
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
            # A record type of newer brokers: no committed offset.
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


class Cursor:
    """A named place in a log. Not for several threads at once; several cursors of a name see each
    other's commits, and the last one wins.

    It starts where its name last committed, or at the log start offset.
    """

    def __init__(
        self,
        log: CursorLog,
        offsets: CommittedOffsets,
        name: str,
        *,
        isolation: str = "read_uncommitted",
    ) -> None:
        if not name:
            raise ValueError("the cursor's name is empty: it is a consumer group's id, give it one")
        self.name = name
        self._log = log
        self._offsets = offsets
        self._isolation = isolation
        self._records: Iterator[Record] = iter(())
        self._after_records = -1
        self._position = self._first_position()

    def _first_position(self) -> int:
        committed = self.committed
        return self._log.log_start_offset if committed is None else committed

    @property
    def position(self) -> int:
        """The offset of the next record that ``poll`` will give."""
        return self._position

    @property
    def committed(self) -> int | None:
        """The offset that was committed last under this name (the next one to read), or None."""
        value = self._offsets.committed(self.name, self._log.topic_partition)
        return None if value is None else value.offset

    @property
    def metadata(self) -> str:
        """The text that was committed with the offset, "" if none was."""
        value = self._offsets.committed(self.name, self._log.topic_partition)
        return "" if value is None else value.metadata

    @property
    def lag(self) -> int:
        """Offsets between the position and the end of what can be read."""
        return max(0, self._readable_end() - self._position)

    def poll(self, max_records: int = 500, timeout: float | None = 0.0) -> list[Record]:
        """The next records, at most ``max_records``; waits up to ``timeout`` seconds for the first.

        An empty list when there are none in time (``timeout=None`` waits for ever). Raises
        OffsetOutOfRangeError where the position's record was deleted or the log was cut before it:
        then ``seek`` to an offset that the log holds.
        """
        found = self._take(max_records)
        isolation = self._isolation
        if (
            not found
            and timeout != 0.0
            and self._log.wait(self._position, timeout, isolation=isolation)
        ):
            found = self._take(max_records)
        return found

    def _take(self, max_records: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < max_records:
            record = next(self._records, None)
            if record is not None:
                found.append(record)
                self._position = record.offset + 1
            elif not self._fetch():
                break
        return found

    def _fetch(self) -> bool:
        """Read the next piece; False at the end of the log."""
        self._position = max(self._position, self._after_records)
        records = self._log.read(self._position, _READ_BYTES, isolation=self._isolation)
        if records.next_offset is None:
            self._check_position()
            return False
        self._records = iter(records)
        self._after_records = records.next_offset
        return True

    def _check_position(self) -> None:
        """A position that lies behind the end would skip what is appended next."""
        self._check_readable(self._position)

    def _check_readable(self, offset: int) -> None:
        log, end = self._log, self._readable_end()
        if not log.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(str(log.topic_partition), offset, log.log_start_offset, end)

    def _readable_end(self) -> int:
        """The end of what anybody may see: what is not safe may become something else."""
        self._log.refresh()
        return self._log.high_watermark

    def __iter__(self) -> Iterator[Record]:
        """The records from the position to the end of the log, one after the other."""
        while records := self._take(1):
            yield records[0]

    def commit(self, offset: int | None = None, metadata: str = "") -> int:
        """Remember ``offset`` (default: the position), the next one to be read, durably; returns
        it.

        Raises ValueError for an offset outside the log, ReadOnlyLogError, LogStorageError.
        """
        from kstore.protocol.coordinator_records.classic import OffsetCommitValue

        offset = self._position if offset is None else offset
        end = self._readable_end()
        if not 0 <= offset <= end:
            raise ValueError(
                f"cursor {self.name!r} can't commit offset {offset}: {self._log.topic_partition} "
                f"can be read to {end}; commit the one after the last record done"
            )
        value = OffsetCommitValue(
            offset=offset, metadata=metadata, commit_timestamp=self._offsets.now_ms()
        )
        self._offsets.commit(self.name, self._log.topic_partition, value)
        return offset

    def delete(self) -> None:
        """Forget the committed offset; the position stays."""
        self._offsets.commit(self.name, self._log.topic_partition, None)

    def seek(self, offset: int) -> None:
        """Read on from ``offset``; what is committed stays. Raises OffsetOutOfRangeError."""
        self._check_readable(offset)
        self._records = iter(())
        self._after_records = -1
        self._position = offset

    def __repr__(self) -> str:
        return f"Cursor({self.name!r} of {self._log.topic_partition} at {self._position})"
