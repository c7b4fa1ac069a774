"""When superseded records are deleted: not before the snapshots that supersede them last."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kstore.broker.metrics.shares import of_shares
from kstore.broker.metrics.topics import SummedUp
from kstore.broker.runtime.shares.share_coordinator import ShareCoordinator, ShareStatePartition
from kstore.broker.state.shares.persisted import SharePartitionKey, ShareWrite, StateBatch
from kstore.broker.state.shares.share_shard import ShareRecord
from kstore.errors import ErrorCode, error_for
from kstore.types import TopicPartition
from tests.beside.waiting import turns

KEY = SharePartitionKey("g", UUID(int=1), 0)
PLACE = TopicPartition("__share_group_state", 0)


class FakeLog:
    log_start_offset = 0
    log_dir = SimpleNamespace(path="dir")

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def flush(self) -> None:
        self.calls.append("flush")

    def delete_before(self, offset: int) -> None:
        self.calls.append(offset)


class FakeWriter:
    """Its partition is committed when the test says so."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.batches: list[bytes] = []

    def log_of(self, place: TopicPartition) -> FakeLog:
        return self.log

    def partition(self, place: TopicPartition) -> Any:
        return SimpleNamespace(log=self.log, notify=lambda: None)

    async def committed(self, place: TopicPartition, timeout_s: float) -> None:
        await self.told

    def append(self, place: TopicPartition, batch: bytes, ended: Any) -> int:
        self.batches.append(batch)
        return 10 * len(self.batches)


class FakeDirs:
    async def run(self, path: str, what: str, call: Any) -> None:
        call()


def coordinator_of(writer: FakeWriter, now_ms: int = 1) -> ShareCoordinator:
    """With one partition, where records before offset 4 are superseded."""
    config = {
        "kstore.check.invariants": True,
        "share.coordinator.cold.partition.snapshot.interval.ms": 1000,
        "share.coordinator.snapshot.update.records.per.snapshot": 1,
        "share.coordinator.write.timeout.ms": 5000,
    }
    node: Any = SimpleNamespace(now_ms=lambda: now_ms, config=config, dirs=FakeDirs())
    coordinator = ShareCoordinator(node, None, writer)  # type: ignore[arg-type]
    partition = ShareStatePartition(coordinator, PLACE)
    partition.error_code = ErrorCode.NONE
    coordinator._by_index[0] = partition
    for offset in (3, 4):
        record = partition.shard.initialize(KEY, 1, 0, 1)
        assert isinstance(record, ShareRecord)
        partition.shard.replay(record, offset)
    return coordinator


async def prune_with(failure: Exception | None) -> tuple[list[Any], list[Any]]:
    """The log's calls before the snapshot is committed, and after that, or after a failure."""
    writer = FakeWriter()
    coordinator = coordinator_of(writer)
    pruning = asyncio.ensure_future(coordinator.prune())
    await turns(5)
    before = list(writer.log.calls)
    if failure is None:
        writer.told.set_result(None)
    else:
        writer.told.set_exception(failure)
    await pruning
    return before, writer.log.calls


def test_records_are_deleted_once_their_snapshot_is_committed_and_on_the_disk() -> None:
    assert asyncio.run(prune_with(None)) == ([], ["flush", 4])


def test_records_stay_where_their_snapshot_is_not_committed() -> None:
    failure = error_for(ErrorCode.NOT_COORDINATOR)
    assert asyncio.run(prune_with(failure)) == ([], [])


def pruned_samples(coordinator: ShareCoordinator) -> list[str]:
    """The page's lines about the last pruned offsets."""
    broker: Any = SimpleNamespace(
        share_partitions=SimpleNamespace(made=None),
        share_coordinator=SimpleNamespace(made=coordinator),
        config={"kstore.metrics.max.partitions": 10},
    )
    page = of_shares(broker, SummedUp(), by_name=False)
    return [line for line in page if isinstance(line, str) and "pruned_offset{" in line]


async def prune_and_leave() -> None:
    writer = FakeWriter()
    coordinator = coordinator_of(writer)
    assert pruned_samples(coordinator) == []
    writer.told.set_result(None)
    await coordinator.prune()
    [line] = pruned_samples(coordinator)
    assert 'topic="__share_group_state",partition="0"' in line
    assert line.split()[-1] == "4"
    await coordinator.close()
    assert pruned_samples(coordinator) == []


def test_the_last_pruned_offset_is_told_while_the_partition_is_here() -> None:
    asyncio.run(prune_and_leave())


@pytest.mark.slow
def test_snapshots_of_much_state_are_appended_in_batches_that_the_topic_takes() -> None:
    async def sizes() -> list[int]:
        writer = FakeWriter()
        coordinator = coordinator_of(writer, now_ms=5000)
        coordinator.topic = SimpleNamespace(may_answer=lambda: True)  # type: ignore[assignment]
        (partition,) = coordinator.partitions
        partition.topic = coordinator.topic
        batches = tuple(StateBatch(2 * number, 2 * number, 0, 1) for number in range(2000))
        for index in range(30):
            key = SharePartitionKey("g", UUID(int=1), index)
            for decide in (
                partial(partition.shard.initialize, key, 1, 0, 1),
                partial(partition.shard.write, key, ShareWrite(1, 0, -1, 0, batches), 1),
            ):
                decided = decide()
                assert isinstance(decided, ShareRecord)
                partition.shard.replay(decided, index)
        await coordinator.snapshot_cold()
        return [len(batch) for batch in writer.batches]

    found = asyncio.run(sizes())
    assert sum(found) > 1 << 20
    assert max(found) < 300_000
