"""OffsetCommit and OffsetDelete: the checks, and the records that change a group's offsets.
offsets.py stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from kstore.broker.state.groups.classic.group import ClassicGroup
from kstore.broker.state.groups.contract import CommitClaim, Group, ShardState
from kstore.broker.state.groups.offsets import (
    OffsetToCommit,
    commit_record,
    commit_tombstone,
)
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.settings import GroupSettings
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.classic import OffsetCommitKey, OffsetCommitValue
from kstore.protocol.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kstore.protocol.groups.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = [
    "commit_error",
    "commit_offsets",
    "delete_offsets",
    "is_metadata_too_long",
    "of_a_life",
    "offset_commit_failure",
    "offset_error",
    "refused_to_owners",
    "replay_commit",
]

FIRST_VERSION_WITH_GROUP_NOT_FOUND = 9
NO_EPOCH = -1


def commit_offsets(
    shard: ShardState, group: Group | None, request: OffsetCommitRequest, ctx: GroupContext
) -> Result:
    """Commit the offsets, if the member, or a consumer outside any group (generation -1), may
    commit.
    """
    claim = CommitClaim(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        ctx.api_version,
        needs_assignment=shard.settings.commit_requires_assignment,
    )
    error_code = commit_error(group, claim, _places(request, shard.settings))
    if error_code != ErrorCode.NONE:
        failure = offset_commit_failure(request, error_code)
        return Result(failure, refused=refused_to_owners(group, claim, _answers(failure)))
    response = OffsetCommitResponse(topics=[])
    retention_ms = request.retention_time_ms
    expires_ms = -1 if retention_ms == -1 else _wrapped(ctx.now_ms + retention_ms)
    records: list[GroupRecord] = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            error_code = offset_error(shard, ctx, request.group_id, topic.name, partition)
            answers.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error_code
                )
            )
            if error_code == ErrorCode.NONE:
                records.append(
                    commit_record(
                        request.group_id,
                        topic.name,
                        topic.topic_id,
                        of_a_life(ctx, topic.name, partition),
                        ctx.now_ms,
                        expires_ms,
                    )
                )
        response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    timers = () if group is None else group.commit_timers(claim)
    refused = refused_to_owners(group, claim, _answers(response))
    return Result(response, tuple(records), timers=timers, refused=refused)


def _answers(response: OffsetCommitResponse) -> Iterator[tuple[str, UUID, int, int]]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield topic.name, topic.topic_id, partition.partition_index, partition.error_code


def refused_to_owners(
    group: Group | None, claim: CommitClaim, answers: Iterable[tuple[str, UUID, int, int]]
) -> tuple[int, ...]:
    """The errors for partitions that the claim's member owns, out of rows of (topic, topic id,
    partition, error).
    """
    if group is None:
        return ()
    return tuple(
        error_code
        for topic, topic_id, partition, error_code in answers
        if error_code != ErrorCode.NONE and group.owns(claim.member_id, topic, topic_id, partition)
    )


def _places(
    request: OffsetCommitRequest, settings: GroupSettings
) -> Iterator[tuple[str, UUID, int]]:
    """The offsets to commit, without those that are refused."""
    for topic in request.topics:
        for partition in topic.partitions:
            if not is_metadata_too_long(partition.committed_metadata, settings):
                yield topic.name, topic.topic_id, partition.partition_index


def commit_error(
    group: Group | None, claim: CommitClaim, places: Iterable[tuple[str, UUID, int]]
) -> int:
    """NONE if the claim's member may commit all of these (topic, topic id, partition), else the
    error for the whole request.
    """
    if group is None:
        if claim.epoch < 0:
            return ErrorCode.NONE
        if claim.api_version >= FIRST_VERSION_WITH_GROUP_NOT_FOUND and not claim.transactional:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    error_code = group.commit_error(claim)
    if error_code != ErrorCode.NONE:
        return error_code
    for topic, topic_id, partition in places:
        error_code = group.partition_commit_error(claim, topic, topic_id, partition)
        if error_code != ErrorCode.NONE:
            return error_code
    return ErrorCode.NONE


def offset_error(
    shard: ShardState, ctx: GroupContext, group_id: str, topic: str, requested: OffsetToCommit
) -> int:
    """The error of one offset, independent of the member: its metadata is too long, or (KIP-232) it
    has an older partition epoch or leader epoch than the stored offset, or belongs to a deleted
    topic. Epoch -1 skips a check.
    """
    if is_metadata_too_long(requested.committed_metadata, shard.settings):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if requested.partition_epoch == NO_EPOCH:
        return ErrorCode.NONE
    index = requested.partition_index
    image = None if ctx.image is None else ctx.image.partition(topic, index)
    if image is not None and requested.partition_epoch < image.partition_epoch:
        return ErrorCode.INVALID_PARTITION_EPOCH
    stored = shard.offsets.get(group_id, topic, index)
    if stored is None or requested.partition_epoch > stored.partition_epoch:
        return ErrorCode.NONE
    if requested.partition_epoch < stored.partition_epoch:
        return ErrorCode.INVALID_PARTITION_EPOCH
    if NO_EPOCH != requested.committed_leader_epoch < stored.leader_epoch:
        return ErrorCode.INVALID_LEADER_EPOCH
    return ErrorCode.NONE


def of_a_life(ctx: GroupContext, topic: str, requested: OffsetToCommit) -> OffsetToCommit:
    """The offset as it is stored: with the current partition epoch if the client sends none and the
    topic may be contracted, since a later partition with the same number has another epoch.
    """
    if requested.partition_epoch != NO_EPOCH or ctx.image is None or topic not in ctx.image.ordered:
        return requested
    image = ctx.image.partition(topic, requested.partition_index)
    return requested if image is None else requested.replaced(partition_epoch=image.partition_epoch)


def is_metadata_too_long(metadata: str | None, settings: GroupSettings) -> bool:
    """Kafka's check of the length, which counts the UTF-16 units of a Java string, not bytes."""
    if not metadata or len(metadata) * 2 <= settings.offset_metadata_max_bytes:
        return False  # no character has more than two units
    return len(metadata.encode("utf-16-le")) // 2 > settings.offset_metadata_max_bytes


