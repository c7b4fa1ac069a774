"""Where a table continues to read, and when it must not be continued."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.brokers import Partition, Topic
from kstore.pipeline.jobs.scans.scan import Range
from kstore.pipeline.jobs.tables.progress import (
    Progress,
    TablePosition,
    check_history,
    first_progress,
    note_is_due,
    plan_round,
    tombstones_may_be_gone,
)


def topic(*spans: tuple[int, int], topic_id: str = "one", epoch: int = 7) -> Topic:
    parts = tuple(Partition("t", n, s, e, 3, epoch) for n, (s, e) in enumerate(spans))
    return Topic("t", topic_id, parts)


def progress(*positions: int) -> Progress:
    at = {n: TablePosition(offset, 2) for n, offset in enumerate(positions)}
    return Progress("t", "one", 7, "cluster", "all", 1000, at)


def plan(now: Topic, known: Progress, ends: dict[int, int] | None = None, **options: object):  # type: ignore[no-untyped-def]
    given = {"now_ms": 2000, "on_loss": "fail"} | options
    return plan_round(now, known, ends or {}, **given)  # type: ignore[arg-type]


def test_it_reads_on_where_its_rows_end() -> None:
    found = plan(topic((0, 10), (5, 5), (0, 8)), progress(4, 5, 8))
    assert found.ranges == (Range("t", 0, 4, 10),)
    assert found.after == replace(
        progress(),
        read_ms=2000,
        positions={0: TablePosition(10, 3), 1: TablePosition(5, 3), 2: TablePosition(8, 3)},
    )


def test_it_is_the_same_after_it_was_text() -> None:
    assert Progress.parse(progress(4, 5).text()) == progress(4, 5)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version":1,"partitions":{"x":1}}'])
def test_a_note_of_another_hand_is_an_error(text: str) -> None:
    with pytest.raises(JobError, match="which kstore did not write"):
        Progress.parse(text)


def test_a_later_version_is_an_error() -> None:
    with pytest.raises(JobError, match="install a newer one"):
        Progress.parse('{"version":2}')


def test_a_commit_has_at_most_so_many_offsets_and_the_next_one_goes_on() -> None:
    now, known, read = topic((0, 10), (0, 10)), progress(0, 0), []
    for _ in range(4):
        found = plan(now, known, max_offsets=6)
        assert found.offsets <= 6
        read += found.ranges
        known = found.after
    assert [(r.partition, r.start, r.end) for r in read] == [
        (0, 0, 6), (0, 6, 10), (1, 0, 2), (1, 2, 8), (1, 8, 10),
    ]  # fmt: skip


def test_what_is_not_read_yet_may_have_tombstones_of_rows_that_are() -> None:
    now, known = topic((0, 10), (0, 10)), progress(0, 0)
    for read_ms in (1000, 1000, 1000, 5000):  # the fourth commit has arrived at both ends
        known = plan(now, known, max_offsets=6, now_ms=5000).after
        assert known.read_ms == read_ms


def test_a_partition_of_an_expansion_is_read_from_its_first_offset() -> None:
    assert plan(topic((0, 4), (0, 3)), progress(4)).ranges == (Range("t", 1, 0, 3),)


def test_what_was_deleted_before_the_table_had_it_is_an_error() -> None:
    with pytest.raises(JobError, match="partition 0: offsets 4 to 6 were deleted"):
        plan(topic((7, 10)), progress(4))
    # Also in a partition that is new to the table.
    with pytest.raises(JobError, match="partition 1: offsets 0 to 1 were deleted"):
        plan(topic((0, 4), (2, 3)), progress(4))
    said: list[str] = []
    found = plan(topic((7, 10)), progress(4), on_loss="skip", report=said.append)
    assert found.ranges == (Range("t", 0, 7, 10),)
    assert found.lost == (Range("t", 0, 4, 7),)
    assert "continuing at 7" in said[0]


def test_a_new_table_knows_where_it_begins_before_it_reads() -> None:
    first = first_progress(topic((5, 9)), "cluster", "all", 1000)
    assert plan(topic((5, 9)), first).ranges == (Range("t", 0, 5, 9),)
    with pytest.raises(JobError, match="offsets 5 to 6 were deleted"):
        plan(topic((7, 9)), first)


@pytest.mark.parametrize(
    ("now", "ends", "said"),
    [
        (topic((0, 9), topic_id="two", epoch=8), {}, "deleted and created again"),
        (topic((0, 9), topic_id="", epoch=8), {}, "deleted and created again"),
        (topic((0, 3)), {}, "read to offset 4, and the log ends at 3"),
        (topic((0, 9)), {0: 3}, "epoch 2, and that epoch ends at 3 .* unclean"),
        (topic(), {}, "rows of partition 0, which the topic does not have"),
    ],
)
def test_a_table_of_other_records_is_not_continued(
    now: Topic, ends: dict[int, int], said: str
) -> None:
    with pytest.raises(JobError, match=said):
        plan(now, progress(4), ends)
    with pytest.raises(JobError, match=said):
        check_history(now, progress(4), ends)


def test_where_topics_have_no_ids_the_clusters_say_whether_it_is_the_same() -> None:
    old, same = topic((0, 9), topic_id="", epoch=-1), topic((0, 9))
    with pytest.raises(JobError, match="written from cluster cluster, and this is cluster other"):
        plan(old, progress(4), cluster_id="other")
    assert plan(old, progress(4), cluster_id="cluster").offsets == 5
    assert plan(same, progress(4), cluster_id="other").offsets == 5


def test_an_epoch_that_ends_where_the_rows_end_is_the_same_history() -> None:
    assert plan(topic((0, 9)), progress(4), {0: 4}).offsets == 5
    check_history(topic((0, 9), (0, 1)), progress(4), {0: 4})


COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}


@pytest.mark.parametrize(
    ("configs", "now_ms", "gone"),
    [
        (COMPACT, 1999, False),
        (COMPACT, 2000, True),
        (COMPACT | {"cleanup.policy": "delete, compact"}, 2000, True),
        (COMPACT | {"cleanup.policy": "delete"}, 9999, False),
        ({}, 9999, False),
    ],
)
def test_tombstones_stay_for_delete_retention_ms(
    configs: dict[str, str | None], now_ms: int, gone: bool
) -> None:
    assert tombstones_may_be_gone(progress(4), configs, now_ms) is gone


def test_a_quiet_topic_is_noted_well_before_that() -> None:
    assert not note_is_due(progress(4), dict(COMPACT), 1249)
    assert note_is_due(progress(4), dict(COMPACT), 1250)
