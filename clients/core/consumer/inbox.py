"""Fetched data that waits for the user: whole responses of partitions, in order of arrival. The
loop calls `put` and `fail`; the user calls everything else, without a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kstore._fast.clients.fetched import ConsumerRecord, FetchedRecords
from kstore._fast.record.batch import InvalidBatchError
from kstore.clients.core.consumer.lost_records import LostRecords
from kstore.clients.core.consumer.subscription import AssignedPartition, PositionSource
from kstore.types import TopicPartition

__all__ = ["CorruptRecordError", "Failure", "Inbox", "Loss", "OnTruncation"]

OnTruncation = Callable[[LostRecords], object]
"""Called in poll() when records below the position no longer exist."""


class CorruptRecordError(InvalidBatchError):
    """A batch can't be read: its checksum, compression or framing is wrong.

    `partition` and `offset` (the position) say where. `next_offset` is the offset after the batch,
    None if its header is also unreadable: `consumer.seek(error.partition, error.next_offset)`
    continues after it.
    """

    def __init__(
        self, cause: InvalidBatchError, tp: TopicPartition, offset: int, next_offset: int | None
    ) -> None:
        ValueError.__init__(self, f"partition {tp}, offset {offset}: {cause}")
        self.status, self.error_code, self.position = cause.status, cause.error_code, cause.position
        self.partition, self.offset, self.next_offset = tp, offset, next_offset


class Failure:
    """An error to raise in the user's poll(), after all earlier records were returned.

    With an owner it is dropped when all partitions that it is about, the owner and `others`, were
    sought, reset or revoked.
    """

    __slots__ = ("_versions", "error", "others", "owner")

    def __init__(
        self,
        error: Exception,
        owner: AssignedPartition | None = None,
        others: Sequence[AssignedPartition] = (),
    ) -> None:
        self.error = error
        self.owner = owner
        self.others = others
        self._versions = [] if owner is None else [(r, r.version) for r in (owner, *others)]

    @property
    def is_current(self) -> bool:
        """Whether it is still to be raised."""
        return self.owner is None or any(row.version == was for row, was in self._versions)


class Loss:
    """Lost records to report to the user before any following record; never dropped.

    ``source`` is what was being returned when the loss was found: the user may have taken more of
    it since.
    """

    __slots__ = ("_event", "_source")

    def __init__(self, event: LostRecords, source: PositionSource | None) -> None:
        self._event = event
        self._source = source

    def event(self) -> LostRecords:
        """The lost records among those that were returned. Called in the user's thread."""
        event, source = self._event, self._source
        if source is None or source.next_offset <= event.last_offset + 1:
            return event
        return event._replace(
            last_offset=source.next_offset - 1, last_leader_epoch=source.leader_epoch
        )


