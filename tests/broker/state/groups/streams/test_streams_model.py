"""Random histories of a streams group: members that join, leave, lose responses and fall silent,
topics that grow, a coordinator that restarts. After every step the assignment epochs are those of a
model (KAFKA-19779), no two members have the same task, and a commit is accepted exactly when it is
allowed.
"""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kstore.broker.state.groups.contract import CommitClaim
from kstore.broker.state.groups.result import GroupContext
from kstore.broker.state.groups.streams.group import StreamsGroup
from kstore.errors import ErrorCode
from kstore.protocol.schema import ZERO_UUID
from tests.reference.group_driver import GroupDriver
from tests.reference.streams_members import (
    StreamsClient,
    Task,
    hard_state,
    subtopology,
    topic_info,
    topology,
)

TOPOLOGY = topology(
    subtopology("0", "a", "b", repartition_sink_topics=["r"]),
    subtopology(
        "1",
        repartition_source_topics=[topic_info("r")],
        state_changelog_topics=[topic_info("store")],
    ),
)
SOURCES = {"0": ("a", "b"), "1": ("r",)}
MEMBERS = st.integers(0, 3)


class Driver(GroupDriver):
    """With settings of the group that a test may change."""

    standbys = 1

    def context(self, *asked: Any) -> GroupContext:
        """As the runtime would, with this group's settings."""
        ctx = super().context(*asked)
        given = {
            "streams.num.standby.replicas": self.standbys,
            "streams.session.timeout.ms": 10_000,
            "streams.heartbeat.interval.ms": 1_000,
            "streams.assignment.interval.ms": 500,
            "streams.initial.rebalance.delay.ms": 1_000,
        }
        return ctx._replace(configs=given)


