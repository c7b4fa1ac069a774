"""A slow model of the records of a share-partition that are in flight: one entry for each offset.

It decides as kstore._fast.shares.in_flight does, and shares no code with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
INVALID_REQUEST, INVALID_RECORD_STATE = 42, 121
RELEASE, ACCEPT, RENEW = 2, 1, 4


class LogBatch(NamedTuple):
    """A batch of the log: its first and last offset, and its producer if it is transactional."""

    first: int
    last: int
    producer_id: int = -1


@dataclass
class Entry:
    """One offset."""

    state: int
    deliveries: int = 0
    owner: int = 0
    deadline: int = -1
    token: int = 0
    lasts: bool = False
    group: tuple[int, int] = (0, 1)
    """Where the range began that it was first acquired with, and its size."""


class ShareModel:
    """What is in flight from `start` on."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.entries: dict[int, Entry] = {}

    @property
    def end(self) -> int:
        """The last offset in flight."""
        return max(self.entries, default=self.start - 1)

    def next_fetch_offset(self) -> int:
        """The first that can be acquired."""
        for offset, entry in sorted(self.entries.items()):
            if entry.state == AVAILABLE and not entry.token:
                return offset
        return self.end + 1

    def count(self) -> int:
        """How many are not done."""
        return sum(1 for entry in self.entries.values() if not _done(entry))

    def states(self) -> list[tuple[int, int, int, int]]:
        """(offset, state, deliveries, token) of all."""
        return [(o, e.state, e.deliveries, e.token) for o, e in sorted(self.entries.items())]

    def _tidy(self) -> None:
        while self.start in self.entries and _done(self.entries[self.start]):
            del self.entries[self.start]
            self.start += 1

    def _skip(self, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            if offset in self.entries:
                entry = self.entries[offset]
                if entry.state == AVAILABLE and not entry.token:
                    entry.state = ARCHIVED
            elif not self.entries:
                self.start = offset + 1
            else:
                self.entries[offset] = Entry(ARCHIVED)

    def acquire(
        self,
        owner: int,
        log: Sequence[LogBatch],
        fetch_offset: int,
        *,
        deadline: int,
        max_records: int,
        batch_size: int,
        max_in_flight: int,
        max_deliveries: int,
        record_limit: bool,
        aborted: Iterable[tuple[int, int, int]] = (),
    ) -> list[int]:
        """The offsets acquired."""
        if not log:
            return []
        self._skip(fetch_offset, log[0].first - 1)
        first, last = max(fetch_offset, log[0].first), log[-1].last
        got: list[int] = []
        ended = self._again(
            got, owner, log, first, last, deadline, max_records, max_deliveries, record_limit
        )
        if not ended and len(got) < max_records and last > self.end:
            room = min(max_records - len(got), max_in_flight - self.count())
            begin = max(self.end + 1, first)
            if room > 0 and begin <= last:
                self._skip(self.end + 1, begin - 1)
                upto = _limit(log, begin, last, room, record_limit)
                for offset in range(begin, upto + 1):
                    self.entries[offset] = Entry(
                        ACQUIRED, 1, owner, deadline, group=(begin, upto - begin + 1)
                    )
                    got.append(offset)
        for batch in log:
            if any(p == batch.producer_id and a <= batch.first <= b for p, a, b in aborted):
                for offset in [o for o in got if batch.first <= o <= batch.last]:
                    self.entries[offset].state = ARCHIVED
                    got.remove(offset)
        self._tidy()
        return got

    def _again(
        self,
        got: list[int],
        owner: int,
        log: Sequence[LogBatch],
        first: int,
        last: int,
        deadline: int,
        max_records: int,
        max_deliveries: int,
        record_limit: bool,
    ) -> bool:
        limit = max(2, (max_deliveries + 1) // 2)
        left, throttled_group = -1, None
        run: tuple[object, ...] = ()
        upto = -1
        for offset, entry in sorted(self.entries.items()):
            if not first <= offset <= last:
                continue
            if entry.state != AVAILABLE or entry.token:
                run = ()
                continue
            throttled = max_deliveries > 2 and entry.deliveries >= limit
            if throttled_group is not None and (left == 0 or entry.group != throttled_group):
                return True
            if throttled and throttled_group is None:
                if got:
                    return True
                throttled_group = entry.group
                left = max(1, entry.group[1] >> (entry.deliveries - limit + 1))
                if record_limit:
                    left = min(left, max_records)
            if throttled_group is not None:
                if entry.deliveries == max_deliveries - 1:
                    if got:
                        return True
                    left = 1
                left -= 1
            else:
                kind = (entry.deliveries, entry.group)
                if kind != run or offset > upto:
                    if len(got) >= max_records:
                        return False
                    same = offset
                    while same < last and self._is_like(same + 1, entry):
                        same += 1
                    run = kind
                    upto = _limit(log, offset, same, max_records - len(got), record_limit)
            entry.state, entry.owner, entry.deadline = ACQUIRED, owner, deadline
            entry.deliveries += 1
            got.append(offset)
        return throttled_group is not None

    def _is_like(self, offset: int, entry: Entry) -> bool:
        other = self.entries.get(offset)
        return (
            other is not None
            and other.state == AVAILABLE
            and not other.token
            and (other.deliveries, other.group) == (entry.deliveries, entry.group)
        )

    def acknowledge(
        self,
        owner: int,
        batches: Sequence[tuple[int, int, bytes]],
        token: int,
        *,
        max_deliveries: int,
        deadline: int,
    ) -> int:
        """The error code."""
        for first, last, _ in batches:
            if last < self.start:
                continue
            if not self.entries:
                return INVALID_RECORD_STATE
            if last > self.end:
                return INVALID_REQUEST
            for offset in range(max(first, self.start), last + 1):
                entry = self.entries[offset]
                if entry.state != ACQUIRED or entry.owner != owner or entry.token:
                    return INVALID_RECORD_STATE
        for first, last, types in batches:
            for offset in range(max(first, self.start), last + 1):
                kind = types[offset - first] if len(types) > 1 else types[0]
                entry = self.entries[offset]
                if kind == RENEW:
                    entry.deadline = deadline
                    continue
                entry.token = token
                entry.state = ACKNOWLEDGED if kind == ACCEPT else ARCHIVED
                if kind == RELEASE and entry.deliveries < max_deliveries:
                    entry.state = AVAILABLE
        return 0

    def release(self, owner: int, token: int, *, max_deliveries: int) -> bool:
        """Whether there was something."""
        return self._end_locks(token, max_deliveries, lambda entry: entry.owner == owner) > 0

    def expire(self, now: int, token: int, *, max_deliveries: int) -> int:
        """How many records there were."""
        return self._end_locks(token, max_deliveries, lambda entry: entry.deadline <= now)

    def _end_locks(self, token: int, max_deliveries: int, meant: object) -> int:
        found = 0
        for entry in self.entries.values():
            if entry.state == ACQUIRED and meant(entry):  # type: ignore[operator]
                entry.state = AVAILABLE if entry.deliveries < max_deliveries else ARCHIVED
                entry.token, entry.lasts = token, True
                found += 1
        return found

    def commit(self, token: int) -> None:
        """It is kept."""
        for entry in self.entries.values():
            if entry.token == token:
                entry.token, entry.lasts = 0, False
        self._tidy()

    def roll_back(self, token: int) -> None:
        """It is not."""
        for entry in self.entries.values():
            if entry.token == token:
                if not entry.lasts:
                    entry.state = ACQUIRED
                entry.token, entry.lasts = 0, False
        self._tidy()

    def set_log_start(self, offset: int) -> None:
        """Everything below is removed."""
        if offset > self.start:
            for below in [o for o in self.entries if o < offset]:
                del self.entries[below]
            self.start = offset
            self._tidy()


def _done(entry: Entry) -> bool:
    return entry.state >= ACKNOWLEDGED and not entry.token


def _limit(log: Sequence[LogBatch], first: int, last: int, most: int, record_limit: bool) -> int:
    """How far a range goes."""
    wanted = first + most - 1
    if wanted >= last:
        return last
    if record_limit:
        return wanted
    ends = [batch.last for batch in log if batch.first <= wanted <= batch.last]
    return min(ends[0] if ends else wanted, last)
