"""The append core of one log: analyse, plan, write, commit, for every origin."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from typing_extensions import Buffer

from kstore._fast.log.append_queue import AppendQueue
from kstore._fast.log.dir_calm import DirCalm
from kstore._fast.log.log_view import LogView
from kstore.env import Clock

ORIGINS: dict[str, int]
"""Names of the origins: client, coordinator, replica, given."""

class AppendInfo:
    """Where an append went."""

    base_offset: int
    """Offset of the first record."""
    last_offset: int
    """Offset of the last record."""
    log_append_time_ms: int
    """The time given to all records with LogAppendTime, else -1."""
    log_start_offset: int
    """The log start offset then."""
    duplicate: bool
    """The batch was in the log already; the offsets are the original's."""

class LogCore(LogView):
    """One log's appends. As a context manager it holds the log's lock (recursive)."""

    closed: bool
    """Appends are refused."""
    max_message_bytes: int
    """The largest batch."""
    on_append: Callable[[], object] | None
    """Called after each append, outside the lock."""
    calm: DirCalm
    """Whether its log dir's disk keeps pace."""
    appends: AppendQueue | None
    """The threads of its log dir that appends may be left to."""
    queued: int
    """Appends that are left to them and are not done."""
    def __init__(
        self,
        owner: object,
        *,
        clock: Clock | None = None,
        writable: bool = True,
        calm: DirCalm | None = None,
        appends: AppendQueue | None = None,
    ) -> None: ...
    def __enter__(self) -> LogCore: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def refuse_queued(self) -> None:
        """What was left to threads and has not begun is not appended any more."""
    def configure(
        self,
        *,
        segment_bytes: int,
        segment_ms: int,
        segment_index_bytes: int,
        index_interval_bytes: int,
        max_message_bytes: int,
        log_append_time: bool,
        compacted: bool,
        before_max_ms: int,
        after_max_ms: int,
    ) -> None:
        """Takes a LogConfig's values."""
    def after_fork(self) -> None:
        """In a child process: refuses appends, and frees a lock that another thread held."""
    def close(self) -> None:
        """Refuses appends from now on."""
    def take_dirty(self) -> bool:
        """Whether anything was appended since the last call."""
    def append_buffer(
        self, buffer: Buffer, leader_epoch: int, origin: str = "client"
    ) -> AppendInfo:
        """Appends ready batches, in place where the buffer is writable."""
    def append_record(
        self,
        value: Buffer | None,
        key: Buffer | None,
        timestamp: int | None,
        headers: Any,
        leader_epoch: int,
    ) -> int:
        """Appends one record; returns its offset."""
    def append_records(
        self, records: Iterable[Any], compression: int, leader_epoch: int, base_offset: int = -1
    ) -> AppendInfo:
        """Builds batches from records and appends them with one write."""
