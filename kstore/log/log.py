"""One topic-partition's log, as its users see it: the facade that puts the parts of kstore.log
together. What runs per batch is the LogCore's, what the parts share is LocalLog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import Buffer

from kstore._fast.log.log_core import AppendInfo
from kstore.log import errors
from kstore.log.local.durability import sync_until
from kstore.log.local.local_log import LocalLog
from kstore.log.readable_log import ReadableLog
from kstore.log.retention import retention, truncation
from kstore.log.settings import LogConfig
from kstore.record.compression import compression_for
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import uuid

    from kstore.log.cursor import CommittedOffsets, Cursor
    from kstore.log.local.recovery_report import Loss
    from kstore.log.maintenance import Maintenance
    from kstore.log.retention.cleaner import CleaningReport, Dirt
    from kstore.log.segments.damage import Damage

__all__ = ["Directory", "Log"]

_CURRENT_EPOCH = -1  # of the newest batch; 0 in an empty log


class Directory(Protocol):
    """The log dir that a log was opened in, as the log and its users see it: a ``LogDir``."""

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
        """The log of a topic-partition, opened or made."""

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log here."""

    def topic_id(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic id in the partition's metadata file."""

    def note_error(self, problem: BaseException) -> None:
        """An operation on one of the logs has failed, which may mean that the disk is gone."""

    def count_lost(self, offsets: int) -> None:
        """So many offsets were found lost by who replicates a log."""

    def close_log(self, log: Log) -> None:
        """Sync and checkpoint one log and close its files."""

    def close(self) -> None:
        """Sync and checkpoint all logs, close them, and give the lock back."""


class Log(ReadableLog):
    """A durable log of records. Made by ``LogDir.log`` or ``kstore.open_log``; thread-safe."""

    def __init__(self, log_dir: Directory, local: LocalLog) -> None:
        super().__init__(local)
        self.log_dir = log_dir
        self._owns_dir = False
        self._always = local.core.shows_durable

    def configure(self, config: LogConfig) -> None:
        """Act by these settings from now on."""
        self.local.configure(config)

    def cursor(self, name: str, *, isolation: str = "read_uncommitted") -> Cursor:
        """A named cursor, which reads on from where ``name`` last committed."""
        from kstore.log.cursor import Cursor

        return Cursor(self, self.log_dir.committed_offsets, name, isolation=isolation)

    # -- append

    @property
    def _epoch(self) -> int:
        return max(self.core.epochs.latest_epoch, 0)

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> int:
        """Append one record (timestamp in ms, default now); return its offset.

        Raises RecordTooLargeError, DiskFullError and other LogErrors; the log is usable after.
        """
        try:
            offset = self.core.append_record(value, key, timestamp, headers, _CURRENT_EPOCH)
        except OSError as error:
            raise self._failed(error) from error
        if self._always:
            sync_until(self.local, offset + 1)
        return offset

    def append_many(
        self,
        records: Iterable[Any],
        *,
        compression: str = "none",
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append records with one write: values, (key, value), (key, value, timestamp) or
        (key, value, timestamp, headers). All of them are in the log afterwards, or none.
        """
        return self._append_records(records, compression, leader_epoch, -1)

    def append_at(
        self,
        base_offset: int,
        records: Iterable[Any],
        *,
        compression: str = "none",
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append records from a given offset on (KIP-391), which may leave a gap.

        Raises InvalidProduceOffsetError where ``base_offset`` is below the log end offset.
        """
        if base_offset < 0:
            raise ValueError(f"base_offset is {base_offset}: an offset is 0 or more")
        return self._append_records(records, compression, leader_epoch, base_offset)

    def _append_records(
        self, records: Iterable[Any], compression: str, epoch: int | None, base_offset: int
    ) -> AppendInfo:
        codec = 0 if compression == "none" else int(compression_for(compression).id)
        try:
            info = self.core.append_records(
                records, codec, _CURRENT_EPOCH if epoch is None else epoch, base_offset
            )
        except OSError as error:
            raise self._failed(error) from error
        if self._always:
            sync_until(self.local, info.last_offset + 1)
        return info

    def append_batches(
        self, buffer: Buffer, *, leader_epoch: int | None = None, origin: str = "client"
    ) -> AppendInfo:
        """Append ready record batches. Offsets are set in place in a writable buffer.

        ``origin``: "client" (validated, offsets assigned), "coordinator" (control batches too),
        "replica" (taken as they are) or "given" (KIP-391: their own offsets).
        """
        try:
            info = self.core.append_buffer(
                buffer, self._epoch if leader_epoch is None else leader_epoch, origin
            )
        except OSError as error:
            raise self._failed(error) from error
        if self._always:
            sync_until(self.local, info.last_offset + 1)
        return info

    def _failed(self, error: OSError) -> errors.LogStorageError:
        return errors.storage_error(error, f"appending to {self.topic_partition}")

    # -- durability

    def sync_until(self, offset: int) -> None:
        """Return when every record below ``offset`` is on the disk. Concurrent callers share one
        fdatasync.
        """
        sync_until(self.local, offset)

    def flush(self) -> None:
        """Put everything appended so far on the disk."""
        self.local.check_writable()
        sync_until(self.local, self.core.log_end_offset)

    def when_durable(self, offset: int, callback: Callable[[], object]) -> None:
        """Have ``callback`` called when every record below ``offset`` is on the disk, from another
        thread (or at once, if it is so already). For those who must not wait themselves.
        """
        if self.core.durable_offset >= offset:
            callback()
        else:
            self.log_dir.maintenance.sync_for(self.local, offset, callback)

    @property
    def on_durable(self) -> Callable[[], object] | None:
        """With flush="always": called, from any thread, when more of the log may be seen."""
        return self.local.disk.on_durable

    @on_durable.setter
    def on_durable(self, tell: Callable[[], object] | None) -> None:
        self.local.disk.on_durable = tell

    # -- change

    def roll(self) -> None:
        """Begin a new segment, if the active one has records."""
        self.local.check_writable()
        with self.core:
            if self.core.active.size_bytes:
                self.local.roll_for_append(self.core.log_end_offset)

    def enforce_retention(self, now_ms: int | None = None) -> int:
        """Delete the segments that retention allows to delete; return how many."""
        self.local.check_writable()
        return retention.enforce(self.local, self._now_ms(now_ms))

    def delete_before(self, offset: int, *, durable: bool = True) -> None:
        """Make ``offset`` the log start offset; segments that lie wholly before it are deleted.

        ``durable``: it stays so after a crash. Raises OffsetOutOfRangeError above the high
        watermark. Below the log start offset nothing happens.
        """
        self.local.check_writable()
        retention.delete_before(self.local, offset, durable=durable)

    def truncate(self, offset: int) -> int:
        """Remove the batches that hold ``offset`` or more; return the new log end offset, which
        is below ``offset`` where that lay inside a batch.
        """
        self.local.check_writable()
        return truncation.truncate(self.local, offset)

    def compact(self, now_ms: int | None = None) -> CleaningReport:
        """Clean what can be cleaned now: of each key the last record stays, but for those in the
        active segment. ValueError unless cleanup_policy has compact.
        """
        from kstore.log.retention.cleaner import clean

        local = self.local
        local.check_writable()
        if not local.config.compacts:
            raise ValueError(f"{self.topic_partition} has no cleanup_policy compact: set it first")
        now = self._now_ms(now_ms)
        report = clean(local, self.dirt(now), now)
        local.cleaned_offset = report.end_offset
        local.note_dirty()
        return report

    def dirt(self, now_ms: int | None = None) -> Dirt:
        """How much of the log ``compact`` would clean now."""
        from kstore.log.retention.cleaner import measure

        known = None if self.local.cleaned_offset < 0 else self.local.cleaned_offset
        return measure(self.local, self._now_ms(now_ms), known)

    def _now_ms(self, given: int | None) -> int:
        return self.log_dir.now_ms() if given is None else given

    # -- replicate

    def restart(self, offset: int) -> None:
        """Remove every record; the log is empty then and begins at ``offset``."""
        self.local.check_writable()
        truncation.restart(self.local, offset)

    @property
    def has_lost(self) -> bool:
        """Whether `skip_lost` has something to leave out."""
        return self.local.lost_until > 0

    def skip_lost(self) -> None:
        """Leave out the offsets that a replica lost and could not fetch again: it is to lead now,
        and must not give them to other records.
        """
        truncation.skip_lost(self.local)

    def leave_out(self, offset: int) -> None:
        """Remove what lies at an offset and behind it, which counts as lost; the log goes on where
        it ended, so that no offset is given again.
        """
        self.local.check_writable()
        truncation.leave_out(self.local, offset)

    def set_high_watermark(self, offset: int) -> None:
        """All in-sync replicas have every record below ``offset``."""
        self.core.set_high_watermark(offset)

    def forget_empty_epochs(self) -> None:
        """Forget the leader epochs of which the log has no record: they say nothing."""
        self.core.epochs.truncate_from_end(self.core.log_end_offset)

    def damaged_parts(self) -> list[Damage]:
        """The known damage that hides offsets which may be read."""
        from kstore.log.repair import rewrite

        return rewrite.damaged_parts(self.local)

    def rewrite(self, damage: Damage, data: bytes) -> str | None:
        """Put another replica's batches in the place of a damaged part, on the disk when this
        returns. Why they can't be put there, and nothing has changed; None: it is done.
        """
        from kstore.log.repair import rewrite

        return rewrite.rewrite(self.local, damage, data)

    def lost_parts(self) -> list[Loss]:
        """What is lost between the segments that there are."""
        from kstore.log.repair import refill

        return refill.lost_parts(self.local)

    def refill(self, loss: Loss, data: bytes) -> str | None:
        """Put another replica's batches where a lost part was, on the disk when this returns. Why
        they can't be put there, and nothing has changed; None: it is done.
        """
        from kstore.log.repair import refill

        return refill.refill(self.local, loss, data)

    # -- the end

    def own_directory(self) -> Log:
        """Have ``close`` close the directory too."""
        self._owns_dir = True
        return self

    def close(self) -> None:
        """Checkpoint, and close its files. A log that ``open_log`` gave closes its directory."""
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