class StreamsGroupMachine(RuleBasedStateMachine):
    """The coordinator against the model of assignment epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.sizes = {"a": 2, "b": 1}
        self.grow(0)
        # Two of the members are threads of one process.
        self.clients = [
            StreamsClient(self.driver, f"m{i}", TOPOLOGY, f"p{i // 2}") for i in range(4)
        ]
        self.since: dict[tuple[str, Task], int] = {}

    @property
    def group(self) -> StreamsGroup | None:
        found = self.driver.shard.groups.get("g")
        assert found is None or isinstance(found, StreamsGroup)
        return found

    # ---- what happens ----

    @rule(who=MEMBERS)
    def join(self, who: int) -> None:
        self.clients[who].join()
        self.observe()

    @rule(who=MEMBERS, tell=st.booleans(), lost=st.booleans())
    def beat(self, who: int, tell: bool, lost: bool) -> None:
        client = self.clients[who]
        if client.epoch:
            answer = client.beat(tell=tell, lost=lost)
            fenced = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
            assert answer.error_code in (0, ErrorCode.GROUP_ID_NOT_FOUND, *fenced)
            if answer.error_code:
                client.epoch, client.active, client.standby = 0, set(), set()
        self.observe()

    @rule(who=st.sets(MEMBERS, min_size=2), deaf=st.sets(MEMBERS), rounds=st.integers(1, 4))
    def work(self, who: set[int], deaf: set[int], rounds: int) -> None:
        """Some members work on for a while; answers to the deaf ones are lost."""
        for _ in range(rounds):
            self.driver.advance(600)
            self.observe()
            for index in sorted(who):
                self.beat_or_join(self.clients[index], lost=index in deaf)

    def beat_or_join(self, client: StreamsClient, *, lost: bool = False) -> None:
        if client.beat(lost=lost).error_code:
            client.join()
        self.observe()
        self.check()

    @rule(who=MEMBERS)
    def leave(self, who: int) -> None:
        self.clients[who].leave()
        self.observe()

    @rule(ms=st.sampled_from([100, 600, 1_100, 9_000, 61_000]))
    def advance(self, ms: int) -> None:
        # In small steps, so that the model sees each timer's effect.
        for _ in range(0, ms, 500):
            self.driver.advance(min(ms, 500))
            self.observe()

    @rule(more=st.integers(1, 2))
    def grow(self, more: int) -> None:
        self.sizes["a"] = min(self.sizes["a"] + more, 6)
        for name, size in self.sizes.items():
            self.driver.topic(name, size)
        for name in ("r", "store"):
            self.driver.topic(name, max(self.sizes.values()))

    @rule(count=st.integers(0, 2))
    def set_standbys(self, count: int) -> None:
        self.driver.standbys = count

    @rule()
    def restart(self) -> None:
        before = None if self.group is None else hard_state(self.group)
        self.driver.restart()
        assert (None if self.group is None else hard_state(self.group)) == before

    # ---- the model of assignment epochs ----

    def observe(self) -> None:
        """A task that a member has now and did not have before was given in its present epoch."""
        now: dict[tuple[str, Task], int] = {}
        for member in self.group.members.values() if self.group else ():
            for task in (*member.assigned.active, *member.pending_revocation.active):
                place = (member.member_id, tuple(task))
                now[place] = self.since.get(place, member.member_epoch)
        self.since = now

    @invariant()
    def check(self) -> None:
        self.epochs_are_the_models()
        self.epochs_are_in_order()
        self.nobody_shares_a_task()
        self.what_a_member_holds_is_its_own()
        self.commits_are_accepted_exactly_when_they_may_be()

    def epochs_are_the_models(self) -> None:
        for member in self.group.members.values() if self.group else ():
            for task in (*member.assigned.active, *member.pending_revocation.active):
                assert member.assignment_epoch(task) == self.since[member.member_id, tuple(task)]

    def epochs_are_in_order(self) -> None:
        group = self.group
        for member in group.members.values() if group else ():
            assert group is not None
            epochs = (*member.assigned.active.values(), *member.pending_revocation.active.values())
            assert all(epoch <= member.member_epoch for epoch in epochs)
            assert member.member_epoch <= group.assignment_epoch <= group.group_epoch

    def nobody_shares_a_task(self) -> None:
        owners: dict[Task, str] = {}
        copies: set[tuple[str, Task]] = set()
        for member in self.group.members.values() if self.group else ():
            for tasks in (member.assigned, member.pending_revocation):
                for task in tasks.active:
                    assert owners.setdefault(tuple(task), member.member_id) == member.member_id
                for task in (*tasks.active, *tasks.standby):
                    place = (member.process_id, tuple(task))
                    assert place not in copies, "two copies in one process"
                    copies.add(place)

    def what_a_member_holds_is_its_own(self) -> None:
        """No other member may get a task before this one has reported that it revoked it."""
        for client in self.clients:
            member = self.group.members.get(client.member_id) if self.group else None
            if member is not None and client.epoch:
                own = (*member.assigned.active, *member.pending_revocation.active)
                assert client.active <= {tuple(task) for task in own}

    def commits_are_accepted_exactly_when_they_may_be(self) -> None:
        group = self.group
        for member in group.members.values() if group else ():
            assert group is not None
            for epoch in range(member.member_epoch - 2, member.member_epoch + 2):
                for transactional, strict in itertools.product((False, True), repeat=2):
                    claim = CommitClaim(member.member_id, None, epoch, 9, transactional, strict)
                    for task in [(s, p) for s in SOURCES for p in range(3)]:
                        for topic in SOURCES[task[0]]:
                            error = commit_error(group, claim, topic, task[1])
                            assert error == self.right_error(member, claim, task)

    def right_error(self, member: Any, claim: CommitClaim, task: Task) -> int:
        """Assignment epoch <= claimed epoch <= member epoch; the present one may always."""
        if claim.epoch == member.member_epoch and not claim.needs_assignment:
            return ErrorCode.NONE
        since = self.since.get((member.member_id, task), 2**31 - 1)
        if since <= claim.epoch <= member.member_epoch:
            return ErrorCode.NONE
        transactional = claim.transactional
        if transactional and claim.epoch == -1 and claim.is_anonymous:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH

    # ---- in the end ----

    def teardown(self) -> None:
        """The remaining members converge, and every task is assigned once."""
        for _ in range(20):
            self.driver.advance(600)
            self.observe()
            for client in self.clients[:3]:
                self.beat_or_join(client)
        group = self.group
        assert sorted(group.members) == ["m0", "m1", "m2"], "m3 was silent for its session"
        assert group.state == "Stable"
        wanted = {("0", p) for p in range(max(self.sizes.values()))}
        wanted |= {("1", p) for p in range(max(self.sizes.values()))}
        held = [task for client in self.clients[:3] for task in client.active]
        assert sorted(held) == sorted(wanted)
        counts = [len(client.active) for client in self.clients[:3]]
        assert max(counts) - min(counts) <= len(wanted) // 2


def commit_error(group: StreamsGroup, claim: CommitClaim, topic: str, partition: int) -> int:
    return group.commit_error(claim) or group.partition_commit_error(
        claim, topic, ZERO_UUID, partition
    )


TestStreamsGroup = StreamsGroupMachine.TestCase
TestStreamsGroup.settings = hypothesis_settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    # To explain a failure would take many times as long as to find and shrink it.
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
