"""One partition of __share_group_state (Kafka's ShareCoordinatorShard): the state of its
share-partitions, and the record that each request creates. It appends nothing. `replay` applies
appended records, and all records when the log is loaded.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.shares.batches import combine
from kstore.broker.state.shares.persisted import (
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareSummary,
    ShareWrite,
    StateBatch,
)
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.shares import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatchValue,
)

__all__ = ["Kept", "Refusal", "ShareRecord", "ShareShard"]


class Refusal(NamedTuple):
    """A refusal."""

    error_code: int
    message: str | None = None
    """None: the error's own message."""


class ShareRecord(NamedTuple):
    """One record of the log."""

    key: ShareSnapshotKey | ShareUpdateKey
    value: ShareSnapshotValue | ShareUpdateValue | None


class Kept(NamedTuple):
    """The state of one share-partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int
    updates: int
    """The number of updates since the last snapshot that was written because of updates."""
    highest_state_epoch: int
    """Lower epochs are fenced."""
    highest_leader_epoch: int
    """Lower epochs are fenced."""
    snapshot_offset: int
    """The offset of the last snapshot's record."""


UNKNOWN = ShareSummary(0, 0, NO_OFFSET, NO_COUNT)
NOT_INITIALIZED = {
    "read": "Read operation on uninitialized share partition not allowed.",
    "write": "Write operation on uninitialized share partition not allowed.",
}


class ShareShard:
    """Share-partitions by key. All its methods are fast and never wait."""

    def __init__(self, limit: int, *, check_invariants: bool = False) -> None:
        self._check_invariants = check_invariants
        self.limit = limit
        """The number of updates of a share-partition before a snapshot. May be changed."""
        self.partitions: dict[SharePartitionKey, Kept] = {}
        self._last_offset = -1

    # ---- decisions ----

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> ShareRecord | Refusal:
        """Initialize the state of a share-partition, or reset it if a start offset is given.
        Without one, an existing state does not change: if a group coordinator is lost before it has
        the response, the next one sends the request again, and acknowledgements must not be lost.
        """
        kept = self.partitions.get(key)
        if kept is not None and state_epoch != NO_EPOCH and kept.highest_state_epoch > state_epoch:
            return Refusal(ErrorCode.FENCED_STATE_EPOCH)
        if kept is not None and start_offset == NO_OFFSET != kept.start_offset:
            same = kept._replace(snapshot_epoch=kept.snapshot_epoch + 1, written_ms=now_ms)
            return _snapshot(key, same)
        return ShareRecord(
            ShareSnapshotKey(**key._asdict()),
            ShareSnapshotValue(
                snapshot_epoch=0 if kept is None else kept.snapshot_epoch + 1,
                state_epoch=state_epoch,
                leader_epoch=0,
                start_offset=start_offset,
                delivery_complete_count=NO_COUNT if start_offset == NO_OFFSET else 0,
                create_timestamp=now_ms,
                write_timestamp=now_ms,
            ),
        )

    def write(
        self, key: SharePartitionKey, change: ShareWrite, now_ms: int
    ) -> ShareRecord | Refusal:
        """Write a change."""
        kept = self.partitions.get(key)
        if kept is None:
            return Refusal(ErrorCode.INVALID_REQUEST, NOT_INITIALIZED["write"])
        if change.leader_epoch != NO_EPOCH and kept.highest_leader_epoch > change.leader_epoch:
            return Refusal(ErrorCode.FENCED_LEADER_EPOCH)
        if change.state_epoch != NO_EPOCH and kept.highest_state_epoch > change.state_epoch:
            return Refusal(ErrorCode.FENCED_STATE_EPOCH)
        change = change._replace(leader_epoch=kept.leader_epoch)  # only reads increase it
        return self._record(key, kept, change, now_ms)

    def read(
        self, key: SharePartitionKey, leader_epoch: int, now_ms: int
    ) -> ShareRecord | Refusal | None:
        """A new leader reads the state. Returns a record with its leader epoch, or None if the
        epoch is known. Then, or once the record is appended, `state_of` returns the state.
        """
        kept = self.partitions.get(key)
        if kept is None:
            return Refusal(ErrorCode.INVALID_REQUEST, NOT_INITIALIZED["read"])
        if leader_epoch == NO_EPOCH or leader_epoch == kept.highest_leader_epoch:
            return None
        if leader_epoch < kept.highest_leader_epoch:
            return Refusal(ErrorCode.FENCED_LEADER_EPOCH)
        change = ShareWrite(
            kept.state_epoch, leader_epoch, kept.start_offset, kept.delivery_complete_count
        )
        return self._record(key, kept, change, now_ms)

    def delete(self, key: SharePartitionKey) -> ShareRecord | None:
        """Delete a share-partition. Returns None if it is unknown."""
        if key not in self.partitions:
            return None
        return ShareRecord(ShareSnapshotKey(**key._asdict()), None)

    def cold_keys(self, interval_ms: int, now_ms: int) -> list[SharePartitionKey]:
        """The share-partitions without a snapshot for this time. Empty if each of them has already
        got a snapshot for this reason.
        """
        if all(kept.created_ms != kept.written_ms for kept in self.partitions.values()):
            return []
        return [
            key for key, kept in self.partitions.items() if now_ms - kept.written_ms >= interval_ms
        ]

    def snapshot(self, key: SharePartitionKey, now_ms: int) -> ShareRecord | None:
        """A new snapshot of a share-partition. None if it is unknown."""
        kept = self.partitions.get(key)
        if kept is None:
            return None
        again = kept._replace(snapshot_epoch=kept.snapshot_epoch + 1, written_ms=now_ms)
        return _snapshot(key, again)

    def _record(
        self, key: SharePartitionKey, kept: Kept, change: ShareWrite, now_ms: int
    ) -> ShareRecord:
        """The change as an update, or as a snapshot that includes it."""
        if kept.updates >= self.limit:
            start_offset = change.start_offset
            if start_offset == NO_OFFSET:
                start_offset = kept.start_offset
            return _snapshot(
                key,
                kept._replace(
                    snapshot_epoch=kept.snapshot_epoch + 1,
                    leader_epoch=change.leader_epoch,
                    start_offset=start_offset,
                    delivery_complete_count=change.delivery_complete_count,
                    batches=combine(kept.batches, change.batches, start_offset),
                    created_ms=now_ms,
                    written_ms=now_ms,
                ),
            )
        return ShareRecord(
            ShareUpdateKey(**key._asdict()),
            ShareUpdateValue(
                snapshot_epoch=kept.snapshot_epoch,
                leader_epoch=change.leader_epoch,
                start_offset=change.start_offset,
                delivery_complete_count=change.delivery_complete_count,
                state_batches=_values(combine((), change.batches, change.start_offset)),
            ),
        )

    # ---- replay ----

    def replay(self, record: ShareRecord, offset: int) -> None:
        """Apply one record of the log."""
        key = SharePartitionKey(record.key.group_id, record.key.topic_id, record.key.partition)
        value = record.value
        if value is None:
            self.partitions.pop(key, None)
        elif isinstance(value, ShareSnapshotValue):
            self.partitions[key] = self._from_snapshot(self.partitions.get(key), value, offset)
        else:
            self.partitions[key] = _updated(self.partitions.get(key), value, offset)
        self._last_offset = offset
        if self._check_invariants and key in self.partitions:
            _check(self.partitions[key])

    def _from_snapshot(self, kept: Kept | None, value: ShareSnapshotValue, offset: int) -> Kept:
        highest_state, highest_leader, updates = value.state_epoch, value.leader_epoch, 0
        if kept is not None:  # a snapshot does not lower the fence
            highest_state = max(highest_state, kept.highest_state_epoch)
            highest_leader = max(highest_leader, kept.highest_leader_epoch)
            # As in Kafka, only a snapshot that was written because of updates resets the count.
            updates = 0 if kept.updates >= self.limit else kept.updates
        return Kept(
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            _batches(value.state_batches),
            value.create_timestamp,
            value.write_timestamp,
            updates,
            highest_state,
            highest_leader,
            offset,
        )

    # ---- questions ----

    def state_of(self, key: SharePartitionKey) -> ShareState:
        """The state of a known share-partition."""
        kept = self.partitions[key]
        return ShareState(kept.state_epoch, kept.start_offset, kept.batches)

    def summary_of(self, key: SharePartitionKey) -> ShareSummary:
        """The progress of a share-partition. For an unknown one, a summary without progress."""
        kept = self.partitions.get(key)
        if kept is None:
            return UNKNOWN
        return ShareSummary(
            kept.state_epoch, kept.leader_epoch, kept.start_offset, kept.delivery_complete_count
        )

    def keys_of_topic(self, topic_id: UUID) -> list[SharePartitionKey]:
        """The share-partitions of a topic."""
        return [key for key in self.partitions if key.topic_id == topic_id]

    def redundant_below(self) -> int:
        """The offset below which all records are superseded."""
        offsets = [kept.snapshot_offset for kept in self.partitions.values()]
        return min(offsets, default=self._last_offset)


