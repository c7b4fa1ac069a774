"""Members of a consumer group over raw sockets, many in one loop, for both group protocols: they
join, accept assignments, send heartbeats, and follow every rebalance. They fetch nothing.
"""

from __future__ import annotations

import select
import socket
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType

from bench import frames
from bench.brokers import Broker
from bench.frames import Answer, compact, string, unsigned
from tests.conformance.wire import request_frame

__all__ = ["ClassicMember", "ConsumerMember", "Group", "Member"]

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, CONSUMER_HEARTBEAT = 11, 12, 13, 14, 68
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
SESSION_MS, REBALANCE_MS = 45_000, 60_000
HEARTBEAT_S = 0.02
"""How often a member sends a heartbeat. librdkafka and Java send one every few seconds, and notice
a rebalance later.
"""
LOOK_EACH_S = 1e-5
"""The interval between two checks of all members, in seconds per member. A check of each takes
about 0.3 us. After every answer, it would take longer than the brokers' work for large groups.
"""


class Member:
    """The common part of both kinds: one request at a time on a separate connection."""

    def __init__(self, address: tuple[str, int], group: str, topic: str, partitions: int) -> None:
        self.group, self.topic, self.partitions = group, topic, partitions
        self.member_id = ""
        self.owned: frozenset[int] = frozenset()
        self.epoch = -1
        """The generation, or the member epoch."""
        self.next_heartbeat = 0.0
        self.is_settled = False
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._awaits: Callable[[bytes], None] | None = None

    @property
    def is_waiting(self) -> bool:
        """True if a request has no answer yet."""
        return self._awaits is not None

    def ask(
        self, key: int, version: int, body: bytes, then: Callable[[bytes], None], *,
        flexible: bool = False,
    ) -> None:  # fmt: skip
        """Send a request. `then` gets its answer."""
        self._awaits = then
        self.socket.sendall(request_frame(key, version, body, flexible=flexible))

    def take(self) -> None:
        """Read what has arrived, and handle the answer when it is complete."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed a member's connection")
        self._received += data
        if len(self._received) < 4:
            return
        size = 4 + struct.unpack_from(">i", self._received)[0]
        if len(self._received) >= size:
            answer, self._received = bytes(self._received[4:size]), self._received[size:]
            then, self._awaits = self._awaits, None
            assert then is not None, "an answer without a request"
            then(answer)

    def begin(self) -> None:
        """Join the group."""
        raise NotImplementedError

    def heartbeat(self) -> None:
        """Send a heartbeat, and learn whether something has changed."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the group."""
        raise NotImplementedError


class ClassicMember(Member):
    """The classic protocol: JoinGroup v5, SyncGroup v3, Heartbeat v3, LeaveGroup v2. The leader
    gives each member its share of the partitions.
    """

    def begin(self) -> None:
        """See Member."""
        self.is_settled = False
        metadata = struct.pack(">hi", 0, 1) + string(self.topic) + struct.pack(">i", -1)
        body = string(self.group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS)
        body += string(self.member_id) + struct.pack(">h", -1) + string("consumer")
        body += struct.pack(">i", 1) + string("range") + struct.pack(">i", len(metadata)) + metadata
        self.ask(JOIN_GROUP, 5, body, self._joined)

    def _joined(self, data: bytes) -> None:
        answer = Answer(data)
        answer.skip(4)
        code = answer.take("h")
        generation = answer.take("i")
        answer.string()
        leader, self.member_id = answer.string(), answer.string()
        if code in (MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS):
            self.begin()
            return
        if code:
            raise RuntimeError(f"JoinGroup was answered with error {code}")
        self.epoch = generation
        members = []
        for _ in range(answer.take("i")):
            members.append(answer.string())
            answer.string()
            answer.bytes(answer.take("i"))
        self._sync(members if leader == self.member_id else [])

    def _sync(self, members: Sequence[str]) -> None:
        body = self._who() + struct.pack(">i", len(members))
        for place, member in enumerate(sorted(members)):
            share = range(place, self.partitions, len(members))
            given = struct.pack(">hi", 0, 1) + string(self.topic)
            given += struct.pack(f">i{len(share)}i", len(share), *share) + struct.pack(">i", -1)
            body += string(member) + struct.pack(">i", len(given)) + given
        self.ask(SYNC_GROUP, 3, body, self._synced)

    def _synced(self, data: bytes) -> None:
        answer = Answer(data)
        answer.skip(4)
        code = answer.take("h")
        if code == REBALANCE_IN_PROGRESS:
            self.begin()
            return
        if code:
            raise RuntimeError(f"SyncGroup was answered with error {code}")
        if answer.take("i") > 0:
            answer.skip(6)
            answer.string()
            self.owned = frozenset(answer.take("i") for _ in range(answer.take("i")))
        self.is_settled = True

    def _who(self) -> bytes:
        body = string(self.group) + struct.pack(">i", self.epoch) + string(self.member_id)
        return body + struct.pack(">h", -1)

    def heartbeat(self) -> None:
        """See Member."""
        self.ask(HEARTBEAT, 3, self._who(), self._on_heartbeat)

    def _on_heartbeat(self, data: bytes) -> None:
        answer = Answer(data)
        answer.skip(4)
        code = answer.take("h")
        if code == REBALANCE_IN_PROGRESS:
            self.begin()
        elif code:
            raise RuntimeError(f"Heartbeat was answered with error {code}")

    def leave(self) -> None:
        """See Member."""
        self.ask(LEAVE_GROUP, 2, string(self.group) + string(self.member_id), lambda _: None)


