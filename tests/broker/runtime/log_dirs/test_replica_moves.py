"""broker/runtime/log_dirs/replica_moves.py: where a partition is while it moves."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from kstore._fast.broker.partition_table import PartitionTable
from kstore.broker.runtime.dir_threads import DirThreads
from kstore.broker.runtime.log_dirs import future_logs, log_manager, replica_moves
from kstore.broker.runtime.log_dirs.dir_calls import Wanted, open_each
from kstore.broker.runtime.log_dirs.future_logs import FUTURE_MARK, mark_future
from kstore.broker.runtime.log_dirs.log_manager import LogManager
from kstore.broker.runtime.log_dirs.replica_moves import ReplicaMove, ReplicaMoves
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from kstore.config import BrokerConfig
from kstore.env import SystemFileSystem
from kstore.log import Log, LogDir
from kstore.log.errors import LogStorageError
from kstore.log.segments import removal
from kstore.types import TopicPartition
from tests.beside.waiting import reached
from tests.log.handling import values

KEY = TopicPartition("t", 0)
VALUES = [b"%d" % number + bytes(300) for number in range(20)]


class Moving:
    """A partition in the first of three log dirs, and its moves."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.folders = [folder / name for name in "abc"]
        self.told: list[str] = []
        table = PartitionTable(1, lambda call: call())
        self.threads = DirThreads(self.loop, self.told.append)
        self.node: Any = SimpleNamespace(
            config=BrokerConfig.load(overrides={}), node_id=1, report=self.told.append,
            dirs=self.threads, dir_reads=self.threads, loop=self.loop,
        )  # fmt: skip
        self.table = table
        self.log_manager = LogManager(self.node, table, replicated=False)
        self.log_manager.open([str(each) for each in self.folders])
        topic = TopicImage("t", uuid4(), (PartitionImage(1, 0, (1,), (1,)),), {})
        entry = self.log_manager.add_topic(topic)
        config = self.log_manager.log_config({})
        self.partition = self.log_manager.open_partition(entry, topic, 0, config)
        self.partition.log.append_many(VALUES)
        self.moves = ReplicaMoves(self.node, table, self.log_manager)
        self.dirs = list(self.log_manager.dirs)

    def begin(self, place: int) -> None:
        assert self.moves.begin(KEY, self.dirs[place]) == 0

    async def serves_from(self, place: int) -> None:
        log_dir = self.dirs[place]
        await reached(lambda: self.partition.log.log_dir is log_dir, "the logs are swapped")

    async def calls_run(self, *places: int) -> None:
        """Run everything that does not need the other log dirs."""
        for _ in range(10):
            for place in places:
                await self.threads.run(self.dirs[place].path, "a call", int)

    def is_in(self, place: int) -> bool:
        """Whether a folder of a log dir has the name of the partition."""
        return (self.folders[place] / "t-0").exists()

    def has_mark(self, place: int) -> bool:
        """Whether the next start takes the folder for an unfinished copy."""
        return (self.folders[place] / "t-0" / FUTURE_MARK).exists()

    def names(self) -> list[str]:
        """The folders of the partition, and those that are being removed."""
        return [str(path.relative_to(path.parents[1])) for each in self.folders
                for path in each.glob("t-0*")]  # fmt: skip

    @contextmanager
    def started(self) -> Iterator[LogManager]:
        """The log dirs after the broker ended and started again."""
        self.log_manager.close()
        again = LogManager(self.node, PartitionTable(1, lambda call: call()), replicated=False)
        try:
            again.open([str(each) for each in self.folders])
            yield again
        finally:
            again.close()

    def close(self) -> None:
        self.loop.run_until_complete(self.moves.close(60))
        self.log_manager.close()
        self.loop.run_until_complete(asyncio.sleep(0))  # ends the removals
        self.threads.close()
        self.loop.close()


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    made = Moving(tmp_path)
    yield made
    made.close()


