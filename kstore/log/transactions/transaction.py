"""A transaction over several logs of one log dir, and the completion of one that a crash
interrupted.

A commit locks the logs in the order of their names. It writes all batches, with their offsets, to
the journal, appends them to the logs, and clears the journal. With flush="always" the journal is on
disk before the first log changes, and is cleared when the logs are on disk. A transaction with a
whole entry in the journal is never undone, because readers may have seen a part of it. The next
process that locks one of its logs, opens the log dir, or begins another transaction completes it.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from kstore.items import check_items
from kstore.log import errors
from kstore.log.local.durability import sync_until
from kstore.log.segments.segment_names import parse_directory_name
from kstore.log.transactions.journal import Journal, Part, redo
from kstore.record import assign, batches
from kstore.record.compression import compression_for
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kstore._fast.log.append_plan import AppendInfo
    from kstore.items import Headers, Items
    from kstore.log.local.local_log import LocalLog

__all__ = ["Transaction", "TransactionDir", "TransactionLog", "complete"]

_NO_TOPIC_ID = bytes(16)


class TransactionLog(Protocol):
    """A log of the log dir; a ``Log``."""

    local: LocalLog
    topic_partition: TopicPartition


class TransactionDir(Protocol):
    """The log dir; a ``LogDir``."""

    @property
    def journal(self) -> Journal:
        """The transaction that is decided and not done."""

    def adopt(self, key: TopicPartition) -> TransactionLog:
        """Open an existing log with the settings of the process that has it open."""


class _Appends:
    """The appends of a transaction to one log."""

    def __init__(self, log: LocalLog) -> None:
        self.log = log
        self.runs: list[tuple[int, list[Any]]] = []
        """Records in order, grouped by compression."""
        self.expected_offset: int | None = None

    def add(self, codec: int, records: list[Any]) -> None:
        if self.runs and self.runs[-1][0] == codec:
            self.runs[-1][1].extend(records)
        else:
            self.runs.append((codec, records))

    def build(self) -> bytearray:
        """The batches, with the offsets that they get now; raises their errors. The log's lock is
        held.
        """
        log, core = self.log, self.log.core
        if self.expected_offset is not None:
            core.check_expected(self.expected_offset)
        made = bytearray().join(core.build(records, codec) for codec, records in self.runs)
        core.check_batches(made)
        by_log = log.config.message_timestamp_type == "LogAppendTime"
        time_ms = log.directory.now_ms() if by_log else None
        epoch, offset = max(core.epochs.latest_epoch, 0), core.log_end_offset
        view = memoryview(made)
        for batch in batches(bytes(made)):
            count = batch.next_offset - batch.base_offset
            assign(
                view[batch.position : batch.position + batch.size_bytes],
                base_offset=offset, leader_epoch=epoch, log_append_time=time_ms,
            )  # fmt: skip
            offset += count
        return made


class Transaction:
    """Appends to several logs of one log dir. Created by ``LogDir.transaction``. The records are
    appended together when the ``with`` block ends. If the block raises, none is appended.
    """

    def __init__(self, directory: TransactionDir, *, always: bool) -> None:
        self._dir = directory
        self._always = always
        self._appends: dict[str, _Appends] = {}
        self._results: dict[str, AppendInfo] = {}
        self._done = False

    def append(
        self,
        log: TransactionLog,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        *,
        expected_offset: int | None = None,
    ) -> None:
        """Add one record to the transaction. Arguments are as for ``Log.append``; errors are raised
        when the block ends. ``log`` must come from ``log()`` of the same log dir, otherwise this
        raises ValueError.
        """
        self._add(log, 0, [(key, value, timestamp, headers)], expected_offset)

    def append_many(
        self,
        log: TransactionLog,
        records: Items[Any],
        *,
        compression: str = "none",
        expected_offset: int | None = None,
    ) -> None:
        """Add records to the transaction. Arguments are as for ``Log.append_many``; errors are
        raised when the block ends.
        """
        check_items("records", records, "values or (key, value)")
        codec = 0 if compression == "none" else int(compression_for(compression).id)
        self._add(log, codec, list(records), expected_offset)

    def _add(
        self, log: TransactionLog, codec: int, records: list[Any], expected: int | None
    ) -> None:
        if self._done:
            raise ValueError("the transaction has ended: begin another one")
        local = getattr(log, "local", None)
        if local is None:
            raise TypeError(
                f"the log is {log!r}: pass a Log that log() of the transaction's log dir returned"
            )
        if getattr(log, "log_dir", None) is not self._dir:
            raise ValueError(
                f"{log.topic_partition} was not opened by the transaction's log dir: use "
                "the log that its log() returns"
            )
        appends = self._appends.setdefault(local.name, _Appends(local))
        if expected is not None and appends.expected_offset is None:
            appends.expected_offset = expected
        if records:
            appends.add(codec, records)

    def result(self, log: TransactionLog) -> AppendInfo:
        """After the block: the offsets of the records in ``log``. Raises KeyError if there are
        none.
        """
        return self._results[log.local.name]

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and not self._done:
            self._done = True
            self._commit()
        self._done = True

    def _commit(self) -> None:
        rows = [self._appends[name] for name in sorted(self._appends)]
        if not rows:
            return
        journal = self._dir.journal
        with journal.mine():
            _complete_pending(self._dir, always=self._always)
            with contextlib.ExitStack() as locks:
                for row in rows:
                    row.log.check_writable()
                    locks.enter_context(row.log.core)
                made = [(row.log, row.build()) for row in rows]
                made = [(log, data) for log, data in made if data]
                parts = [_part(log, data) for log, data in made]
                with errors.storage_errors("deciding a transaction"):
                    if self._always:
                        rows[0].log.directory.sync_names()  # of new logs
                    self._decide(parts, made)
                self._apply(made)
            if self._always:
                for log, _data in made:
                    sync_until(log, self._results[log.name].last_offset + 1)
            journal.clear()

    def _decide(self, parts: list[Part], made: list[tuple[LocalLog, bytearray]]) -> None:
        journal = self._dir.journal
        try:
            journal.write(parts, durable=self._always)
        except BaseException:
            if not journal.take_back(durable=self._always):
                # The next process that opens the logs finds what is decided.
                _stop([log for log, _data in made])
            raise

    def _apply(self, made: list[tuple[LocalLog, bytearray]]) -> None:
        """The transaction is decided. If a log can't be written, nothing may be appended to the
        others before the missing part is appended.
        """
        left = [log for log, _data in made]
        try:
            for log, data in made:
                self._results[log.name] = log.core.append_buffer(data, 0, "replica")
                left.remove(log)
        except BaseException as error:
            _stop(left)
            if not isinstance(error, (OSError, errors.LogError)):
                raise
            names = ", ".join(str(log.topic_partition) for log in left)
            raise errors.LogStorageError(
                getattr(error, "errno", None) or 0,
                f"a transaction is decided, and appending to {names} failed ({error}): repair "
                "the disk, close the log dir and open it again, which completes it",
            ) from error


def _stop(logs: list[LocalLog]) -> None:
    """Nothing may be appended to these logs before the missing part of a transaction is."""
    for log in logs:
        if log.core.page is not None:
            log.core.page.needs_recovery = True  # which appends it first
        else:
            log.core.close()


def _part(log: LocalLog, data: bytearray) -> Part:
    return Part(log.name, log.topic_id.bytes if log.topic_id else _NO_TOPIC_ID, bytes(data))


def _complete_pending(directory: TransactionDir, *, always: bool) -> None:
    parts = directory.journal.pending()
    for part in parts:
        key = parse_directory_name(part.name)
        if key is None:
            continue
        try:
            local = directory.adopt(key).local
        except errors.LogNotFoundError:
            continue  # deleted since
        with local.core:
            redo(local, [part])
        if always:
            sync_until(local, local.core.log_end_offset)
    if parts:
        directory.journal.clear()


def complete(directory: TransactionDir, *, always: bool, wait: bool = True) -> None:
    """Append the decided part of a transaction that a crash interrupted, if there is one."""
    if directory.journal.pending():
        with directory.journal.mine(wait=wait) as got:
            if got:
                _complete_pending(directory, always=always)
