"""Members of groups against the broker's pure coordinator: stories, and histories with losses."""

from __future__ import annotations

import itertools
import random

import pytest

from kstore.clients.core.group.classic_state import ClassicState
from kstore.clients.core.group.consumer_member import MemberState
from kstore.errors import CommitFailedError, FencedInstanceIdError, RebalanceInProgressError
from kstore.types import TopicPartition
from tests.clients.core.group.group_world import MAX_POLL_MS, SESSION_MS, User, World

KINDS = (("range",), ("sticky",), ("cooperative-sticky",), ("range", "cooperative-sticky"), ())


def world_with(partitions: int = 6) -> World:
    """One topic ``t``."""
    world = World()
    world.grow("t", partitions)
    return world


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "+".join(kind) or "consumer")
class TestEveryProtocol:
    """What holds with all of them."""

    def test_members_share_the_partitions_and_take_over_those_of_one_that_leaves(
        self, kind: tuple[str, ...]
    ) -> None:
        world = world_with()
        users = [world.user(*kind) for _ in range(3)]
        for user in users:
            user.subscribe("t")
            world.settle()
        assert sorted(len(user.held) for user in users) == [2, 2, 2]
        users[0].leave()
        world.settle()
        assert sorted(len(user.held) for user in users) == [0, 3, 3]
        assert users[0].events[-1][0] == "revoked"

    def test_nothing_is_asked_of_the_coordinator_before_the_first_poll(
        self, kind: tuple[str, ...]
    ) -> None:
        world = world_with()
        user = world.user(*kind)
        user.subscribe("t")
        assert not user.outbox
        user.poll()
        assert user.outbox

    def test_who_does_not_poll_leaves_and_is_told_at_its_next_poll_what_it_lost(
        self, kind: tuple[str, ...]
    ) -> None:
        world = world_with()
        late, other = world.user(*kind), world.user(*kind)
        late.subscribe("t")
        other.subscribe("t")
        world.settle()
        had = late.held
        late.is_gone = True  # it works on records, and does not poll
        for _ in range(MAX_POLL_MS // 1000 + 1):
            other.poll()
            world.pass_time(1_000)
            for user in (late, other):
                while user.outbox:
                    user.deliver()
                for _ in range(3):
                    user.answer()
        with pytest.raises(CommitFailedError):
            late.member.claim()
        late.is_gone = False
        world.settle()
        assert ("lost", had) in late.events
        assert late.held

    def test_a_member_that_the_coordinator_forgot_loses_its_partitions_and_joins_anew(
        self, kind: tuple[str, ...]
    ) -> None:
        world = world_with()
        user = world.user(*kind)
        user.subscribe("t")
        world.settle()
        had = user.held
        world.driver.advance(SESSION_MS + 1)  # the coordinator did not get it
        world.settle()
        assert user.events[-2:] == [("lost", had), ("assigned", had)]

    def test_new_partitions_of_a_topic_are_assigned(self, kind: tuple[str, ...]) -> None:
        world = world_with(2)
        users = [world.user(*kind) for _ in range(2)]
        for user in users:
            user.subscribe("t")
        world.settle()
        world.grow("t", 5)
        world.settle()
        assert sum(len(user.held) for user in users) == 5

    def test_a_changed_subscription_takes_and_gives_partitions(self, kind: tuple[str, ...]) -> None:
        world = world_with(2)
        world.grow("u", 2)
        user = world.user(*kind)
        user.subscribe("t")
        world.settle()
        user.subscribe("u")
        world.settle()
        assert {tp.topic for tp in user.held} == {"u"}
        assert (
            "revoked",
            frozenset({TopicPartition("t", 0), TopicPartition("t", 1)}),
        ) in user.events

    def test_the_group_goes_on_when_its_coordinator_moves(self, kind: tuple[str, ...]) -> None:
        world = world_with()
        users = [world.user(*kind) for _ in range(2)]
        for user in users:
            user.subscribe("t")
        world.settle()
        before = [user.held for user in users]
        world.move_coordinator()
        world.settle()
        assert [user.held for user in users] == before

    def test_a_static_member_that_closes_keeps_its_partitions_for_its_successor(
        self, kind: tuple[str, ...]
    ) -> None:
        world = world_with()
        old, other = world.user(*kind, instance_id="i"), world.user(*kind)
        old.subscribe("t")
        other.subscribe("t")
        world.settle()
        had, others = old.held, other.held
        old.leave()
        old.hand_over()
        while old.outbox:
            old.deliver()
        successor = world.user(*kind, instance_id="i")
        successor.subscribe("t")
        world.settle()
        assert (successor.held, other.held) == (had, others)


def test_eager_members_give_everything_up_and_cooperative_ones_only_what_goes() -> None:
    for kind, given_up in (("range", 6), ("cooperative-sticky", 3)):
        world = world_with()
        first, second = world.user(kind), world.user(kind)
        first.subscribe("t")
        world.settle()
        second.subscribe("t")
        world.settle()
        assert [len(gone) for name, gone in first.events if name == "revoked"] == [given_up]


def test_members_with_different_assignors_use_one_that_all_have() -> None:
    world = world_with()
    both, one = world.user("cooperative-sticky", "range"), world.user("range")
    both.subscribe("t")
    one.subscribe("t")
    world.settle()
    assert not both.member.cooperative


def test_a_member_whose_instance_id_somebody_else_took_has_failed() -> None:
    world = world_with()
    old = world.user("range", instance_id="i")
    old.subscribe("t")
    world.settle()
    new = world.user("range", instance_id="i")
    new.subscribe("t")
    old.is_gone = True
    world.settle()
    old.poll()
    world.pass_time(3_000)
    old.deliver()
    old.answer()
    assert [type(error) for error in old.errors] == [FencedInstanceIdError]
    assert old.member.state is ClassicState.FAILED


def test_a_heartbeat_that_finds_the_member_gone_while_it_joins_starts_no_second_join() -> None:
    world = world_with()
    user = world.user("range", instance_id="i")
    user.subscribe("t")
    world.settle()
    world.pass_time(3_000)  # a heartbeat is due
    world.grow("t", 7)
    world.driver.advance(SESSION_MS + 1)  # the coordinator forgets the member
    user.hand_over()
    assert [type(request).__name__ for request in user.outbox] == [
        "HeartbeatRequest",
        "JoinGroupRequest",
    ]
    world.settle()
    assert not user.errors


def test_commits_between_joining_and_syncing_are_refused_here_already() -> None:
    world = world_with()
    user = world.user("range")
    user.subscribe("t")
    user.poll()
    with pytest.raises(RebalanceInProgressError):
        user.member.claim()


def test_a_member_of_the_consumer_protocol_says_only_what_is_new() -> None:
    world = world_with()
    user = world.user()
    user.subscribe("t")
    world.settle()
    world.pass_time(1_001)
    (beat,) = user.outbox
    assert (beat.subscribed_topic_names, beat.topic_partitions) == (None, None)
    user.lose(0)
    world.pass_time(1_001)
    (beat,) = user.outbox
    assert beat.subscribed_topic_names == ["t"]
    assert beat.topic_partitions[0].partitions == [0, 1, 2, 3, 4, 5]


def test_a_topic_without_a_name_yet_is_looked_up_and_handed_over_later() -> None:
    world = world_with()
    user = world.user()
    user.subscribe("t", "u")
    world.settle()
    world.driver.topic("u", 2)  # the coordinator knows it, this client's metadata does not
    for _ in range(30):
        world.pass_time(200)
        user.poll()
        while user.outbox:
            user.deliver()
        user.answer()
    assert user.is_looking
    assert user.member.state is MemberState.RECONCILING
    world.settle()
    assert len(user.held) == 8


STRATEGIES: dict[str, tuple[tuple[str, ...], ...]] = {
    "eager": (("range", "sticky"), ("sticky", "range")),
    "cooperative": (("cooperative-sticky",),),
    "consumer": ((),),
}
TOPICS = (("t",), ("t",), ("t", "u"), ("u",))


class History:
    """Members join, leave, poll or do not, and requests are lost, as the seed decides."""

    def __init__(self, seed: int, strategies: tuple[tuple[str, ...], ...]) -> None:
        self.random = random.Random(seed)
        self.strategies = strategies
        self.came = 0
        self.world = world_with(self.random.randint(1, 6))
        self.world.grow("u", 2)
        for _ in range(3):
            self.come()

    def play(self, steps: int) -> None:
        """So many steps, then rest."""
        often = [self.deliver, self.answer, self.poll, self.hand_over] * 4 + [self.pass_time] * 3
        now_and_then = [self.lose, self.come, self.subscribe, self.beat]
        seldom = [self.leave, self.vanish, self.grow, self.move_coordinator, self.rest]
        for _ in range(steps):
            chance = self.random.random()
            rules = seldom if chance < 0.05 else now_and_then if chance < 0.2 else often
            self.random.choice(rules)()
            self.world.check()
        self.rest()

    def one(self) -> User | None:
        """A user, maybe one that has closed and is not gone yet."""
        return self.random.choice(self.world.users) if self.world.users else None

    def living(self) -> User | None:
        """A user that has not closed."""
        users = [user for user in self.world.users if not user.is_gone]
        return self.random.choice(users) if users else None

    def come(self) -> None:
        if sum(not user.is_gone for user in self.world.users) < 4:
            self.came += 1
            instance_id = f"i{self.came}" if self.random.random() < 0.3 else None
            kind = self.random.choice(self.strategies)
            user = self.world.user(*kind, instance_id=instance_id)
            user.subscribe(*self.random.choice(TOPICS))

    def subscribe(self) -> None:
        if user := self.living():
            user.subscribe(*self.random.choice(TOPICS))

    def leave(self) -> None:
        if user := self.living():
            user.leave()

    def vanish(self) -> None:
        if user := self.living():
            user.is_gone = True
            self.world.users.remove(user)

    def deliver(self) -> None:
        if user := self.one():
            user.deliver(self.random.randint(0, 1))

    def answer(self) -> None:
        if user := self.one():
            user.answer(self.random.randint(0, 3))

    def lose(self) -> None:
        if user := self.one():
            user.lose(self.random.randint(0, 3))

    def poll(self) -> None:
        if user := self.living():
            user.poll()

    def hand_over(self) -> None:
        if user := self.one():
            user.hand_over()
            user.look_up()

    def pass_time(self) -> None:
        self.world.pass_time(self.random.choice([1, 10, 100, 500, 1_000]))

    def beat(self) -> None:
        self.world.pass_time(self.random.choice([3_000, 3_000, SESSION_MS + 1, MAX_POLL_MS + 1]))

    def grow(self) -> None:
        count = self.world.topics()["t"].partitions
        if count < 10:
            self.world.grow("t", count + self.random.randint(1, 2))

    def move_coordinator(self) -> None:
        self.world.move_coordinator()

    def rest(self) -> None:
        self.world.settle(self.random)


FOUND = (("consumer", 1074), ("consumer", 1079))
"""Seeds that found something; see `git log`."""


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize(
    ("protocol", "seed"), [*itertools.product(sorted(STRATEGIES), range(12)), *FOUND]
)
def test_history(protocol: str, seed: int) -> None:
    History(seed, STRATEGIES[protocol]).play(250)