class ConsumerMember(Member):
    """The consumer protocol (KIP-848): ConsumerGroupHeartbeat v1 and nothing else."""

    def __init__(self, address: tuple[str, int], group: str, topic: str, partitions: int) -> None:
        super().__init__(address, group, topic, partitions)
        self.member_id = str(uuid.uuid4())
        self._topic_id = bytes(16)

    def begin(self) -> None:
        """See Member."""
        self.is_settled = False
        self.epoch = 0
        self._send(whole=True)

    def heartbeat(self) -> None:
        """See Member."""
        self._send(whole=False)

    def leave(self) -> None:
        """See Member."""
        self.epoch = -1
        self._send(whole=False)

    def _send(self, *, whole: bool) -> None:
        body = compact(self.group) + compact(self.member_id) + struct.pack(">i", self.epoch)
        body += b"\x00\x00" + struct.pack(">i", REBALANCE_MS if whole else -1)
        body += (unsigned(2) + compact(self.topic) if whole else b"\x00") + b"\x00\x00"
        body += self._owned(whole) + b"\x00"
        self.ask(CONSUMER_HEARTBEAT, 1, body, self._on_heartbeat, flexible=True)

    def _owned(self, whole: bool) -> bytes:
        if whole or not self.owned:
            return unsigned(1)
        parts = struct.pack(f">{len(self.owned)}i", *self.owned)
        return unsigned(2) + self._topic_id + unsigned(len(self.owned) + 1) + parts + b"\x00"

    def _on_heartbeat(self, data: bytes) -> None:
        answer = Answer(data, flexible_header=True)
        answer.skip(4)
        code, why = answer.take("h"), answer.compact()
        if code:
            raise RuntimeError(f"ConsumerGroupHeartbeat was answered with error {code}: {why}")
        answer.compact()
        self.epoch = answer.take("i")
        answer.skip(4)
        if answer.take("b") < 0:
            return
        self.owned = frozenset()
        for _ in range(answer.unsigned() - 1):
            self._topic_id = answer.bytes(16)
            self.owned |= {answer.take("i") for _ in range(answer.unsigned() - 1)}
            answer.skip(1)
        self.next_heartbeat = 0.0  # its partitions must be sent


class Group:
    """Members of one kind and the loop that drives them; a context manager."""

    def __init__(
        self,
        broker: Broker,
        kind: type[Member],
        name: str,
        topic: str,
        partitions: int,
        size: int,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.partitions = partitions
        self._heartbeat_s = heartbeat_s
        self._look_each_s = LOOK_EACH_S * size
        self._next_look = 0.0
        self._poll = select.epoll()
        address = (broker.host, broker.port)
        self.members = [kind(address, name, topic, partitions) for _ in range(size)]
        self._by_fd = {member.socket.fileno(): member for member in self.members}
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)

    def form(self, timeout_s: float = 60) -> float:
        """Make all join at once. Returns the seconds until the group is stable."""
        begin = time.monotonic()
        for member in self.members:
            member.begin()
        self._settle(begin + timeout_s)
        return time.monotonic() - begin

    def lose_one(self, timeout_s: float = 60) -> float:
        """Make the last member leave. Returns the seconds until the others have all partitions."""
        gone = self.members.pop()
        while gone.is_waiting:
            self._turn()
        begin = time.monotonic()
        gone.leave()
        while gone.is_waiting:
            self._turn()
        self._poll.unregister(gone.socket)
        del self._by_fd[gone.socket.fileno()]
        gone.socket.close()
        self._settle(begin + timeout_s)
        return time.monotonic() - begin

    def is_stable(self) -> bool:
        """True if every partition has one owner, every member has partitions, and all have the same
        epoch.
        """
        owned = [partition for member in self.members for partition in member.owned]
        return (
            sorted(owned) == list(range(self.partitions))
            and all(member.owned for member in self.members)
            and len({member.epoch for member in self.members}) == 1
        )

    def _settle(self, deadline: float) -> None:
        while not self._turn() or not self.is_stable():
            if time.monotonic() > deadline:
                epochs = sorted({member.epoch for member in self.members})
                count = sum(len(member.owned) for member in self.members)
                raise TimeoutError(
                    f"the group did not settle: epochs {epochs}, {count} of "
                    f"{self.partitions} partitions owned"
                )

    def _turn(self) -> bool:
        """Handle what has arrived. Returns True when it is time to check all members."""
        now = time.monotonic()
        looks = self._next_look <= now
        if looks:
            self._next_look = now + self._look_each_s
            for member in self.members:
                if not member.is_waiting and member.next_heartbeat <= now:
                    member.next_heartbeat = now + self._heartbeat_s
                    member.heartbeat()
        for fd, _ in self._poll.poll(self._look_each_s):
            self._by_fd[fd].take()
        return looks

    def close(self) -> None:
        """Close all connections; the broker notices."""
        self._poll.close()
        for member in self.members:
            member.socket.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def find_coordinator(group: str) -> bytes:
    """FindCoordinator v0, for which a new broker creates its offsets topic."""
    return request_frame(10, 0, string(group))


def stranger(group: str) -> bytes:
    """Heartbeat v0 of an unknown member: a coordinator that is ready does not know it."""
    body = string(group) + struct.pack(">i", 0) + string("nobody")
    return request_frame(HEARTBEAT, 0, body)


def first_error(answer: bytes) -> int:
    """The error code that the answers to `find_coordinator` and `stranger` begin with."""
    return frames.Answer(answer).take("h")
