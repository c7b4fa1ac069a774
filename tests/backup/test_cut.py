"""Where the logs of a backup are cut, so that their transactions and commits agree."""

from __future__ import annotations

import pytest

from kstore.backup.cut import (
    ONGOING,
    PREPARE_COMMIT,
    TailBatch,
    Transactions,
    consistent_end,
    end_of_commits,
)
from kstore.types import TopicPartition

KEY = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
EMPTY, COMPLETE_COMMIT = 0, 4


def data(offset: int, producer: int = 1, epoch: int = 0) -> TailBatch:
    return TailBatch(offset, producer, epoch, True, False, 0)


def marker(offset: int, producer: int = 1, epoch: int = 0, at: int = 50) -> TailBatch:
    return TailBatch(offset, producer, epoch, True, True, at)


def plain(offset: int) -> TailBatch:
    return TailBatch(offset, -1, -1, False, False, 0)


def known(*records: tuple[int, int, int, tuple[TopicPartition, ...], int, int]) -> Transactions:
    """Of (producer, epoch, status, partitions, updated, client version)."""
    made = Transactions()
    for record in records:
        made.take(*record)
    return made


def cut(transactions: Transactions, *tail: TailBatch, end: int = 100) -> int:
    return consistent_end(KEY, end, tail, transactions)


def test_what_belongs_to_no_transaction_stays() -> None:
    assert cut(known(), plain(10), plain(20)) == 100


@pytest.mark.parametrize(
    ("status", "cut_at"), [(ONGOING, 20), (PREPARE_COMMIT, 100), (COMPLETE_COMMIT, 20)]
)
def test_a_marker_of_a_decision_that_came_later_is_cut_off(status: int, cut_at: int) -> None:
    """With transaction.version 0 the epochs do not decide: the times do, and the pending
    offsets.
    """
    state = known((1, 0, status, (KEY,), 40, 0))
    assert cut(state, data(10), marker(20, at=50), end=100) == (
        cut_at if status != COMPLETE_COMMIT else 10
    )


def test_with_epochs_for_each_transaction_the_epoch_tells() -> None:
    state = known((1, 5, PREPARE_COMMIT, (KEY,), 40, 2), (1, 5, ONGOING, (KEY,), 60, 2))
    assert cut(state, data(10, epoch=4), marker(20, epoch=5, at=59), data(30, epoch=5)) == 100
    assert cut(state, marker(20, epoch=5), data(30, epoch=5), marker(40, epoch=6)) == 40


def test_only_one_pending_marker_is_explained() -> None:
    state = known((1, 0, PREPARE_COMMIT, (KEY,), 40, 0))
    assert cut(state, data(10), marker(20), data(30), marker(40)) == 40


def test_a_marker_from_before_is_explained() -> None:
    state = known((1, 0, ONGOING, (KEY,), 40, 0))
    assert cut(state, marker(20, at=39), data(30)) == 100


def test_a_transaction_that_the_coordinator_does_not_know_is_cut_off() -> None:
    assert cut(known(), plain(10), data(20), plain(30)) == 20
    elsewhere = known((1, 0, ONGOING, (OTHER,), 40, 0))
    assert cut(elsewhere, data(20)) == 20
    assert cut(known((1, 0, ONGOING, (KEY,), 40, 0)), data(20)) == 100


def test_batches_from_the_end_on_do_not_count() -> None:
    assert cut(known(), data(100), end=100) == 100


def test_commits_are_cut_before_the_first_that_is_beyond_its_log() -> None:
    def commit(at: int, *rows: tuple[TopicPartition, int]) -> TailBatch:
        return TailBatch(at, -1, -1, False, False, 0, rows)

    tail = [commit(5, (KEY, 10)), commit(6, (OTHER, 99)), commit(7, (KEY, 11))]
    assert end_of_commits(9, tail, {KEY: 10}) == 7
    assert end_of_commits(9, tail, {KEY: 11}) == 9
    assert end_of_commits(7, tail, {KEY: 10}) == 7
