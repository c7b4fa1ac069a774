"""Decides what to fetch next and from which broker, and interprets each partition's response.

Fetches run ahead of the user, one request per broker at a time, while the fetched data stays within
limits. Nothing is sent from here; time is passed in, in ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kstore._fast.clients.fetched import FetchedRecords
from kstore.clients.core.consumer.fetch_session import Wanted
from kstore.clients.core.consumer.subscription import (
    AssignedPartition,
    Position,
    Reset,
    SubscriptionState,
)
from kstore.clients.core.metadata import ClusterView
from kstore.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidPartitionEpochError,
    KafkaError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    error_for,
)
from kstore.protocol.logs.fetch import PartitionData
from kstore.types import TopicPartition

__all__ = ["FetchLimits", "FetchPlan", "Outcome", "Progress", "RequestedPartition", "Round"]

# Another broker leads the partition, or the broker or this client has old metadata.
STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class FetchLimits(NamedTuple):
    """Limits in bytes: per partition in a request, per partition fetched ahead, and in total."""

    partition_bytes: int
    waiting_partition_bytes: int
    waiting_bytes: int


class Progress:
    """How far ahead a partition has been fetched, for one version of its row."""

    __slots__ = (
        "after_taken",
        "blocked",
        "leader_epoch",
        "offset",
        "partition_epoch",
        "pause_until_ms",
        "put_bytes",
        "replica",
        "replica_until_ms",
        "row",
        "taken_bytes",
        "version",
    )

    def __init__(self, row: AssignedPartition) -> None:
        self.row = row
        self.put_bytes = 0
        """Increases with each response; the loop writes it."""
        self.taken_bytes = 0
        """Increases as records are returned or discarded; the user's thread writes it."""
        self.replica: int | None = None
        """The follower to read from (KIP-392)."""
        self.replica_until_ms = 0.0
        self.pause_until_ms = 0.0
        self.restart()

    def restart(self) -> None:
        """Start at the position of the row's version."""
        position = self.row.position or Position(0)
        self.version = self.row.version
        self.offset, self.leader_epoch, self.partition_epoch = position
        self.row.epochs.cut(position.offset)
        self.blocked = False
        """An error waits to be raised."""
        self.after_taken = False
        """Fetch again when all earlier records were returned."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were fetched and not returned yet."""
        return self.put_bytes - self.taken_bytes


class RequestedPartition(NamedTuple):
    """A partition in an outstanding request."""

    progress: Progress
    version: int
    offset: int
    of_follower: bool


@dataclass(slots=True)
class Round:
    """The fetches that can be sent now."""

    requests: dict[int, dict[TopicPartition, Wanted]] = field(default_factory=dict)
    """By broker."""
    unknown: set[str] = field(default_factory=set)
    """Topics with partitions whose leader is unknown."""
    is_held: bool = False
    """Some partitions are skipped because too much data waits for the user."""
    wake_ms: float | None = None
    """When the pause after an error is over."""


class Outcome(NamedTuple):
    """What to do for a partition after a response; all false: nothing."""

    records: FetchedRecords | None = None
    error: Exception | None = None
    refresh: bool = False
    """Fetch the metadata again."""
    pause: bool = False
    """Do not fetch the partition for a while."""
    place: bool = False
    """Look up or validate the position."""
    jump: str = ""
    """Why the next record is not the one after the last: the reset policy applies."""


NOTHING = Outcome()


