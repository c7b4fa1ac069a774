"""Committed offsets of the groups of one shard: storage, reading and expiry. It does not have the
rules of groups.

Offsets that are committed in a transaction are pending until its marker is replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Self
from uuid import UUID

from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.classic import OffsetCommitKey, OffsetCommitValue
from kstore.protocol.groups.offsets import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kstore.protocol.schema import ZERO_UUID

__all__ = [
    "NO_PRODUCER_ID",
    "CommittedOffset",
    "OffsetToCommit",
    "Offsets",
    "commit_record",
    "commit_tombstone",
]

NO_PRODUCER_ID = -1
INVALID_OFFSET = -1
MOST_LOOKED_AT = 512
"""The number of offsets and groups in one part of `groups_of_topic`."""
COMMIT_VERSION = 4
COMMIT_VERSION_WITH_EXPIRY = 1
"""The only version of the value with its own expiry. Clients before OffsetCommit 5 may request
one.
"""


class OffsetToCommit(Protocol):
    """A partition of OffsetCommit or TxnOffsetCommit."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None
    partition_epoch: int

    def replaced(self, **fields: Any) -> Self:
        """A copy with other fields."""


class CommittedOffset(NamedTuple):
    """One committed offset. Timestamps are in ms. ``expire_timestamp`` -1: the group's retention
    applies.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    topic_id: UUID = ZERO_UUID
    partition_epoch: int = -1
    record_offset: int = -1
    """The offset of the commit's record in __consumer_offsets. When a transaction ends, the later
    record wins.
    """


Topics = dict[str, dict[int, CommittedOffset]]
OffsetKey = tuple[str, str, int]


class Offsets:
    """Group to topic to partition to committed offset; and the pending offsets of open
    transactions, by producer id.
    """

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}
        self._pending_keys: Counter[OffsetKey] = Counter()
        """How many open transactions have committed an offset of a group in a partition."""

    def topics(self, group_id: str) -> Topics:
        """The group's offsets. Do not change them."""
        return self._groups.get(group_id, {})

    def group_ids(self) -> Iterator[str]:
        """The groups that have a committed offset."""
        return iter(self._groups)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset, or None."""
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed an offset in this partition."""
        return (group_id, topic, partition) in self._pending_keys

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has committed any offset of the group."""
        return any(group_id in groups for groups in self._pending.values())

    def replay(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int,
    ) -> None:
        """Apply one record. ``producer_id`` is NO_PRODUCER_ID outside transactions."""
        offset_key = (key.group, key.topic, key.partition)
        if value is None:
            _remove(self._groups, *offset_key)
            if offset_key in self._pending_keys:
                for groups in self._pending.values():
                    _remove(groups, *offset_key)
                del self._pending_keys[offset_key]
            return
        committed = CommittedOffset(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp,
            expire_timestamp=value.expire_timestamp,
            topic_id=value.topic_id,
            partition_epoch=value.partition_epoch,
            record_offset=record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            _put(self._groups, *offset_key, committed)
        else:
            groups = self._pending.setdefault(producer_id, {})
            if key.partition not in groups.get(key.group, {}).get(key.topic, {}):
                self._pending_keys[offset_key] += 1
            _put(groups, *offset_key, committed)

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> Work[None]:
        """Apply the marker that ends the producer's transaction."""
        groups = self._pending.pop(producer_id, {})
        for group_id, topics in groups.items():
            for topic, partitions in topics.items():
                for partition, offset in partitions.items():
                    self._remove_pending((group_id, topic, partition))
                    yield
                    if not committed:
                        continue
                    present = self.get(group_id, topic, partition)
                    if present is None or present.record_offset < offset.record_offset:
                        _put(self._groups, group_id, topic, partition, offset)

    def _remove_pending(self, offset_key: OffsetKey) -> None:
        self._pending_keys[offset_key] -= 1
        if not self._pending_keys[offset_key]:
            del self._pending_keys[offset_key]

    def fetch(
        self,
        request: OffsetFetchRequestGroup,
        *,
        require_stable: bool,
        with_epochs: bool = True,
        image: MetadataImage | None = None,
    ) -> Work[OffsetFetchResponseGroup]:
        """The requested offsets of a group, or all if ``topics`` is None. The offset is -1 if there
        is none, or only one of an earlier partition with that number. ``with_epochs``: with
        partition epochs (KIP-232).
        """
        found = self.topics(request.group_id)
        response = OffsetFetchResponseGroup(group_id=request.group_id)
        if request.topics is None:
            wanted = [(name, ZERO_UUID, list(partitions)) for name, partitions in found.items()]
        else:
            wanted = [(item.name, item.topic_id, item.partition_indexes) for item in request.topics]
        for name, topic_id, partitions in wanted:
            topic = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
            response.topics.append(topic)
            for partition in partitions:
                unstable = require_stable and self.is_pending(request.group_id, name, partition)
                committed = None if unstable else found.get(name, {}).get(partition)
                # The coordinator may not know yet that the partition was deleted.
                if (
                    committed is not None
                    and image is not None
                    and image.has_replaced(name, partition, committed.partition_epoch)
                ):
                    committed = None
                row = _fetched(partition, committed, topic_id, unstable)
                if not with_epochs:
                    row.partition_epoch = -1
                topic.partitions.append(row)
                yield
        return response

    def has_any(self, group_id: str) -> bool:
        """Whether the group has an offset, or an open transaction has committed one."""
        return group_id in self._groups or self.has_pending(group_id)

    def all_partitions(self, group_id: str) -> Work[list[tuple[str, int]]]:
        """All partitions with an offset of the group, including pending offsets."""
        found: dict[tuple[str, int], None] = {}
        for groups in (self._groups, *self._pending.values()):
            for topic, partitions in groups.get(group_id, {}).items():
                found |= dict.fromkeys((topic, partition) for partition in partitions)
                yield
        return list(found)

    def groups_of_topic(self, name: str) -> Iterator[list[tuple[str, int]]]:
        """All (group id, partition) with an offset of the topic, including pending offsets, in
        parts. Each part depends on the state when it is requested.
        """
        part: list[tuple[str, int]] = []
        looked_at = 0
        for group_id in {*self._groups, *(g for groups in self._pending.values() for g in groups)}:
            partitions = {
                partition
                for groups in (self._groups, *self._pending.values())
                for partition in groups.get(group_id, {}).get(name, ())
            }
            for partition in partitions:
                if self.holds(group_id, name, partition):
                    part.append((group_id, partition))
                looked_at += 1
                if looked_at % MOST_LOOKED_AT == 0:
                    yield part
                    part = []
            looked_at += 1
            if part or looked_at % MOST_LOOKED_AT == 0:
                yield part
                part = []

    def holds(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset, including those of open transactions."""
        return self.get(group_id, topic, partition) is not None or self.is_pending(
            group_id, topic, partition
        )


def commit_record(
    group_id: str,
    topic: str,
    topic_id: UUID,
    requested: OffsetToCommit,
    now_ms: int,
    expire_timestamp: int = -1,
) -> GroupRecord:
    """The record that stores a requested offset. Its replay commits the offset."""
    value = OffsetCommitValue(
        offset=requested.committed_offset,
        leader_epoch=requested.committed_leader_epoch,
        metadata=requested.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
        partition_epoch=requested.partition_epoch,
    )
    version = COMMIT_VERSION if expire_timestamp == -1 else COMMIT_VERSION_WITH_EXPIRY
    key = OffsetCommitKey(group=group_id, topic=topic, partition=requested.partition_index)
    return GroupRecord(key, value, version)


def commit_tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    """The record that deletes a committed offset."""
    return GroupRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _fetched(
    partition: int, committed: CommittedOffset | None, topic_id: UUID, unstable: bool
) -> OffsetFetchResponsePartitions:
    # A topic that was deleted and created again has another id, so its old offsets are invalid.
    if committed is None or (
        ZERO_UUID not in (topic_id, committed.topic_id) and topic_id != committed.topic_id
    ):
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=INVALID_OFFSET,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else ErrorCode.NONE,
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        partition_epoch=committed.partition_epoch,
    )


def _put(
    groups: dict[str, Topics], group_id: str, topic: str, partition: int, offset: CommittedOffset
) -> None:
    groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset


def _remove(groups: dict[str, Topics], group_id: str, topic: str, partition: int) -> None:
    topics = groups.get(group_id)
    if topics is None or topic not in topics:
        return
    topics[topic].pop(partition, None)
    if not topics[topic]:
        del topics[topic]
    if not topics:
        del groups[group_id]
