"""The append core of one log: analyse, plan, write, commit, for every origin."""

from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import Buffer

from kstore._fast.disk.page_reader import PageReader
from kstore._fast.log.append_plan import AppendInfo
from kstore._fast.log.append_queue import AppendQueue
from kstore._fast.log.dir_calm import DirCalm
from kstore._fast.log.locked_log import LockedLog
from kstore.env import Clock
from kstore.items import Headers

ORIGINS: dict[str, int]
"""The origins: client, coordinator, replica, given."""

class LogCore(LockedLog):
    """The appends of one log. As a context manager it holds the log's lock (recursive)."""

    max_message_bytes: int
    """The maximum size of a batch."""
    on_append: Callable[[], object] | None
    """Called after each append, outside the lock."""
    calm: DirCalm
    """Whether its log dir's disk keeps up."""
    appends: AppendQueue | None
    """The threads of its log dir for appends."""
    queued: int
    """The number of appends of threads that are not done."""
    def __init__(
        self,
        owner: object,
        *,
        clock: Clock | None = None,
        writable: bool = True,
        calm: DirCalm | None = None,
        appends: AppendQueue | None = None,
        pages: PageReader | None = None,
    ) -> None: ...
    def refuse_queued(self) -> None:
        """Cancel appends that threads have not started."""
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
        """Apply a LogConfig's values."""
    def take_dirty(self) -> bool:
        """Whether anything was appended since the last call."""
    def append_buffer(
        self, buffer: Buffer, leader_epoch: int, origin: str = "client"
    ) -> AppendInfo:
        """Append ready batches, in place if the buffer is writable."""
    def append_record(
        self,
        value: Buffer | None,
        key: Buffer | None,
        timestamp: int | None,
        headers: Any,
        leader_epoch: int,
        expected_offset: int | None = None,
    ) -> int:
        """Append one record; returns its offset."""
    def append_records(
        self,
        records: Iterable[Any],
        compression: int,
        leader_epoch: int,
        base_offset: int = -1,
        expected_offset: int | None = None,
    ) -> AppendInfo:
        """Build batches from records and append them with one write."""
    def check_expected(self, offset: int) -> None:
        """Raise if the log does not end at this offset. The lock is held."""
    def build(self, records: Iterable[Any], compression: int) -> bytearray:
        """The batches that ``append_records`` would append, from offset 0 on."""
    def check_batches(self, batches: bytearray) -> None:
        """Raise the error of batches that are to be appended. The lock is held."""

class Appender:
    """Appends single records to a log. ``Log`` inherits it."""

    def __init__(self, core: LogCore) -> None: ...
    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        *,
        expected_offset: int | None = None,
    ) -> int:
        """Append one record and return its offset. ``timestamp`` is in ms since 1970 (default:
        now). ``headers`` is a mapping or pairs: names and values (bytes or None).

        With ``expected_offset`` the record is appended only if the log ends at that offset, even if
        others write concurrently. Otherwise UnexpectedOffsetError has the log's actual end.

        Raises RecordTooLargeError, DiskFullError, LogClosedError, ReadOnlyLogError or another
        LogError. The log can still be used. Example: ``log.append(b"paid", headers={"a": b"7f"})``.
        """
    def sync_until(self, offset: int) -> None:
        """Wait until all records below ``offset`` are on disk."""
