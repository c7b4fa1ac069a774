"""Offsets that confluent-kafka's consumer stores: a commit that fails does not lose them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstore.clients.compat.confluent.model import TopicPartition
from kstore.clients.compat.confluent.stored import StoredOffsets
from kstore.errors import NotCoordinatorError

OWN = {"enable.auto.commit": True, "auto.commit.interval.ms": 0, "on_commit": None}


class Commits:
    """A consumer whose commits the test answers."""

    def __init__(self) -> None:
        self.sent: list[dict[Any, Any]] = []
        self.ended: list[Callable[[Any, Exception | None], None]] = []
        self.refusal: Exception | None = None

    def commit_async(self, offsets: dict[Any, Any], ended: Any) -> None:
        self.sent.append(offsets)
        self.ended.append(ended)

    def commit(self, offsets: dict[Any, Any]) -> None:
        """Keep a commit that ends at once."""
        self.sent.append(offsets)
        if self.refusal is not None:
            raise self.refusal

    def _end_commits(self) -> None:
        """All commits under way fail."""
        for ended in self.ended:
            ended({}, NotCoordinatorError())


@pytest.fixture
def commits() -> Commits:
    return Commits()


def stored(commits: Commits) -> StoredOffsets:
    """With offset 5 of t-0, whose automatic commit is under way."""
    consumer: Any = commits
    events: Any = None
    made = StoredOffsets(consumer, OWN, events)
    made.store(TopicPartition("t", 0, 5))
    made.commit_if_due()
    assert made.pending() == []
    return made


def sent(commits: Commits) -> list[int]:
    """The offsets in the commits, which are of one partition each."""
    return [row.offset for offsets in commits.sent for row in offsets.values()]


def test_a_commit_that_fails_is_tried_again_with_the_next(commits: Commits) -> None:
    offsets = stored(commits)
    commits.ended[0]({}, NotCoordinatorError())
    offsets.commit_if_due()
    assert commits.sent[1] == commits.sent[0]
    commits.ended[1]({}, None)
    assert offsets.pending() == []


def test_a_commit_that_fails_late_does_not_take_a_later_one_back(commits: Commits) -> None:
    offsets = stored(commits)
    offsets.store(TopicPartition("t", 0, 7))
    offsets.commit_if_due()
    commits.ended[0]({}, NotCoordinatorError())
    commits.ended[1]({}, None)
    assert offsets.pending() == []


def test_a_newer_offset_is_not_replaced_by_one_that_was_not_committed(commits: Commits) -> None:
    offsets = stored(commits)
    offsets.store(TopicPartition("t", 0, 7))
    commits.ended[0]({}, NotCoordinatorError())
    assert [row.offset for row in offsets.pending()] == [7]


def test_offsets_of_revoked_partitions_are_not_committed_again(commits: Commits) -> None:
    offsets = stored(commits)
    offsets.drop(TopicPartition("t", 0).pair)
    commits.ended[0]({}, NotCoordinatorError())
    assert offsets.pending() == []


def test_a_commit_under_way_is_repeated_before_its_partition_is_revoked(commits: Commits) -> None:
    """It may fail afterwards, when this member can no longer commit the partition."""
    offsets = stored(commits)
    offsets.commit_at_end({TopicPartition("t", 1).pair})
    assert len(commits.sent) == 1
    offsets.commit_at_end({TopicPartition("t", 0).pair})
    assert commits.sent[1] == commits.sent[0]
    commits.ended[0]({}, NotCoordinatorError())
    assert offsets.pending() == []


def test_a_commit_with_an_answer_is_not_repeated(commits: Commits) -> None:
    offsets = stored(commits)
    commits.ended[0]({}, None)
    offsets.commit_at_end({TopicPartition("t", 0).pair})
    assert len(commits.sent) == 1


@pytest.mark.parametrize("offset", [3, 7])
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_commit_under_way_is_not_repeated_after_a_later_one(
    commits: Commits, offset: int, is_stored: bool, waits: bool
) -> None:
    """It would take the later one back; an offset goes back itself only if the user wants it."""
    offsets = stored(commits)
    row = TopicPartition("t", 0, offset)
    if is_stored:
        offsets.store(row)
    if waits:
        offsets.commit_now([row])
    else:
        offsets.commit_soon([row])
        commits.ended[1]({}, None)
    offsets.commit_at_end({row.pair})
    assert sent(commits) == [5, offset]


def test_of_two_commits_under_way_the_later_one_is_repeated(commits: Commits) -> None:
    offsets = stored(commits)
    offsets.store(TopicPartition("t", 0, 7))
    offsets.commit_if_due()
    commits.ended[0]({}, None)
    offsets.commit_at_end({TopicPartition("t", 0).pair})
    assert sent(commits) == [5, 7, 7]


def test_a_commit_under_way_is_repeated_after_one_of_another_partition(commits: Commits) -> None:
    offsets = stored(commits)
    offsets.commit_now([TopicPartition("t", 1, 7)])
    offsets.commit_at_end({TopicPartition("t", 0).pair})
    assert sent(commits) == [5, 7, 5]


def test_a_commit_under_way_is_repeated_after_a_later_one_that_failed(commits: Commits) -> None:
    offsets = stored(commits)
    commits.refusal = NotCoordinatorError()
    with pytest.raises(NotCoordinatorError):
        offsets.commit_now([TopicPartition("t", 0, 7)])
    commits.refusal = None
    offsets.commit_at_end({TopicPartition("t", 0).pair})
    assert sent(commits) == [5, 7, 5]


@pytest.mark.parametrize("given", [False, True])
def test_the_user_may_change_a_row_while_its_commit_is_under_way(
    commits: Commits, given: bool
) -> None:
    consumer: Any = commits
    events: Any = None
    offsets = StoredOffsets(consumer, OWN, events)
    row = TopicPartition("t", 0, 5)
    offsets.store(row)
    if given:
        offsets.commit_soon([row])
    else:
        offsets.commit_if_due()
    row.offset = 7
    offsets.commit_at_end({row.pair})
    assert sent(commits) == [5, 5]
    commits.ended[0]({}, NotCoordinatorError())
    assert (row.offset, row.error) == (7, None)


def test_the_last_commit_has_the_offsets_of_one_under_way_that_fails(commits: Commits) -> None:
    offsets = stored(commits)
    offsets.commit_at_end()
    assert commits.sent[1] == commits.sent[0]
    assert offsets.pending() == []
