"""Random requests of controllers, some of them deposed, to a broker, against a small model."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from kstore.errors import ErrorCode
from kstore.protocol.controller.broker_requests import FULL, INCREMENTAL
from kstore.types import TopicPartition
from tests.broker.runtime.replication.in_cluster import (
    ME,
    OTHER,
    InCluster,
    codes,
    isr,
    opened,
    state,
    stop,
)

PARTITIONS = 4
STEPS = 40
NOBODY, DELETED = -1, -2


class Role(NamedTuple):
    leader: int
    epoch: int


class Model:
    """The expected state of the broker."""

    def __init__(self) -> None:
        self.controller_epoch = 0
        self.told: dict[int, Role] = {}
        self.logs: set[int] = set()

    def leader_and_isr(self, epoch: int, rows: dict[int, Role], *, full: bool) -> list[int] | None:
        """The error of each row; None if the whole request is refused."""
        if epoch < self.controller_epoch:
            return None
        self.controller_epoch = epoch
        errors = []
        for index, told in rows.items():
            known = self.told.get(index)
            if known is not None and told.epoch < known.epoch:
                errors.append(int(ErrorCode.STALE_CONTROLLER_EPOCH))
                continue
            errors.append(0)
            self.told[index] = told
            self.logs.add(index)
        if full:
            self.told = {index: told for index, told in self.told.items() if index in rows}
            self.logs &= rows.keys()
        return errors

    def stop(self, epoch: int, index: int, leader_epoch: int, *, delete: bool) -> int | None:
        """The error of the row; None if the whole request is refused."""
        if epoch < self.controller_epoch:
            return None
        self.controller_epoch = epoch
        known = self.told.get(index)
        if known is not None and leader_epoch != DELETED and leader_epoch < known.epoch:
            return int(ErrorCode.FENCED_LEADER_EPOCH)
        self.told.pop(index, None)
        if delete:
            self.logs.discard(index)
        if leader_epoch == DELETED:
            self.told.clear()  # the topic is deleted with all its partitions
        return None if known is None else 0


def check(model: Model, broker: InCluster, folder: Path) -> None:
    for index in range(PARTITIONS):
        told = model.told.get(index)
        partition = broker.table.partition(b"t", index)
        leads = told is not None and told.leader == ME
        assert (partition is not None and partition.online) == leads, index
        if told is not None:
            assert partition.leader_epoch == told.epoch
            assert partition.log is not None
        elif index not in model.logs:
            assert partition is None or partition.log is None
    assert broker.fetchers().followed == {
        TopicPartition("t", index): (told.leader, told.epoch)
        for index, told in model.told.items()
        if told.leader == OTHER
    }
    found = {int(path.name[2:]) for path in (folder / "data").glob("t-[0-9]")}
    assert found == model.logs


async def step(dice: random.Random, model: Model, broker: InCluster) -> None:
    """One request of a controller, or the end of the session."""
    manager = broker.replica_manager
    controller_epoch = model.controller_epoch + dice.choice((-1, 0, 0, 0, 1))
    kind = dice.choice(("lead", "lead", "lead", "full", "stop", "fence"))
    index = dice.randrange(PARTITIONS)
    if kind == "fence":
        manager.replicas.fence()
        model.told.clear()
        for partition in range(PARTITIONS):
            broker.fetchers().stop(TopicPartition("t", partition))
        await manager.leader_and_isr(isr(controller_epoch=model.controller_epoch, type=INCREMENTAL))
        return
    if kind == "stop":
        leader_epoch = dice.choice((DELETED, dice.randrange(8), dice.randrange(8)))
        delete = leader_epoch == DELETED or dice.random() < 0.5
        request = stop(index, leader_epoch, delete=delete, controller_epoch=controller_epoch)
        answer = await manager.stop_replica(request)
        stale = controller_epoch < model.controller_epoch
        expected = model.stop(controller_epoch, index, leader_epoch, delete=delete)
        assert (answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH) == stale
        if not stale:
            assert answer.partition_errors[0].error_code == (expected or 0)
        return
    chosen = [i for i in range(PARTITIONS) if dice.random() < 0.6]
    rows = {i: Role(dice.choice((ME, OTHER, NOBODY)), dice.randrange(8)) for i in chosen}
    # An epoch has only one leader.
    rows = {
        i: model.told[i] if i in model.told and model.told[i].epoch == told.epoch else told
        for i, told in rows.items()
    }
    request = isr(
        *[state(told.leader, told.epoch, index=i) for i, told in rows.items()],
        controller_epoch=controller_epoch, type=FULL if kind == "full" else INCREMENTAL,
    )  # fmt: skip
    answers = await manager.leader_and_isr(request)
    errors = model.leader_and_isr(controller_epoch, rows, full=kind == "full")
    if errors is None:
        assert answers.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    else:
        assert codes(answers) == errors


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("seed", range(12))
def test_a_broker_is_what_controllers_last_said(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    model = Model()

    async def life() -> None:
        async with opened(tmp_path) as broker:
            model.told.clear()
            model.controller_epoch = max(model.controller_epoch, 0)
            await broker.replica_manager.leader_and_isr(
                isr(controller_epoch=model.controller_epoch)
            )
            for _ in range(STEPS // 2):
                await step(dice, model, broker)
                check(model, broker, tmp_path)

    for _ in range(2):  # the second is after a restart
        asyncio.run(life())
