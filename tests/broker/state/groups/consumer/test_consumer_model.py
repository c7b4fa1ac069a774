"""Random histories of a consumer group: members that come, lose answers, give up slowly, fall
silent and leave, while topics change and the coordinator restarts.

The driver checks after every step that assignment epoch <= member epoch <= target assignment epoch
<= group epoch, and that a partition has one owner. Here commits are compared with a model that only
tracks owners from step to step (KAFKA-19779), and the group must become stable.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.consumer.member import STATIC_LEFT_EPOCH
from kstore.errors import ErrorCode
from tests.reference.consumer_driver import ConsumerDriver, assignment, subscription
from tests.reference.group_driver import Parked

CLIENTS = ("a", "b", "c", "d")
STATIC = {"c": "i", "d": "j"}
TOPICS = ("t", "u", "v")
SUBSCRIPTIONS = (("t",), ("t", "u"), ("u", "v"), ("t", "u", "v"), ())
clients = st.sampled_from(CLIENTS)
Place = tuple[UUID, int]


def stored(group: Any) -> dict[str, Any]:
    """What the log holds of a consumer group."""
    if not isinstance(group, ConsumerGroup):
        return {}
    soft = {"seen_image_version", "regexes_image_version"}
    return {name: getattr(group, name) for name in ConsumerGroup.__slots__ if name not in soft}


class Client:
    """A client's id and epoch, and the partitions that it owns and was assigned."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instance = STATIC.get(name)
        self.lives = 0
        self.forget()

    def forget(self) -> None:
        """Start again with nothing, under another id."""
        self.lives += 1
        self.member_id = f"{self.name}{self.lives}"
        self.epoch = 0
        self.owned: set[Place] = set()
        self.told: set[Place] = set()


