"""broker/runtime/replication/delayed_roles.py: requests of the controller for a log dir that hangs
do not delay those for other log dirs. They are executed when it answers again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from kstore._fast.broker.partition import Partition
from kstore.broker.runtime import dir_threads
from kstore.broker.runtime.replication import replica_manager
from kstore.errors import ErrorCode
from kstore.log import LogDir
from kstore.protocol.controller.broker_requests import FULL
from kstore.record import build_batch
from kstore.types import TopicPartition
from tests.beside.waiting import reached
from tests.broker.runtime.replication.in_cluster import (
    ID,
    ME,
    OTHER,
    InCluster,
    codes,
    isr,
    on_a_loop,
    opened,
    state,
    stop,
)


class Hanging:
    """A broker with a partition in each of two log dirs; one of them can hang."""

    def __init__(self, broker: InCluster, folder: Path) -> None:
        self.broker, self.manager = broker, broker.replica_manager
        self.path = str(folder / "hangs")
        self._go_on = threading.Event()

    async def hang(self) -> None:
        """Let the log dir hang, and wait until that is known."""
        self.call = self.broker.node.dirs.run(self.path, "a call that hangs", self._go_on.wait)
        await reached(lambda: self.broker.node.dirs.hangs(self.path))

    async def go_on(self) -> None:
        """Let it answer again, and wait for the calls that were queued there."""
        self._go_on.set()
        await self.broker.node.dirs.run(self.path, "the last", lambda: None)

    def lies(self, *indexes: int) -> list[bool]:
        """Whether these partitions of `t` are in the log dir that hangs."""
        homes = [self.broker.log_manager.home(TopicPartition("t", each)) for each in indexes]
        return [home is not None and home.path == self.path for home in homes]


@asynccontextmanager
async def hanging(folder: Path) -> AsyncIterator[Hanging]:
    """Partition 1 is in the log dir that can hang, partition 0 in the other one."""
    dirs = ",".join(str(folder / name) for name in ("data", "hangs"))
    async with opened(folder, **{"log.dirs": dirs}) as broker:
        made = Hanging(broker, folder)
        assert codes(await made.manager.leader_and_isr(isr(state(), state(index=1)))) == [0, 0]
        if made.lies(0, 1) != [False, True]:
            made.path = str(folder / "data")
        assert sorted(made.lies(0, 1)) == [False, True]
        await reached(lambda: len(made.manager.replicas.hosted) == 2)  # on a slow machine, too
        try:
            yield made
        finally:
            made._go_on.set()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that takes half a second counts as hanging."""
    monkeypatch.setattr(dir_threads, "HANGS_AFTER_S", 0.5)


@on_a_loop
async def test_roles_in_a_log_dir_that_hangs_are_taken_once_it_answers(folder: Path) -> None:
    async with hanging(folder) as made:
        manager, replicas = made.manager, made.manager.replicas
        [there] = [index for index in (0, 1) if made.lies(index) == [True]]
        here, place = 1 - there, TopicPartition("t", there)
        replicas.stop(place)  # its log must be opened again
        await made.hang()
        both = isr(state(epoch=1, index=there), state(epoch=1, index=here))
        assert codes(await manager.leader_and_isr(both)) == [0, 0]
        assert replicas.hosted[TopicPartition("t", here)].leader_epoch == 1
        assert place not in replicas.hosted, "it is put off"
        later = isr(state(OTHER, epoch=2, index=there))
        assert codes(await manager.leader_and_isr(later)) == [0]
        assert codes(await manager.leader_and_isr(isr(state(epoch=2, index=here)))) == [0]
        assert not made.call.done()
        await made.go_on()
        await reached(lambda: place in replicas.hosted)
        assert replicas.hosted[place][:2] == (OTHER, 2), "the last that was said"
        partition = replicas.find(place)
        assert partition is not None
        assert partition.log is not None


