"""The leader-epoch cache against a list of entries, and the rules of KIP-101 and KIP-279."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.log.epoch_cache import EpochCache

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 12), st.integers(0, 60)),
        st.tuples(st.just("end"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 60), st.just(0)),
    ),
    max_size=30,
)


class NaiveCache:
    """The same by lists and loops."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def assign(self, epoch: int, offset: int) -> None:
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= offset:
            return
        self.entries = [(e, o) for e, o in self.entries if e < epoch and o < offset]
        self.entries.append((epoch, offset))

    def end(self, offset: int) -> None:
        self.entries = [(e, o) for e, o in self.entries if o < offset]

    def start(self, offset: int) -> None:
        before = [(e, o) for e, o in self.entries if o <= offset]
        after = [(e, o) for e, o in self.entries if o > offset]
        self.entries = ([(before[-1][0], offset)] if before else []) + after

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        if not self.entries or epoch < 0 or epoch > self.entries[-1][0]:
            return -1, -1
        if epoch == self.entries[-1][0]:
            return epoch, log_end_offset
        floor = max((e for e, _ in self.entries if e <= epoch), default=epoch)
        return floor, next(o for e, o in self.entries if e > epoch)


@given(OPERATIONS, st.integers(-1, 13))
def test_it_is_what_the_naive_one_is(operations, asked) -> None:
    cache, naive = EpochCache(), NaiveCache()
    for name, first, second in operations:
        if name == "assign":
            cache.assign_epoch(first, second)
            naive.assign(first, second)
        elif name == "end":
            cache.truncate_from_end(first)
            naive.end(first)
        else:
            cache.truncate_from_start(first)
            naive.start(first)
        entries = cache.as_list()
        assert entries == naive.entries
        assert entries == sorted(set(entries))
        assert len({offset for _, offset in entries}) == len(entries)
    assert cache.end_offset_for(asked, 100) == naive.end_offset_for(asked, 100)


def test_end_offsets_are_where_the_next_epoch_begins() -> None:
    cache = EpochCache([(2, 10), (5, 30)])
    assert cache.end_offset_for(5, 99) == (5, 99)
    assert cache.end_offset_for(2, 99) == (2, 30)
    assert cache.end_offset_for(4, 99) == (2, 30)
    assert cache.end_offset_for(1, 99) == (1, 10)
    assert cache.end_offset_for(6, 99) == (-1, -1)
    assert cache.end_offset_for(-1, 99) == (-1, -1)


def test_an_epoch_is_known_by_offset() -> None:
    cache = EpochCache([(2, 10), (5, 30)])
    assert [cache.epoch_for_offset(o) for o in (9, 10, 29, 30)] == [None, 2, 2, 5]


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        EpochCache().assign_epoch(-1, 0)
