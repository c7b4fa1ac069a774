"""Roles in leader epochs that are not above the log's: the store is an older copy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.transactions.producer_ids import LEFT_OUT
from kstore.broker.state.controller.doubts import FIRST_BY_CLOCK
from kstore.errors import ErrorCode
from tests.broker.runtime.replication.in_cluster import (
    ME,
    OTHER,
    T0,
    codes,
    isr,
    on_a_loop,
    opened,
    state,
)


@pytest.mark.parametrize("leader", [ME, OTHER], ids=["leader", "follower"])
def test_a_role_below_the_logs_leader_epochs_is_refused_with_where_the_log_ends(
    tmp_path: Path, leader: int
) -> None:
    """The coordination store was restored from an older copy: an append in a lower epoch would hide
    the log's batches, and a follower would truncate them.
    """

    async def story(folder: Path) -> None:
        async with opened(folder) as broker:
            manager = broker.replica_manager
            await manager.leader_and_isr(isr(state(epoch=9)))
            for value in (b"a", b"b"):
                broker.partition_writer().append(T0, build_batch([value]))
        async with opened(folder) as broker:
            manager = broker.replica_manager
            assert broker.producer_ids().offered < LEFT_OUT
            for version in range(2):
                answer = await manager.leader_and_isr(
                    isr(state(leader, epoch=4, version=version, in_sync=(leader,)))
                )
                assert ends(answer) == [(ErrorCode.FENCED_LEADER_EPOCH, 9, 2)]
            assert broker.producer_ids().offered >= LEFT_OUT
            assert broker.fetchers().followed == {}
            partition = broker.table.partition(b"t", 0)
            assert partition is not None
            assert not partition.online
            assert partition.log.damaged_parts() == []
            answer = await manager.leader_and_isr(isr(state(-1, epoch=1009)))
            assert ends(answer) == [(ErrorCode.NONE, 9, 2)]
            answer = await manager.leader_and_isr(isr(state(leader, epoch=1010)))
            assert ends(answer) == [(ErrorCode.NONE, -1, -1)]
            assert partition.online == (leader == ME)

    asyncio.run(story(tmp_path))


@on_a_loop
async def test_a_new_leader_refuses_the_epoch_of_its_last_batch(folder: Path) -> None:
    """Nobody can have written in an epoch that has just begun. A follower takes it: it may have
    copied the batch before a restart.
    """
    async with opened(folder) as broker:
        await broker.replica_manager.leader_and_isr(isr(state(epoch=4)))
        broker.partition_writer().append(T0, build_batch([b"a"]))
        again = isr(state(epoch=4, version=1, replicas=(ME, OTHER, 3)))
        assert codes(await broker.replica_manager.leader_and_isr(again)) == [0]
    async with opened(folder) as broker:
        manager = broker.replica_manager
        for _ in range(2):  # the first answer is lost
            answer = await manager.leader_and_isr(isr(state(epoch=4)))
            assert ends(answer) == [(ErrorCode.FENCED_LEADER_EPOCH, 4, 1)]
    async with opened(folder) as broker:
        manager = broker.replica_manager
        for epoch in (3, 4):  # an election in between, before the answer was heard
            answer = await manager.leader_and_isr(isr(state(epoch=epoch)))
            assert ends(answer) == [(ErrorCode.FENCED_LEADER_EPOCH, 4, 1)]
    async with opened(folder) as broker:
        assert codes(await broker.replica_manager.leader_and_isr(isr(state(OTHER, epoch=4)))) == [0]
        assert broker.fetchers().followed == {T0: (OTHER, 4)}


@on_a_loop
async def test_a_leader_epoch_that_no_leader_can_have_is_damage(folder: Path) -> None:
    async with opened(folder) as broker:
        await broker.replica_manager.leader_and_isr(isr(state(epoch=(1 << 30) + 1)))
        for value in (b"a", b"b"):
            broker.partition_writer().append(T0, build_batch([value]))
    async with opened(folder) as broker:
        answer = await broker.replica_manager.leader_and_isr(isr(state(epoch=4)))
        assert ends(answer) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)]


@on_a_loop
async def test_a_last_batch_with_an_epoch_that_a_clock_gave_is_not_damage(folder: Path) -> None:
    """One turned bit would explain it, too: without bit 25, the epoch is between the others."""
    async with opened(folder) as broker:
        for epoch in (8, FIRST_BY_CLOCK):
            await broker.replica_manager.leader_and_isr(isr(state(epoch=epoch)))
            broker.partition_writer().append(T0, build_batch([b"a"]))
    async with opened(folder) as broker:
        role = isr(state(epoch=FIRST_BY_CLOCK - 5000, replicas=(ME, OTHER)))
        answer = await broker.replica_manager.leader_and_isr(role)
        assert ends(answer) == [(ErrorCode.FENCED_LEADER_EPOCH, FIRST_BY_CLOCK, 2)]


def ends(response: Any) -> list[tuple[int, int, int]]:
    return [
        (row.error_code, row.latest_epoch, row.log_end_offset)
        for topic in response.topics
        for row in topic.partition_errors
    ]
