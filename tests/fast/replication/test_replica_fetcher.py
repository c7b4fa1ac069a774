"""_fast/replication/replica_fetcher.pyx and replica_session.pyx: their requests, and what they do
with answers, with a scripted leader and without sockets.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.record.builder import build_batch
from kstore._fast.replication.replica_fetcher import ReplicaFetcher
from kstore._fast.replication.replica_session import Followed
from kstore.errors import ErrorCode
from kstore.log import open_log_dir
from kstore.protocol.logs.fetch import EpochEndOffset, FetchRequest, LeaderIdAndEpoch, PartitionData
from kstore.protocol.registry import decode_request, encode_response
from kstore.types import TopicPartition
from tests.broker.harness.plane_harness import FakeTransport, ManualLoop
from tests.plain_messages import Answer

VERSION = 17
IDS = {"t": UUID(int=1), "u": UUID(int=2)}
SESSION = 77


class Owner:
    """Notes what is handed over."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def note(fetcher: ReplicaFetcher, *rest: Any) -> None:
            self.calls.append((name, *(getattr(each, "key", each) for each in rest)))

        return note

    def report(self, sentence: str) -> None:
        self.calls.append(("report", sentence))

    def lost(self, fetcher: ReplicaFetcher, problem: Exception | None) -> None:
        self.calls.append(("lost",))


