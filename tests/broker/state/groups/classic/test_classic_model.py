"""Random histories of a classic group: the rules hold whatever members do, and whenever the
coordinator restarts.

The model is the members' view: the last response that each of them got. No response is predicted.
After every step it is checked what must be true of all of them together.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kstore.broker.state.groups.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard
from kstore.broker.state.groups.settings import GroupSettings
from kstore.errors import ErrorCode
from tests.record_requests import commit_request
from tests.reference.group_driver import GroupDriver, Parked, through_bytes

SESSION_MS = 10_000
REBALANCE_MS = 15_000
PROTOCOLS = (
    (("range", b"r"),),
    (("range", b"R"), ("sticky", b"s")),
    (("sticky", b"S"), ("range", b"r")),
)
CLIENTS = st.integers(0, 4)
INSTANCES = {3: "static-3", 4: "static-4"}


class Client:
    """What one consumer knows."""

    def __init__(self, number: int) -> None:
        self.instance = INSTANCES.get(number)
        self.member_id = ""
        self.generation_id = -1
        self.members: list[str] = []
        self.protocols = PROTOCOLS[0]
        self.joining: Parked | None = None
        self.syncing: Parked | None = None


def persisted(group: ClassicGroup) -> Any:
    """What a metadata record holds of a group, but its timestamp."""
    members = [
        (
            member.member_id,
            member.group_instance_id,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.metadata(group.protocol_name),
            member.assignment,
        )
        for member in group.members.values()
    ]
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        sorted(members),
    )


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver(max_size=4)
        self.clients = [Client(number) for number in range(5)]
        self.twin = GroupShard(GroupSettings())
        self.replayed = 0
        self.last_generation = 0

    # What clients do

    @rule(number=CLIENTS, protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from([3, 8, 9]))
    def join(self, number: int, protocols: tuple[tuple[str, bytes], ...], version: int) -> None:
        client = self.clients[number]
        if client.instance is not None and version < 5:
            return
        client.protocols = protocols
        answer = self.driver.join(
            member_id=client.member_id,
            instance=client.instance,
            protocols=protocols,
            version=version,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            client_id=f"client-{number}",
        )
        if isinstance(answer, Parked):
            client.joining = answer
        else:
            client.joining = None
            self._joined(client, answer)

    def _joined(self, client: Client, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code == ErrorCode.NONE:
            assert answer.generation_id >= 1
            assert answer.protocol_name in {name for name, _ in client.protocols}
            client.member_id = answer.member_id
            client.generation_id = answer.generation_id
            client.members = [member.member_id for member in answer.members]
            if answer.members and not answer.skip_assignment:
                assert answer.leader == answer.member_id
                assert answer.member_id in client.members
        elif answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""

    @rule(number=CLIENTS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        given = dict.fromkeys(client.members, b"gen-%d" % client.generation_id)
        answer = self.driver.sync(
            client.member_id, client.generation_id, given, instance=client.instance
        )
        client.syncing = None
        if isinstance(answer, Parked):
            client.syncing = answer
        else:
            self._synced(client, answer)

    def _synced(self, client: Client, answer: Any) -> None:
        if answer.error_code == ErrorCode.NONE:
            assert answer.assignment == b"gen-%d" % client.generation_id
        elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        code = self.driver.heartbeat(client.member_id, client.generation_id, client.instance)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""

    @rule(number=CLIENTS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        self.driver.leave((client.member_id, client.instance))
        client.member_id = ""

    @rule(number=CLIENTS)
    def crash(self, number: int) -> None:
        """A member forgets everything, and the coordinator does not learn it."""
        self.clients[number] = Client(number)

    @rule(number=CLIENTS, offset=st.integers(0, 100))
    def commit(self, number: int, offset: int) -> None:
        client = self.clients[number]
        who = {"generation_id_or_member_epoch": client.generation_id}
        request = commit_request("t", {0: offset}, member_id=client.member_id, **who)
        before = self.driver.shard.offsets.get("g", "t", 0)
        code = self.driver.send(request).topics[0].partitions[0].error_code
        after = self.driver.shard.offsets.get("g", "t", 0)
        if code == ErrorCode.NONE:
            assert after.offset == offset
        else:
            assert after == before

    # What else happens

    @rule(ms=st.sampled_from([1, 500, 3_000, 6_000, 10_000, 15_000]))
    def pass_time(self, ms: int) -> None:
        self.driver.advance(ms)

    @rule()
    def restart(self) -> None:
        self.driver.restart()
        self.last_generation = 0
        for client in self.clients:
            client.joining = client.syncing = None

    # What must be true

    @invariant()
    def parked_answers_arrive(self) -> None:
        for client in self.clients:
            if client.joining is not None and client.joining.response is not None:
                answer, client.joining = client.joining.response, None
                self._joined(client, answer)
            if client.syncing is not None and client.syncing.response is not None:
                answer, client.syncing = client.syncing.response, None
                self._synced(client, answer)

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.driver.shard.groups.get("g")
        if group is None:
            return
        members = group.members
        assert (group.leader_id is None) == (not members)
        assert group.leader_id is None or group.leader_id in members
        assert group.generation_id >= self.last_generation
        self.last_generation = group.generation_id
        assert group.joined == sum(m.awaiting_join is not None for m in members.values())
        assert group.static_members == {
            m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id
        }
        assert not group.pending_join & members.keys()
        assert group.pending_sync <= members.keys()
        counts: dict[str, int] = {}
        for member in members.values():
            for name, _ in member.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert group.supported == counts
        assert not members or max(counts.values()) == len(members)
        assert group.joined <= 4, (
            "as Kafka counts: members that crashed may be more, until it is complete"
        )

    @invariant()
    def each_state_means_what_it_says(self) -> None:
        group = self.driver.shard.groups.get("g")
        if group is None:
            return
        members = group.members.values()
        if group.state == EMPTY:
            assert not group.members
        if group.state != PREPARING_REBALANCE:
            assert all(member.awaiting_join is None for member in members)
        if group.state != COMPLETING_REBALANCE:
            assert all(member.awaiting_sync is None for member in members)
        if group.state == STABLE:
            assert group.members
            for member in members:
                assert member.assignment == b"gen-%d" % group.generation_id
        timers = {key[0] for key in self.driver.timers}
        assert group.state != PREPARING_REBALANCE or "join" in timers
        for member_id in (*group.members, *group.pending_join):
            waits = member_id in group.members and (
                group.members[member_id].awaiting_join or group.members[member_id].awaiting_sync
            )
            assert waits or ("heartbeat", "g", member_id) in self.driver.timers

    @invariant()
    def the_log_tells_the_same(self) -> None:
        for record in self.driver.log[self.replayed :]:
            self.twin.replay(through_bytes(record), record_offset=self.replayed)
            self.replayed += 1
        live, twin = self.driver.shard, self.twin
        assert live.offsets.topics("g") == twin.offsets.topics("g")
        group = live.groups.get("g")
        if group is not None and group.state in (STABLE, EMPTY):
            assert persisted(twin.groups["g"]) == persisted(group)

    def teardown(self) -> None:
        """When all members are idle, every request is answered and the group becomes empty."""
        self.driver.advance(SESSION_MS + 3 * REBALANCE_MS + 10 * 300_000)
        group = self.driver.shard.groups.get("g")
        assert group is None or group.state == EMPTY
        for client in self.clients:
            assert client.joining is None or client.joining.response is not None
            assert client.syncing is None or client.syncing.response is not None
        assert not self.driver.timers


ClassicGroupMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestClassicGroup = ClassicGroupMachine.TestCase
