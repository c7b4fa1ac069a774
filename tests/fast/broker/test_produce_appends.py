"""Threads append produced batches that may wait for the disk: once, in order, alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import ProduceRequest
from tests.broker.harness.plane_harness import NODE_ID, Plane
from tests.record_requests import produce_request

VERSION = 9
LIMITS = {"partitions": 4}
BULK = b"b" * 70_000


class Threads:
    """Stands for a log dir's threads: appends are done when the test says so."""

    def __init__(self, plane: Any) -> None:
        self.runs: list[Callable[[], bool]] = []
        self.loop = plane.loop
        plane.dir.appends.serve(plane.loop.call_soon, self.runs.append)

    def run(self, count: int = 1) -> None:
        """Do this number of appends, and report them to the loop together."""
        for _ in range(count):
            assert self.runs.pop(0)()
        self.loop.turn()


def batch(value: bytes, **more: Any) -> bytes:
    return build_batch([value], timestamp=1, **more)


request = partial(produce_request, "t")


def values(plane: Plane, index: int = 0) -> list[bytes | None]:
    return [record.value for record in plane.partition(index).log.read(0)]


def test_a_small_batch_of_a_calm_log_needs_no_thread(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    client.send(VERSION, request(batch(b"x"), batch(b"y")))
    assert client.produced() == [[(0, 0), (0, 0)]]
    assert (threads.runs, plane.dir.appends.appends) == ([], 0)


def test_of_a_request_all_is_appended_when_its_bulk_is(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    client.send(VERSION, request(batch(b"x"), batch(BULK), batch(b"y"), batch(BULK)))
    assert (client.produced(), len(threads.runs)) == ([], 2)
    threads.run()
    assert client.produced() == []
    assert [plane.partition(i).log_end_offset for i in range(4)] == [0, 1, 0, 0]
    threads.run()
    assert client.produced() == [[(0, 0)] * 4]
    assert [len(values(plane, i)) for i in range(4)] == [1, 1, 1, 1]
    assert client.transport.reading


def test_what_comes_behind_waits_and_other_connections_do_not(plane: Plane) -> None:
    threads, client, other = Threads(plane), plane.client(), plane.client()
    client.feed(
        client.frame(VERSION, request(batch(BULK)))
        + client.frame(VERSION, request(batch(b"second"))),
        piece=10_000,
    )
    other.send(VERSION, request(batch(b"elsewhere"), first=1))
    assert (client.produced(), other.produced()) == ([], [[(0, 0)]])
    threads.run()
    assert client.produced() == [[(0, 0)], [(0, 1)]]
    assert values(plane) == [BULK, b"second"]


def test_a_small_batch_goes_behind_the_bulk_of_its_log(plane: Plane) -> None:
    threads, client, other = Threads(plane), plane.client(), plane.client()
    client.send(VERSION, request(batch(BULK)))
    other.send(VERSION, request(batch(b"behind")))
    assert other.produced() == []
    threads.run(2)
    assert (client.produced(), other.produced()) == ([[(0, 0)]], [[(0, 1)]])
    assert values(plane) == [BULK, b"behind"]


def test_a_partition_count_is_not_refused_while_an_earlier_try_may_still_be_appended(
    plane: Plane,
) -> None:
    """KIP-253: INVALID_PARTITION_COUNT says that the batch is not in the log. A client whose first
    try hangs in a slow disk asks again on another connection, when the topic has grown.
    """
    threads, client, other = Threads(plane), plane.client(), plane.client()
    records = batch(BULK, producer_id=5, producer_epoch=0, base_sequence=0)

    def produce(count: int) -> ProduceRequest:
        return produce_request("t", records, count=count)

    client.send(VERSION, produce(4))
    plane.partition().entry.partition_count = 5
    other.send(VERSION, produce(4))
    assert other.produced() == [[(ErrorCode.REQUEST_TIMED_OUT, -1)]]
    threads.run()
    other.send(VERSION, produce(4))
    threads.run()
    assert (client.produced(), other.produced()) == ([[(0, 0)]], [[(0, 0)]])
    assert values(plane) == [BULK]


def test_a_roll_is_left_to_a_thread_before_anything_is_changed(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    log = plane.partition().log
    log.configure(replace(log.config, segment_bytes=1000))
    for i in range(3):
        client.send(VERSION, request(batch(b"x" * 600)))
        if i:
            assert (len(threads.runs), log.log_end_offset) == (1, i)
            threads.run()
        assert client.produced() == [[(0, i)]]
    assert len(log.core.segments) == 3


def test_disk_space_is_asked_for_by_a_thread(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    for i in range(20):
        client.send(VERSION, request(batch(b"x" * 30_000)))
        if threads.runs:
            threads.run()
        assert client.produced() == [[(0, i)]]
    assert 1 <= plane.dir.appends.appends < 10, "the space grows with the file"


def test_a_disk_that_is_behind_makes_small_ones_wait_too(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    plane.dir.appends.calm.over_budget = True
    client.send(VERSION, request(batch(b"x"), batch(b"y")))
    assert (client.produced(), len(threads.runs)) == ([], 2)
    threads.run(2)
    assert client.produced() == [[(0, 0), (0, 0)]]


def test_what_is_refused_is_left_to_nobody(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    plane.partition().configure(stored_codec=-1, stored_level=-1, min_insync_replicas=2)
    client.send(VERSION, request(batch(BULK), acks=-1))
    assert client.produced() == [[(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]]
    assert threads.runs == []


def test_a_bad_batch_is_refused_by_the_thread(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    broken = bytearray(batch(BULK))
    broken[-1] ^= 1
    client.send(VERSION, request(bytes(broken), batch(b"x")))
    threads.run()
    assert client.produced() == [[(ErrorCode.CORRUPT_MESSAGE, -1), (0, 0)]]
    assert values(plane) == []


@pytest.mark.parametrize("leaves", ["fails", "moves"])
def test_a_bad_batch_is_refused_although_its_log_is_gone_meanwhile(
    plane: Plane, leaves: str
) -> None:
    threads, client = Threads(plane), plane.client()
    broken = bytearray(batch(BULK))
    broken[-1] ^= 1
    client.send(VERSION, request(bytes(broken)))
    assert threads.runs.pop(0)()
    if leaves == "fails":
        plane.partition().fail()
    else:
        plane.partition().replace_log(None)
    plane.loop.turn()
    assert client.produced() == [[(ErrorCode.CORRUPT_MESSAGE, -1)]]


def test_what_is_on_no_disk_is_not_acknowledged_though_its_log_is_gone(tmp_path: Path) -> None:
    plane = Plane(tmp_path, durable=True)
    threads, client = Threads(plane), plane.client()
    client.send(VERSION, request(batch(BULK)))
    assert threads.runs.pop(0)()
    plane.partition().fail()
    plane.loop.turn()
    assert client.produced() == [[(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]]
    plane.close()


def test_without_acknowledgement_the_order_is_the_same(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    for value in (BULK, b"second", b"third"):
        client.send(VERSION, request(batch(value), acks=0))
    threads.run()
    assert values(plane) == [BULK, b"second", b"third"]
    assert client.produced() == []


def test_a_batch_is_appended_though_its_connection_ends(plane: Plane) -> None:
    """Its memory stays until then."""
    threads, client = Threads(plane), plane.client()
    client.send(VERSION, request(batch(BULK)))
    client.connection.connection_lost(None)
    plane.client().send(VERSION, request(batch(b"x" * 60_000), first=1))
    threads.run()
    assert values(plane) == [BULK]


def test_bytes_that_come_meanwhile_move_nothing(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    client.send(VERSION, request(batch(BULK)))
    large = client.frame(VERSION, request(batch(b"l" * 500_000)))
    client.feed(large, piece=50_000)
    threads.run()
    assert values(plane) == [BULK]
    threads.run()
    assert client.produced() == [[(0, 0)], [(0, 1)]]
    assert values(plane) == [BULK, b"l" * 500_000]


def test_who_leads_no_more_says_so_to_who_waits_for_all(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    for index in (0, 1):
        plane.partition(index).lead(4, 1, (NODE_ID, 7), (NODE_ID, 7))
    client.send(VERSION, request(batch(BULK), batch(BULK), acks=-1))
    threads.run()
    plane.partition(0).follow(7, 5)
    plane.partition(1).follow(7, 5)
    threads.run()
    gone = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert client.produced() == [[gone, gone]]
    ends = sorted(plane.partition(index).log_end_offset for index in (0, 1))
    assert ends == [0, 1], "what had not begun is not appended"


def test_the_answer_of_a_threads_append_waits_for_followers(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    partition = plane.partition()
    partition.lead(4, 1, (NODE_ID, 7), (NODE_ID, 7))
    client.send(VERSION, request(batch(BULK), acks=-1))
    threads.run()
    assert (client.produced(), plane.produce.waiting.parked) == ([], 1)
    plane.table.replication.live = {NODE_ID: 1}
    partition.isr_applied((NODE_ID,), 2, 4)
    assert client.produced() == [[(0, 0)]]


def test_a_topic_that_is_deleted_meanwhile(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    client.send(VERSION, request(batch(BULK), batch(b"x")))
    plane.table.remove_topic(b"t")
    threads.run()
    assert client.produced() == [
        [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    ]
