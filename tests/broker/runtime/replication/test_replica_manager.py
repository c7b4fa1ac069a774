"""replica_manager.py and image_updates.py: what a broker does with the controller's requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kstore.broker.coordination import config_nodes, znodes
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from kstore.errors import ErrorCode
from kstore.protocol.controller.broker_requests import FULL, INCREMENTAL
from kstore.record import batches, build_batch
from kstore.types import TopicPartition
from tests.broker.runtime.replication.in_cluster import (
    BROKER_EPOCH,
    ID,
    ME,
    OTHER,
    T0,
    THIRD,
    codes,
    isr,
    known,
    metadata,
    on_a_loop,
    opened,
    state,
    stop,
)
from tests.log.handling import flip_bit, remove_index
from tests.plain_messages import Ask


@on_a_loop
async def test_a_broker_leads_then_follows_then_stops(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        told: list[tuple[TopicPartition, bool, int]] = []
        manager.replicas.on_leadership.append(lambda *what: told.append(what))
        assert codes(await manager.leader_and_isr(isr(state()))) == [0]
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        assert (partition.online, partition.leader_epoch) == (True, 0)
        broker.partition_writer().append(T0, build_batch([b"x"]))

        await manager.leader_and_isr(isr(state(OTHER, epoch=1)))
        assert not partition.online
        assert broker.fetchers().followed == {T0: (OTHER, 1)}

        await manager.leader_and_isr(isr(state(-1, epoch=2)))
        assert broker.fetchers().followed == {}, "nobody leads, so nobody is followed"

        await manager.leader_and_isr(isr(state(ME, epoch=3, in_sync=(ME,))))
        assert partition.online
        assert partition.log_end_offset == 1, "the log is the same"

        assert codes(await manager.stop_replica(stop(epoch=3))) == [0]
        assert not (folder / "data" / "t-0").exists()
        assert partition.log is None
        assert not partition.online
        assert told == [
            (T0, True, 0),
            (T0, False, 1),
            (T0, False, 2),
            (T0, True, 3),
            (T0, False, 3),
        ]


@on_a_loop
async def test_a_deposed_controller_and_news_for_an_earlier_life_are_refused(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        await manager.leader_and_isr(isr(state(epoch=4)))
        stale = ErrorCode.STALE_CONTROLLER_EPOCH
        assert (await manager.leader_and_isr(isr(controller_epoch=4))).error_code == stale
        assert (await manager.update_metadata(metadata(controller_epoch=4))).error_code == stale
        assert (await manager.stop_replica(Ask.StopReplica(controller_epoch=4))).error_code == (
            stale
        )
        early = isr(state(epoch=9), broker_epoch=BROKER_EPOCH - 1)
        assert (await manager.leader_and_isr(early)).error_code == ErrorCode.STALE_BROKER_EPOCH
        broker.membership.broker_epoch = -1  # it has not registered: its predecessor is meant
        assert (await manager.leader_and_isr(early)).error_code == ErrorCode.STALE_BROKER_EPOCH
        broker.membership.broker_epoch = BROKER_EPOCH
        assert manager.replicas.hosted[T0].leader_epoch == 4
        assert codes(await manager.leader_and_isr(isr(state(OTHER, epoch=3)))) == [stale]
        assert broker.fetchers().followed == {}


@on_a_loop
async def test_the_same_epoch_brings_another_isr_only_if_it_is_newer(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        await manager.leader_and_isr(isr(state(version=3)))
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        await manager.leader_and_isr(isr(state(version=2, in_sync=(ME,))))
        assert partition.isr == (ME, OTHER)
        await manager.leader_and_isr(isr(state(version=4, in_sync=(ME,))))
        assert len(partition.isr) == 1


@on_a_loop
async def test_the_count_of_an_earlier_leader_epoch_is_no_news(folder: Path) -> None:
    """A process that was suspended reads what it was sent on several connections in any order."""
    async with opened(folder) as broker:

        async def hear(epoch: int, count: int) -> int:
            request = isr(state(epoch=epoch))
            request.topic_states[0].partition_count = count
            await broker.replica_manager.leader_and_isr(request)
            entry = broker.table.topic(b"t")
            assert entry is not None
            return entry.partition_count

        assert await hear(1, 4) == 4, "it is prepared"
        assert await hear(1, 2) == 2, "it is rolled back"
        assert await hear(2, 6) == 6, "it is prepared anew"
        assert await hear(1, 2) == 6, "what was said before that"


@on_a_loop
async def test_a_partition_of_which_this_broker_is_no_replica_is_not_opened(folder: Path) -> None:
    async with opened(folder) as broker:
        wrong = state(OTHER, replicas=(OTHER, THIRD))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes(await broker.replica_manager.leader_and_isr(isr(wrong))) == [unknown]
        assert not (folder / "data" / "t-0").exists()


@on_a_loop
async def test_the_log_of_a_deleted_topic_of_that_name_is_put_aside(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        await manager.leader_and_isr(isr(state(replicas=(ME,), in_sync=(ME,))))
        broker.partition_writer().append(T0, build_batch([b"of the old topic"]))
        new = uuid4()
        assert codes(await manager.leader_and_isr(isr(state(), topic_id=new))) == [0]
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        assert partition.log_end_offset == 0
        assert partition.log.topic_id == new
        assert len(list((folder / "data").glob("t-0.*-stray"))) == 1


@on_a_loop
async def test_a_full_request_ends_what_it_does_not_name(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        gone = uuid4()
        await manager.leader_and_isr(isr(state(), state(index=1)))
        await manager.leader_and_isr(isr(state(), name="gone", topic_id=gone))
        topic = TopicImage("gone", gone, (PartitionImage(ME, 0, (ME,), (ME,)),), {})
        znodes.create_topic(broker.store, topic)
        znodes.delete_topic(broker.store, topic)
        assert not manager.ready.is_set()
        await manager.leader_and_isr(isr(state(), type=FULL))
        assert sorted(manager.replicas.hosted) == [T0]
        async with asyncio.timeout(30):
            while list((folder / "data").glob("gone-0*")):
                await asyncio.sleep(0.01)  # its files are removed a little later
        names = sorted(path.name for path in (folder / "data").glob("*-[01]*"))
        assert [name.split(".")[0] for name in names] == ["t-0", "t-1"]
        assert names[1].endswith("-stray")
        assert not manager.ready.is_set(), "it does not know the cluster yet"
        await manager.update_metadata(metadata(known(ME), type=FULL))
        assert manager.ready.is_set()


@on_a_loop
async def test_after_a_restart_only_what_is_named_is_opened(folder: Path) -> None:
    async with opened(folder) as broker:
        await broker.replica_manager.leader_and_isr(
            isr(state(replicas=(ME,), in_sync=(ME,)), state(index=1))
        )
        broker.partition_writer().append(T0, build_batch([b"a", b"b"]))
    async with opened(folder) as broker:
        assert broker.table.topics() == []
        await broker.replica_manager.leader_and_isr(
            isr(state(epoch=2, replicas=(ME,), in_sync=(ME,)), type=FULL)
        )
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        assert partition.high_watermark == 2
        assert broker.log_manager.places() == [T0]


@on_a_loop
async def test_what_is_behind_a_hole_goes_before_another_leader_is_followed(folder: Path) -> None:
    """A power loss took records that were not on disk, but not those after them."""
    async with opened(folder) as broker:
        await broker.replica_manager.leader_and_isr(isr(state(), state(index=1)))
        for place in (T0, TopicPartition("t", 1)):
            partition = broker.table.partition(b"t", place.partition)
            assert partition is not None
            for number in range(3):
                broker.partition_writer().append(place, build_batch([b"%d" % number]))
                partition.log.roll()
            partition.log.segments[1].handle_or_open().truncate(0)
    async with opened(folder) as broker:
        manager = broker.replica_manager
        await manager.leader_and_isr(isr(state(-1, epoch=1), state(-1, epoch=1, index=1)))
        partitions = [broker.table.partition(b"t", index) for index in range(2)]
        for partition in partitions:
            assert partition is not None
            partition.log.local.hole_from = 0  # as after the power loss
        assert [p.log_end_offset for p in partitions if p] == [3, 3]
        followed = state(OTHER, epoch=2)
        assert codes(await manager.leader_and_isr(isr(followed, state(ME, epoch=2, index=1)))) == [
            0, 0,
        ]  # fmt: skip
        assert broker.fetchers().followed == {T0: (OTHER, 2)}
        assert [p.log_end_offset for p in partitions if p] == [1, 3], "a leader keeps what it has"
        assert not any(p.log.has_hole for p in partitions if p)


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_a_last_batch_from_an_epoch_that_has_not_begun_is_damaged(
    tmp_path: Path, leader: int
) -> None:
    """Simulation seed 1795824096: followers copied it from the leader, and then nothing else."""

    async def story(folder: Path) -> None:
        async with opened(folder) as broker:
            await broker.replica_manager.leader_and_isr(isr(state()))
            for value in (b"a", b"b"):
                broker.partition_writer().append(T0, build_batch([value]))
        [file] = (folder / "data" / "t-0").glob("*.log")
        [_, last] = batches(file.read_bytes())
        flip_bit(file, last.position + 14, 3)
        remove_index(folder / "data")
        async with opened(folder) as broker:
            manager = broker.replica_manager
            await manager.leader_and_isr(isr(state(-1, epoch=3)))
            partition = broker.table.partition(b"t", 0)
            assert partition is not None
            assert partition.log.core.epochs.as_list() == [(0, 0), (2048, 1)]
            await manager.leader_and_isr(isr(state(leader, epoch=4)))
            assert partition.log.core.epochs.as_list() == [(0, 0)]
            [damage] = partition.log.damaged_parts()
            assert (damage.first_offset, partition.log_end_offset) == (1, 2)
            assert broker.fetchers().followed == ({} if leader == ME else {T0: (OTHER, 4)})

    asyncio.run(story(tmp_path))


@on_a_loop
async def test_the_only_replica_keeps_a_batch_of_any_epoch(folder: Path) -> None:
    alone = {"replicas": (ME,), "in_sync": (ME,)}
    async with opened(folder) as broker:
        await broker.replica_manager.leader_and_isr(isr(state(epoch=9, **alone)))
        broker.partition_writer().append(T0, build_batch([b"a"]))
    async with opened(folder) as broker:
        await broker.replica_manager.leader_and_isr(isr(state(epoch=4, **alone)))
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        assert partition.log.damaged_parts() == [], "nobody could restore it"


@on_a_loop
async def test_a_new_leaders_log_is_not_cut_for_what_its_former_leader_answered(
    folder: Path,
) -> None:
    """The answer comes while the logs of other partitions of the request are opened."""
    async with opened(folder) as broker:
        manager, fetchers = broker.replica_manager, broker.fetchers()
        await manager.leader_and_isr(isr(state()))
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        for value in (b"a", b"b"):
            broker.partition_writer().append(T0, build_batch([value]))
        await manager.leader_and_isr(isr(state(OTHER, epoch=1)))
        log_manager: Any = broker.log_manager
        path, open_logs = partition.log.log_dir.path, log_manager.open_logs
        the_dir_is_slow = threading.Event()

        async def as_an_answer_comes(wanted: Any, **how: Any) -> AsyncIterator[Any]:
            async for each in open_logs(wanted, **how):
                yield each
            if T0 in fetchers.followed:
                broker.node.dirs.run(path, "other work", the_dir_is_slow.wait)
                broker.node.dirs.run(path, "cutting", partial(partition.log.truncate, 1))

        log_manager.open_logs = as_an_answer_comes
        roles = isr(state(ME, epoch=2, in_sync=(ME,)), state(OTHER, epoch=2, index=1))
        assert codes(await manager.leader_and_isr(roles)) == [0, 0]
        broker.partition_writer().append(T0, build_batch([b"c"]))
        the_dir_is_slow.set()
        await broker.node.dirs.run(path, "nothing", lambda: None)
        assert [record.value for record in partition.log.records()] == [b"a", b"b", b"c"]
        assert fetchers.followed == {TopicPartition("t", 1): (OTHER, 2)}


@on_a_loop
async def test_metadata_is_what_was_said_last_of_each_partition(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        znodes.create_topic(
            broker.store,
            TopicImage("t", ID, (PartitionImage(ME, 0, (ME,), (ME,)),) * 2, {"retention.ms": "7"}),
        )
        await manager.update_metadata(metadata(known(ME), known(OTHER, index=1), type=FULL))
        topic = broker.image.topics["t"]
        assert topic.configs == {"retention.ms": "7"}
        assert [p.leader for p in topic.partitions] == [ME, OTHER]
        assert broker.image.controller_id == OTHER
        assert {node: b.epoch for node, b in broker.image.brokers.items()} == {ME: 10, OTHER: 20}

        await manager.update_metadata(
            metadata(known(-1, epoch=1, index=1), alive=(ME,), type=INCREMENTAL)
        )
        assert [p.leader for p in broker.image.topics["t"].partitions] == [ME, -1]
        assert list(broker.image.brokers) == [ME]

        await manager.update_metadata(metadata(known(-2), alive=(ME,)))
        assert broker.image.topics == {}
        assert broker.table.topic(b"t") is None


@on_a_loop
async def test_the_data_plane_knows_who_leads_what_is_not_here(folder: Path) -> None:
    async with opened(folder) as broker:
        await broker.replica_manager.update_metadata(metadata(known(OTHER, epoch=6)))
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        assert (partition.log, partition.online) == (None, False)
        assert (partition.leader_id, partition.leader_epoch) == (OTHER, 6)
        await broker.replica_manager.leader_and_isr(isr(state(ME, epoch=7)))
        assert broker.table.partition(b"t", 0) is partition, "fetch sessions hold on to it"
        assert partition.online
        await broker.replica_manager.update_metadata(metadata(known(OTHER, epoch=6)))
        assert partition.leader_epoch == 7, "LeaderAndIsr alone says what this broker leads"


@on_a_loop
async def test_an_update_that_comes_late_takes_no_partitions_away(folder: Path) -> None:
    """A topic has shrunk to one partition and grown again; the request from in between arrives
    last.
    """
    async with opened(folder) as broker:
        manager = broker.replica_manager

        async def update(count: int, partition_epoch: int) -> int:
            request = metadata(
                *(known(OTHER, index=index) for index in range(count)),
                max_partition_epoch=partition_epoch,
            )
            request.topic_states[0].partition_total = count
            await manager.update_metadata(request)
            return len(broker.image.topics["t"].partitions)

        assert await update(2, 1) == 2
        assert await update(1, 2) == 1
        assert broker.table.partition(b"t", 1) is None
        assert await update(2, 3) == 2
        for _ in range(2):
            assert await update(1, 2) == 2
        assert broker.table.partition(b"t", 1) is not None
        assert await update(1, 3) == 1, "as the deletion of a topic, it may have the last epoch"


@on_a_loop
async def test_without_a_session_nothing_is_led_until_the_controller_says_so_again(
    folder: Path,
) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        await manager.leader_and_isr(isr(state(epoch=4)))
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        manager.replicas.fence()
        assert not partition.online
        await manager.leader_and_isr(isr(state(epoch=4)))
        assert partition.online


@on_a_loop
async def test_configs_of_topics_follow_the_store(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        topic = TopicImage("t", ID, (PartitionImage(ME, 0, (ME,), (ME,)),), {})
        znodes.create_topic(broker.store, topic)
        await manager.leader_and_isr(isr(state()))
        await manager.update_metadata(metadata(known(ME)))
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        other = broker.store.new_session()
        try:
            config_nodes.set_configs(other, "t", {"segment.bytes": "2000000"})
            async with asyncio.timeout(30):
                while partition.log.config.segment_bytes != 2_000_000:
                    await asyncio.sleep(0.01)
            assert broker.image.topics["t"].configs == {"segment.bytes": "2000000"}
            config_nodes.write_configs(other, "brokers", "<default>", {"log.retention.ms": "12345"})
            async with asyncio.timeout(30):
                while partition.log.config.retention_ms != 12_345:
                    await asyncio.sleep(0.01)
        finally:
            other.close()


@on_a_loop
async def test_news_of_a_deleted_topic_does_not_end_its_successor(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        await manager.leader_and_isr(isr(state()))
        await manager.update_metadata(metadata(known(ME)))
        new = uuid4()
        await manager.leader_and_isr(isr(state(), topic_id=new))
        await manager.update_metadata(metadata(known(-2)))
        assert broker.image.topics == {}
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        assert partition.online, "what was deleted is the one before"
        await manager.update_metadata(metadata(known(ME), topic_id=new))
        assert broker.image.topics["t"].topic_id == new
        assert broker.table.partition(b"t", 0) is partition


@on_a_loop
async def test_a_session_lost_in_the_middle_of_a_request_ends_it(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager

        def lose_session(place: TopicPartition, leads: bool, epoch: int) -> None:
            if leads:
                broker.membership.broker_epoch = BROKER_EPOCH + 1
                manager.replicas.on_leadership.remove(lose_session)
                manager.replicas.fence()

        manager.replicas.on_leadership.append(lose_session)
        response = await manager.leader_and_isr(isr(state(), state(index=1)))
        assert codes(response) == [0, ErrorCode.STALE_BROKER_EPOCH]
        led = [broker.partition_writer().partition(TopicPartition("t", index)) for index in (0, 1)]
        assert led == [None, None]
