"""The log of one topic-partition for its users: the facade that combines the parts of kstore.log.
LogCore has the code that runs per batch, LocalLog the shared state.
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
    """The log dir of a log, as the log and its users see it: a ``LogDir``."""

    path: str
    read_only: bool
    config: LogConfig
    maintenance: Maintenance

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    @property
    def committed_offsets(self) -> CommittedOffsets:
        """The offsets that cursors committed here."""

    @property
    def journal(self) -> Journal:
        """The transaction that is decided and not done."""

    def now_ms(self) -> int:
        """The environment's time."""

    def log(
        self,
        topic: str,
        partition: int = 0,
        *,
        create: bool = True,
        config: LogConfig | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> Log:
        """The log of a topic-partition, opened or created."""

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log here."""

    def topic_id(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic id in the partition's metadata file."""

    def note_error(self, problem: BaseException) -> None:
        """An operation on one of the logs has failed, which may mean that the disk has failed."""

    def count_lost(self, offsets: int) -> None:
        """A replica found that so many offsets are lost."""

    def transaction(self) -> Transaction:
        """Appends to several of its logs that are made together."""

    def close_log(self, log: Log) -> None:
        """Sync and checkpoint one log and close its files."""

    def close(self) -> None:
        """Sync and checkpoint all logs, close them, and release the lock."""


class Log(ReadableLog, Appender):
    """A durable log of records. Created by ``LogDir.log`` or ``kstore.open_log``; thread-safe."""

    def __init__(self, log_dir: Directory, local: LocalLog) -> None:
        ReadableLog.__init__(self, local)
        Appender.__init__(self, local.core)
        self.log_dir = log_dir
        self._owns_dir = False
        self._always = local.core.shows_durable

    def configure(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        self.local.configure(config)
        if self.core.page is not None:
            note_config(self.local)

    def cursor(
        self, name: str, *, isolation: str = "read_uncommitted", wait: float | None = 0.0
    ) -> Cursor:
        """A named cursor, which continues at the offset that ``name`` committed last; see
        Cursor.
        """
        from kstore.log.cursors.cursor import Cursor

        offsets = self.log_dir.committed_offsets
        return Cursor(self, offsets, name, isolation=isolation, wait=wait)

    def queue(self, name: str, *, lease_s: float = 30.0, max_deliveries: int = 5) -> Queue:
        """This log as a work queue; see Queue. Raises ValueError for a bad name or number."""
        from kstore.log.queue.queue import Queue

        return Queue(self, name, lease_s=lease_s, max_deliveries=max_deliveries)

    def queues(self) -> list[str]:
        """The names of its queues."""
        from kstore.log.queue.queue_files import queue_names

        return queue_names(self)

    def delete_queue(self, name: str) -> None:
        """Delete a queue's state and dead letters. The queue must not be open anywhere. Records
        stay.
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
        """Append records with one write: values, (key, value), (key, value, timestamp) or
        (key, value, timestamp, headers). All of them are in the log afterwards, or none.

        ``expected_offset``: as for ``append``.
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
        """Append records at given offsets, beginning with ``base_offset`` (KIP-391). This may leave
        a gap.

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
        """Append record batches that are encoded already. Offsets are set in place in a writable
        buffer.

        ``origin``: "client" (validated, offsets assigned), "coordinator" (control batches too),
        "replica" (appended unchanged) or "given" (KIP-391: with their own offsets).
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
        """Return when every record below ``offset`` is on disk. Concurrent callers share one
        fdatasync.
        """
        sync_until(self.local, offset)

    def flush(self) -> None:
        """Write everything appended so far to disk."""
        self.local.check_writable()
        sync_until(self.local, self.core.log_end_offset)

    def when_durable(self, offset: int, callback: Callable[[], object]) -> None:
        """Call ``callback`` when every record below ``offset`` is on disk: from another thread, or
        at once if it is already. For callers that must not wait.
        """
        if self.core.durable_offset >= offset:
            callback()
        else:
            self.log_dir.maintenance.sync_for(self.local, offset, callback)

    @property
    def on_durable(self) -> Callable[[], object] | None:
        """With flush="always": called, from any thread, when more of the log can be read."""
        return self.local.disk.on_durable

    @on_durable.setter
    def on_durable(self, tell: Callable[[], object] | None) -> None:
        self.local.disk.on_durable = tell

    # -- change

    def roll(self) -> None:
        """Begin a new segment if the active one has records."""
        self.local.check_writable()
        with self.core:
            if self.core.active.size_bytes:
                self.local.roll_for_append(self.core.log_end_offset)

    def enforce_retention(self, now_ms: int | None = None) -> int:
        """Delete the segments that retention no longer keeps; return their number."""
        self.local.check_keeper()
        return retention.enforce(self.local, self._now_ms(now_ms))

    def delete_before(self, offset: int, *, durable: bool = True) -> None:
        """Make ``offset`` the log start offset; segments that lie entirely below it are deleted.

        With ``durable`` it stays so after a crash. Raises OffsetOutOfRangeError above the high
        watermark. Below the log start offset nothing happens.
        """
        self.local.check_keeper()
        retention.delete_before(self.local, offset, durable=durable)

    def truncate(self, offset: int) -> int:
        """Remove all batches that contain ``offset`` or a larger one. Return the new log end
        offset: ``offset``, or where the batch began that contained it. If the disk fails, the log
        has what was not removed by then.
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
        """Compact now: of each key only the last record stays. The active segment is not compacted.
        Raises ValueError unless cleanup_policy has compact.
        """
        from kstore.log.retention.cleaner import clean

        local = self.local
        local.check_keeper()
        if not local.config.compacts:
            raise ValueError(f"{self.topic_partition} has no cleanup_policy compact: set it first")
        now = self._now_ms(now_ms)
        return clean(local, self.dirt(now), now)

    def dirt(self, now_ms: int | None = None) -> Dirt:
        """How much of the log ``compact`` would clean now."""
        from kstore.log.retention.cleaner import measure

        known = None if self.local.cleaned_offset < 0 else self.local.cleaned_offset
        return measure(self.local, self._now_ms(now_ms), known)

    def _now_ms(self, given: int | None) -> int:
        return self.log_dir.now_ms() if given is None else given

    # -- replicate

    def restart(self, offset: int) -> None:
        """Remove every record. The log is then empty and begins at ``offset``."""
        self.local.check_keeper()
        with self._settled():
            truncation.restart(self.local, offset)
        self._cut_queues(offset)

    @property
    def has_lost(self) -> bool:
        """Whether `skip_lost` has something to do."""
        return self.local.lost_until > 0 or self.has_hole

    @property
    def has_hole(self) -> bool:
        """Whether `cut_at_hole` has something to do."""
        return self.local.hole_from >= 0

    def cut_at_hole(self) -> None:
        """Remove everything after records that were lost in a power loss: another replica is the
        leader and has all of it.
        """
        self.local.check_keeper()
        truncation.cut_at_hole(self.local)

    def skip_lost(self) -> None:
        """Skip the offsets that a replica lost and could not fetch again: it becomes the leader,
        and must not assign them to other records.
        """
        truncation.skip_lost(self.local)

    def leave_out(self, offset: int) -> None:
        """Remove everything from an offset on, which counts as lost. The log continues where it
        ended, so that no offset is assigned twice.
        """
        self.local.check_keeper()
        truncation.leave_out(self.local, offset)

    def set_high_watermark(self, offset: int) -> None:
        """All replicas in sync have every record below ``offset``."""
        self.core.set_high_watermark(offset)

    def forget_empty_epochs(self) -> None:
        """Remove the leader epochs without records in the log."""
        self.core.epochs.truncate_from_end(self.core.log_end_offset)

    def doubt_last_batch(self, most: int) -> None:
        """The last batch is damaged if its leader epoch is far above ``most``, the highest that a
        leader has had.
        """
        from kstore.log.recovery import corruption

        corruption.doubt_last_batch(self.local, most)

    def damaged_parts(self) -> list[Damage]:
        """The known damage in offsets that can be read."""
        from kstore.log.repair import rewrite

        return rewrite.damaged_parts(self.local)

    def rewrite(self, damage: Damage, data: bytes) -> str | None:
        """Replace a damaged part by another replica's batches, which are durable on return. Returns
        why that is impossible (then nothing has changed), or None.
        """
        from kstore.log.repair import rewrite

        return rewrite.rewrite(self.local, damage, data)

    def lost_parts(self) -> list[Loss]:
        """The lost parts between the existing segments."""
        from kstore.log.repair import refill

        return refill.lost_parts(self.local)

    def refill(self, loss: Loss, data: bytes) -> str | None:
        """Replace a lost part by another replica's batches; they are durable on return. Returns why
        that is impossible (then nothing has changed), or None.
        """
        from kstore.log.repair import refill

        return refill.refill(self.local, loss, data)

    # -- close

    def own_directory(self) -> Log:
        """Make ``close`` also close the log dir."""
        self._owns_dir = True
        return self

    def close(self) -> None:
        """Checkpoint, and close its files. A log that ``open_log`` returned closes its log dir."""
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