class Leader:
    """One fetcher of broker 2 for leader 1, and the leader's words."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.loop = ManualLoop()
        self.owner = Owner()
        self.dir = open_log_dir(str(folder))
        self.dir.replicated = True
        self.table = PartitionTable(2, self.loop.call_soon)
        self.fetcher = ReplicaFetcher(
            self.owner, self.loop.call_soon, leader_id=1, node_id=2, broker_epoch=9
        )
        for name, value in settings.items():
            setattr(self.fetcher, name, value)
        self.entries = {name: TopicEntry(name.encode(), IDS[name].bytes) for name in IDS}
        self.transport = FakeTransport()

    def follow(self, topic: str, index: int, epoch: int = 5) -> Followed:
        log = self.dir.log(topic, index, topic_id=IDS[topic])
        partition = Partition(self.entries[topic], index, log, leader_id=1, leader_epoch=epoch)
        self.table.add_topic(self.entries[topic])
        self.table.add_partition(partition)
        partition.follow(1, epoch)
        followed = Followed(partition, TopicPartition(topic, index), epoch)
        self.fetcher.add(followed)
        return followed

    def connect(self) -> None:
        self.transport = FakeTransport()
        self.fetcher.connection_made(self.transport)
        self.loop.turn()

    def asked(self) -> FetchRequest:
        """The one fetch that was sent since the last call."""
        [request] = self.all_asked()
        return request

    def all_asked(self) -> list[FetchRequest]:
        self.loop.turn()
        data = bytes(self.transport.written)
        self.transport.written.clear()
        found: list[FetchRequest] = []
        while data:
            (size,) = struct.unpack_from(">i", data)
            header, request = decode_request(data[4 : 4 + size])
            assert (header.request_api_key, header.request_api_version) == (1, VERSION)
            assert header.client_id == "broker-2-fetcher"
            assert isinstance(request, FetchRequest)
            self.last_id = header.correlation_id
            found.append(request)
            data = data[4 + size :]
        return found

    def feed(self, data: bytes, piece: int = 1 << 30) -> None:
        while data and not self.transport.closed:
            view = memoryview(self.fetcher.get_buffer(-1))  # type: ignore[arg-type]
            count = min(len(view), piece, len(data))
            assert count, "a read without room"
            view[:count] = data[:count]
            view.release()
            self.fetcher.buffer_updated(count)
            data = data[count:]

    def answer(
        self, *parts: tuple[str, PartitionData], error: int = 0, session: int = SESSION,
        number: int | None = None, piece: int = 1 << 30,
    ) -> None:  # fmt: skip
        rows = [{"topic_id": IDS[topic], "partitions": [part]} for topic, part in parts]
        response = Answer.Fetch(error_code=error, session_id=session, responses=rows)
        self.feed(
            encode_response(response, VERSION, self.last_id if number is None else number), piece
        )
        self.loop.turn()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    made = Leader(tmp_path)
    yield made
    made.dir.close()


def records(base: int, count: int = 1, epoch: int = 5) -> bytes:
    return build_batch([b"v"] * count, timestamp=1, base_offset=base, leader_epoch=epoch)


def part(index: int, data: bytes = b"", high_watermark: int = 0, **fields: Any) -> PartitionData:
    return PartitionData(
        partition_index=index, records=data, high_watermark=high_watermark, log_start_offset=0,
        **fields,
    )  # fmt: skip


def named(request: FetchRequest) -> dict[tuple[UUID, int], tuple[int, int, int]]:
    """(topic id, partition) to (leader epoch, fetch offset, last fetched epoch)."""
    return {
        (topic.topic_id, p.partition): (
            p.current_leader_epoch, p.fetch_offset, p.last_fetched_epoch
        )
        for topic in request.topics
        for p in topic.partitions
    }  # fmt: skip


def test_the_first_fetch_names_all_and_waits_for_nothing_the_next_names_what_changed(
    leader: Leader,
) -> None:
    for topic, index in (("t", 0), ("t", 3), ("u", 1)):
        leader.follow(topic, index)
    leader.connect()
    first = leader.asked()
    assert (first.session_id, first.session_epoch, first.max_wait_ms) == (0, 0, 0)
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (2, 9)
    assert (first.min_bytes, first.isolation_level, first.rack_id) == (1, 0, "")
    assert set(named(first)) == {(IDS["t"], 0), (IDS["t"], 3), (IDS["u"], 1)}
    assert set(named(first).values()) == {(5, 0, -1)}
    assert [len(topic.partitions) for topic in first.topics] == [2, 1]
    leader.answer(("t", part(3, records(0, 4), 2)))
    second = leader.asked()
    assert (second.session_id, second.session_epoch, second.max_wait_ms) == (SESSION, 1, 500)
    assert named(second) == {(IDS["t"], 3): (5, 4, 5)}
    leader.answer()
    third = leader.asked()
    assert (third.session_epoch, third.topics, third.forgotten_topics_data) == (2, [], [])


def test_the_high_watermark_is_the_leaders_as_far_as_the_log_goes(leader: Leader) -> None:
    followed = leader.follow("t", 0)
    leader.connect()
    leader.asked()
    leader.answer(("t", part(0, records(0, 4), 9)))
    assert followed.partition.high_watermark == 4
    assert followed.leader_high_watermark == 9
    leader.asked()
    leader.answer(("t", part(0, records(4), 3)))  # it never goes back
    assert (followed.partition.high_watermark, followed.partition.log_end_offset) == (4, 5)


def test_several_batches_come_at_once_and_half_a_one_is_left_out(leader: Leader) -> None:
    followed = leader.follow("t", 0)
    leader.connect()
    leader.asked()
    data = records(0, 2) + records(2, 3) + records(5)[:-7]
    leader.answer(("t", part(0, data, 5)), piece=13)
    assert followed.partition.log_end_offset == 5
    assert named(leader.asked()) == {(IDS["t"], 0): (5, 5, 5)}
    leader.answer(("t", part(0, records(5)[:40])))
    leader.answer(("t", part(0, records(5)[:5])), number=leader.last_id + 1)
    assert followed.partition.log_end_offset == 5
    assert leader.owner.calls == []


def test_a_partition_added_while_a_fetch_waits_is_asked_for_at_once(leader: Leader) -> None:
    leader.follow("t", 0)
    leader.connect()
    leader.asked()
    leader.answer()
    leader.asked()  # waits at the leader
    leader.follow("u", 1)
    pipelined = leader.asked()
    assert named(pipelined) == {(IDS["u"], 1): (5, 0, -1)}
    assert pipelined.session_epoch == 2
    leader.follow("u", 2)
    assert leader.all_asked() == []  # never more than two are under way
    number = leader.last_id
    leader.answer(("t", part(0, records(0), 1)), number=number - 1)
    assert leader.all_asked() == []
    # The answer to the later one is from before the leader learned of the earlier answer's records.
    leader.answer(("t", part(0, records(0), 1)), ("u", part(1, records(0), 1)), number=number)
    assert leader.dir.log("t", 0).log_end_offset == 1
    assert set(named(leader.asked())) == {(IDS["t"], 0), (IDS["u"], 1), (IDS["u"], 2)}
    assert leader.owner.calls == []


def test_records_that_two_fetches_have_asked_for_are_taken_once(leader: Leader) -> None:
    """The second was in flight when the answer to the first arrived, and a third reports that."""
    followed = leader.follow("t", 0)
    leader.connect()
    leader.asked()
    leader.answer()
    leader.asked()
    leader.follow("u", 1)
    leader.asked()
    number = leader.last_id
    leader.answer(("t", part(0, records(0))), number=number - 1)
    leader.follow("u", 2)
    assert named(leader.asked())[IDS["t"], 0] == (5, 1, 5)
    leader.answer(("t", part(0, records(0), 1)), number=number)
    assert leader.owner.calls == []
    assert (followed.partition.log_end_offset, followed.partition.high_watermark) == (1, 1)
    leader.answer(("t", part(0, records(1), 2)), number=number + 1)
    assert (followed.partition.log_end_offset, followed.partition.high_watermark) == (2, 2)
    leader.fetcher.connection_lost(None)
    leader.connect()
    leader.asked()
    leader.answer(("t", part(0, records(2), 3)))
    assert followed.partition.log_end_offset == 3


def test_a_partition_removed_is_forgotten_and_what_still_comes_of_it_left_out(
    leader: Leader,
) -> None:
    followed = leader.follow("t", 0)
    leader.follow("t", 1)
    leader.connect()
    leader.asked()
    leader.fetcher.remove(followed)
    leader.answer(("t", part(0, records(0), 1)), ("t", part(1, records(0), 1)))
    assert followed.partition.log_end_offset == 0
    request = leader.asked()
    assert [(t.topic_id, t.partitions) for t in request.forgotten_topics_data] == [(IDS["t"], [0])]
    again = leader.follow("t", 0)
    leader.fetcher.hold(again)
    leader.fetcher.release(again)
    [request] = leader.all_asked()
    assert set(named(request)) == {(IDS["t"], 0)}
    assert request.forgotten_topics_data == []


def test_the_answer_to_an_earlier_follower_of_the_place_is_not_taken(leader: Leader) -> None:
    leader.follow("t", 0, epoch=5)
    leader.follow("t", 1)
    leader.connect()
    leader.asked()
    leader.answer()
    leader.asked()
    newer = leader.follow("t", 0, epoch=6)
    assert named(leader.asked()) == {(IDS["t"], 0): (6, 0, -1)}
    leader.answer(("t", part(0, records(0), 1)), number=leader.last_id - 1)
    assert newer.partition.log_end_offset == 0
    leader.answer(("t", part(0, records(0, epoch=6), 1)))
    assert newer.partition.log_end_offset == 1


@pytest.mark.parametrize(
    "error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_session_that_is_lost_is_begun_anew(leader: Leader, error: int) -> None:
    leader.follow("t", 0)
    leader.follow("u", 0)
    leader.connect()
    leader.asked()
    leader.answer(("t", part(0, records(0), 1)))
    leader.asked()
    leader.answer(error=error, session=0)
    request = leader.asked()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == {(IDS["t"], 0): (5, 1, 5), (IDS["u"], 0): (5, 0, -1)}


def test_without_a_session_all_are_named_each_time_and_the_leader_may_wait(leader: Leader) -> None:
    leader.follow("t", 0)
    leader.connect()
    leader.asked()
    leader.answer(session=0)
    request = leader.asked()
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (0, 0, 500)
    assert set(named(request)) == {(IDS["t"], 0)}


def test_errors_and_divergence_are_handed_over_and_the_partition_is_held(leader: Leader) -> None:
    refused, parted = leader.follow("t", 0), leader.follow("t", 1)
    leader.follow("t", 2)
    leader.connect()
    leader.asked()
    leader.answer(
        ("t", part(0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH,
                   current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=8))),
        ("t", part(1, records(0), 7, diverging_epoch=EpochEndOffset(epoch=3, end_offset=6))),
        ("t", part(2, records(0), 1)),
    )  # fmt: skip
    assert leader.owner.calls == [
        ("refused", TopicPartition("t", 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        ("diverged", TopicPartition("t", 1), 3, 6),
    ]
    assert refused.held
    assert (parted.held, parted.partition.log_end_offset) == (True, 0)
    request = leader.asked()
    assert set(named(request)) == {(IDS["t"], 2)}
    assert sorted(request.forgotten_topics_data[0].partitions) == [0, 1]
    leader.fetcher.release(parted)
    assert set(named(leader.asked())) == {(IDS["t"], 1)}


def test_what_overlaps_or_is_damaged_is_handed_over(leader: Leader) -> None:
    leader.follow("t", 0)
    leader.follow("t", 1)
    leader.connect()
    leader.asked()
    leader.answer(("t", part(0, records(0, 2), 2)))
    leader.asked()
    damaged = bytearray(records(0))
    damaged[-1] ^= 1
    leader.answer(("t", part(0, records(1), 2)), ("t", part(1, bytes(damaged))))
    assert leader.owner.calls == [
        ("refused_append", TopicPartition("t", 0), ErrorCode.INVALID_PRODUCE_OFFSET),
        ("refused_append", TopicPartition("t", 1), ErrorCode.CORRUPT_MESSAGE),
    ]


def test_a_new_connection_begins_anew(leader: Leader) -> None:
    leader.follow("t", 0)
    leader.connect()
    leader.asked()
    leader.answer(("t", part(0, records(0), 1)))
    leader.asked()
    leader.fetcher.connection_lost(None)
    assert leader.owner.calls == [("lost",)]
    leader.connect()
    request = leader.asked()
    assert (request.session_id, named(request)) == (0, {(IDS["t"], 0): (5, 1, 5)})
    leader.answer(("t", part(0, records(1), 2)))
    assert named(leader.asked()) == {(IDS["t"], 0): (5, 2, 5)}


def test_with_durable_the_leader_hears_nothing_that_is_not_on_the_disk(tmp_path: Path) -> None:
    leader = Leader(tmp_path, durable=True)
    followed = leader.follow("t", 0)
    leader.connect()
    leader.asked()
    leader.answer(("t", part(0, records(0), 1)))
    assert leader.all_asked() == []
    [(name, behind)] = leader.owner.calls
    assert (name, behind) == ("wait_for_disk", [(followed.partition.log, 1)])
    followed.partition.log.flush()
    leader.fetcher.on_disk()
    assert named(leader.asked()) == {(IDS["t"], 0): (5, 1, 5)}
    leader.dir.close()


def test_nothing_is_asked_where_nothing_is_copied(leader: Leader) -> None:
    leader.connect()
    assert leader.all_asked() == []
    followed = leader.follow("t", 0)
    leader.asked()
    leader.fetcher.remove(followed)
    leader.answer()
    assert leader.all_asked() == []
    assert leader.fetcher.active == 0


@pytest.mark.parametrize("seed", range(8))
def test_no_bytes_do_more_than_end_the_connection(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    leader = Leader(tmp_path)
    for index in range(3):
        leader.follow("t", index)
    for _ in range(40):
        leader.connect()
        leader.asked()
        parts = [("t", part(i, records(0, 3), 3)) for i in range(3)]
        rows = [{"topic_id": IDS[t], "partitions": [p]} for t, p in parts]
        response = Answer.Fetch(session_id=SESSION, responses=rows)
        frame = bytearray(encode_response(response, VERSION, leader.last_id))
        for _ in range(chance.randint(1, 4)):
            frame[chance.randrange(8, len(frame))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        if chance.random() < 0.3:
            size = chance.randrange(4, len(frame) - 4)
            frame = bytearray(struct.pack(">i", size)) + frame[4 : 4 + size]
        leader.feed(bytes(frame), chance.choice((7, 1 << 20)))
        leader.loop.turn()
        for followed in leader.fetcher.all():
            leader.fetcher.hold(followed)
            followed.partition.log.truncate(0)
            leader.fetcher.release(followed)
        leader.fetcher.connection_lost(None)
        leader.loop.turn()
    leader.dir.close()
