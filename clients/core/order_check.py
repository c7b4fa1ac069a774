"""Checks that records of one key arrive in the order of their numbers, without duplicates or gaps.

A writer numbers the records of each key in sequence. The checker gets records in the order in which
a consumer saw them. It reads nothing and prints nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from kstore.types import TopicPartition

__all__ = ["Finding", "OrderChecker", "OrderReport", "Ranges"]


class Finding(NamedTuple):
    """One violation: `kind` is out_of_order, duplicate or gap (`number` to `until`, inclusive)."""

    kind: str
    key: bytes
    number: int
    until: int
    tp: TopicPartition | None
    offset: int
    after: int
    """The largest earlier number of the key."""

    def __str__(self) -> str:
        key = self.key.decode("utf-8", "backslashreplace")
        if self.kind == "gap":
            span = (
                f"{self.number}" if self.number == self.until else f"{self.number} to {self.until}"
            )
            return f"key {key!r}: {span} did not arrive"
        where = "" if self.tp is None else f" at {self.tp} offset {self.offset}"
        if self.kind == "duplicate":
            return f"key {key!r}: {self.number} arrived again{where}"
        return f"key {key!r}: {self.number} arrived after {self.after}{where}"


class Ranges:
    """A set of integers as ascending ranges: small if they arrive nearly in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # exclusive

    def add(self, number: int) -> bool:
        """Add a number; returns False if it was in the set."""
        starts, ends = self._starts, self._ends
        if ends and number == ends[-1]:
            ends[-1] += 1
            return True
        at = bisect_right(starts, number)
        if at and number < ends[at - 1]:
            return False
        joins_left = at > 0 and ends[at - 1] == number
        joins_right = at < len(starts) and starts[at] == number + 1
        if joins_left and joins_right:
            ends[at - 1] = ends[at]
            del starts[at], ends[at]
        elif joins_left:
            ends[at - 1] += 1
        elif joins_right:
            starts[at] = number
        else:
            starts.insert(at, number)
            ends.insert(at, number + 1)
        return True

    def gaps(self, first: int | None = None) -> list[tuple[int, int]]:
        """The missing numbers below the largest one, from `first` (None: the smallest) on, as
        inclusive ranges.
        """
        if not self._starts:
            return []
        found = list(zip(self._ends[:-1], (s - 1 for s in self._starts[1:]), strict=True))
        if first is not None:
            at = bisect_left([until for _, until in found], first)
            found = [(max(a, first), b) for a, b in found[at:]]
            if first < self._starts[0]:
                found.insert(0, (first, self._starts[0] - 1))
        return found

    @property
    def largest(self) -> int | None:
        """The largest number."""
        return self._ends[-1] - 1 if self._ends else None


@dataclass(slots=True)
class OrderReport:
    """The result. `findings` are the first ones of each kind."""

    records: int = 0
    keys: int = 0
    unreadable: int = 0
    out_of_order: int = 0
    duplicates: int = 0
    missing: int = 0
    keys_out_of_order: int = 0
    findings: list[Finding] = field(default_factory=list)

    def is_good(self, *, duplicates_allowed: bool = False, gaps_allowed: bool = False) -> bool:
        """Whether there are only allowed findings."""
        return (
            not self.out_of_order
            and (duplicates_allowed or not self.duplicates)
            and (gaps_allowed or not self.missing)
        )


@dataclass(slots=True)
class _Key:
    seen: Ranges = field(default_factory=Ranges)
    last: dict[int, int] = field(default_factory=dict)  # by partition, or -1: over all
    is_bad: bool = False
    count: int | None = None

    def gaps(self, first: int | None) -> list[tuple[int, int]]:
        if self.count is None:
            return self.seen.gaps(first)
        largest = self.seen.largest
        found = self.seen.gaps(0)
        end = 0 if largest is None else largest + 1
        return [*found, (end, self.count - 1)] if end < self.count else found


class OrderChecker:
    """`by_partition`: check the order of each partition's log; otherwise the order in which the
    records are passed in, as a consumer saw them. Duplicates and gaps always count over all
    partitions. `first` is each key's first number; None: any.
    """

    def __init__(
        self, *, by_partition: bool = False, first: int | None = None, keep: int = 20
    ) -> None:
        self._by_partition = by_partition
        self._first = first
        self._keep = keep
        self._keys: dict[bytes, _Key] = {}
        self._counts: dict[str, int] = {}
        self._report = OrderReport()

    def see(self, key: bytes, number: int, tp: TopicPartition | None, offset: int) -> None:
        """Check the next record."""
        report = self._report
        report.records += 1
        state = self._keys.get(key)
        if state is None:
            state = self._keys[key] = _Key()
        scope = tp.partition if self._by_partition and tp is not None else -1
        last = state.last.get(scope)
        if not state.seen.add(number):
            report.duplicates += 1
            self._add_finding("duplicate", key, number, tp, offset, last)
        elif last is not None and number < last:
            report.out_of_order += 1
            report.keys_out_of_order += not state.is_bad
            state.is_bad = True
            self._add_finding("out_of_order", key, number, tp, offset, last)
        else:
            state.last[scope] = number

    def see_end(self, key: bytes, count: int) -> None:
        """The key's numbers are 0 to below `count`: those that have not arrived by now are gaps."""
        self._keys.setdefault(key, _Key()).count = count

    def unreadable(self) -> None:
        """Count a record without key or number."""
        self._report.unreadable += 1

    def numbers_seen(self) -> int:
        """The number of different numbers, over all keys."""
        return self._report.records - self._report.duplicates

    def report(self) -> OrderReport:
        """The findings so far; missing numbers below a key's largest number are gaps."""
        found = self._report
        found.keys = len(self._keys)
        gaps = [
            Finding("gap", key, start, until, None, -1, state.seen.largest or 0)
            for key, state in self._keys.items()
            for start, until in state.gaps(self._first)
        ]
        found.missing = sum(gap.until - gap.number + 1 for gap in gaps)
        kept = [finding for finding in found.findings if finding.kind != "gap"]
        found.findings = kept + gaps[: self._keep]
        return found

    def _add_finding(
        self,
        kind: str,
        key: bytes,
        number: int,
        tp: TopicPartition | None,
        offset: int,
        last: int | None,
    ) -> None:
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= self._keep:
            after = -1 if last is None else last
            self._report.findings.append(Finding(kind, key, number, number, tp, offset, after))
