"""The checker of per-key order: what it counts, against counting by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstore.clients.core.order_check import OrderChecker, Ranges
from kstore.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@given(st.lists(st.integers(0, 30)), st.none() | st.integers(0, 30))
def test_ranges_are_a_set(numbers: list[int], first: int | None) -> None:
    ranges = Ranges()
    seen: set[int] = set()
    for number in numbers:
        assert ranges.add(number) == (number not in seen)
        seen.add(number)
    missing = {n for a, b in ranges.gaps(first) for n in range(a, b + 1)}
    start = min(seen, default=0) if first is None else first
    assert missing == {n for n in range(start, max(seen, default=-1)) if n not in seen}
    assert ranges.largest == max(seen, default=None)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 12), st.booleans())))
def test_counts_are_those_by_hand(rows: list[tuple[bytes, int, bool]]) -> None:
    for by_partition in (False, True):
        checker = OrderChecker(by_partition=by_partition)
        seen: set[tuple[bytes, int]] = set()
        last: dict[tuple[bytes, bool], int] = {}
        duplicates = late = 0
        for offset, (key, number, second) in enumerate(rows):
            scope = key, second and by_partition
            if (key, number) in seen:
                duplicates += 1
            elif number < last.get(scope, -1):
                late += 1
            else:
                last[scope] = number
            seen.add((key, number))
            checker.see(key, number, B if second else A, offset)
        report = checker.report()
        assert (report.records, report.duplicates, report.out_of_order) == (
            len(rows), duplicates, late,
        )  # fmt: skip
        assert checker.numbers_seen() == len(seen)
        assert report.keys == len({key for key, _ in seen})


def test_a_key_that_is_overtaken_is_told_with_its_place() -> None:
    checker = OrderChecker(first=0)
    for number, tp, offset in ((0, A, 10), (2, B, 0), (1, A, 11), (5, B, 1)):
        checker.see(b"k", number, tp, offset)
    report = checker.report()
    assert (report.out_of_order, report.keys_out_of_order, report.missing) == (1, 1, 2)
    assert [str(finding) for finding in report.findings] == [
        "key 'k': 1 arrived after 2 at t-0 offset 11",
        "key 'k': 3 to 4 did not arrive",
    ]
    assert not report.is_good()


def test_what_is_allowed_does_not_count() -> None:
    checker = OrderChecker(first=0)
    for number in (0, 1, 1, 3):
        checker.see(b"k", number, A, number)
    report = checker.report()
    assert not report.is_good(duplicates_allowed=True)
    assert not report.is_good(gaps_allowed=True)
    assert report.is_good(duplicates_allowed=True, gaps_allowed=True)


def test_only_the_first_findings_are_kept() -> None:
    checker = OrderChecker(keep=3)
    for offset in range(50):
        checker.see(b"k", 0, A, offset)
    report = checker.report()
    assert report.duplicates == 49
    assert len(report.findings) == 3
