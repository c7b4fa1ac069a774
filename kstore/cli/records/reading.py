"""The read loop of ``kstore consume``: polls, writes, and commits what was written for a group.

A group's offsets are committed only after the records were flushed to stdout: records that did not
reach the reader of the pipe are read again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Self

from kstore.cli.records.record_text import Coder, Decoded, OutputRecord, RecordFormatError
from kstore.cli.records.start import Start, place
from kstore.cli.waiting import WAIT_S
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import Consumer, ConsumerRecord

__all__ = ["Committing", "NewPartitionListener", "copy", "decoded"]

Write = Callable[[OutputRecord], bytes]
Decode = Callable[["ConsumerRecord"], OutputRecord]
_POLL_MS = 1000
_COMMIT_S = 1.0
_NAMED = 10
"""Up to this number, partitions are listed one by one."""


class NewPartitionListener:
    """A group's rebalance listener. New partitions begin at the start position if the group has
    committed nothing; revoked partitions are committed.
    """

    def __init__(self, consumer: Consumer, start: Start | None, commits: Committing) -> None:
        self._consumer = consumer
        self._start = start
        self._commits = commits

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Partitions were assigned."""
        if self._start is not None and assigned:
            committed = self._consumer.committed(list(assigned))
            fresh = [tp for tp, offset in committed.items() if offset is None]
            place(self._consumer, fresh, self._start)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Partitions are revoked; their next members continue after what was written."""
        self._commits.give_up(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Partitions were lost: other members already have them."""
        self._commits.forget(lost)


class Committing:
    """What was written and is not committed, by partition: the offset of the next record."""

    def __init__(self, consumer: Consumer, *, wanted: bool) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._written: dict[TopicPartition, int] = {}
        self._last_s = time.monotonic()

    def written(self, records: Iterable[ConsumerRecord]) -> None:
        """These records, perhaps none, were flushed. Once a second, all such records are
        committed.
        """
        if not self._wanted:
            return
        for record in records:
            self._written[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if time.monotonic() - self._last_s >= _COMMIT_S and self._written:
            self._last_s = time.monotonic()
            self._consumer.commit_async(self._written)
            self._written = {}

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Commit the positions of revoked partitions."""
        own = [tp for tp in partitions if self._wanted]
        if own:
            self._consumer.commit({tp: self._consumer.position(tp) for tp in own})
        self.forget(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget these partitions: other members read them now."""
        self._written = {tp: o for tp, o in self._written.items() if tp not in set(partitions)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit the rest; if all went well, up to the positions, which can be behind transaction
        markers.
        """
        if kind is None and self._wanted:
            self._consumer.commit()
        elif self._written:
            self._consumer.commit(self._written)


def copy(
    consumer: Consumer, write: Write, decode: Decode, commits: Committing, *,
    count: int | None, leave: bool, in_group: bool, source: str,
) -> None:  # fmt: skip
    """Write records until ``count`` is reached or, with --exit, until every partition is at its
    end.
    """
    left = count
    idle = _Idle(consumer, source)
    ends: dict[TopicPartition, int] = {}
    while left is None or left > 0:
        if leave and _has_ended(consumer, ends, in_group=in_group):
            return
        records = consumer.poll(_POLL_MS, max_records=500 if left is None else min(left, 500))
        # The group has these records as polled: they are written, even beyond the end.
        wanted = records if in_group or not leave else [r for r in records if _is_before(ends, r)]
        idle.polled(bool(records))
        if wanted:
            sys.stdout.buffer.write(b"".join(map(write, map(decode, wanted))))
            sys.stdout.buffer.flush()
        commits.written(wanted)
        if left is not None:
            left -= len(wanted)


def _has_ended(consumer: Consumer, ends: dict[TopicPartition, int], *, in_group: bool) -> bool:
    """Whether all is read up to the ends. Unknown ends are looked up."""
    assigned = consumer.assignment()
    if not assigned:
        return not in_group
    new = [tp for tp in assigned if tp not in ends]
    if new:
        ends |= consumer.end_offsets(new)
    return all(consumer.position(tp) >= ends[tp] for tp in assigned)


class _Idle:
    """Reports once that there are no records, if none has arrived for some seconds from the
    start.
    """

    def __init__(self, consumer: Consumer, source: str) -> None:
        self._consumer = consumer
        self._source = source
        self._began: float | None = time.monotonic()

    def polled(self, any_records: bool) -> None:
        """A poll returned some records, or none."""
        if any_records:
            self._began = None
        elif self._began is not None and time.monotonic() - self._began >= WAIT_S:
            self._began = None
            assigned = self._consumer.assignment()
            is_short = 0 < len(assigned) <= _NAMED
            where = ", ".join(map(str, assigned)) if is_short else self._source
            print(f"kstore: waiting for records of {where}; Ctrl-C to stop", file=sys.stderr)


def _is_before(ends: dict[TopicPartition, int], record: ConsumerRecord) -> bool:
    tp = TopicPartition(record.topic, record.partition)
    return tp not in ends or record.offset < ends[tp]


def decoded(key: Coder | None, value: Coder | None) -> Decode:
    """A function that formats a record, with its key and value in these formats."""

    def plain(record: ConsumerRecord) -> OutputRecord:
        return OutputRecord(
            record.topic, record.partition, record.offset, record.timestamp,
            _field(record, "key", key), _field(record, "value", value),
            tuple((h.key, h.value) for h in record.headers),
        )  # fmt: skip

    return plain


def _field(record: ConsumerRecord, name: str, form: Coder | None) -> bytes | Decoded | None:
    data: bytes | None = getattr(record, name)
    if data is None or form is None:
        return data
    try:
        return form.decode(data)
    except RecordFormatError as error:
        place = f"{record.topic}:{record.partition} offset {record.offset}"
        raise RecordFormatError(f"{place}: the {name} {error}") from None
