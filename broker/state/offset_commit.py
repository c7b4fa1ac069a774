"""OffsetCommit and OffsetDelete: who may change a group's offsets, and the records that do. Storage
is in offsets.
"""

from __future__ import annotations

from kstore.broker.state.classic_group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from kstore.broker.state.classic_step import member_error, session_timer
from kstore.broker.state.group_result import GroupContext, GroupRecord, GroupSettings, Result
from kstore.broker.state.offsets import (
    CommittedOffset,
    Offsets,
    commit_record,
    commit_tombstone,
)
from kstore.errors import ErrorCode
from kstore.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kstore.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["commit_offsets", "delete_offsets", "offset_commit_failure"]

FIRST_VERSION_WITH_GROUP_NOT_FOUND = 9


def commit_offsets(
    group: ClassicGroup | None,
    request: OffsetCommitRequest,
    ctx: GroupContext,
    settings: GroupSettings,
) -> Result:
    """Store the offsets, if the member, or a consumer outside any group (generation -1), may."""
    error_code = _commit_error(group, request, ctx.api_version)
    if error_code != ErrorCode.NONE:
        return Result(offset_commit_failure(request, error_code))
    records: list[GroupRecord] = []
    topics = []
    for topic in request.topics:
        response = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        topics.append(response)
        for partition in topic.partitions:
            error_code = ErrorCode.NONE
            if _metadata_length(partition) > settings.offset_metadata_max_bytes:
                error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                records.append(_record(request, topic, partition, ctx.now_ms))
            response.partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error_code
                )
            )
    result = Result(OffsetCommitResponse(topics=topics), tuple(records))
    if group is not None and group.state in (STABLE, PREPARING_REBALANCE):
        member = group.members.get(request.member_id)
        if member is not None:
            result = result._replace(timers=(session_timer(group.group_id, member),))
    return result


def _metadata_length(partition: OffsetCommitRequestPartition) -> int:
    """Kafka's measure: the length of a Java string, which is in UTF-16 units, not in bytes."""
    return len((partition.committed_metadata or "").encode("utf-16-le")) // 2


def offset_commit_failure(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """The answer that gives one error to every partition asked for."""
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


def _commit_error(
    group: ClassicGroup | None, request: OffsetCommitRequest, api_version: int
) -> int:
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return ErrorCode.NONE
        if api_version >= FIRST_VERSION_WITH_GROUP_NOT_FOUND:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if generation_id < 0 and group.state == EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and not request.member_id and request.group_instance_id is None:
        # A consumer that manages its partitions itself may not write into an active group.
        return ErrorCode.UNKNOWN_MEMBER_ID
    error_code = member_error(group, request.member_id, request.group_instance_id)
    if error_code != ErrorCode.NONE:
        return error_code
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state == COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _record(
    request: OffsetCommitRequest,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
    now_ms: int,
) -> GroupRecord:
    retention_ms = request.retention_time_ms
    committed = CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=-1 if retention_ms == -1 else now_ms + retention_ms,
        topic_id=topic.topic_id,
        partition_epoch=partition.partition_epoch,
    )
    return commit_record(request.group_id, topic.name, partition.partition_index, committed)


def delete_offsets(
    group: ClassicGroup | None, request: OffsetDeleteRequest, offsets: Offsets
) -> Result:
    """Delete offsets of topics that no member consumes (KIP-496)."""
    if not request.group_id:
        return Result(OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    if group is None:
        return Result(OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    if group.state != EMPTY and not group.uses_consumer_protocol:
        return Result(OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    records: list[GroupRecord] = []
    topics = []
    for topic in request.topics:
        response = OffsetDeleteResponseTopic(name=topic.name)
        topics.append(response)
        subscribed = group.is_subscribed_to(topic.name)
        for asked in topic.partitions:
            partition = asked.partition_index
            response.partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=partition,
                    error_code=(
                        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
                    ),
                )
            )
            if not subscribed and (topic.name, partition) in offsets.all_places(group.group_id):
                records.append(commit_tombstone(group.group_id, topic.name, partition))
    return Result(OffsetDeleteResponse(topics=topics), tuple(records))