class Histories(RuleBasedStateMachine):
    """One group, four clients, three topics."""

    @initialize(interval=st.sampled_from([0, 1000]), strict=st.booleans())
    def start(self, interval: int, strict: bool) -> None:
        """No topic but one. ``strict``: only what is assigned is committed."""
        self.driver = ConsumerDriver(commit_requires_assignment=strict)
        self.strict = strict
        self.driver.group_configs["consumer.assignment.interval.ms"] = interval
        self.clients = {name: Client(name) for name in CLIENTS}
        self.held: dict[str, dict[Place, int]] = {}
        self.counts = {"t": 2}
        self.driver.topic("t", 2)

    def group(self) -> ConsumerGroup | None:
        return self.driver.shard.groups.get("g")

    def watch(self) -> None:
        """Note since which epoch each member holds each partition, from the outside."""
        group = self.group()
        held: dict[str, dict[Place, int]] = {}
        for member in {} if group is None else group.members.values():
            before = self.held.get(member.member_id, {})
            now = held[member.member_id] = {}
            for part in (member.assigned, member.revoking):
                for topic_id, partitions in part.items():
                    for partition in partitions:
                        place = (topic_id, partition)
                        now[place] = before.get(place, member.epoch)
            if member.epoch in (STATIC_LEFT_EPOCH, 0):
                held[member.member_id] = dict.fromkeys(now, 0)
        # A static member that comes back holds what the previous one held, as of epoch 0.
        for member in () if group is None else group.members.values():
            if member.member_id not in self.held and member.instance_id is not None:
                for places in self.held.values():
                    for place in places.keys() & held[member.member_id].keys():
                        held[member.member_id][place] = 0
        self.held = held

    def beat(self, client: Client, *, lost: bool, **fields: Any) -> None:
        """Send a heartbeat; a client follows the answer, if it comes."""
        owned: dict[UUID, list[int]] = {}
        for topic_id, partition in client.owned:
            owned.setdefault(topic_id, []).append(partition)
        response = self.driver.beat(
            client.member_id, client.epoch, owned, instance_id=client.instance, **fields
        )
        self.watch()
        if lost:
            return
        if response.error_code in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            client.forget()
            return
        assert response.error_code in (0, ErrorCode.UNRELEASED_INSTANCE_ID), response
        if response.error_code:
            return
        client.epoch = response.member_epoch
        if response.assignment is not None:
            client.told = {
                (row.topic_id, partition)
                for row in response.assignment.topic_partitions
                for partition in row.partitions
            }
            client.owned |= client.told

    @rule(name=clients, topics=st.sampled_from(SUBSCRIPTIONS), lost=st.booleans())
    def enter(self, name: str, topics: tuple[str, ...], lost: bool) -> None:
        client = self.clients[name]
        client.epoch = 0
        client.owned.clear()
        self.beat(
            client, lost=lost, rebalance_timeout_ms=20_000, subscribed_topic_names=list(topics)
        )

    @rule(name=clients, lost=st.booleans())
    def stay(self, name: str, lost: bool) -> None:
        """A heartbeat of a member."""
        if self.clients[name].epoch:
            self.beat(self.clients[name], lost=lost)

    @rule(name=clients, topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, name: str, topics: tuple[str, ...]) -> None:
        if self.clients[name].epoch:
            self.beat(self.clients[name], lost=False, subscribed_topic_names=list(topics))

    @rule(name=clients, all_of_it=st.booleans())
    def give_up(self, name: str, all_of_it: bool) -> None:
        """Give up what the coordinator took away, or only a part of it yet."""
        client = self.clients[name]
        surplus = sorted(client.owned - client.told)
        client.owned -= set(surplus if all_of_it else surplus[:1])

    @rule(name=clients, for_a_while=st.booleans())
    def leave(self, name: str, for_a_while: bool) -> None:
        """Leave; a static member may intend to come back."""
        client = self.clients[name]
        if client.epoch:
            epoch = -2 if for_a_while and client.instance else -1
            self.driver.beat(client.member_id, epoch, instance_id=client.instance)
            self.watch()
            client.forget()

    @rule(ms=st.sampled_from([1, 1000, 10_000, 30_000]))
    def wait(self, ms: int) -> None:
        """Sessions and rebalance timeouts end."""
        self.driver.advance(ms)
        self.watch()

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 2))
    def grow(self, name: str, more: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + more
        self.driver.topic(name, self.counts[name])

    @rule(name=st.sampled_from(TOPICS))
    def delete(self, name: str) -> None:
        self.counts.pop(name, None)
        self.driver.image = self.driver.image.without_topics(name)

    @rule()
    def restart(self) -> None:
        """Another coordinator loads the log, and knows the same."""
        before = stored(self.group())
        self.driver.restart()
        assert stored(self.group()) == before
        self.watch()

    @rule(name=clients, epoch=st.integers(-1, 8), topic=st.sampled_from(TOPICS), lag=st.booleans())
    def commit(self, name: str, epoch: int, topic: str, lag: bool) -> None:
        """A commit is taken if and only if the partition has been held since its epoch, or that is
        the member's present one.
        """
        group, image = self.group(), self.driver.image.topics.get(topic)
        client = self.clients[name]
        if group is None or not group.members or image is None:
            return
        epoch = client.epoch - lag if epoch > 5 else epoch
        member = group.members.get(client.member_id)
        for partition in range(len(image.partitions)):
            since = self.held.get(client.member_id, {}).get((image.topic_id, partition))
            (error_code,) = self.driver.commit(client.member_id, epoch, topic, partition)
            if member is None:
                assert error_code == ErrorCode.UNKNOWN_MEMBER_ID
            elif (since is not None and since <= epoch <= member.epoch) or (
                epoch == member.epoch and not self.strict
            ):
                assert error_code == ErrorCode.NONE, (member, partition, epoch, since)
            else:
                assert error_code == ErrorCode.STALE_MEMBER_EPOCH, (member, partition, epoch, since)

    @invariant()
    def clients_never_share(self) -> None:
        """No two members own the same partition, by what each of them knows."""
        group = self.group() if hasattr(self, "driver") else None
        if group is None:
            return
        owners: dict[Place, str] = {}
        for client in self.clients.values():
            member = group.members.get(client.member_id)
            if member is None or member.epoch != client.epoch:
                continue  # fenced, or will learn that it is
            for place in client.owned:
                assert place not in owners, (place, owners[place], client.member_id)
                owners[place] = client.member_id

    def teardown(self) -> None:
        """Without disturbance, members become stable and share all subscribed partitions evenly."""
        if not hasattr(self, "driver") or self.group() is None:
            return
        for _ in range(8):
            self.driver.advance(1000)
            for client in self.clients.values():
                client.owned &= client.told
                if client.epoch:
                    self.beat(client, lost=False)
        group = self.group()
        away = [m for m in group.members.values() if m.epoch == STATIC_LEFT_EPOCH]
        silent = group.members.keys() - {client.member_id for client in self.clients.values()}
        if away or silent or not all(c.epoch for c in self.clients.values()):
            return
        assert group.state == "Stable"
        assert {m.epoch for m in group.members.values()} == {group.epoch}


class Migrations(RuleBasedStateMachine):
    """One group of members of both protocols: it changes its type, and back."""

    @initialize()
    def start(self) -> None:
        self.driver = ConsumerDriver()
        self.topic_id = self.driver.topic("t", 3)
        self.epochs: dict[str, int] = {}
        self.generations: dict[str, int] = {}
        self.parked: dict[str, Any] = {}

    def take(self, name: str, answer: Any) -> None:
        """A classic member follows the answer to its join."""
        if isinstance(answer, Parked):
            self.parked[name] = answer
        elif answer.error_code == ErrorCode.NONE:
            self.generations[answer.member_id] = answer.generation_id

    @rule(name=st.sampled_from(("x", "y")), owned=st.booleans())
    def join(self, name: str, owned: bool) -> None:
        """Join with the classic protocol, at the first time or again."""
        data = subscription(*((0, 1) if owned else ()))
        known = [member for member in self.generations if member.startswith(name)]
        member_id = known[-1] if known else ""
        answer = self.driver.join(member_id=member_id, protocols=data, client_id=name)
        if not isinstance(answer, Parked) and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.driver.join(member_id=answer.member_id, protocols=data, client_id=name)
        elif not isinstance(answer, Parked) and answer.error_code and member_id:
            del self.generations[member_id]
        self.take(name, answer)

    @rule()
    def hear(self) -> None:
        """Parked joins may have been answered."""
        for name, parked in list(self.parked.items()):
            if parked.response is not None:
                del self.parked[name]
                self.take(name, parked.response)

    @rule(data=st.data(), leads=st.booleans())
    def sync(self, data: st.DataObject, leads: bool) -> None:
        """Sync, with an assignment for everybody if it may lead."""
        if self.generations:
            member_id = data.draw(st.sampled_from(sorted(self.generations)))
            given = {member: assignment(n) for n, member in enumerate(self.generations)}
            generation_id = self.generations[member_id]
            self.driver.sync(member_id, generation_id, given if leads else None)

    @rule(data=st.data())
    def classic_beat(self, data: st.DataObject) -> None:
        if self.generations:
            member_id = data.draw(st.sampled_from(sorted(self.generations)))
            code = self.driver.heartbeat(member_id, self.generations[member_id])
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                del self.generations[member_id]

    @rule(name=st.sampled_from(("a", "b")), stays=st.booleans())
    def beat(self, name: str, stays: bool) -> None:
        """A heartbeat of the consumer protocol: join, stay, or leave."""
        epoch = self.epochs.get(name, 0)
        if not epoch:
            answer = self.driver.enter(name, "t")
        else:
            member = None
            group = self.driver.shard.groups.get("g")
            if isinstance(group, ConsumerGroup):
                member = group.members.get(name)
            owned = {} if member is None else {t: list(p) for t, p in member.assigned.items()}
            answer = self.driver.beat(name, epoch if stays else -1, owned if stays else None)
        self.epochs[name] = max(answer.member_epoch, 0)

    @rule(data=st.data())
    def classic_leave(self, data: st.DataObject) -> None:
        if self.generations:
            member_id = data.draw(st.sampled_from(sorted(self.generations)))
            self.driver.leave((member_id, None))
            del self.generations[member_id]

    @rule(ms=st.sampled_from([0, 3000, 10_000, 60_000]))
    def wait(self, ms: int) -> None:
        """Delays, sessions and rebalances end."""
        self.driver.advance(ms)

    @rule()
    def restart(self) -> None:
        """Another coordinator loads the log, and knows a group of the same kind."""
        group = self.driver.shard.groups.get("g")
        before = None if group is None else group.kind
        known = stored(group)
        self.driver.restart()
        self.parked.clear()
        after = self.driver.shard.groups.get("g")
        assert (None if after is None else after.kind) == before
        assert stored(after) == known


EXAMPLES = 200 if os.environ.get("CI") else 40
for machine in (Histories, Migrations):
    machine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
test_histories = Histories.TestCase
test_migrations = Migrations.TestCase