def _snapshot(key: SharePartitionKey, kept: Kept) -> ShareRecord:
    return ShareRecord(
        ShareSnapshotKey(**key._asdict()),
        ShareSnapshotValue(
            snapshot_epoch=kept.snapshot_epoch,
            state_epoch=kept.state_epoch,
            leader_epoch=kept.leader_epoch,
            start_offset=kept.start_offset,
            delivery_complete_count=kept.delivery_complete_count,
            create_timestamp=kept.created_ms,
            write_timestamp=kept.written_ms,
            state_batches=_values(kept.batches),
        ),
    )


def _values(batches: tuple[StateBatch, ...]) -> list[StateBatchValue]:
    return [StateBatchValue(**batch._asdict()) for batch in batches]


def _batches(values: list[StateBatchValue]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(item.first_offset, item.last_offset, item.delivery_state, item.delivery_count)
        for item in values
    )


def _updated(kept: Kept | None, value: ShareUpdateValue, offset: int) -> Kept:
    added = _batches(value.state_batches)
    if kept is None:  # its snapshot was pruned, or never existed
        return Kept(
            value.snapshot_epoch,
            0,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            added,
            0,
            0,
            1,
            0,
            value.leader_epoch,
            offset,
        )
    start_offset = kept.start_offset if value.start_offset == NO_OFFSET else value.start_offset
    leader_epoch = kept.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch
    return kept._replace(
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=combine(kept.batches, added, start_offset),
        updates=kept.updates + 1,
        highest_leader_epoch=max(kept.highest_leader_epoch, value.leader_epoch),
    )


def _check(kept: Kept) -> None:
    """Assert the invariants of a share-partition (``kstore.check.invariants``)."""
    assert kept.highest_state_epoch >= kept.state_epoch, kept
    assert kept.highest_leader_epoch >= kept.leader_epoch, kept
    next_offset = kept.start_offset
    for batch in kept.batches:
        assert next_offset <= batch.first_offset <= batch.last_offset, kept
        next_offset = batch.last_offset + 1
