"""What the logs of one log dir share: its path, its flush policy, the index environment, and
counters. LogDir has the list of open logs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from kstore._fast.disk.page_reader import PageReader
from kstore._fast.disk.write_back import WriteBack
from kstore._fast.log.append_queue import AppendQueue
from kstore._fast.log.dir_calm import DirCalm
from kstore.env import Clock, Env, SystemClock
from kstore.log.errors import CorruptLogError, NotKeeperError
from kstore.log.settings import FlushPolicy
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.log.index.index_store import IndexStore

__all__ = ["LogDirState"]

FATAL = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO})
"""After these errors the disk is considered failed. A full disk, for example, is used again when
there is room.
"""


def _machine_budget() -> int:
    from kstore.log.write_budget import machine_budget  # with few writes, no checks

    return machine_budget()


class LogDirState:
    """One log dir, for its logs and its maintenance."""

    def __init__(
        self,
        path: str,
        *,
        read_only: bool,
        flush_policy: FlushPolicy,
        flush_interval_ms: int,
        env: Env,
        index: IndexStore,
        boot: bytes,
        shared: bool = False,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.flush_policy = flush_policy
        self.flush_interval_ms = flush_interval_ms
        self.env = env
        self.custom_clock: Clock | None = None if type(env.clock) is SystemClock else env.clock
        """None: the machine's clock, which compiled code reads itself."""
        self.index = index
        self.boot = boot
        """The machine's boot id."""
        self.shared = shared
        """Other processes may also write to it."""
        self.keeper = True
        """Whether this process does the maintenance."""
        self.keeper_name: Callable[[], str] = lambda: "this process"
        """The process that does it."""
        self.opened_by = os.getpid()
        self.closed = False
        self.retention_check_ms = 300_000
        self.producer_expiration_ms = 86_400_000
        self.damages = 0
        self.repaired_parts = 0
        self.lost_offsets = 0
        self.wrong_indexes = 0
        """How often an index entry pointed to another batch."""
        self.on_damage: Callable[[TopicPartition], object] | None = None
        """Called, in any thread, with the partition in which damage was found."""
        self.failed: str | None = None
        """Why its disk is considered failed, if it is."""
        self.on_failed: Callable[[], object] | None = None
        """Called, in any thread, when it is."""
        self.unsynced_names = True
        """The names of new partitions may not be durable yet."""
        self.calm = DirCalm()
        self.appends = AppendQueue(path, self.calm, _warn)
        """Threads for appends that may have to wait for the disk, if a loop calls `serve`."""
        self.write_back: WriteBack | None = None if read_only else WriteBack(_machine_budget)
        """Makes the system write early what its logs have written."""
        self.calm.follow(self.write_back)
        self.pages = PageReader()
        """Reads what is not in the page cache, if a loop calls `serve`."""

    def now_ms(self) -> int:
        """The environment's time."""
        return self.env.clock.now_ms()

    def check_keeper(self, name: str) -> None:
        """Raise NotKeeperError if another process does the maintenance."""
        if not self.keeper:
            raise NotKeeperError(name, self.keeper_name())

    def note_error(self, problem: BaseException) -> None:
        """An operation in this log dir has failed. If the error means that the disk has failed,
        `on_failed` is called, once. Any thread may call it.
        """
        if self.failed is not None or not isinstance(problem, OSError):
            return
        if problem.errno not in FATAL or isinstance(problem, CorruptLogError):
            return
        self.failed = str(problem)
        if self.on_failed is not None:
            self.on_failed()

    def sync_names(self) -> None:
        """Make the names of new partitions durable."""
        if self.unsynced_names:
            self.unsynced_names = False
            try:
                self.env.fs.fsync_dir(self.path)
            except OSError:
                self.unsynced_names = True
                raise

    def note_damage(self, place: TopicPartition) -> None:
        """Damage was found in a log."""
        if self.on_damage is not None:
            self.on_damage(place)

    def note_wrong_index(self, path: str) -> None:
        """An index entry of a segment points elsewhere; its index is rebuilt."""
        from logging import getLogger

        self.wrong_indexes += 1
        getLogger("kstore.log").error(
            "the index of %s points to another batch: it is rebuilt from the segment", path
        )


def _warn(sentence: str) -> None:
    from logging import getLogger

    getLogger("kstore.log").warning("%s", sentence)
