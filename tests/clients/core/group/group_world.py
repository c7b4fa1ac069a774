"""Members of a group and the broker's pure coordinator, without clock, sockets or threads: a
request waits until the test delivers, answers or loses it.

After each step it is checked that the user got consistent reports, that a member that has done all
its work asks to be woken later, and that no two members rightfully own one partition.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.contract import CommitClaim as BrokerClaim
from kstore.clients.core.group.assignor_table import make_assignor
from kstore.clients.core.group.classic_member import ClassicMember
from kstore.clients.core.group.classic_state import ClassicState
from kstore.clients.core.group.consumer_member import ConsumerMember, MemberState
from kstore.clients.core.group.group_step import (
    CommitClaim,
    Effect,
    Fail,
    GroupTopic,
    HandOver,
    LookUp,
    MemberSettings,
    Send,
)
from kstore.errors import CommitFailedError, ErrorCode, RebalanceInProgressError
from kstore.protocol.groups.classic import JoinGroupRequest, SyncGroupRequest
from kstore.protocol.schema import Message
from kstore.types import TopicPartition
from tests.reference.consumer_driver import ConsumerDriver
from tests.reference.group_driver import Parked

JOINING = (JoinGroupRequest, SyncGroupRequest)
SESSION_MS = 10_000
MAX_POLL_MS = 30_000


class User:
    """A consumer: its member, the reports to its user, and its requests under way."""

    def __init__(
        self, world: World, number: int, strategy: tuple[str, ...], instance_id: str | None
    ) -> None:
        self.world = world
        self.number = number
        settings = MemberSettings(
            "g",
            instance_id=instance_id,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=MAX_POLL_MS,
        )
        self.member: ClassicMember | ConsumerMember
        if strategy:
            rules = [make_assignor(name) for name in strategy]
            self.member = ClassicMember(settings, rules, lambda: 0.5)
        else:
            self.member = ConsumerMember(settings, f"member-{number}", lambda: 0.5)
        self.topics: frozenset[str] = frozenset()
        self.outbox: list[Message] = []
        self.waiting: list[tuple[Message, Any]] = []
        self.handing_over: HandOver | None = None
        self.is_looking = False
        self.held: frozenset[TopicPartition] = frozenset()
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.errors: list[Exception] = []
        self.is_gone = False

    def take(self, effects: list[Effect]) -> None:
        """Note what the member wants."""
        for effect in effects:
            if isinstance(effect, Send):
                self.outbox.append(effect.request)
            elif isinstance(effect, HandOver):
                assert self.handing_over is None, "two hand-overs at once"
                assert not (effect.lost and effect.commit), "lost partitions can't be committed"
                assert not effect.commit or self.claim(), "nobody may commit any more"
                self.handing_over = effect
            elif isinstance(effect, LookUp):
                self.is_looking = True
            elif isinstance(effect, Fail):
                self.errors.append(effect.error)
        now_ms = self.world.now_ms
        wakeup_ms = self.member.next_wakeup(now_ms)
        assert wakeup_ms is None or wakeup_ms > now_ms, (self.member.state, "busy for nothing")

    def subscribe(self, *topics: str) -> None:
        self.topics = frozenset(topics)
        self.take(self.member.subscribe(self.topics, self.world.now_ms))

    def poll(self) -> None:
        """Poll; the hand-over is not done by that."""
        self.take(self.member.polled(self.world.now_ms))

    def leave(self) -> None:
        """Close: the user is notified first."""
        self.topics = frozenset()
        self.is_gone = True
        if self.handing_over is not None:
            self.hand_over()
        self.outbox = [row for row in self.outbox if not isinstance(row, JOINING)]
        self.take(self.member.leave(self.world.now_ms))

    def hand_over(self) -> None:
        """The user learns of its partitions, in the order in which the shell reports them."""
        change, self.handing_over = self.handing_over, None
        if change is None:
            return
        for kind, gone in (("revoked", change.revoked), ("lost", change.lost)):
            assert gone <= self.held, f"{kind} what it never had"
            self.held -= gone
            if gone:
                self.events.append((kind, gone))
        if change.added is not None:
            assert not change.added & self.held, "assigned what it has"
            self.held |= change.added
            self.events.append(("assigned", change.added))
        self.take(self.member.handed_over(self.world.now_ms))
        assert self.member.owned == self.held

    def look_up(self) -> None:
        """Metadata comes."""
        if self.is_looking:
            self.is_looking = False
            self.take(self.member.topics_known(self.world.topics(), self.world.now_ms))

    def deliver(self, place: int = 0) -> None:
        """A request reaches the coordinator: the first of one of both connections."""
        firsts = [
            next((row for row in self.outbox if isinstance(row, JOINING) is joins), None)
            for joins in (False, True)
        ]
        found = [row for row in firsts if row is not None]
        if found:
            request = found[place % len(found)]
            self.outbox.remove(request)
            self.waiting.append((request, self.world.driver.send(request)))

    def answer(self, place: int = 0) -> None:
        ready = [
            (request, answer.response if isinstance(answer, Parked) else answer)
            for request, answer in self.waiting
        ]
        ready = [row for row in ready if row[1] is not None]
        if ready:
            request, response = ready[place % len(ready)]
            self.waiting = [row for row in self.waiting if row[0] is not request]
            self.take(self.member.answered(request, response, self.world.now_ms))

    def lose(self, place: int) -> None:
        """A request, or its answer, is lost, and the member notices."""
        in_progress = self.outbox + [request for request, _ in self.waiting]
        if in_progress:
            self.forget(in_progress[place % len(in_progress)])

    def forget(self, request: Message) -> None:
        """No answer will come to this one."""
        self.outbox = [row for row in self.outbox if row is not request]
        self.waiting = [row for row in self.waiting if row[0] is not request]
        self.take(self.member.failed(request, self.world.now_ms))

    def claim(self) -> CommitClaim | None:
        """Whom a commit would be from."""
        try:
            return self.member.claim()
        except (CommitFailedError, RebalanceInProgressError):
            return None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be done."""
        stable = self.member.state in (ClassicState.STABLE, MemberState.STABLE)
        return self.handing_over is None and not self.is_looking and stable