class Inbox:
    """`taken` is called in the user's thread after each response that was returned or discarded,
    and with None for one that is set aside while its partition is paused. `put_bytes` minus
    `taken_bytes` and `parked_bytes` is what waits. `on_truncation` is called in the user's thread.
    """

    def __init__(
        self,
        taken: Callable[[FetchedRecords | Failure | None], None],
        on_truncation: OnTruncation,
    ) -> None:
        self.put_bytes = 0
        self.taken_bytes = 0
        self.parked_bytes = 0
        """The bytes of paused partitions."""
        self._taken = taken
        self._on_truncation = on_truncation
        self._items: deque[FetchedRecords | Failure | Loss] = deque()
        self._parked: dict[TopicPartition, deque[FetchedRecords | Failure]] = {}
        self._current: FetchedRecords | None = None

    def put(self, records: FetchedRecords) -> None:
        """Add records of a partition, which follow the earlier ones."""
        self.put_bytes += records.size_bytes
        self._items.append(records)

    def fail(self, failure: Failure) -> None:
        """Add an error to raise. If the user does not poll, the same error of a broker arrives
        again and again: it waits once.
        """
        if failure.owner is not None or not self._has(failure.error):
            self._items.append(failure)

    def _has(self, error: Exception) -> bool:
        """Whether an error like this one, of no partition, waits already."""
        waiting = [item for item in list(self._items) if isinstance(item, Failure)]
        return any(item.owner is None and repr(item.error) == repr(error) for item in waiting)

    def lose(self, loss: Loss) -> None:
        """Add a loss: records that the user has had do not exist any more."""
        self._items.append(loss)

    def report_losses(self) -> None:
        """Report all losses now, because there is no further poll."""
        losses = [item for item in self._items if isinstance(item, Loss)]
        for item in losses:
            self._items.remove(item)
            self._on_truncation(item.event())

    def failure_of(self, row: AssignedPartition) -> Exception | None:
        """Take the waiting error of a partition, so that no poll raises it."""
        for item in list(self._items):
            if isinstance(item, Failure) and (item.owner is row or row in item.others):
                self._items.remove(item)
                self._taken(item)
                return item.error
        return None

    @property
    def waiting_bytes(self) -> int:
        """The bytes that only the user's next polls can free."""
        return self.put_bytes - self.taken_bytes - self.parked_bytes

    def __bool__(self) -> bool:
        """Whether something may be available."""
        return bool(self._items or self._current is not None or self._parked)

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """At most this number of records, from the partitions that arrived first.

        Raises a Failure's error, or CorruptRecordError, if no records are before it.
        """
        out: list[ConsumerRecord] = []
        while len(out) < max_records:
            records = self.head(raising=not out)
            if records is None:
                break
            try:
                records.take(out, max_records - len(out))
            except InvalidBatchError as error:
                if out:
                    break
                raise corrupt(records, error) from None
        return out

    def head(self, *, raising: bool = True) -> FetchedRecords | None:
        """The next source of records; None if there is nothing. Failures stay unless they may be
        raised.
        """
        if self._parked:
            self._unpark()
        while True:
            current = self._current
            if current is not None:
                if not current.is_drained and _is_current(current) and current.owner.may_hand_out:
                    return current
                self._put_aside(current)
            if not self._items:
                return None
            item = self._items[0]
            if isinstance(item, FetchedRecords):
                self._items.popleft()
                self._begin(item)
            elif isinstance(item, Loss):
                if not raising:
                    return None
                self._items.popleft()
                self._on_truncation(item.event())
            elif _is_current(item):
                if not raising:
                    return None
                self._items.popleft()
                self._taken(item)
                raise item.error
            else:
                self._items.popleft()
                self._drop(item)

    def _begin(self, item: FetchedRecords) -> None:
        row = item.owner
        if not _is_current(item):
            self._drop(item)
        elif not row.may_hand_out:
            self._park(item)
        else:
            position = row.position
            if position.offset > item.next_offset:
                # A take that ran while earlier data was discarded has moved it on.
                item.skip_to(position.offset)
            row.begin_handing_out(item)
            self._current = item

    def _put_aside(self, current: FetchedRecords) -> None:
        """Drop sources that are at their end, discarded, or paused."""
        self._current = None
        if current.owner.source is current:
            current.owner.end_handing_out()
        if not current.is_drained and _is_current(current):
            self._park(current)
        else:
            self._drop(current)

    def _drop(self, item: FetchedRecords | Failure) -> None:
        if isinstance(item, FetchedRecords):
            self.taken_bytes += item.size_bytes
        self._taken(item)

    def _park(self, item: FetchedRecords) -> None:
        self._parked.setdefault(item.tp, deque()).append(item)
        self.parked_bytes += item.size_bytes
        self._taken(None)

    def _unpark(self) -> None:
        for tp, items in list(self._parked.items()):
            row: Any = items[0].owner
            if row.may_hand_out or not _is_current(items[0]):
                del self._parked[tp]
                self.parked_bytes -= sum(
                    item.size_bytes for item in items if isinstance(item, FetchedRecords)
                )
                self._items.extendleft(reversed(items))


def _is_current(item: FetchedRecords | Failure) -> bool:
    if isinstance(item, Failure):
        return item.is_current
    return bool(item.version == item.owner.version)


def corrupt(records: FetchedRecords, error: InvalidBatchError) -> CorruptRecordError:
    """The error with the position."""
    after = records.offset_after_failure
    return CorruptRecordError(error, records.tp, records.next_offset, after)
