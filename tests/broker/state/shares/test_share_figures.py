"""The metrics of share groups."""

from __future__ import annotations

from uuid import UUID

from kstore.broker.state.shares import share_figures
from kstore.broker.state.shares.share_figures import PartitionFigures, ShareFigures


def test_acknowledged_records_are_counted_by_type() -> None:
    figures = ShareFigures()
    # One type for a range, one for each of its records; 0 is a gap, which is no record.
    figures.acknowledge([(0, 9, b"\1"), (10, 14, b"\1\2\3\0\4"), (20, 20, b"\0")])
    assert figures.acknowledged == {1: 11, 2: 1, 3: 1, 4: 1}


def test_the_ratio_is_of_the_time_since_the_fetch_before() -> None:
    figures = PartitionFigures()
    figures.lock_ended(0, 10)
    assert figures.lock_ratio.count == 0
    figures.lock_ended(40, 50)  # 10 of 40
    figures.lock_ended(50, 60)  # all of it
    figures.lock_ended(60, 60)
    assert (figures.lock_ratio.count, figures.lock_ratio.total) == (3, 125)
    assert (figures.lock_us.count, figures.lock_us.total) == (4, 30)


def test_groups_beyond_the_limit_are_counted_together() -> None:
    figures = ShareFigures()
    for number in range(share_figures.MOST_GROUPS + 10):
        figures.fetched(f"g{number}", requested=4, acquired=number % 2, took_us=5)
    assert len(figures.groups) == share_figures.MOST_GROUPS + 1
    others = figures.groups[share_figures.OTHERS]
    assert (others.fetch_ratio.count, others.fetch_ratio.total) == (10, 125)
    assert others.acquire_us.count == 5


def test_topics_are_counted_by_themselves_and_together() -> None:
    figures = ShareFigures()
    one, other = UUID(int=1), UUID(int=2)
    figures.topic_fetched(one, failed=False)
    figures.topic_fetched(other, failed=True)
    figures.topic_acknowledged(other, failed=True)
    assert (figures.of_all.fetches, figures.of_all.fetches_failed) == (2, 1)
    assert (figures.topics[one].fetches, figures.topics[one].acknowledgements) == (1, 0)
    assert figures.topics[other].acknowledgements_failed == 1
