"""Share groups: 1, 8 and 64 members of a share group read one partition and accept the records.
Each member requests 500 records, and accepts those of its last answer with its next request, as
Java's client does. The rate is counted by acquired records, each once, and by the group's lag,
which is 0 at the end.
"""

from __future__ import annotations

import itertools
import select
import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType

from bench import frames, share_frames
from bench.brokers import KAFKA, Broker, create_topic, delete_topic, exchange_once
from bench.compare.pair import Pair, compared, end_offset, require
from bench.compare.rebalance import wait_for_coordinator
from bench.load import Load
from bench.measure import Figures, Settings, cpu_seconds
from bench.report import Goal, Row
from bench.share_frames import FINAL_EPOCH, Range
from tests.conformance.wire import exchange

__all__ = ["rows"]

APIS = {76: "ShareGroupHeartbeat", 78: "ShareFetch", 90: "DescribeShareGroupOffsets"}
TOPIC = "share"
NOT_YET = (14, 15, 16)
"""The coordinator is loading, not available, or another broker."""
RECORDS_AT_ONCE = 500
RECORDS_PER_BATCH, VALUE_BYTES = 100, 100
THREE_TIMES = Goal(3.0)
A_THIRD = Goal(1 / 3, at_least=False)


class Member:
    """One member on a separate connection. One request is in flight, and its answer arrives in
    pieces.
    """

    def __init__(self, broker: Broker, group: str, number: int, topic_id: bytes) -> None:
        self.connection = socket.create_connection((broker.host, broker.port), timeout=30)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held: list[Range] = []
        self._group, self._topic_id = group, topic_id
        self._id = f"member-{number:029d}"  # of 36 characters, like a client's
        self._epoch = self._member_epoch = 0
        self._answer = bytearray(1 << 16)
        self._got = 0

    def beat(self) -> bool:
        """Send a heartbeat. Returns True if partitions are assigned to the member."""
        frame = share_frames.heartbeat(self._group, self._id, self._member_epoch, TOPIC)
        code, epoch, assigned = share_frames.heartbeat_answer(exchange(self.connection, frame))
        if code not in (0, *NOT_YET):
            raise RuntimeError(f"ShareGroupHeartbeat was answered with error {code}")
        if not code:
            self._member_epoch = epoch
        return assigned

    def leave(self) -> None:
        """Leave the group at the end."""
        frame = share_frames.heartbeat(self._group, self._id, FINAL_EPOCH, TOPIC)
        exchange(self.connection, frame)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def ask(self, *, last: bool = False) -> None:
        """Request more, and accept what the member has. With ``last``, only accept."""
        epoch = FINAL_EPOCH if last else self._epoch
        frame = share_frames.share_fetch(
            self._group,
            self._id,
            epoch,
            self._topic_id,
            self.held,
            max_records=RECORDS_AT_ONCE,
        )
        self.held = []
        self._epoch += 1
        self._got = 0
        self.connection.sendall(frame)

    def receive(self) -> bytes | None:
        """The whole answer, when it has arrived."""
        into = memoryview(self._answer)[self._got :]
        size = self.connection.recv_into(into)
        into.release()
        if not size:
            raise ConnectionError("the broker closed a connection under load")
        self._got += size
        whole = 4 + struct.unpack_from(">i", self._answer)[0] if self._got >= 4 else 1 << 30
        if self._got < whole:
            if self._got == len(self._answer):
                self._answer.extend(bytes(len(self._answer)))
            return None
        return bytes(memoryview(self._answer)[4:whole])


