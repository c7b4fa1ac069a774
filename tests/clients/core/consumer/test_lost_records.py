"""Which records below a position are lost, against a model with unclean elections."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.clients.fetched import FetchedRecords
from kstore._fast.log.epoch_cache import EpochCache
from kstore.clients.core.consumer.epoch_history import EpochHistory
from kstore.clients.core.consumer.inbox import Inbox, Loss
from kstore.clients.core.consumer.lost_records import Divergence, LostRecords, lost_records
from kstore.clients.core.consumer.offset_check import OffsetFinding, check_offset
from kstore.clients.core.consumer.offset_epoch import encode
from kstore.clients.core.consumer.subscription import AssignedPartition, Position
from kstore.record import build_batch
from kstore.types import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 0)


def history_of(*entries: tuple[int, int]) -> EpochHistory:
    history = EpochHistory()
    for entry in entries:
        history.note(*entry)
    return history


def search(position: Position, history: EpochHistory, log: list[int]) -> Divergence:
    """The search, answered by a log that is given as the leader epoch of each of its offsets."""
    cache = EpochCache()
    for offset, epoch in enumerate(log):
        cache.assign_epoch(epoch, offset)
    latest = log[-1] if log else -1
    found = Divergence(position, history)
    while found.ask >= 0:
        if found.ask > latest:  # as Partition.end_offset_for_epoch: the leader has a later epoch
            found.on_epoch_end(found.ask if latest < 0 else latest, len(log))
        else:
            found.on_epoch_end(*cache.end_offset_for(found.ask, len(log)))
    return found


@pytest.mark.parametrize(
    ("log", "offset"),
    [
        ([1] * 10 + [3] * 10, 20),  # as it was read
        ([1] * 10 + [3] * 25, 20),  # and it continued
        ([1] * 10 + [3] * 4 + [4] * 30, 14),
        ([1] * 15 + [4] * 30, 10),  # the first leader had more of its epoch than the next one
        ([1] * 8, 8),
        ([1] * 8 + [4] * 30, 8),
        ([], 0),
        ([4] * 30, 0),
        ([1] * 5 + [2] * 10 + [5] * 30, 5),  # the leader of epoch 2 is back
        ([1] * 5 + [2] * 30, 5),  # and has more than the one of epoch 3 had
    ],
)
def test_what_was_read_is_lost_from_where_the_logs_part(log: list[int], offset: int) -> None:
    found = search(Position(20, 3), history_of((1, 0), (3, 10)), log)
    assert (found.offset, found.is_lost, found.is_exact) == (offset, offset < 20, True)


def test_a_commit_has_only_its_last_epoch_so_the_first_lost_offset_may_be_lower() -> None:
    found = search(Position(20, 3), EpochHistory(), [1] * 8 + [4] * 30)
    assert (found.offset, found.leader_epoch, found.is_exact) == (8, 1, False)
    same = search(Position(20, 3), EpochHistory(), [1] * 10 + [3] * 4 + [4] * 30)
    assert (same.offset, same.leader_epoch, same.is_exact) == (14, 3, True)
    double = search(Position(20, 3), EpochHistory(), [1] * 5 + [2] * 10 + [5] * 30)
    assert (double.offset, double.is_exact) == (15, False)  # 5 in truth


def test_a_position_at_the_end_of_an_epoch_without_records_is_there() -> None:
    """ListOffsets returns the leader's epoch although the leader has written nothing yet."""
    found = search(Position(8, 4), EpochHistory(), [1] * 8 + [5] * 3)
    assert not found.is_lost


def test_a_leader_that_knows_no_epochs_tells_no_offset() -> None:
    found = Divergence(Position(20, 3), history_of((3, 10)))
    found.on_epoch_end(-1, -1)
    assert (found.offset, found.is_lost, found.is_exact, found.ask) == (-1, True, False, -1)


REPLICAS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 6), st.sets(st.integers(0, 2))), max_size=12
)


@given(REPLICAS, st.integers(0, 2), st.integers(0, 80), st.integers(0, 2))
def test_against_a_model_of_unclean_elections(
    steps: list[tuple[int, int, set[int]]], read_of: int, begin: int, leader: int
) -> None:
    """Any of three replicas is elected, whatever it has; some followers copy it. A consumer has
    read the log of one, from some offset on, and validates its position at another.
    """
    logs: list[list[int]] = [[], [], []]
    for epoch, (elected, count, followers) in enumerate(steps):
        logs[elected] = logs[elected] + [epoch] * count
        for follower in followers:
            logs[follower] = list(logs[elected])
    own, log = logs[read_of], logs[leader]
    if begin >= len(own):
        return
    history = EpochHistory()
    for offset in range(begin, len(own)):
        history.note(own[offset], offset)
    position = Position(len(own), own[-1])
    common = 0
    while common < min(len(own), len(log)) and own[common] == log[common]:
        common += 1
    found = search(position, history, log)
    assert found.is_lost == (common < len(own))
    if found.is_lost:
        assert found.offset >= common  # existing records are never reported as lost
        assert not found.is_exact or found.offset == common
        assert found.is_exact or begin >= common  # it has read nothing that both have
        event = lost_records(TP, found, history, len(steps))
        assert event.first_leader_epoch in (-1, own[found.offset])
        assert (event.last_offset, event.last_leader_epoch) == (len(own) - 1, own[-1])