@pytest.fixture
def renaming(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The first log dir waits for this event before it renames its log."""
    may = threading.Event()
    real = LogDir.take_away

    def take_away(log_dir: LogDir, *keys: TopicPartition) -> list[str]:
        assert log_dir is not moving.dirs[0] or may.wait(60)
        return real(log_dir, *keys)

    monkeypatch.setattr(LogDir, "take_away", take_away)
    yield may
    may.set()


def test_a_partition_is_in_its_old_log_dir_until_the_move_is_finished() -> None:
    """Its log is swapped before the folders are. Otherwise it would be in the new log dir twice,
    and clients that keep one row would take it for an unfinished copy.
    """
    unused: Any = None
    old: Any = SimpleNamespace(log_dir=SimpleNamespace(name="old"))
    new: Any = SimpleNamespace(log_dir=SimpleNamespace(name="new"))
    partition: Any = SimpleNamespace(log=old)
    moves = ReplicaMoves(unused, unused, unused)
    assert moves.home_of(KEY, old) is old.log_dir
    move = ReplicaMove(KEY, partition, new.log_dir)
    moves._moves[KEY] = move, unused
    assert moves.home_of(KEY, old) is old.log_dir
    move.future = partition.log = new
    moves._taking_place[KEY] = moves._moves.pop(KEY)
    assert moves.home_of(KEY, new) is old.log_dir
    del moves._taking_place[KEY]
    assert moves.home_of(KEY, new) is new.log_dir


def test_the_next_move_waits_until_the_copy_is_the_partition(
    moving: Moving, renaming: threading.Event
) -> None:
    """After a crash in between, the partition would be the old log without the newest records, or a
    part of the next copy.
    """

    async def story() -> None:
        moving.begin(1)
        await moving.serves_from(1)
        moving.begin(2)
        await moving.calls_run(1, 2)
        assert moving.has_mark(1)
        assert not moving.is_in(2)
        [move] = moving.moves.in_progress()
        assert (move.origin, move.target) == (moving.dirs[0], moving.dirs[1])
        assert moving.moves.home_of(KEY, moving.partition.log) is moving.dirs[0]
        renaming.set()
        await reached(lambda: moving.names() == ["c/t-0"])
        await reached(lambda: not moving.moves.in_progress())

    moving.loop.run_until_complete(story())
    assert not moving.has_mark(2)
    assert values(moving.partition.log) == VALUES
    assert moving.told == []


def test_a_move_back_waits_too_and_can_be_cancelled(
    moving: Moving, renaming: threading.Event
) -> None:
    async def story() -> None:
        moving.begin(1)
        await moving.serves_from(1)
        moving.begin(0)
        await moving.calls_run(1)
        moving.begin(1)  # its current log dir: this only cancels the move
        moving.begin(2)
        await moving.calls_run(1, 2)
        assert not moving.is_in(2)
        renaming.set()
        await moving.serves_from(2)
        await reached(lambda: moving.names() == ["c/t-0"])

    moving.loop.run_until_complete(story())
    assert values(moving.partition.log) == VALUES
    assert moving.told == []


def test_a_move_that_is_cancelled_at_once_can_begin_again(moving: Moving) -> None:
    async def story() -> None:
        moving.begin(1)
        moving.begin(0)  # its current log dir: this only cancels the move
        assert moving.moves.in_progress() == []
        moving.begin(1)
        await moving.serves_from(1)

    moving.loop.run_until_complete(story())


def test_the_end_of_the_broker_waits_until_the_copy_is_the_partition(
    moving: Moving, renaming: threading.Event
) -> None:
    async def story() -> None:
        moving.begin(1)
        await moving.serves_from(1)
        closing = asyncio.ensure_future(moving.moves.close(60))
        await moving.calls_run(1, 2)
        assert not closing.done()
        renaming.set()
        await closing

    moving.loop.run_until_complete(story())
    assert (moving.is_in(0), moving.is_in(1), moving.has_mark(1)) == (False, True, False)


def test_a_deletion_waits_until_the_old_log_is_gone(
    moving: Moving, renaming: threading.Event
) -> None:
    async def story() -> None:
        moving.begin(1)
        await moving.serves_from(1)
        deleting = asyncio.ensure_future(await moving.log_manager.take_away([KEY]))
        await moving.calls_run(1, 2)
        assert not moving.is_in(1)
        assert not deleting.done()
        assert list(moving.log_manager.leaving) == [KEY]
        renaming.set()
        await deleting
        assert not moving.is_in(0)
        assert moving.log_manager.leaving == {}

    moving.loop.run_until_complete(story())


def refuse(*_: object, problem: BaseException | None = None) -> Any:
    raise problem or OSError(errno.EACCES, "no")


def test_what_is_appended_after_the_swap_survives_if_the_old_log_stays(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the mark of a copy, the next start would delete the log that is served."""

    async def story() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(LogDir, "take_away", refuse)
            moving.begin(1)
            await reached(lambda: moving.told)
        moving.partition.log.append(b"newest")

    moving.loop.run_until_complete(story())
    old = moving.folders[0] / "t-0"
    assert f"remove {old}, then restart" in moving.told[0]
    assert (moving.is_in(0), moving.is_in(1), moving.has_mark(1)) == (True, True, False)
    with pytest.raises(LogStorageError, match="is in both"), moving.started():
        pass
    shutil.rmtree(old)
    with moving.started() as again:
        home = again.home(KEY)
        assert home is not None
        assert home.path == str(moving.folders[1])
        assert values(home.log(*KEY)) == [*VALUES, b"newest"]


def test_a_copy_with_a_mark_is_not_moved_on(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a second copy, the next start would not know which one is complete."""

    async def story() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(log_manager, "unmark", refuse)
            moving.begin(1)
            await reached(lambda: moving.told)
        moving.begin(2)
        await reached(lambda: not moving.moves.in_progress())

    moving.loop.run_until_complete(story())
    assert "restart the broker first" in moving.told[1]
    assert (moving.has_mark(1), moving.is_in(2)) == (True, False)
    assert values(moving.partition.log) == VALUES


def test_a_partition_that_is_stopped_meanwhile_is_not_moved_on(
    moving: Moving, renaming: threading.Event
) -> None:
    async def story() -> None:
        moving.begin(1)
        await moving.serves_from(1)
        moving.begin(2)
        await moving.calls_run(1, 2)
        _, task = moving.moves._moves[KEY]
        moving.partition.fail()
        renaming.set()
        await task
        await reached(lambda: moving.names() == ["b/t-0"])

    moving.loop.run_until_complete(story())
    assert moving.told == []


@pytest.mark.parametrize("deleted", [False, True])
def test_no_other_log_in_the_target_is_deleted(
    moving: Moving, renaming: threading.Event, deleted: bool
) -> None:
    """For example, the partition of a new topic with that name."""
    other = moving.dirs[2].log(*KEY, create=True)
    other.append(b"other")

    async def story() -> None:
        moving.begin(1)
        await moving.serves_from(1)
        moving.begin(2)
        await moving.calls_run(1, 2)
        if deleted:
            moving.table.remove_topic(b"t")
        renaming.set()
        await reached(lambda: not moving.moves.in_progress())

    moving.loop.run_until_complete(story())
    assert ["File exists" in told for told in moving.told] == ([] if deleted else [True])
    assert values(other) == [b"other"]
    assert moving.is_in(2)


def test_a_copy_that_an_earlier_start_left_stays(moving: Moving) -> None:
    """It may be the only complete one if the old log was in a log dir that has failed."""
    mark_future(moving.dirs[1], KEY)

    async def story() -> None:
        moving.begin(1)
        await reached(lambda: not moving.moves.in_progress())

    moving.loop.run_until_complete(story())
    assert "File exists" in moving.told[0]
    assert moving.has_mark(1)


def test_a_move_begins_from_where_the_partition_is_then(moving: Moving) -> None:
    move = ReplicaMove(KEY, moving.partition, moving.dirs[2])
    move.origin = moving.dirs[1]
    moving.loop.run_until_complete(moving.moves._move(move, moving.partition))
    assert move.origin is moving.dirs[0]


def test_a_new_log_that_replaces_the_copy_is_not_deleted(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    may, copying = threading.Event(), threading.Event()

    def copy_slice(*_: object) -> None:
        copying.set()
        assert may.wait(60)
        raise LogStorageError("the topic is gone")

    async def story() -> Log | Exception:
        moving.begin(1)
        await reached(copying.is_set)
        target = moving.dirs[1]
        wanted = [Wanted(KEY, uuid4(), moving.log_manager.log_config({}))]
        opening = moving.threads.run(target.path, "a call", lambda: open_each(target, wanted))
        may.set()
        [(_, new, stray)] = await opening
        assert stray is not None
        await reached(lambda: not moving.moves.in_progress())
        return new

    monkeypatch.setattr(replica_moves, "_copy_slice", copy_slice)
    new = moving.loop.run_until_complete(story())
    assert isinstance(new, Log)
    assert new.append(b"new") is not None
    assert values(new) == [b"new"]
    assert moving.is_in(1)


@pytest.mark.parametrize("problem", [OSError("no"), KeyboardInterrupt("no")])
@pytest.mark.parametrize("step", ["open", "rename"])
def test_a_copy_without_its_mark_is_no_log(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, step: str, problem: BaseException
) -> None:
    """After an error, or a crash: the next start would find the partition in both log dirs."""
    with monkeypatch.context() as patch:
        where: Any = future_logs if step == "open" else os
        patch.setattr(where, step, partial(refuse, problem=problem), raising=False)
        with pytest.raises(type(problem), match="no"):
            mark_future(moving.dirs[1], KEY)
    assert not moving.is_in(1)
    with moving.started() as again:
        home = again.home(KEY)
        assert home is not None
        assert values(home.log(*KEY)) == VALUES


def test_the_end_of_the_broker_does_not_wait_for_a_log_dir_that_hangs(
    moving: Moving, renaming: threading.Event
) -> None:
    async def story() -> None:
        moving.begin(1)
        await moving.serves_from(1)
        await moving.moves.close(0)
        assert moving.is_in(0)

    moving.loop.run_until_complete(story())
    assert "does not wait for the move of t-0" in moving.told[0]


@pytest.mark.parametrize("failed", [0, 2])
def test_no_copy_is_the_partition_while_its_log_may_be_in_a_failed_log_dir(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, failed: int
) -> None:
    """It may be only a partial copy. It stays as it is until all log dirs can be opened."""
    real = LogManager._open_dir

    def open_dir(manager: LogManager, path: str) -> Any:
        return refuse() if path == str(moving.folders[failed]) else real(manager, path)

    mark_future(moving.dirs[1], KEY)
    moving.dirs[1].log(*KEY, create=True).append(b"a part")
    with monkeypatch.context() as patch:
        patch.setattr(LogManager, "_open_dir", open_dir)
        with moving.started() as again:
            assert again.is_offline(KEY) == (failed == 0)
            assert [home.path for home in again._homes.values()] == [
                str(moving.folders[0]) for _ in range(failed != 0)
            ]
    assert moving.has_mark(1)
    with moving.started() as again:
        home = again.home(KEY)
        assert home is not None
        assert values(home.log(*KEY)) == VALUES
    assert not moving.is_in(1)


def test_the_new_names_are_durable_before_appends_and_before_the_next_mark(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool, bool]] = []
    real = SystemFileSystem.fsync_dir

    def fsync_dir(files: SystemFileSystem, path: str) -> None:
        real(files, path)
        synced.append((path, moving.is_in(0), moving.has_mark(1)))

    async def story() -> None:
        moving.begin(1)
        await reached(lambda: moving.partition.log.log_dir is moving.dirs[1])
        await reached(lambda: not moving.moves.in_progress())

    monkeypatch.setattr(SystemFileSystem, "fsync_dir", fsync_dir)
    moving.loop.run_until_complete(story())
    renamed = (str(moving.folders[0]), False, True)
    assert synced[-2:] == [renamed, (str(moving.folders[1] / "t-0"), False, False)]


def test_a_move_is_finished_and_the_next_begins_while_files_are_removed(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    may = threading.Event()
    in_progress: list[list[ReplicaMove]] = []
    real = LogDir.remove_step

    def remove_step(log_dir: LogDir, path: str) -> bool:
        in_progress.append(moving.moves.in_progress())
        assert may.wait(60)
        return real(log_dir, path)

    async def story() -> None:
        moving.begin(1)
        await reached(lambda: in_progress)
        moving.begin(2)
        await moving.calls_run(2)
        may.set()
        await reached(lambda: moving.names() == ["c/t-0"])

    monkeypatch.setattr(removal, "STEP_BYTES", 1000)
    monkeypatch.setattr(LogDir, "remove_step", remove_step)
    moving.loop.run_until_complete(story())
    assert in_progress[0] == []
    assert moving.told == []
