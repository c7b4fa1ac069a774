"""Groups over real sockets on one kstore broker, which is killed and restarted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kstore.clients import AIOAdminClient
from kstore.clients.core.consumer.offset_epoch import encode
from kstore.errors import (
    CommitFailedError,
    InvalidLeaderEpochError,
    InvalidPartitionEpochError,
    UnreleasedInstanceIdError,
)
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.beside.waiting import reached
from tests.clients.io.group_driver import Poller, produce
from tests.conformance.kstore_broker import KstoreBroker

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
PROTOCOLS = {
    "range": {},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}
_names = itertools.count(1)


@pytest.fixture(params=sorted(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> dict[str, object]:
    """Settings of each protocol."""
    return PROTOCOLS[request.param]


class Stage:
    """A topic and a group that no other test uses."""

    def __init__(self, bootstrap: str, admin: AIOAdminClient, settings: dict[str, object]) -> None:
        number = next(_names)
        self.bootstrap, self.admin, self.settings = bootstrap, admin, settings
        self.topic, self.group_id = f"t{number}", f"g{number}"

    def tp(self, index: int) -> TopicPartition:
        return TopicPartition(self.topic, index)

    def member(self, **settings: object) -> Poller:
        return Poller(self.bootstrap, self.group_id, **(self.settings | settings))

    async def make_topic(self, partitions: int) -> None:
        from kstore.clients import NewTopic

        await self.admin.create_topics([NewTopic(self.topic, partitions)])


@asynccontextmanager
async def stage(
    broker: KstoreBroker, partitions: int, settings: dict[str, object] | None = None
) -> AsyncIterator[Stage]:
    """A stage with its topic made."""
    admin = AIOAdminClient(broker.bootstrap)
    found = Stage(broker.bootstrap, admin, settings or {})
    await found.make_topic(partitions)
    try:
        yield found
    finally:
        await admin.close()


def run(scene: object) -> None:
    """Play a scene, for two minutes at most."""
    asyncio.run(asyncio.wait_for(scene, 120))  # type: ignore[arg-type]


def test_members_come_and_go(broker: KstoreBroker, protocol: dict[str, object]) -> None:
    async def scene() -> None:
        async with stage(broker, 4, protocol) as here, here.member() as first:
            await first.subscribe(here.topic)
            await reached(lambda: len(first.owned) == 4)
            async with here.member() as second:
                await second.subscribe(here.topic)
                await reached(lambda: len(first.owned) == len(second.owned) == 2)
                assert not first.owned & second.owned
            await reached(lambda: len(first.owned) == 4)
            assert second.events[-1][0] == "revoked"
            assert not first.errors

    run(scene())


def test_positions_are_committed_before_partitions_go_and_found_by_the_next_owner(
    broker: KstoreBroker, protocol: dict[str, object]
) -> None:
    async def scene() -> None:
        async with stage(broker, 2, protocol) as here, here.member() as first:
            await first.subscribe(here.topic)
            await reached(lambda: len(first.owned) == 2)
            first.read(first.owned, 7)
            async with here.member() as second:
                await second.subscribe(here.topic)
                await reached(lambda: len(second.owned) == 1)
                found = await second.group.committed(second.owned)
                assert {row.offset for row in found.values() if row is not None} == {7}

    run(scene())


def test_a_commit_inside_the_listener_is_taken(
    broker: KstoreBroker, protocol: dict[str, object]
) -> None:
    async def scene() -> None:
        settings = protocol | {"enable_auto_commit": False}
        async with stage(broker, 2, settings) as here, here.member() as first:
            await first.subscribe(here.topic)
            await reached(lambda: len(first.owned) == 2)
            offsets = {here.tp(i): OffsetAndMetadata(3, "by hand", 0) for i in range(2)}
            first.on_revoked = lambda: first.group.commit(offsets)
            async with here.member() as second:
                await second.subscribe(here.topic)
                await reached(lambda: len(second.owned) == 1)
                found = await second.group.committed(offsets)
                assert found == offsets

    run(scene())


@pytest.mark.slow
def test_a_member_that_was_killed_is_replaced_after_its_session(
    broker: KstoreBroker, protocol: dict[str, object]
) -> None:
    async def scene() -> None:
        async with stage(broker, 2, protocol) as here, here.member() as first:
            await first.subscribe(here.topic)
            second = await here.member().__aenter__()
            await second.subscribe(here.topic)
            await reached(lambda: len(first.owned) == len(second.owned) == 1)
            await second.vanish()
            await reached(lambda: len(first.owned) == 2)

    run(scene())


@pytest.mark.quick_one_in(3)
def test_who_does_not_poll_loses_its_partitions_and_gets_some_back(
    broker: KstoreBroker, protocol: dict[str, object]
) -> None:
    async def scene() -> None:
        settings = protocol | {"max_poll_interval_ms": 1_000}
        async with stage(broker, 2, settings) as here, here.member() as first:
            await first.subscribe(here.topic)
            async with here.member() as second:
                await second.subscribe(here.topic)
                await reached(lambda: len(first.owned) == len(second.owned) == 1)
                (mine,) = first.owned
                first.is_polling = False
                await reached(lambda: len(second.owned) == 2)
                with pytest.raises(CommitFailedError):
                    await first.group.commit({mine: OffsetAndMetadata(1)})
                first.is_polling = True
                await reached(lambda: len(second.owned) == 1 and len(first.owned) == 1)
                assert ("lost", frozenset({mine})) in first.events

    run(scene())


def test_a_static_member_comes_back_without_a_rebalance(
    broker: KstoreBroker, protocol: dict[str, object]
) -> None:
    async def scene() -> None:
        async with stage(broker, 2, protocol) as here, here.member() as other:
            await other.subscribe(here.topic)
            async with here.member(group_instance_id="one") as static:
                await static.subscribe(here.topic)
                await reached(lambda: len(other.owned) == len(static.owned) == 1)
                had = static.owned
            events = list(other.events)
            async with here.member(group_instance_id="one") as again:
                await again.subscribe(here.topic)
                await reached(lambda: again.owned == had)
                assert other.events == events

    run(scene())


def test_a_grown_topic_is_shared_anew(broker: KstoreBroker, protocol: dict[str, object]) -> None:
    async def scene() -> None:
        async with stage(broker, 1, protocol) as here, here.member() as first:
            await first.subscribe(here.topic)
            await reached(lambda: len(first.owned) == 1)
            await here.admin.create_partitions(here.topic, 3)
            await reached(lambda: len(first.owned) == 3)

    run(scene())


def test_a_group_goes_over_to_the_new_protocol_member_by_member(broker: KstoreBroker) -> None:
    async def scene() -> None:
        async with stage(broker, 4) as here:
            old = {"partition_assignment_strategy": ["cooperative-sticky"]}
            async with here.member(**old) as first, here.member(**old) as second:
                for member in (first, second):
                    await member.subscribe(here.topic)
                await reached(lambda: len(first.owned) == len(second.owned) == 2)
                await second.close()
                async with here.member(group_protocol="consumer") as third:
                    await third.subscribe(here.topic)
                    await reached(lambda: len(first.owned) == len(third.owned) == 2)
                    assert not first.owned & third.owned
                    for member in (first, third):
                        await member.group.commit({tp: OffsetAndMetadata(3) for tp in member.owned})
                    await first.close()
                    await reached(lambda: len(third.owned) == 4)
                    found = await third.group.committed(third.owned)
                    assert {row.offset for row in found.values() if row} == {3}

    run(scene())


@pytest.mark.slow
def test_a_pattern_is_matched_by_the_coordinator(broker: KstoreBroker) -> None:
    async def scene() -> None:
        settings: dict[str, object] = {"group_protocol": "consumer"}
        async with stage(broker, 2, settings) as here, here.member() as member:
            await member.subscribe_pattern(f"{here.topic}.*")
            await reached(lambda: len(member.owned) == 2)
            await here.admin.create_topics([f"{here.topic}-too"])
            await reached(lambda: len(member.owned) > 2)

    run(scene())


def test_a_taken_instance_id_is_an_error_of_poll(broker: KstoreBroker) -> None:
    async def scene() -> None:
        settings: dict[str, object] = {"group_protocol": "consumer", "group_instance_id": "one"}
        async with stage(broker, 1, settings) as here, here.member() as first:
            await first.subscribe(here.topic)
            await reached(lambda: first.owned)
            async with here.member() as second:
                await second.subscribe(here.topic)
                await reached(lambda: second.errors)
                assert isinstance(second.errors[0], UnreleasedInstanceIdError)
            assert first.owned

    run(scene())


def test_epochs_go_with_commits_and_old_ones_are_clear_errors(broker: KstoreBroker) -> None:
    async def scene() -> None:
        async with stage(broker, 1) as here, here.member() as member:
            tp = here.tp(0)
            member.subscription.assign([tp])
            await member.cluster.refresh([here.topic])
            epoch = member.cluster.view.partition_epoch(tp)
            assert epoch >= 0
            await member.group.commit({tp: OffsetAndMetadata(5, "", 3, encode(epoch, 3))})
            found = await member.group.committed([tp])
            assert found == {tp: OffsetAndMetadata(5, "", 3, encode(epoch, 3))}
            with pytest.raises(InvalidLeaderEpochError, match="older leader"):
                await member.group.commit({tp: OffsetAndMetadata(9, "", 2, encode(epoch, 2))})
            await here.admin.delete_topics([here.topic])
            await here.make_topic(1)
            await member.cluster.refresh([here.topic])
            with pytest.raises(InvalidPartitionEpochError, match="deleted and created again"):
                await member.group.commit({tp: OffsetAndMetadata(9, "", 3, encode(epoch, 3))})

    run(scene())


@pytest.mark.slow
def test_a_group_outlives_its_broker(tmp_path: Path, protocol: dict[str, object]) -> None:
    async def scene(broker: KstoreBroker) -> None:
        async with (
            stage(broker, 2, protocol) as here,
            here.member() as first,
            here.member() as second,
        ):
            for member in (first, second):
                await member.subscribe(here.topic)
            await reached(lambda: len(first.owned) == len(second.owned) == 1)
            before = first.owned, second.owned
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            for member in (first, second):
                tp = next(iter(member.owned))
                await member.group.commit({tp: OffsetAndMetadata(4)})
            assert (first.owned, second.owned) == before

    broker = KstoreBroker(tmp_path, overrides=SETTINGS)
    broker.start()
    try:
        run(scene(broker))
    finally:
        broker.stop()


class TestExpansion:
    """KIP-253: a partition that was added waits for those before it."""

    @pytest.mark.parametrize("protocol", ["range", "consumer"], indirect=False)
    def test_it_is_read_when_the_group_has_read_what_was_before(
        self, broker: KstoreBroker, protocol: str
    ) -> None:
        async def scene() -> None:
            settings = PROTOCOLS[protocol]
            async with stage(broker, 1, settings) as here, here.member() as first:
                await produce(first, here.tp(0), 10)
                await first.subscribe(here.topic)
                await reached(lambda: first.owned)
                first.read([here.tp(0)], 4)
                async with here.member() as second:
                    await second.subscribe(here.topic)
                    await here.admin.create_partitions(here.topic, 2)
                    await reached(lambda: len(first.owned) == len(second.owned) == 1)
                    members = (first, second)
                    (old,) = [one for one in members if here.tp(0) in one.owned]
                    (new,) = [one for one in members if here.tp(1) in one.owned]
                    gate = new.group.gate
                    assert gate is not None
                    await reached(lambda: gate.needed() == {here.tp(0)})
                    row = new.subscription.partitions[here.tp(1)]
                    old.read([here.tp(0)], 9)
                    answers = new.group.heartbeats
                    await reached(lambda: new.group.heartbeats > answers + 2)
                    assert row.gate_closed
                    old.read([here.tp(0)], 10)
                    answers = new.group.heartbeats
                    await reached(lambda: not row.gate_closed)
                    assert new.group.heartbeats <= answers + 3

        run(scene())

    def test_a_member_that_has_both_lets_it_go_as_soon_as_it_polls(
        self, broker: KstoreBroker
    ) -> None:
        async def scene() -> None:
            async with stage(broker, 1) as here, here.member() as member:
                await produce(member, here.tp(0), 10)
                await member.subscribe(here.topic)
                await reached(lambda: member.owned)
                await here.admin.create_partitions(here.topic, 2)
                await reached(lambda: len(member.owned) == 2)
                row = member.subscription.partitions[here.tp(1)]
                assert row.gate_closed
                member.read([here.tp(0)], 10)
                await reached(lambda: not row.gate_closed)

        run(scene())

    def test_one_that_was_read_from_before_does_not_wait(self, broker: KstoreBroker) -> None:
        async def scene() -> None:
            async with stage(broker, 1) as here, here.member() as member:
                for tp in (here.tp(0), here.tp(1)):
                    if tp.partition == 1:
                        await here.admin.create_partitions(here.topic, 2)
                    await produce(member, tp, 10)
                async with Poller(broker.bootstrap, here.group_id) as outsider:
                    outsider.subscription.assign([here.tp(1)])
                    await outsider.group.commit({here.tp(1): OffsetAndMetadata(1)})
                await member.subscribe(here.topic)
                await reached(lambda: len(member.owned) == 2)
                row = member.subscription.partitions[here.tp(1)]
                await reached(lambda: not row.gate_closed)

        run(scene())

    def test_it_is_read_at_once_when_that_is_switched_off(self, broker: KstoreBroker) -> None:
        async def scene() -> None:
            settings: dict[str, object] = {"kstore.kip253.enable": False}
            async with stage(broker, 1, settings) as here, here.member() as member:
                await produce(member, here.tp(0), 10)
                await here.admin.create_partitions(here.topic, 2)
                await member.subscribe(here.topic)
                await reached(lambda: len(member.owned) == 2)
                assert member.group.gate is None
                assert not member.subscription.partitions[here.tp(1)].gate_closed

        run(scene())
