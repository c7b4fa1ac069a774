"""The settings, counters and findings of a log dir. LogDir inherits all of this."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from kstore.log import errors
from kstore.log.segments.segment_names import (
    directory_name,
    parse_directory_name,
    read_topic_id,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.disk.page_reader import PageReader
    from kstore._fast.disk.write_back import WriteBack
    from kstore._fast.log.append_queue import AppendQueue
    from kstore.env import Env
    from kstore.log.index.index_store import IndexStore
    from kstore.log.local.log_dir_state import LogDirState
    from kstore.log.settings import FlushPolicy

__all__ = ["LogDirFacts"]


class LogDirFacts:
    """The facts of one log dir."""

    state: LogDirState
    path: str
    env: Env

    def now_ms(self) -> int:
        """The time of the environment's clock, in ms since 1970."""
        return self.env.clock.now_ms()

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log in this log dir."""
        self._check_open()
        with errors.storage_errors(f"listing {self.path}"):
            found = map(parse_directory_name, self.env.fs.listdir(self.path))
        return sorted(key for key in found if key is not None)

    def topic_id(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic id in the partition's metadata file; None if there is none."""
        with errors.storage_errors(f"reading the topic id of {key}"):
            return read_topic_id(self.env.fs, os.path.join(self.path, directory_name(key)))

    def _check_open(self) -> None:
        if self.state.closed:
            raise errors.closed_error(f"the log dir {self.path}", self.state.opened_by)

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self.state.closed

    @property
    def flush_policy(self) -> FlushPolicy:
        """When an append is on disk."""
        return self.state.flush_policy

    @property
    def retention_check_ms(self) -> int:
        """How often old segments are looked for, in ms (log.retention.check.interval.ms)."""
        return self.state.retention_check_ms

    @retention_check_ms.setter
    def retention_check_ms(self, interval_ms: int) -> None:
        self.state.retention_check_ms = interval_ms

    @property
    def producer_expiration_ms(self) -> int:
        """How long the sequence numbers of an idle producer are kept, in ms
        (producer.id.expiration.ms).
        """
        return self.state.producer_expiration_ms

    @producer_expiration_ms.setter
    def producer_expiration_ms(self, age_ms: int) -> None:
        self.state.producer_expiration_ms = age_ms

    @property
    def appends(self) -> AppendQueue:
        """The threads for appends that may have to wait."""
        return self.state.appends

    @property
    def write_back(self) -> WriteBack | None:
        """Makes the system write early what is written here; None if nothing does."""
        return self.state.write_back

    @property
    def pages(self) -> PageReader:
        """Reads what is not in the page cache."""
        return self.state.pages

    @property
    def index(self) -> IndexStore:
        """The index environment; maintenance writes to it."""
        return self.state.index

    @property
    def damages(self) -> int:
        """The number of damaged parts found in segments."""
        return self.state.damages

    @property
    def repaired_parts(self) -> int:
        """The number of damaged parts that were replaced from another replica."""
        return self.state.repaired_parts

    @property
    def lost_offsets(self) -> int:
        """The number of offsets found to be lost."""
        return self.state.lost_offsets

    @property
    def index_damages(self) -> int:
        """How often the index, or a part of it, was damaged and rebuilt."""
        index = self.state.index
        return index.replaced + index.damaged_values + self.state.wrong_indexes

    def count_lost(self, offsets: int) -> None:
        """Count offsets that a log's replication found to be lost."""
        self.state.lost_offsets += offsets

    def when_damaged(self, tell: Callable[[TopicPartition], object]) -> None:
        """Call ``tell`` with the partition, from any thread, when damage is found."""
        self.state.on_damage = tell

    def note_error(self, problem: BaseException) -> None:
        """Report a failed operation on one of the logs: the disk may have failed."""
        self.state.note_error(problem)

    @property
    def failed(self) -> str | None:
        """The reason why the disk is considered failed; None if it is not."""
        return self.state.failed

    def when_failed(self, tell: Callable[[], object]) -> None:
        """Call ``tell``, from any thread, when the disk is considered failed."""
        self.state.on_failed = tell
