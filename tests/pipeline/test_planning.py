"""What a micro-batch reads under a limit, how ranges are split into tasks, and when a new partition
has to wait.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstore.clients.core.group.expansion_gate import PriorEpoch
from kstore.pipeline.planning import is_held_back, rate_limited, split
from kstore.pipeline.ranges import OffsetRange
from kstore.types import TopicPartition

SIZES = st.lists(st.integers(0, 5000), min_size=1, max_size=8)
A, B, C = (TopicPartition("t", index) for index in range(3))


def ranges(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", place, 7, 7 + size, 3) for place, size in enumerate(sizes)]


@given(SIZES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 2000))
def test_the_tasks_cover_every_offset_once_and_none_is_empty_or_too_large(
    sizes: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    parts = split(ranges(sizes), min_partitions, max_records)
    for place, size in enumerate(sizes):
        edges = [(part.start, part.end) for part in parts if part.partition == place]
        offsets = [offset for start, end in edges for offset in range(start, end)]
        assert offsets == list(range(7, 7 + size))
    assert all(part.size > 0 for part in parts)
    assert max_records is None or all(part.size <= max_records for part in parts)


def test_one_task_for_each_partition_unless_more_are_asked_for() -> None:
    assert [part.size for part in split(ranges([10, 0, 30]), None, None)] == [10, 30]
    assert [part.size for part in split(ranges([10, 30]), 2, None)] == [10, 30]


def test_minpartitions_cuts_the_large_ones() -> None:
    assert [part.size for part in split(ranges([10, 1000]), 5, None)] == [10, 250, 250, 250, 250]


def test_an_epoch_belongs_to_the_first_task_of_a_range_only() -> None:
    assert [part.leader_epoch for part in split(ranges([30]), 3, None)] == [3, -1, -1]


@given(SIZES, st.integers(1, 3000))
def test_a_limit_is_shared_by_size_and_every_partition_gets_on(
    sizes: list[int], limit: int
) -> None:
    begin = {TopicPartition("t", place): 5 for place in range(len(sizes))}
    end = {tp: 5 + size for tp, size in zip(begin, sizes, strict=True)}
    found = rate_limited(begin, end, limit)
    assert all(begin[tp] <= found[tp] <= end[tp] for tp in end)
    assert all(found[tp] > begin[tp] for tp in end if end[tp] > begin[tp])
    taken = sum(found[tp] - begin[tp] for tp in end)
    assert taken < limit + len(sizes)
    if sum(sizes) <= limit:
        assert found == end


def test_a_new_partition_waits_until_those_before_it_were_read_to_their_thresholds() -> None:
    priors = [PriorEpoch(A, 0), PriorEpoch(B, 2)]
    thresholds = {priors[0]: 10, priors[1]: 20}
    assert is_held_back(priors, thresholds, {A: 10, B: 19, C: 0})
    assert not is_held_back(priors, thresholds, {A: 10, B: 20, C: 0})
    assert is_held_back(priors, {priors[0]: 10}, {A: 10, B: 20, C: 0}), "one is not known yet"


def test_a_prior_partition_that_the_query_does_not_read_holds_nothing_back() -> None:
    assert not is_held_back([PriorEpoch(A, 0)], {PriorEpoch(A, 0): 10}, {C: 0})