@on_a_loop
async def test_a_hang_that_begins_meanwhile_holds_no_other_partition(folder: Path) -> None:
    async with hanging(folder) as made:
        [there] = [index for index in (0, 1) if made.lies(index) == [True]]
        place = TopicPartition("t", there)
        made.manager.replicas.stop(place)
        hang = asyncio.ensure_future(made.hang())
        await asyncio.sleep(0)
        assert codes(await made.manager.leader_and_isr(isr(state(epoch=1, index=there)))) == [0]
        assert codes(await made.manager.leader_and_isr(isr(state(epoch=1, index=1 - there)))) == [0]
        assert not made.call.done()
        await hang
        await made.go_on()
        await reached(lambda: place in made.manager.replicas.hosted)


@on_a_loop
async def test_a_new_partition_of_a_log_dir_that_begins_to_hang_is_made_there_once(
    folder: Path,
) -> None:
    async with hanging(folder) as made:
        hang = asyncio.ensure_future(made.hang())
        await asyncio.sleep(0)
        rows = [state(index=index) for index in range(2, 6)]
        assert codes(await made.manager.leader_and_isr(isr(*rows))) == [0] * 4
        hosted = [TopicPartition("t", i) in made.manager.replicas.hosted for i in range(2, 6)]
        assert sorted(hosted) == [False, False, True, True]
        await hang
        await made.go_on()
        await reached(lambda: len(made.manager.replicas.hosted) == 6)
        names = [path.name for name in ("data", "hangs") for path in (folder / name).glob("t-*")]
        assert sorted(names) == [f"t-{index}" for index in range(6)]


@on_a_loop
async def test_what_was_put_off_is_not_done_for_a_replica_that_is_to_end(folder: Path) -> None:
    async with hanging(folder) as made:
        manager, replicas = made.manager, made.manager.replicas
        [there] = [index for index in (0, 1) if made.lies(index) == [True]]
        place = TopicPartition("t", there)
        replicas.stop(place)
        await made.hang()
        assert codes(await manager.leader_and_isr(isr(state(epoch=1, index=there)))) == [0]
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        assert codes(await manager.stop_replica(stop(there))) == [timed_out], "say it again"
        assert codes(await manager.stop_replica(stop(1 - there))) == [0]
        assert not made.call.done()
        await made.go_on()
        assert codes(await manager.stop_replica(stop(there))) == [0]
        await asyncio.sleep(0.05)
        assert place not in replicas.hosted
        assert not list(folder.glob(f"*/t-{there}"))


@on_a_loop
async def test_a_deletion_in_a_log_dir_that_hangs_is_said_to_be_done_when_it_is(
    folder: Path,
) -> None:
    async with hanging(folder) as made:
        manager = made.manager
        [there] = [index for index in (0, 1) if made.lies(index) == [True]]
        await made.hang()
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        assert codes(await manager.stop_replica(stop(there))) == [timed_out]
        assert TopicPartition("t", there) not in manager.replicas.hosted, "it is led no more"
        assert codes(await manager.stop_replica(stop(there))) == [timed_out], "not yet"
        assert list(folder.glob(f"*/t-{there}"))
        await made.go_on()
        assert codes(await manager.stop_replica(stop(there))) == [0]
        assert not list(folder.glob(f"*/t-{there}"))


@on_a_loop
async def test_strays_in_a_log_dir_that_hangs_hold_nobody(folder: Path) -> None:
    async with hanging(folder) as made:
        [there] = [index for index in (0, 1) if made.lies(index) == [True]]
        await made.hang()
        full = isr(state(epoch=1, index=1 - there), type=FULL)
        assert codes(await made.manager.leader_and_isr(full)) == [0]
        assert list(made.manager.replicas.hosted) == [TopicPartition("t", 1 - there)]
        assert not made.call.done()
        await made.go_on()
        await reached(lambda: list(folder.glob(f"*/t-{there}.*-stray")))


