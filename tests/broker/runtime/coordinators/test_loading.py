"""Partitions of coordinators whose log cannot be read when they are loaded."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kstore.broker.runtime.coordinators import runtime
from kstore.broker.runtime.coordinators.runtime import Coordinator, CoordinatorPartition
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.log.errors import CorruptLogError, LogStorageError
from kstore.types import TopicPartition

PLACE = TopicPartition("__transaction_state", 0)


class Writer:
    """All records are committed, and the log is not on this broker."""

    def __init__(self, *, leads: bool) -> None:
        self._leads = leads

    def partition(self, place: TopicPartition) -> object | None:
        assert place == PLACE
        return object() if self._leads else None

    async def committed(self, place: TopicPartition) -> None:
        assert place == PLACE

    def log_of(self, place: TopicPartition) -> Any:
        raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Failing(CoordinatorPartition):
    """Its log fails with these errors, one for each load."""

    def __init__(self, problems: list[Exception], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.problems = problems

    async def replay_log(self) -> None:
        if self.problems:
            raise self.problems.pop(0)


async def load(
    problems: list[Exception], loads: int, *, leads: bool = False
) -> CoordinatorPartition:
    """The served partition after this number of loads."""
    topic = cast(Any, SimpleNamespace(name=PLACE.topic, led=lambda: [0], may_answer=lambda: True))
    writer = cast(Any, Writer(leads=leads))
    coordinator = Coordinator(topic, writer, lambda at: Failing(problems, topic, writer, at))
    coordinator.start()
    found: list[CoordinatorPartition] = []
    while len(found) < loads:
        (partition,) = coordinator.partitions
        if partition not in found:
            found.append(partition)
            assert partition.loading is not None
            await partition.loading
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert coordinator.partitions == [found[-1]]
    return found[-1]


DISK_ERRORS = [
    OSError(errno.EIO, "a thread could not read"),
    LogStorageError(errno.EMFILE, "too many open files"),
    CorruptLogError("damaged", "segment", 0, first_offset=0, next_offset=1),
]


def test_a_partition_that_the_disk_failed_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LOAD_AGAIN_SECONDS", 0)
    problems: list[Exception] = list(DISK_ERRORS)
    partition = asyncio.run(load(problems, len(problems) + 1))
    assert partition.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "problem",
    [ValueError("a bad record"), cast(KafkaError, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER))],
)
def test_what_a_second_load_would_not_change_is_not_tried_again(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "LOAD_AGAIN_SECONDS", 0)
    partition = asyncio.run(load([problem], 1))
    assert partition.error_code == ErrorCode.NOT_COORDINATOR


def test_a_load_that_met_a_failed_append_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nobody would serve the partition until another broker leads it."""
    monkeypatch.setattr(runtime, "RELOAD_SECONDS", 0)
    problems: list[Exception] = [error_for(ErrorCode.NOT_COORDINATOR)] * 2
    partition = asyncio.run(load(problems, 3, leads=True))
    assert partition.error_code == ErrorCode.NONE


def test_a_load_that_is_refused_again_and_again_is_tried_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is logged when it changes, and the first load that succeeds ends the series."""
    pauses: list[float] = []

    def replace_now(coordinator: Any, partition: CoordinatorPartition, pause_s: float) -> None:
        pauses.append(pause_s)
        coordinator.loop.call_soon(coordinator._replace, partition)

    monkeypatch.setattr(Coordinator, "_replace_later", replace_now)
    caplog.set_level("INFO", logger=runtime.LOGGER.name)
    problems: list[Exception] = [error_for(ErrorCode.NOT_COORDINATOR)] * 7
    problems += [error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)] * 2
    partition = asyncio.run(load(problems, 10, leads=True))
    assert partition.error_code == ErrorCode.NONE
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30]
    *failures, loaded = [record.message for record in caplog.records]
    assert [f"{PLACE} can't be loaded" in message for message in failures] == [True, True]
    assert loaded == f"{PLACE} is loaded"
