"""Which errors an answer has: at once and in steps."""

from __future__ import annotations

import pytest

from kstore.protocol.answered_errors import ROWS_BETWEEN, counting, error_counts
from kstore.protocol.groups.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def fetched(topics: int, partitions: int) -> OffsetFetchResponse:
    """Every third partition has error 3, and the group error 15."""
    rows = [
        OffsetFetchResponsePartitions(partition_index=index, error_code=0 if index % 3 else 3)
        for index in range(partitions)
    ]
    names = [OffsetFetchResponseTopics(name=f"t{number}", partitions=rows)
             for number in range(topics)]  # fmt: skip
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=names, error_code=15)]
    )


@pytest.mark.parametrize(("topics", "partitions"), [(1, 5000), (5000, 1), (80, 80), (0, 0)])
def test_many_rows_are_counted_in_steps(topics: int, partitions: int) -> None:
    answer = fetched(topics, partitions)
    steps, work = 0, counting(answer, 8)
    while True:
        try:
            next(work)
        except StopIteration as done:
            found = done.value
            break
        steps += 1
    wanted = {3: topics * -(-partitions // 3), 15: 1}
    assert found == error_counts(answer, 8) == {code: n for code, n in wanted.items() if n}
    assert steps >= topics * partitions // ROWS_BETWEEN


def test_an_answer_without_errors_has_none() -> None:
    assert error_counts(OffsetFetchResponse(), 8) is None
    work = counting(OffsetFetchResponse(), 8)
    next(work)
    with pytest.raises(StopIteration) as done:
        next(work)
    assert done.value.value is None