@asynccontextmanager
async def half_moved(folder: Path) -> AsyncIterator[tuple[Hanging, int]]:
    """A partition is served from its new log dir; the old one hangs before its log is removed."""
    async with hanging(folder) as made:
        [there] = [index for index in (0, 1) if made.lies(index) == [True]]
        real = LogDir.take_away

        def take_away(log_dir: LogDir, *keys: TopicPartition) -> list[str]:
            assert log_dir.path != made.path or made._go_on.wait(60)
            return real(log_dir, *keys)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LogDir, "take_away", take_away)
            [target] = [each for each in made.broker.log_manager.dirs if each.path != made.path]
            assert made.broker.moves().begin(TopicPartition("t", there), target) == 0
            await reached(lambda: made.lies(there) == [False])
            yield made, there
            made._go_on.set()


@on_a_loop
async def test_a_deletion_waits_for_the_end_of_a_move_but_nobody_else_does(folder: Path) -> None:
    async with half_moved(folder) as (made, moved):
        manager = made.manager
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        assert codes(await manager.stop_replica(stop(moved))) == [timed_out]
        assert codes(await manager.stop_replica(stop(moved))) == [timed_out], "not yet"
        assert not made._go_on.is_set()
        await made.go_on()
        await reached(lambda: not made.broker.log_manager.leaving)
        assert codes(await manager.stop_replica(stop(moved))) == [0]
        assert not list(folder.glob(f"*/t-{moved}"))


@on_a_loop
async def test_strays_whose_move_has_not_ended_hold_nobody(folder: Path) -> None:
    async with half_moved(folder) as (made, moved):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replica_manager, "read_deletions", lambda _: {"t": ID})
            full = isr(state(epoch=1, index=1 - moved), type=FULL)
            assert codes(await made.manager.leader_and_isr(full)) == [0]
        assert not made._go_on.is_set()
        await made.go_on()
        await reached(lambda: not list(folder.glob(f"*/t-{moved}*")))


@on_a_loop
async def test_the_controller_hears_of_what_can_not_be_done_after_all(folder: Path) -> None:
    async with hanging(folder) as made:
        manager = made.manager
        told: list[bool] = []
        manager.on_refused = lambda: told.append(True)
        [there] = [index for index in (0, 1) if made.lies(index) == [True]]
        place = TopicPartition("t", there)
        manager.replicas.stop(place)
        await made.hang()
        assert codes(await manager.leader_and_isr(isr(state(epoch=1, index=there)))) == [0]
        made.broker.log_manager.failed[made.path] = "gone"
        await made.go_on()
        await reached(lambda: told)
        assert place not in manager.replicas.hosted


async def led_with_records(made: Hanging) -> tuple[TopicPartition, Partition]:
    """The partition in the log dir that can hang, with two batches that no other replica has."""
    [there] = [index for index in (0, 1) if made.lies(index) == [True]]
    place = TopicPartition("t", there)
    for value in (b"a", b"b"):
        made.broker.partition_writer().append(place, build_batch([value]))
    partition = made.manager.replicas.find(place)
    assert partition is not None
    await reached(lambda: partition.log_end_offset == 2)
    return place, partition


@on_a_loop
async def test_a_cut_waits_for_its_log_dir_alone_and_then_it_is_led_again(folder: Path) -> None:
    async with hanging(folder) as made:
        replicas = made.manager.replicas
        place, partition = await led_with_records(made)
        await made.hang()
        cut = asyncio.ensure_future(replicas.drop_uncommitted(place, 1))
        await asyncio.sleep(0)
        assert not partition.online
        here = 1 - place.partition
        same = isr(
            state(version=1, in_sync=(ME,), index=place.partition), state(epoch=1, index=here)
        )
        assert codes(await made.manager.leader_and_isr(same)) == [0, 0]
        assert replicas.hosted[TopicPartition("t", here)].leader_epoch == 1
        assert not cut.done()
        await made.go_on()
        await cut
        assert (partition.online, partition.isr, partition.isr_version) == (True, (ME,), 1)
        assert [record.value for record in partition.log.read(0)] == [b"a"]
        assert partition.log_end_offset == 2, "no offset is given again"


