"""TxnOffsetCommit: offsets that are committed in a producer's transaction. They are pending until
the transaction's marker (offsets.py). offset_commit.py has the checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from kstore.broker.state.groups.contract import CommitClaim, Group, ShardState
from kstore.broker.state.groups.coordinator.offset_commit import (
    commit_error,
    is_metadata_too_long,
    of_a_life,
    offset_error,
    refused_to_owners,
)
from kstore.broker.state.groups.offsets import commit_record
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.errors import ErrorCode
from kstore.protocol.schema import ZERO_UUID
from kstore.protocol.transactions.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

__all__ = ["commit_transactional_offsets", "txn_offset_commit_failure"]


def commit_transactional_offsets(
    shard: ShardState, group: Group | None, request: TxnOffsetCommitRequest, ctx: GroupContext
) -> Result:
    """Commit the offsets in the transaction, if the member, or a client that names no member, may
    commit.
    """
    claim = CommitClaim(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        ctx.api_version,
        transactional=True,
        needs_assignment=shard.settings.commit_requires_assignment,
    )
    wanted = [
        (topic.name, _topic_id(ctx, topic.name), partition)
        for topic in request.topics
        for partition in topic.partitions
        if not is_metadata_too_long(partition.committed_metadata, shard.settings)
    ]
    places = ((name, topic_id, partition.partition_index) for name, topic_id, partition in wanted)
    error_code = commit_error(group, claim, places)
    if error_code != ErrorCode.NONE:
        failure = txn_offset_commit_failure(request, error_code)
        return Result(failure, refused=refused_to_owners(group, claim, _answers(failure, ctx)))
    records = []
    response = txn_offset_commit_failure(request, ErrorCode.NONE)
    for topic, answers in zip(request.topics, response.topics, strict=True):
        topic_id = _topic_id(ctx, topic.name)
        for partition, answer in zip(topic.partitions, answers.partitions, strict=True):
            answer.error_code = offset_error(shard, ctx, request.group_id, topic.name, partition)
            if answer.error_code == ErrorCode.NONE:
                stored = of_a_life(ctx, topic.name, partition)
                records.append(
                    commit_record(request.group_id, topic.name, topic_id, stored, ctx.now_ms)
                )
    timers = () if group is None else group.commit_timers(claim)
    producer = (request.producer_id, request.producer_epoch)
    refused = refused_to_owners(group, claim, _answers(response, ctx))
    return Result(response, tuple(records), timers=timers, producer=producer, refused=refused)


def _answers(
    response: TxnOffsetCommitResponse, ctx: GroupContext
) -> Iterator[tuple[str, UUID, int, int]]:
    for topic in response.topics:
        topic_id = _topic_id(ctx, topic.name)
        for partition in topic.partitions:
            yield topic.name, topic_id, partition.partition_index, partition.error_code


def txn_offset_commit_failure(
    request: TxnOffsetCommitRequest, error_code: int
) -> TxnOffsetCommitResponse:
    """The response with one error for every requested partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error_code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _topic_id(ctx: GroupContext, name: str) -> UUID:
    topic = None if ctx.image is None else ctx.image.topics.get(name)
    return ZERO_UUID if topic is None else topic.topic_id