class GroupMembers:
    """The members of a new group that has read nothing. A context manager."""

    def __init__(self, broker: Broker, group: str, count: int, topic_id: bytes) -> None:
        self._poll = select.epoll()
        self.ranges: list[Range] = []
        frame = share_frames.set_of_group(group, "share.auto.offset.reset", "earliest")
        if code := share_frames.set_of_group_error(exchange_once(broker, frame)):
            raise RuntimeError(f"IncrementalAlterConfigs was answered with error {code}")
        self._members = [Member(broker, group, n, topic_id) for n in range(count)]
        wait_for_coordinator(broker, group)
        joining = list(self._members)
        deadline = time.monotonic() + 60
        while joining := [member for member in joining if not member.beat()]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(joining)} of {count} members have no partition")
            time.sleep(0.01)
        for member in self._members:
            self._poll.register(member.connection, select.EPOLLIN)
        self._by_fd = {member.connection.fileno(): member for member in self._members}

    def run(self, total: int) -> float:
        """Seconds until all records are acquired; then all are accepted."""
        acquired, waiting, took = 0, len(self._members), 0.0
        begin = time.monotonic()
        for member in self._members:
            member.ask()
        last: set[int] = set()
        while waiting:
            events = self._poll.poll(30)
            if not events:
                raise TimeoutError(f"{acquired} of {total} records after 30 s of silence")
            for fd, _ in events:
                member = self._by_fd[fd]
                answer = member.receive()
                if answer is None:
                    continue
                found = share_frames.fetched(answer)
                if any(found.errors) or found.deliveries > 1:
                    raise RuntimeError(f"errors {found.errors}, {found.deliveries} deliveries")
                member.held = found.ranges
                self.ranges += found.ranges
                acquired += sum(end - first + 1 for first, end in found.ranges)
                if acquired >= total and not took:
                    took = time.monotonic() - begin
                if fd in last:
                    waiting -= 1
                    continue
                if acquired >= total:
                    last.add(fd)
                member.ask(last=fd in last)
        return took

    def __enter__(self) -> GroupMembers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._poll.close()
        for member in self._members:
            member.leave()


def _once(broker: Broker, group: str, members: int, topic_id: bytes, total: int) -> Figures:
    with GroupMembers(broker, group, members, topic_id) as group_members:
        used = cpu_seconds(broker.pid)
        elapsed = group_members.run(total)
        used = cpu_seconds(broker.pid) - used
    next_offset = 0
    for first, last in sorted(group_members.ranges):
        if first != next_offset:
            raise RuntimeError(f"offset {first} was acquired where {next_offset} is next")
        next_offset = last + 1
    left = share_frames.lag_answer(exchange_once(broker, share_frames.lag(group, TOPIC)))
    if next_offset != total or left:
        raise RuntimeError(f"{total} records, {next_offset} acquired, {left} not done")
    return {"rate": total / elapsed, "cost": used / total * 1e6}


def _fill(broker: Broker, total: int) -> bytes:
    """A topic with this many records. Returns its id."""
    create_topic(broker, TOPIC, 1)
    batch = frames.record_batch([b"v" * VALUE_BYTES] * RECORDS_PER_BATCH)

    def check(answer: bytes) -> None:
        if code := frames.produce_error(answer, TOPIC):
            raise RuntimeError(f"Produce was answered with error {code}")

    address = (broker.host, broker.port)
    with Load(address, [frames.produce(TOPIC, 0, batch)], check) as load:
        load.run(600, at_most=total // RECORDS_PER_BATCH - 2)  # and a first and a last one
    stored = end_offset(broker, TOPIC)
    if stored != total:
        raise RuntimeError(f"{stored} records were stored instead of {total}")
    answer = exchange_once(broker, frames.metadata(TOPIC))
    place = answer.index(frames.compact(TOPIC)) + len(frames.compact(TOPIC))
    return answer[place : place + 16]


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Rate, and CPU per record, with 1, 8 and 64 members."""
    total = settings.pick(500_000, 100_000)
    numbers = itertools.count()
    ids = {}
    for name, broker in pair.running.items():
        require(broker, APIS)
        ids[name] = _fill(broker, total)
    if KAFKA in pair.running:  # the JVM compiles at run time
        for members in (1, 8, 64):
            _once(pair.running[KAFKA], f"warm-{members}", members, ids[KAFKA], total)
    for members in (1, 8, 64):
        words = f"{members} member{'s' * (members > 1)}"
        if not settings.wants(words):
            continue

        def turn(name: str, broker: Broker, members: int = members) -> Figures:
            return _once(broker, f"share-{next(numbers)}", members, ids[name], total)

        sides = pair.turns(f"share, {words}", turn, settings.pick(5, 2))
        yield compared("share", words, sides, "rate", "records/s", THREE_TIMES)
        yield compared("share", words, sides, "cost", "broker CPU us/record", A_THIRD)
    for broker in pair.running.values():
        delete_topic(broker, TOPIC)
