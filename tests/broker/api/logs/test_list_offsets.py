"""ListOffsets by time: the loop reads no large compressed batch, and waits for no disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kstore.errors import ErrorCode
from kstore.log import timestamps
from kstore.log.recovery import segment_index
from kstore.log.segments.segment_names import SegmentOpener
from kstore.protocol.logs.list_offsets import ListOffsetsResponse
from kstore.protocol.registry import decode_response
from kstore.record import build_batch
from kstore.types import TopicPartition
from tests.broker.api.requests.world import World, in_world
from tests.fast.disk.dropped_pages import forget
from tests.plain_messages import Ask
from tests.record_requests import list_request

ZSTD = 4
PLACE = TopicPartition("t", 0)


async def found(world: World, *times: int) -> list[tuple[int, int, int]]:
    """(error, offset, timestamp) for each time, sent as concurrent requests."""

    async def one(time: int) -> tuple[int, int, int]:
        request = list_request("t", time)
        _, response = decode_response(await world.ask(request, 7), ListOffsetsResponse, 7)
        (row,) = response.topics[0].partitions
        return row.error_code, row.offset, row.timestamp

    return list(await asyncio.gather(*(one(time) for time in times)))


def test_a_large_batch_is_looked_into_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    find = timestamps.find_by_time

    def seen(batch: bytes, time: int, start: int) -> tuple[int, int] | None:
        threads.add(threading.current_thread().name)
        return find(batch, time, start)

    monkeypatch.setattr(timestamps, "find_by_time", seen)

    async def ask(world: World) -> None:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        await world.ask(Ask.CreateTopics(topics=[topic]), 7)
        records = [(None, bytes(40_000), 1000 + number) for number in range(50)]
        world.broker.partition_writer().append(PLACE, build_batch(records, compression=ZSTD))
        world.broker.partition_writer().append(PLACE, build_batch([(None, b"v", 1049)]))
        assert await found(world, 1020, -3, 1050) == [
            (ErrorCode.NONE, 20, 1020),
            (ErrorCode.NONE, 49, 1049),
            (ErrorCode.NONE, -1, -1),
        ]
        assert threads
        assert all(name.startswith("kstore-unpack") for name in threads)

    in_world(tmp_path, ask)


def test_a_leader_that_is_none_any_more_after_the_look_says_so(tmp_path: Path) -> None:
    async def ask(world: World) -> None:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        await world.ask(Ask.CreateTopics(topics=[topic]), 7)
        records = [(None, bytes(40_000), 1000 + number) for number in range(50)]
        world.broker.partition_writer().append(PLACE, build_batch(records, compression=ZSTD))
        begin = threading.Event()
        world.broker.unpacking().look(begin.wait)  # the thread is busy
        waiting = asyncio.ensure_future(found(world, 1020))
        try:
            for _ in range(10):
                await asyncio.sleep(0)
            partition = world.broker.partition_writer().partition(PLACE)
            assert partition is not None
            partition.follow(-1, 1)
        finally:
            begin.set()
        [(error, offset, _)] = await waiting
        assert (error, offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    in_world(tmp_path, ask)


@pytest.mark.on_disk
def test_cold_partitions_are_read_in_by_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, threads = 5, []
    load, opened = segment_index.load_whole, SegmentOpener.__call__

    def loading(*given: object) -> None:
        threads.append(threading.get_ident())
        load(*given)  # type: ignore[arg-type]

    def opening(*given: object, **more: object) -> object:
        threads.append(threading.get_ident())
        return opened(*given, **more)  # type: ignore[arg-type]

    async def fill(world: World) -> None:
        topic = {"name": "t", "num_partitions": partitions, "replication_factor": 1}
        await world.ask(Ask.CreateTopics(topics=[topic]), 7)
        for index in range(partitions):
            place = TopicPartition("t", index)
            for number in range(60):
                batch = build_batch([(None, bytes(20_000), 1000 + number)])
                world.broker.partition_writer().append(place, batch)
                if number in {20, 40}:
                    partition = world.broker.partition_writer().partition(place)
                    assert partition is not None
                    partition.log.roll()

    async def ask(world: World) -> None:
        dropped = True
        for path in tmp_path.glob("*-*/*.log"):
            with path.open("r+b") as file:
                dropped &= not path.stat().st_size or forget(file.fileno())
        monkeypatch.setattr(segment_index, "load_whole", loading)
        monkeypatch.setattr(SegmentOpener, "__call__", opening)
        (pages,) = [log_dir.pages for log_dir in world.broker.log_manager.dirs]
        asked = [
            {"partition_index": index, "timestamp": 1000 + 7 * index} for index in range(partitions)
        ]
        request = Ask.ListOffsets(replica_id=-1, topics=[{"name": "t", "partitions": asked}])
        _, response = decode_response(await world.ask(request, 7), ListOffsetsResponse, 7)
        found = {row.partition_index: row.offset for row in response.topics[0].partitions}
        assert found == {index: 7 * index for index in range(partitions)}
        assert len(threads) >= 2 * partitions  # each has a file opened, and an index loaded
        assert threading.get_ident() not in threads
        if not dropped:
            pytest.skip("this system does not say what is in the page cache, or drops nothing")
        assert pages.cold_reads >= partitions

    in_world(tmp_path, fill)
    in_world(tmp_path, ask)
