"""broker/runtime/log_dirs/log_manager.py: which log dir a new partition goes to."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from kstore._fast.broker.partition_table import PartitionTable
from kstore.broker.runtime.dir_threads import DirThreads
from kstore.broker.runtime.log_dirs.dir_calls import LOGS_AT_ONCE
from kstore.broker.runtime.log_dirs.log_manager import LogManager
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from kstore.broker.state.work import ROWS_BETWEEN
from kstore.config import BrokerConfig
from kstore.types import TopicPartition
from tests.beside.waiting import reached


def test_a_new_partition_goes_to_the_log_dir_with_the_fewest(tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    log_manager = _log_manager()
    log_manager.open(paths)
    try:
        _open(log_manager, "t", 6)
        assert _counts(log_manager) == {"a": 2, "b": 2, "c": 2}
        for index in (0, 3):  # both partitions in the first log dir
            log_manager.delete_now(TopicPartition("t", index))
        _open(log_manager, "u", 2)
        assert _counts(log_manager) == {"a": 2, "b": 2, "c": 2}
        log_manager.delete_now(TopicPartition("t", 99))
        _open(log_manager, "v", 1)
        assert sum(_counts(log_manager).values()) == 7
    finally:
        log_manager.close()

    again = _log_manager()
    again.open(paths)
    try:
        _open(again, "w", 2)
        assert _counts(again) == {"a": 3, "b": 3, "c": 3}
    finally:
        again.close()


@pytest.mark.slow
def test_many_logs_are_taken_away_with_turns_for_others(tmp_path, monkeypatch):
    monkeypatch.setattr("kstore.broker.runtime.slices.SLICE_S", 0)  # each piece takes a whole slice
    log_manager = _log_manager()
    log_manager.open([str(tmp_path)])
    loop = log_manager._loop
    count = 5 * ROWS_BETWEEN
    _open(log_manager, "t", count)
    turns = 0

    def turn():
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    async def take_away():
        loop.call_soon(turn)
        keys = [TopicPartition("t", index) for index in range(count)]
        taking = await log_manager.take_away([*keys, TopicPartition("t", 999)])
        assert turns >= count // LOGS_AT_ONCE - 1
        assert log_manager.places() == []
        taken = await taking
        assert sum(len(each.folders) for each in taken) == len(keys)
        log_manager.removals.begin(taken)
        await reached(lambda: not list(tmp_path.glob("t-*")))

    try:
        loop.run_until_complete(take_away())
    finally:
        log_manager.close()


def _log_manager() -> LogManager:
    table = PartitionTable(1, lambda call: call())
    loop = asyncio.new_event_loop()
    dirs = DirThreads(loop, print)
    config = BrokerConfig.load(overrides={})
    node: Any = SimpleNamespace(
        config=config, node_id=1, report=print, dirs=dirs, dir_reads=dirs, loop=loop
    )
    return LogManager(node, table, replicated=False)


def _open(log_manager: LogManager, name: str, partitions: int) -> None:
    topic = TopicImage(name, uuid4(), (PartitionImage(1, 0, (1,), (1,)),) * partitions, {})
    entry = log_manager.add_topic(topic)
    for index in range(partitions):
        log_manager.open_partition(entry, topic, index, log_manager.log_config({}))


def _counts(log_manager: LogManager) -> dict[str, int]:
    return Counter(
        log_dir.path.rpartition("/")[2]
        for log_dir in log_manager.dirs
        for _ in log_dir.partitions()
    )
