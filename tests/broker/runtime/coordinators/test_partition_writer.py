"""Threads append coordinators' records: the response waits for the disk, not the decision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter, settle
from kstore.errors import ErrorCode, KafkaError
from kstore.log import open_log_dir
from kstore.types import TopicPartition
from tests.beside.waiting import turns

PLACE = TopicPartition("t", 0)


class Host:
    """One partition led here, whose log dir's threads do an append when the test says so."""

    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.dir = open_log_dir(str(folder))
        self.runs: list[Callable[[], bool]] = []
        self.dir.appends.serve(loop.call_soon, self.runs.append)
        self.calm = self.dir.appends.calm
        table = PartitionTable(1, loop.call_soon)
        entry = TopicEntry(b"t", UUID(int=1).bytes)
        table.add_topic(entry)
        self.partition = Partition(entry, 0, self.dir.log("t"), leader_id=1)
        table.add_partition(self.partition)
        node: Any = SimpleNamespace(config={"kstore.flush.policy": "os"})
        self.writer = PartitionWriter(node, table, SimpleNamespace())  # type: ignore[arg-type]
        self.told: list[int] = []

    def append(self, value: bytes) -> int:
        return self.writer.append(PLACE, build_batch([value], timestamp=1), self.told.append)

    async def run(self) -> None:
        """Do one append, and let the loop see its result."""
        assert self.runs.pop(0)()
        await turns(3)


def play(folder: Path, story: Callable[[Host], Awaitable[None]]) -> None:
    async def told() -> None:
        host = Host(folder)
        try:
            await story(host)
        finally:
            host.dir.close()

    asyncio.run(told())


def test_on_a_calm_disk_it_is_written_at_once(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        assert [host.append(b"a"), host.append(b"b")] == [0, 1]
        assert (host.told, host.runs) == ([0, 0], [])
        assert host.writer.to_be_committed(PLACE) is None

    play(tmp_path, story)


def test_else_the_offset_is_known_and_the_answer_waits(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.append(b"a")
        host.calm.over_budget = True
        assert [host.append(b"b"), host.append(b"c")] == [1, 2]
        first = host.writer.to_be_committed(PLACE)
        assert first is not None
        assert (host.told, first.done(), host.partition.log_end_offset) == ([0], False, 1)
        host.calm.over_budget = False
        assert host.append(b"d") == 3, "behind what is queued"
        await host.run()
        await host.run()
        await settle(first)
        assert len(host.runs) == 1
        await host.run()
        assert host.writer.to_be_committed(PLACE) is None
        assert host.told == [0] * 4
        assert [r.value for r in host.partition.log.read(0)] == [b"a", b"b", b"c", b"d"]

    play(tmp_path, story)


def test_the_offset_is_behind_what_was_copied_as_a_follower(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.append(b"a")
        host.calm.over_budget = True
        copied = build_batch([b"b", b"c"], timestamp=1, base_offset=1)
        core = host.partition.log.core
        host.dir.appends.append(core, copied, 0, "replica", lambda job: None)
        assert host.runs.pop(0)()  # it is in the log, and the loop has not seen it yet
        assert host.partition.appends_queued == 1
        assert [host.append(b"d"), host.append(b"e")] == [3, 4]
        await host.run()
        await host.run()
        assert host.told == [0] * 3

    play(tmp_path, story)


def test_what_is_too_large_is_refused_before_anything_rests_on_it(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.calm.over_budget = True
        with pytest.raises(KafkaError) as refused:
            host.append(bytes(1_100_000))
        assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (host.told, host.runs) == ([], [])
        assert host.append(b"a") == 0

    play(tmp_path, story)


def test_what_can_not_be_written_is_told_to_all_that_rest_on_it(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.calm.over_budget = True
        host.append(b"a")
        host.append(b"b")
        told = host.writer.to_be_committed(PLACE)
        assert told is not None
        host.partition.log.core.close()
        await host.run()
        await host.run()
        assert host.told == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        with pytest.raises(KafkaError) as refused:
            await settle(told)
        assert refused.value.code == ErrorCode.NOT_COORDINATOR

    play(tmp_path, story)


def test_who_leads_no_more_writes_nothing_that_is_queued(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.calm.over_budget = True
        host.append(b"a")
        host.partition.follow(2, 1)
        await host.run()
        assert host.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert host.partition.log_end_offset == 0
        with pytest.raises(KafkaError):
            host.append(b"b")

    play(tmp_path, story)