class FetchPlan:
    """The fetch progress of all partitions of a subscription."""

    def __init__(
        self,
        subscription: SubscriptionState,
        limits: FetchLimits,
        *,
        reset: Reset | None,
        read_committed: bool,
        check_crcs: bool,
        replica_max_age_ms: int,
        uses_partition_epochs: bool,
    ) -> None:
        self._subscription = subscription
        self._limits = limits
        self._reset = reset
        self._read_committed = read_committed
        self._check_crcs = check_crcs
        self._replica_max_age_ms = replica_max_age_ms
        self._uses_partition_epochs = uses_partition_epochs
        self._progress: dict[TopicPartition, Progress] = {}

    # ---- requests ----

    def next_round(
        self, view: ClusterView, busy: Iterable[int], waiting_bytes: int, now_ms: float
    ) -> Round:
        """What to fetch from brokers that are not busy.

        A broker gets no request if the request had to omit a partition because much of it waits:
        the response could be delayed for fetch.max.wait.ms, and that partition with it.
        """
        found = Round()
        if waiting_bytes >= self._limits.waiting_bytes:
            found.is_held = True
            return found
        held: set[int] = set(busy)
        for tp, row in list(self._subscription.partitions.items()):
            if not row.is_fetchable:
                continue
            progress = self._of(row)
            node = self._node(progress, view, now_ms)
            if node is None:
                found.unknown.add(tp.topic)
            elif node in held or progress.blocked:
                continue
            elif now_ms < progress.pause_until_ms:
                wake = progress.pause_until_ms
                found.wake_ms = wake if found.wake_ms is None else min(found.wake_ms, wake)
            elif self._is_full(progress):
                found.is_held = True
                held.add(node)
            elif not view.is_behind(tp, progress.partition_epoch, progress.leader_epoch):
                found.requests.setdefault(node, {})[tp] = Wanted(
                    view.topic_id(tp.topic),
                    progress.offset,
                    view.leader_epoch(tp),
                    self._limits.partition_bytes,
                )
        for node in held:
            found.requests.pop(node, None)
        return found

    def ask(
        self, node: int, wanted: Mapping[TopicPartition, Wanted]
    ) -> dict[TopicPartition, RequestedPartition]:
        """Note that a request to a broker contains these partitions."""
        requested = {}
        for tp, row in wanted.items():
            progress = self._progress[tp]
            of_follower = progress.replica == node
            requested[tp] = RequestedPartition(progress, progress.version, row.offset, of_follower)
        return requested

    def forget(self) -> None:
        """Drop the progress of partitions that are no longer assigned."""
        rows = self._subscription.partitions
        self._progress = {tp: p for tp, p in self._progress.items() if rows.get(tp) is p.row}

    def _of(self, row: AssignedPartition) -> Progress:
        progress = self._progress.get(row.tp)
        if progress is None or progress.row is not row:
            progress = self._progress[row.tp] = Progress(row)
        elif progress.version != row.version:
            progress.restart()
        return progress

    def _node(self, progress: Progress, view: ClusterView, now_ms: float) -> int | None:
        replica = progress.replica
        if replica is not None:
            if replica in view.brokers and now_ms < progress.replica_until_ms:
                return replica
            progress.replica = None
        try:
            return view.leader(progress.row.tp)
        except KafkaError:
            return None

    def _is_full(self, progress: Progress) -> bool:
        waiting = progress.waiting_bytes
        return waiting >= self._limits.waiting_partition_bytes or (
            progress.after_taken and waiting > 0
        )

    # ---- responses ----

    def failed(self, requested: Mapping[TopicPartition, RequestedPartition]) -> None:
        """The request failed. A follower that was read from is no longer used."""
        for row in requested.values():
            row.progress.replica = None

    def answered(
        self, requested: RequestedPartition, data: PartitionData, view: ClusterView, now_ms: float
    ) -> Outcome:
        """Interpret a partition's row of a response."""
        progress = requested.progress
        row = progress.row
        if row.version != requested.version or row.revoking:
            return NOTHING
        if error := self._other_life(progress, data):
            return Outcome(error=error)
        if data.error_code:
            return self._error(requested, data, view)
        if 0 <= data.diverging_epoch.end_offset < requested.offset:
            row.validated = False
            row.discard_fetched()
            return Outcome(place=True)
        row.high_watermark = data.high_watermark
        row.last_stable_offset = data.last_stable_offset
        row.log_start_offset = data.log_start_offset
        progress.after_taken = False
        if data.preferred_read_replica >= 0 and data.preferred_read_replica in view.brokers:
            progress.replica = data.preferred_read_replica
            progress.replica_until_ms = now_ms + self._replica_max_age_ms
        if not data.records:
            return NOTHING
        return self._records(progress, data)

    def _records(self, progress: Progress, data: PartitionData) -> Outcome:
        aborted = None
        if self._read_committed:
            aborted = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
        row = progress.row
        records = FetchedRecords(
            row.tp,
            data.records or b"",
            start_offset=progress.offset,
            leader_epoch=progress.leader_epoch,
            partition_epoch=progress.partition_epoch,
            verify=self._check_crcs,
            aborted=aborted,
            owner=row,
            version=progress.version,
        )
        if records.end_offset == progress.offset:
            if records.is_cut_off:
                return Outcome(error=_too_large(progress, records.size_bytes))
            progress.after_taken = True  # it can't be read; the user gets the error
        for epoch, start_offset in records.epoch_starts:
            row.epochs.note(epoch, start_offset)
        progress.offset = records.end_offset
        progress.leader_epoch = records.last_epoch
        progress.put_bytes += records.size_bytes
        return Outcome(records=records)

    def taken(self, records: FetchedRecords) -> None:
        """Records were returned or discarded; called in the user's thread."""
        progress = self._progress.get(records.tp)
        if progress is not None and progress.row is records.owner:
            progress.taken_bytes += records.size_bytes

    def raised(self, row: AssignedPartition) -> None:
        """The user has seen a partition's error, and gets it again if it is still there."""
        progress = self._progress.get(row.tp)
        if progress is not None and progress.row is row:
            progress.blocked = False

    def block(self, row: AssignedPartition) -> None:
        """Do not fetch the partition until its error was raised."""
        self._of(row).blocked = True

    def _other_life(self, progress: Progress, data: PartitionData) -> Exception | None:
        """KIP-232: the error if the response is about another partition of the same name. Otherwise
        takes the partition's epoch.
        """
        epoch = data.partition_epoch if self._uses_partition_epochs else -1
        if epoch < 0:
            return None
        if -1 < progress.partition_epoch != epoch:
            return InvalidPartitionEpochError({progress.row.tp: epoch})
        progress.partition_epoch = epoch
        if not progress.waiting_bytes:
            progress.row.meet_partition_epoch(epoch)
        return None

    # ---- errors ----

    def _error(
        self, requested: RequestedPartition, data: PartitionData, view: ClusterView
    ) -> Outcome:
        progress, code, tp = requested.progress, data.error_code, requested.progress.row.tp
        if code in STALE_METADATA:
            progress.replica = None
            leader = data.current_leader
            updated = view.update_leader(tp, leader.leader_id, leader.leader_epoch)
            return Outcome(refresh=True, pause=not updated, place=updated)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(requested, data)
        text = f"partition {tp}, offset {requested.offset}: {type(error_for(code)).description}"
        if code == ErrorCode.CORRUPT_MESSAGE:
            return Outcome(error=CorruptMessageError(text))
        error = error_for(code, text)
        if error.retriable:
            return Outcome(refresh=error.refresh_metadata, pause=True)
        return Outcome(error=error)

    def _out_of_range(self, requested: RequestedPartition, data: PartitionData) -> Outcome:
        progress, row = requested.progress, requested.progress.row
        if requested.of_follower:  # it may lag behind; the leader knows
            progress.replica = None
            return Outcome(pause=True)
        if progress.waiting_bytes:
            progress.after_taken = True
            return NOTHING
        begins = f", which begins at {data.log_start_offset}" if data.log_start_offset >= 0 else ""
        text = f"partition {row.tp}: offset {requested.offset} is outside the log{begins}"
        if self._reset is not None:
            row.seek_by_timestamp(self._reset)
            return Outcome(place=True, jump=text)
        return Outcome(error=OffsetOutOfRangeError(f"{text}, and auto_offset_reset is none"))


def _too_large(progress: Progress, size_bytes: int) -> Exception:
    return RecordListTooLargeError(
        f"partition {progress.row.tp}, offset {progress.offset}: the broker sends {size_bytes} "
        "bytes, which is less than a batch; raise max.partition.fetch.bytes and fetch.max.bytes"
    )