def offset_commit_failure(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """The response with one error for every requested partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error_code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _wrapped(timestamp_ms: int) -> int:
    """Wrap to a 64-bit integer: Kafka's sum overflows for a huge retention."""
    return (timestamp_ms + (1 << 63)) % (1 << 64) - (1 << 63)


def replay_commit(
    shard: ShardState,
    key: OffsetCommitKey,
    value: OffsetCommitValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Apply a record of a committed offset. If the group is missing, a simple group is created."""
    if value is not None and key.group not in shard.groups:
        shard.groups[key.group] = ClassicGroup(key.group, -1)
    shard.offsets.replay(key, value, record_offset, producer_id)


def delete_offsets(
    shard: ShardState, group: Group | None, request: OffsetDeleteRequest, ctx: GroupContext
) -> Result:
    """Delete offsets of topics that no member consumes (KIP-496)."""
    if not request.group_id:
        return Result(OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    if group is None:
        return Result(OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    error_code = group.delete_offsets_error()
    if error_code != ErrorCode.NONE:
        return Result(OffsetDeleteResponse(error_code=error_code))
    records: list[GroupRecord] = []
    topics = []
    for topic in request.topics:
        response = OffsetDeleteResponseTopic(name=topic.name)
        topics.append(response)
        subscribed = group.is_subscribed_to(topic.name)
        for requested in topic.partitions:
            partition = requested.partition_index
            response.partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=partition,
                    error_code=(
                        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
                    ),
                )
            )
            if not subscribed and shard.offsets.holds(group.group_id, topic.name, partition):
                records.append(commit_tombstone(group.group_id, topic.name, partition))
    return Result(OffsetDeleteResponse(topics=topics), tuple(records))
