"""Threads may append a follower's copied data: the partition is fetched again after the append."""

from __future__ import annotations

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from tests.fast.broker.test_produce_appends import Threads
from tests.fast.replication.test_replica_fetcher import IDS, Leader, leader, named, part, records

__all__ = ["leader"]


def begin_threads(leader: Leader) -> Threads:
    """Threads to which all appends are left."""
    leader.dir.appends.calm.over_budget = True
    return Threads(leader)


def test_a_partition_that_a_thread_appends_to_is_asked_for_when_it_has(leader: Leader) -> None:
    threads = begin_threads(leader)
    slow, other = leader.follow("t", 0), leader.follow("t", 1)
    leader.connect()
    leader.asked()
    leader.answer(("t", part(0, records(0, 3), high_watermark=3)), ("t", part(1)))
    beside = leader.asked()
    assert [(t.topic_id, t.partitions) for t in beside.forgotten_topics_data] == [(IDS["t"], [0])]
    assert named(beside) == {}
    threads.run()
    assert named(leader.asked()) == {(IDS["t"], 0): (5, 3, 5)}
    assert (slow.partition.log_end_offset, slow.partition.high_watermark) == (3, 3)
    assert not other.held


@pytest.mark.parametrize(("size", "left_to_threads"), [(200_000, 0), (300_000, 1)])
def test_what_came_of_some_batches_is_appended_at_once(
    leader: Leader, size: int, left_to_threads: int
) -> None:
    threads = begin_threads(leader)
    leader.dir.appends.calm.over_budget = False
    followed, other = leader.follow("t", 0), leader.follow("t", 1)
    leader.connect()
    leader.asked()
    large = build_batch([b"l" * size], timestamp=1, leader_epoch=5)
    leader.answer(("t", part(0, large, high_watermark=1)), ("t", part(1)))
    assert len(threads.runs) == left_to_threads
    assert followed.partition.log_end_offset == 1 - left_to_threads
    asked = leader.asked()
    assert len(asked.forgotten_topics_data) == left_to_threads
    assert named(asked) == ({} if left_to_threads else {(IDS["t"], 0): (5, 1, 5)})
    assert not other.held


def test_what_threads_append_stays_where_it_is_while_more_comes(leader: Leader) -> None:
    threads = begin_threads(leader)
    for index in range(3):
        leader.follow("t", index)
    leader.connect()
    leader.asked()
    large = build_batch([b"l" * 300_000], timestamp=1, leader_epoch=5)
    for index in range(3):
        leader.answer(("t", part(index, large, high_watermark=1)), piece=40_000)
        assert len(leader.all_asked()) == (index < 2), "nobody asks while all are appended to"
    leader.fetcher.connection_lost(None)
    for _ in range(3):
        threads.run()
    for index in range(3):
        found = leader.table.partition(b"t", index)
        assert found is not None
        assert [record.value for record in found.log.read(0)] == [b"l" * 300_000]


def test_an_append_of_a_thread_that_fails_is_the_owners(leader: Leader) -> None:
    threads = begin_threads(leader)
    followed = leader.follow("t", 0)
    leader.connect()
    leader.asked()
    broken = bytearray(records(0))
    broken[-1] ^= 1
    leader.answer(("t", part(0, bytes(broken))))
    threads.run()
    assert leader.owner.calls == [("refused_append", followed.key, ErrorCode.CORRUPT_MESSAGE)]
    assert followed.held


def test_who_leads_meanwhile_takes_nothing_that_its_leader_had_sent(leader: Leader) -> None:
    threads = begin_threads(leader)
    followed = leader.follow("t", 0)
    leader.connect()
    leader.asked()
    leader.answer(("t", part(0, records(0))))
    leader.fetcher.remove(followed)
    followed.partition.lead(6, 1, (2,), (2,))
    threads.run()
    assert followed.partition.log_end_offset == 0
    assert leader.owner.calls == []
