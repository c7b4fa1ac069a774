"""The log of one topic-partition, as its users see it. ``Log`` combines the parts of kstore.log:
LogCore has the code that runs for each batch, LocalLog the state that the parts share.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from kstore._fast.log.append_plan import AppendInfo
from kstore._fast.log.log_core import Appender
from kstore.items import Items, check_items
from kstore.log.local.durability import sync_until
from kstore.log.local.local_log import LocalLog
from kstore.log.readable_log import ReadableLog
from kstore.log.retention import retention, truncation
from kstore.log.segments.segment_names import QUEUE_PREFIX
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.log.shared.catching_up import note_config
from kstore.record.compression import compression_for
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import uuid

    from typing_extensions import Buffer

    from kstore.log.cursors.committed_offsets import CommittedOffsets
    from kstore.log.cursors.cursor import Cursor
    from kstore.log.local.recovery_report import Loss
    from kstore.log.maintenance import Maintenance
    from kstore.log.queue.queue import Queue
    from kstore.log.retention.cleaner import CleaningReport, Dirt
    from kstore.log.segments.damage import Damage
    from kstore.log.transactions.journal import Journal
    from kstore.log.transactions.transaction import Transaction

__all__ = ["Directory", "Log"]

_CURRENT_EPOCH = -1  # of the newest batch; 0 in an empty log


class Directory(Protocol):
    """The log dir of a log, as the log sees it: a ``LogDir``."""

    path: str
    read_only: bool
    config: LogConfig
    maintenance: Maintenance

    @property
    def closed(self) -> bool:
        """True after ``close``."""

    @property
    def committed_offsets(self) -> CommittedOffsets:
        """The offsets that cursors have committed in this log dir."""

    @property
    def journal(self) -> Journal:
        """The transaction that is decided and not done."""

    def now_ms(self) -> int:
        """The time of the environment's clock, in ms since 1970."""

    def log(
        self,
        topic: str,
        partition: int = 0,
        *,
        create: bool = True,
        config: LogConfig | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> Log:
        """Open the log of a topic-partition; create it if it does not exist."""

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log in this log dir."""

    def topic_id(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic id in the partition's metadata file."""

    def note_error(self, problem: BaseException) -> None:
        """Report a failed operation on one of the logs: the disk may have failed."""

    def count_lost(self, offsets: int) -> None:
        """Count offsets that a replica has lost."""

    def transaction(self) -> Transaction:
        """Append to several logs of this log dir at once."""

    def close_log(self, log: Log) -> None:
        """Sync and checkpoint one log, and close its files."""

    def close(self) -> None:
        """Sync and checkpoint all logs, close them, and release the lock."""


class Log(ReadableLog, Appender):
    """A durable log of records. ``kstore.open_log`` and ``LogDir.log`` create it. Any number of
    threads may use a log at the same time. As a context manager it is closed at the end of the
    block.

    Offsets begin at 0 and increase by 1 with each record. A reader may see gaps: compaction,
    ``append_at`` and transactions leave them. Times are in milliseconds since 1970, UTC.
    """

    def __init__(self, log_dir: Directory, local: LocalLog) -> None:
        ReadableLog.__init__(self, local)
        Appender.__init__(self, local.core)
        self.log_dir = log_dir
        self._owns_dir = False
        self._always = local.core.shows_durable

    def configure(self, config: LogConfig) -> None:
        """Replace the log's settings from now on."""
        self.local.configure(config)
        if self.core.page is not None:
            note_config(self.local)

    def cursor(
        self, name: str, *, isolation: str = "read_uncommitted", wait: float | None = 0.0
    ) -> Cursor:
        """Return a named cursor: a durable position in this log. It continues at the offset that
        was last committed under ``name``.

        ``isolation`` is "read_uncommitted" or "read_committed". If another cursor has the name, the
        first use waits up to ``wait`` seconds for it (None: without limit), then raises
        CursorInUseError. See ``Cursor``.
        """
        from kstore.log.cursors.cursor import Cursor

        offsets = self.log_dir.committed_offsets
        return Cursor(self, offsets, name, isolation=isolation, wait=wait)

    def queue(self, name: str, *, lease_s: float = 30.0, max_deliveries: int = 5) -> Queue:
        """Use this log as a work queue. A worker has a message for ``lease_s`` seconds. After
        ``max_deliveries`` failed deliveries a message becomes a dead letter. See ``Queue``.

        Raises ValueError for an invalid name, ``lease_s`` or ``max_deliveries``.
        """
        from kstore.log.queue.queue import Queue

        return Queue(self, name, lease_s=lease_s, max_deliveries=max_deliveries)

    def queues(self) -> list[str]:
        """The names of this log's queues."""
        from kstore.log.queue.queue_files import queue_names

        return queue_names(self)

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its dead letters. The records stay in the log. No process may have
        the queue open.
        """
        from kstore.log.queue.queue_files import delete_queue

        delete_queue(self, name)

    # -- append

    @property
    def _epoch(self) -> int:
        return max(self.core.epochs.latest_epoch, 0)

    def append_many(
        self,
        records: Items[Any],
        *,
        compression: str = "none",
        leader_epoch: int | None = None,
        expected_offset: int | None = None,
    ) -> AppendInfo:
        """Append records with one write. A record is a value, or a tuple (key, value), (key, value,
        timestamp) or (key, value, timestamp, headers). If an error is raised, none of the records
        is appended.

        ``compression`` is "none", "gzip", "snappy", "lz4" or "zstd". ``expected_offset`` and errors
        are as for ``append``. Returns the offsets as an ``AppendInfo``. Example:
        ``log.append_many([b"a", (b"key", b"b")], compression="zstd")``.
        """
        return self._append_records(records, compression, leader_epoch, -1, expected_offset)

    def append_at(
        self,
        base_offset: int,
        records: Items[Any],
        *,
        compression: str = "none",
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append records at the offsets ``base_offset``, ``base_offset`` + 1, and so on (KIP-391).
        If ``base_offset`` is above the log end offset, this leaves a gap. Records and
        ``compression`` are as for ``append_many``.

        Raises InvalidProduceOffsetError if ``base_offset`` is below the log end offset.
        """
        if base_offset < 0:
            raise ValueError(f"base_offset is {base_offset}: an offset is 0 or more")
        return self._append_records(records, compression, leader_epoch, base_offset)

    def _append_records(
        self,
        records: Items[Any],
        compression: str,
        epoch: int | None,
        base_offset: int,
        expected_offset: int | None = None,
    ) -> AppendInfo:
        check_items("records", records, "values or (key, value)")
        codec = 0 if compression == "none" else int(compression_for(compression).id)
        try:
            info = self.core.append_records(
                records,
                codec,
                _CURRENT_EPOCH if epoch is None else epoch,
                base_offset,
                expected_offset,
            )
        except OSError as error:
            raise self.local.append_failed(error) from error
        if self._always:
            sync_until(self.local, info.last_offset + 1)
        return info

    def append_batches(
        self, buffer: Buffer, *, leader_epoch: int | None = None, origin: str = "client"
    ) -> AppendInfo:
        """Append record batches that are already encoded (Kafka's message format, magic 2). If the
        buffer is writable, the assigned offsets are written into it.

        ``origin`` says where the batches come from: "client" (they are validated and get offsets),
        "coordinator" (control batches are allowed too), "replica" (they are appended unchanged) or
        "given" (KIP-391: they keep their offsets).

        Raises CorruptBatchError for invalid batches, and the errors of ``append``.
        """
        try:
            info = self.core.append_buffer(
                buffer, self._epoch if leader_epoch is None else leader_epoch, origin
            )
        except OSError as error:
            raise self.local.append_failed(error) from error
        if self._always:
            sync_until(self.local, info.last_offset + 1)
        return info

    # -- durability

    def sync_until(self, offset: int) -> None:
        """Wait until all records below ``offset`` are on disk. Concurrent callers share one
        fdatasync. Raises LogStorageError if the disk fails.
        """
        sync_until(self.local, offset)

    def flush(self) -> None:
        """Wait until everything that was appended so far is on disk. Raises LogStorageError if the
        disk fails.
        """
        self.local.check_writable()
        sync_until(self.local, self.core.log_end_offset)

    def when_durable(self, offset: int, callback: Callable[[], object]) -> None:
        """Call ``callback`` when all records below ``offset`` are on disk. If they already are, it
        is called at once, otherwise from another thread. This method does not wait.
        """
        if self.core.durable_offset >= offset:
            callback()
        else:
            self.log_dir.maintenance.sync_for(self.local, offset, callback)

    @property
    def on_durable(self) -> Callable[[], object] | None:
        """With flush="always": a function that is called, from any thread, when readers can see
        more records.
        """
        return self.local.disk.on_durable

    @on_durable.setter
    def on_durable(self, tell: Callable[[], object] | None) -> None:
        self.local.disk.on_durable = tell

    # -- change

    def roll(self) -> None:
        """Start a new segment, unless the active segment is empty."""
        self.local.check_writable()
        with self.core:
            if self.core.active.size_bytes:
                self.local.roll_for_append(self.core.log_end_offset)

    def enforce_retention(self, now_ms: int | None = None) -> int:
        """Apply retention now: delete the segments that ``retention_ms``, ``retention_bytes`` and
        the log start offset no longer keep. Returns the number of deleted segments. ``now_ms``
        defaults to the clock.
        """
        self.local.check_keeper()
        return retention.enforce(self.local, self._now_ms(now_ms))

    def delete_before(self, offset: int, *, durable: bool = True) -> None:
        """Delete the records below ``offset``: it becomes the log start offset. The space of a
        segment is freed when all of its records are deleted. An offset at or below the log start
        offset has no effect.

        With ``durable=False`` a crash may undo the deletion. Raises OffsetOutOfRangeError for an
        offset above the high watermark.
        """
        self.local.check_keeper()
        retention.delete_before(self.local, offset, durable=durable)

    def truncate(self, offset: int) -> int:
        """Remove the records from ``offset`` on. Batches are removed whole, so earlier records in
        the same batch are removed too. Returns the new log end offset, which is ``offset`` or the
        start of that batch.

        If the disk fails midway, the log keeps the records that were not removed yet.
        """
        self.local.check_keeper()
        with self._settled():
            end = truncation.truncate(self.local, offset)
        self._cut_queues(end)
        return end

    def _settled(self) -> AbstractContextManager[None]:
        always = self.local.directory.flush_policy is FlushPolicy.ALWAYS
        return self.log_dir.journal.settled() if always else nullcontext()

    def _cut_queues(self, end_offset: int) -> None:
        # Imported here, because most logs do not use it.
        if any(name.startswith(QUEUE_PREFIX) for name in self.local.env.fs.listdir(self.path)):
            from kstore.log.queue.queue_files import cut_queues

            cut_queues(self, end_offset)

    def compact(self, now_ms: int | None = None) -> CleaningReport:
        """Compact the log now: keep only the last record of each key. The active segment is not
        compacted. Call ``roll`` first to include its records.

        Raises ValueError if ``cleanup_policy`` does not include "compact".
        """
        from kstore.log.retention.cleaner import clean

        local = self.local
        local.check_keeper()
        if not local.config.compacts:
            raise ValueError(
                f"cannot compact {self.topic_partition}: cleanup_policy does not include compact"
            )
        now = self._now_ms(now_ms)
        return clean(local, self.dirt(now), now)

    def dirt(self, now_ms: int | None = None) -> Dirt:
        """The part of the log that ``compact`` would clean now."""
        from kstore.log.retention.cleaner import measure

        known = None if self.local.cleaned_offset < 0 else self.local.cleaned_offset
        return measure(self.local, self._now_ms(now_ms), known)

    def _now_ms(self, given: int | None) -> int:
        return self.log_dir.now_ms() if given is None else given

    # -- replicate

    def restart(self, offset: int) -> None:
        """Remove all records. The next record gets ``offset``."""
        self.local.check_keeper()
        with self._settled():
            truncation.restart(self.local, offset)
        self._cut_queues(offset)

    @property
    def has_lost(self) -> bool:
        """True if `skip_lost` has something to do."""
        return self.local.lost_until > 0 or self.has_hole

    @property
    def has_hole(self) -> bool:
        """True if `cut_at_hole` has something to do."""
        return self.local.hole_from >= 0

    def cut_at_hole(self) -> None:
        """Remove all records after those that were lost in a power failure. The leader is another
        replica, and has all of them.
        """
        self.local.check_keeper()
        truncation.cut_at_hole(self.local)

    def skip_lost(self) -> None:
        """Skip the offsets that this replica lost and could not fetch again. It becomes the leader,
        and must not give these offsets to other records.
        """
        truncation.skip_lost(self.local)

    def leave_out(self, offset: int) -> None:
        """Remove all records from ``offset`` on and count them as lost. The log continues at its
        former end, so no offset is assigned twice.
        """
        self.local.check_keeper()
        truncation.leave_out(self.local, offset)

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark: all in-sync replicas have the records below ``offset``."""
        self.core.set_high_watermark(offset)

    def forget_empty_epochs(self) -> None:
        """Remove the leader epochs that have no records in the log."""
        self.core.epochs.truncate_from_end(self.core.log_end_offset)

    def doubt_last_batch(self, most: int, by_clock: range = range(0)) -> None:
        """Treat the last batch as damaged if its leader epoch is far above ``most``, the highest
        epoch of any leader so far, and is not in ``by_clock``, the epochs of recovered partitions.
        """
        from kstore.log.recovery import corruption

        corruption.doubt_last_batch(self.local, most, by_clock)

    def damaged_parts(self) -> list[Damage]:
        """The known damage in the offsets that can be read."""
        from kstore.log.repair import rewrite

        return rewrite.damaged_parts(self.local)

    def rewrite(self, damage: Damage, data: bytes) -> str | None:
        """Replace a damaged part with another replica's batches, which are on disk when this
        returns. Returns None, or the reason why the part cannot be replaced; then nothing was
        changed.
        """
        from kstore.log.repair import rewrite

        return rewrite.rewrite(self.local, damage, data)

    def lost_parts(self) -> list[Loss]:
        """The lost parts between the segments that exist."""
        from kstore.log.repair import refill

        return refill.lost_parts(self.local)

    def refill(self, loss: Loss, data: bytes) -> str | None:
        """Replace a lost part with another replica's batches, which are on disk when this returns.
        Returns None, or the reason why the part cannot be replaced; then nothing was changed.
        """
        from kstore.log.repair import refill

        return refill.refill(self.local, loss, data)

    # -- close

    def own_directory(self) -> Log:
        """Make ``close`` close the log dir too."""
        self._owns_dir = True
        return self

    def close(self) -> None:
        """Write everything to disk and close the log. If ``open_log`` opened it, this also closes
        the log dir. Closing a closed log has no effect.
        """
        if self.local.closed:
            return
        if self._owns_dir:
            self.log_dir.close()
        else:
            self.log_dir.close_log(self)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