def test_fetched_records_say_where_leader_epochs_begin() -> None:
    data = b"".join(
        build_batch([b"x"] * count, base_offset=base, leader_epoch=epoch)
        for base, count, epoch in [(4, 2, 1), (6, 3, 1), (12, 1, 3)]
    )
    records = FetchedRecords(TP, data, start_offset=5)
    assert records.epoch_starts == [(1, 5), (3, 9)]  # from the record after the last one of epoch 1


def test_a_history_forgets_what_lies_above_an_offset() -> None:
    history = history_of((1, 0), (3, 10), (3, 15), (2, 16), (4, 20))
    assert history.entries == [(1, 0), (3, 10), (4, 20)]
    history.cut(20)
    assert history.entries == [(1, 0), (3, 10)]
    assert [history.epoch_at(offset) for offset in (-1, 0, 9, 10, 99)] == [-1, 1, 1, 3, 3]


EVENT = LostRecords("t", 0, 6, 9, 2, 3, 5, 4, is_exact=True)


def inbox_with(told: list[LostRecords], *items: Any) -> Inbox:
    inbox = Inbox(lambda item: None, told.append)
    for item in items:
        (inbox.lose if isinstance(item, Loss) else inbox.put)(item)
    return inbox


def test_a_loss_is_told_between_the_records_before_and_those_that_follow() -> None:
    row = AssignedPartition(TP, reading=True)
    row.seek(Position(0))
    first, second = (
        FetchedRecords(TP, build_batch([b"x"], base_offset=base), start_offset=base, owner=row,
                       version=row.version)
        for base in (0, 1)
    )  # fmt: skip
    told: list[LostRecords] = []
    inbox = inbox_with(told, first, Loss(EVENT, None), second)
    assert [record.offset for record in inbox.take(10)] == [0]
    assert told == []
    assert [record.offset for record in inbox.take(10)] == [1]
    assert told == [EVENT]


def test_what_was_handed_out_while_the_loss_was_looked_for_is_told_too() -> None:
    row = AssignedPartition(TP, reading=True)
    row.seek(Position(8))
    data = build_batch([b"x"] * 5, base_offset=8, leader_epoch=3)
    source = FetchedRecords(TP, data, start_offset=8, owner=row, version=row.version)
    told: list[LostRecords] = []
    inbox = inbox_with(told, Loss(EVENT, source), Loss(EVENT, source))
    source.take([], 2)
    assert inbox.take(1) == []
    assert told == [EVENT, EVENT]
    told.clear()
    inbox.lose(Loss(EVENT, source))
    source.take([], 2)
    inbox.report_losses()
    inbox.report_losses()
    assert told == [EVENT._replace(last_offset=11)]


def offset_epoch(partition_epoch: int, leader_epoch: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(20, "", leader_epoch, encode(partition_epoch, leader_epoch))


@pytest.mark.parametrize(
    ("committed", "end", "partition_epoch", "epoch_end", "finding", "wrong"),
    [
        (offset_epoch(5, 3), 30, 5, (3, 25), OffsetFinding.IN_LOG, False),
        (offset_epoch(5, 3), 30, -1, (3, 20), OffsetFinding.IN_LOG, False),
        (offset_epoch(5, 3), 30, 5, (3, 19), OffsetFinding.LOST, True),
        (offset_epoch(5, 3), 30, 5, (-1, -1), OffsetFinding.LOST, True),
        (offset_epoch(5, 3), 30, 6, (3, 25), OffsetFinding.OTHER_TOPIC, True),
        (OffsetAndMetadata(20, "", 3), 30, 6, (1, 8), OffsetFinding.LOST, True),
        (OffsetAndMetadata(20), 20, 5, None, OffsetFinding.UNCHECKED, False),
        (OffsetAndMetadata(20), 19, 5, None, OffsetFinding.BEYOND_END, True),
    ],
)
def test_a_committed_offset_is_compared_with_the_log(
    committed: OffsetAndMetadata,
    end: int,
    partition_epoch: int,
    epoch_end: tuple[int, int] | None,
    finding: OffsetFinding,
    wrong: bool,
) -> None:
    check = check_offset(TP, committed, end, partition_epoch, 4, epoch_end)
    assert (check.finding, check.is_wrong, check.end_offset) == (finding, wrong, end)
    assert (check.lost is not None) == (finding is OffsetFinding.LOST)
    if check.lost is not None and epoch_end is not None:
        assert check.lost.first_offset == epoch_end[1]
        assert (check.lost.last_offset, check.lost.current_leader_epoch) == (19, 4)


def test_a_loss_reads_as_a_sentence() -> None:
    assert str(EVENT) == (
        "t-0: the records from 6 to 9 (leader epoch 3) no longer exist in leader epoch 4"
    )
    assert "others below" in str(EVENT._replace(is_exact=False))
    assert "from an unknown offset to 9" in str(EVENT._replace(first_offset=-1, is_exact=False))