@on_a_loop
async def test_a_role_in_another_epoch_waits_for_the_cut(folder: Path) -> None:
    async with hanging(folder) as made:
        replicas = made.manager.replicas
        place, partition = await led_with_records(made)
        await made.hang()
        cut = asyncio.ensure_future(replicas.drop_uncommitted(place, 1))
        await asyncio.sleep(0)
        newer = isr(state(epoch=7, index=place.partition))
        assert codes(await made.manager.leader_and_isr(newer)) == [0]
        assert (replicas.hosted[place].leader_epoch, partition.online) == (0, False)
        await made.go_on()
        await cut
        await reached(lambda: replicas.hosted[place].leader_epoch == 7)
        assert (partition.online, partition.leader_epoch) == (True, 7)


@on_a_loop
async def test_an_older_request_that_comes_late_does_not_replace_a_role_that_was_put_off(
    folder: Path,
) -> None:
    """A broker that was stalled reads its connections in any order."""
    async with hanging(folder) as made:
        manager, replicas = made.manager, made.manager.replicas
        place, _ = await led_with_records(made)
        index = place.partition
        assert codes(await manager.leader_and_isr(isr(state(epoch=5, index=index)))) == [0]
        await made.hang()
        cut = asyncio.ensure_future(replicas.drop_uncommitted(place, 1))
        await asyncio.sleep(0)
        assert codes(await manager.leader_and_isr(isr(state(OTHER, epoch=6, index=index)))) == [0]
        late = await manager.leader_and_isr(isr(state(epoch=5, index=index)))
        assert codes(late) == [ErrorCode.STALE_CONTROLLER_EPOCH]
        older = stop(index, delete=False)
        older.topic_states[0].partition_states[0].leader_epoch = 5
        assert codes(await manager.stop_replica(older)) == [ErrorCode.FENCED_LEADER_EPOCH]
        await made.go_on()
        await cut
        await reached(lambda: replicas.hosted[place][:2] == (OTHER, 6))


@pytest.mark.parametrize("late", [False, True], ids=["newer", "late"])
def test_a_full_request_ends_a_role_that_was_put_off_unless_it_is_older(
    tmp_path: Path, late: bool
) -> None:
    async def story(folder: Path) -> None:
        async with hanging(folder) as made:
            manager, replicas = made.manager, made.manager.replicas
            [there] = [index for index in (0, 1) if made.lies(index) == [True]]
            place, here = TopicPartition("t", there), TopicPartition("t", 1 - there)
            replicas.stop(place)
            await made.hang()
            role = isr(state(epoch=1, index=there), request_number=7)
            assert codes(await manager.leader_and_isr(role)) == [0]
            full = isr(
                state(epoch=1, index=here.partition), type=FULL, request_number=6 if late else 8
            )
            answer = await manager.leader_and_isr(full)
            assert answer.error_code == (ErrorCode.STALE_BROKER_EPOCH if late else ErrorCode.NONE)
            await made.go_on()
            if late:
                await reached(lambda: place in replicas.hosted)
                assert replicas.hosted[here].leader_epoch == 0
            else:
                await reached(lambda: list(folder.glob(f"*/t-{there}.*-stray")))
                assert list(replicas.hosted) == [here]

    asyncio.run(story(tmp_path))


@on_a_loop
async def test_a_role_that_was_put_off_for_a_former_topic_does_not_refuse_the_next_one(
    folder: Path,
) -> None:
    async with hanging(folder) as made:
        replicas = made.manager.replicas
        [there] = [index for index in (0, 1) if made.lies(index) == [True]]
        place = TopicPartition("t", there)
        replicas.stop(place)
        await made.hang()
        assert codes(await made.manager.leader_and_isr(isr(state(epoch=6, index=there)))) == [0]
        new = isr(state(epoch=0, index=there), topic_id=uuid4())
        assert codes(await made.manager.leader_and_isr(new)) == [0]
        await made.go_on()
        await reached(lambda: place in replicas.hosted)
        assert replicas.hosted[place].leader_epoch == 0