class World:
    """A group ``g``, topics, and time."""

    def __init__(self) -> None:
        self.driver = ConsumerDriver(initial_rebalance_delay_ms=0)
        self.driver.group_configs["consumer.session.timeout.ms"] = SESSION_MS
        self.driver.group_configs["consumer.heartbeat.interval.ms"] = 1_000
        self.users: list[User] = []
        self._numbers = itertools.count(1)

    @property
    def now_ms(self) -> int:
        return self.driver.now_ms

    def topics(self) -> dict[str, GroupTopic]:
        return {
            name: GroupTopic(topic.topic_id, len(topic.partitions))
            for name, topic in self.driver.image.topics.items()
        }

    def user(self, *strategy: str, instance_id: str | None = None) -> User:
        """A new consumer; assignors for the classic protocol, none for that of KIP-848."""
        user = User(self, next(self._numbers), strategy, instance_id)
        user.take(user.member.metadata_changed(self.topics(), self.now_ms))
        self.users.append(user)
        return user

    def grow(self, name: str, partitions: int) -> None:
        """Create a topic or more partitions; all users learn of it."""
        self.driver.topic(name, partitions)
        for user in self.users:
            user.take(user.member.metadata_changed(self.topics(), self.now_ms))

    def pass_time(self, ms: int) -> None:
        """Time passes, for the coordinator and for all users that are there."""
        self.driver.advance(ms)
        for user in self.users:
            user.take(user.member.advance(self.now_ms))

    def move_coordinator(self) -> None:
        """Another broker loads the group; what was under way is lost."""
        self.driver.restart()
        for user in self.users:
            for request, _ in list(user.waiting):
                user.forget(request)

    def check(self) -> None:
        """Each partition is held by one of the members that the coordinator would listen to."""
        owners: dict[TopicPartition, User] = {}
        group = self.driver.shard.groups.get("g")
        for user in self.users:
            claim = user.claim()
            if claim is None or group is None:
                continue
            mine = BrokerClaim(claim.member_id, claim.instance_id, claim.generation, 9)
            if group.commit_error(mine) not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                continue
            handed = user.handing_over
            held = user.held - (handed.lost if handed is not None else frozenset())
            for tp in held:
                other = owners.setdefault(tp, user)
                assert other is user, f"{tp}: users {other.number} and {user.number}"

    def settle(self, chance: Random | None = None, most_ms: int = 300_000) -> None:
        """All act in random order, nothing is lost: every partition gets one owner."""
        chance = chance or Random(0)
        until_ms = self.now_ms + most_ms
        while not self._is_at_rest():
            for user in chance.sample(self.users, len(self.users)):
                if not user.is_gone:
                    user.poll()
                user.look_up()
                if chance.random() < 0.15:
                    user.hand_over()
                    self.check()
                while user.outbox:
                    user.deliver()
            for user in chance.sample(self.users, len(self.users)):
                for _ in range(len(user.waiting)):
                    user.answer()
                    self.check()
            states = [
                (user.number, user.member.state, sorted(user.held), user.errors)
                for user in self.users
            ]
            assert self.now_ms < until_ms, f"no rest: {states} {self.driver.shard.groups}"
            self.pass_time(100)

    @staticmethod
    def _agree(group: Any, users: list[User]) -> bool:
        """Whether the coordinator, too, sees nothing left to be done."""
        epoch = group.epoch if isinstance(group, ConsumerGroup) else group.generation_id
        claims = [user.claim() for user in users if user.topics]
        return all(claim is not None and claim.generation == epoch for claim in claims)

    def _is_at_rest(self) -> bool:
        """Whether the users that are there own everything, each partition once."""
        there = [user for user in self.users if not user.is_gone]
        if any(not user.is_settled or user.outbox for user in there if user.topics):
            return False
        group = self.driver.shard.groups.get("g")
        if any(user.topics for user in there) and not self._agree(group, there):
            return False
        wanted = frozenset().union(*(user.topics for user in there))
        everything = sorted(
            TopicPartition(name, index)
            for name, topic in self.topics().items()
            if name in wanted
            for index in range(topic.partitions)
        )
        held = sorted(tp for user in there for tp in user.held)
        fitting = all(tp.topic in user.topics for user in there for tp in user.held)
        return fitting and held == everything
