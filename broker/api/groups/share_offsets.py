"""DescribeShareGroupOffsets 0-1, AlterShareGroupOffsets and DeleteShareGroupOffsets (KIP-932): the
start offsets of share groups, which the share coordinator stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from uuid import UUID

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.groups.share import is_enabled
from kstore.broker.api.security.access import permitted
from kstore.broker.api.security.permissions import no_right
from kstore.broker.state.shares.persisted import NO_COUNT, NO_OFFSET, ShareSummary
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.schema import ZERO_UUID
from kstore.protocol.shares.offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.broker.api import RequestContext
    from kstore.broker.api.groups.parts import ShareOffsetParts
    from kstore.broker.runtime.groups.share_states import TopicIdPartition

__all__ = [
    "handle_alter_share_group_offsets",
    "handle_delete_share_group_offsets",
    "handle_describe_share_group_offsets",
]

BAD_GROUP = "The group id is empty: send the group's id."
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def handle_describe_share_group_offsets(
    broker: ShareOffsetParts, request: DescribeShareGroupOffsetsRequest, ctx: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Return start offset and lag of the requested partitions, or of all partitions of a group."""
    response = DescribeShareGroupOffsetsResponse()
    for group in request.groups:
        if not is_enabled(broker):
            answer = DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=ErrorCode.UNSUPPORTED_VERSION
            )
        else:
            answer = await _described(broker, group, ctx)
        response.groups.append(answer)
    return response


async def _described(
    broker: ShareOffsetParts, group: DescribeShareGroupOffsetsRequestGroup, ctx: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id)
    try:
        partition = await broker.groups().loaded_partition(group.group_id)
        await partition.settled()
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, str(error)
        return answer
    topics = group.topics
    everything = topics is None
    if topics is None:
        known = broker.share_states().group(group.group_id)
        topics = [
            DescribeShareGroupOffsetsRequestTopic(
                topic_name=topic.name, partitions=sorted(topic.partitions)
            )
            for topic in (() if known is None else known.states.initialized.values())
        ]
    names = {topic.topic_name for topic in topics}
    seen = permitted(broker, ctx, AclOperation.DESCRIBE, AclResourceType.TOPIC, names)
    image = broker.image.topics
    ids = {name: image[name].topic_id for name in seen if name in image}
    topic_partitions = [
        (ids[topic.topic_name], index)
        for topic in topics
        if topic.topic_name in ids
        for index in topic.partitions
        if 0 <= index < len(image[topic.topic_name].partitions)
    ]
    found = await broker.share_states().summaries(group.group_id, topic_partitions)
    ends = await broker.partition_ends().of(_with_lag(topics, ids, found))
    for topic in topics:
        if topic.topic_name in seen:
            answer.topics.append(_described_topic(topic, ids, found, ends))
        elif not everything:
            answer.topics.append(_unseen(topic, ctx))
    return answer


def _unseen(
    topic: DescribeShareGroupOffsetsRequestTopic, ctx: RequestContext
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=NO_OFFSET,
                error_code=DENIED,
                error_message=no_right(ctx, DENIED),
            )
            for index in topic.partitions
        ],
    )


def _with_lag(
    topics: list[DescribeShareGroupOffsetsRequestTopic],
    ids: dict[str, UUID],
    found: dict[TopicIdPartition, ShareSummary | KafkaError],
) -> set[TopicPartition]:
    """The partitions whose lag is computed from their high watermark."""
    wanted = set()
    for topic in topics:
        for index in topic.partitions:
            summary = found.get((ids.get(topic.topic_name, ZERO_UUID), index))
            if isinstance(summary, ShareSummary) and _has_lag(summary):
                wanted.add(TopicPartition(topic.topic_name, index))
    return wanted


def _has_lag(summary: ShareSummary) -> bool:
    return summary.start_offset != NO_OFFSET and summary.delivery_complete_count != NO_COUNT


def _described_topic(
    topic: DescribeShareGroupOffsetsRequestTopic,
    ids: dict[str, UUID],
    found: dict[TopicIdPartition, ShareSummary | KafkaError],
    ends: Mapping[TopicPartition, int],
) -> DescribeShareGroupOffsetsResponseTopic:
    topic_id = ids.get(topic.topic_name, ZERO_UUID)
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id)
    for index in topic.partitions:
        described = DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=NO_OFFSET
        )
        summary = found.get((topic_id, index))
        if isinstance(summary, KafkaError):
            described.error_code, described.error_message = summary.code, str(summary)
        elif summary is not None and summary.start_offset != NO_OFFSET:
            described.start_offset = summary.start_offset
            described.leader_epoch = max(summary.leader_epoch, 0)
            end = ends.get(TopicPartition(topic.topic_name, index))
            if end is not None:  # the number of records that are not delivered yet (KIP-1226)
                described.lag = end - summary.start_offset - summary.delivery_complete_count
        answer.partitions.append(described)
    return answer


async def handle_alter_share_group_offsets(
    broker: ShareOffsetParts, request: AlterShareGroupOffsetsRequest, ctx: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Set start offsets of a group without members. The group is created if it does not exist."""
    problem = _whole_problem(broker, request.group_id)
    if problem is not None:
        return AlterShareGroupOffsetsResponse(error_code=problem.code, error_message=str(problem))
    names = {topic.topic_name for topic in request.topics}
    seen = permitted(broker, ctx, AclOperation.READ, AclResourceType.TOPIC, names)
    allowed = [topic for topic in request.topics if topic.topic_name in seen]
    try:
        response = await broker.groups().handle(
            request.group_id, request.replaced(topics=allowed), ctx
        )
        answer = cast(AlterShareGroupOffsetsResponse, response)
        if answer.error_code != ErrorCode.NONE:
            return answer
        await _initialize(broker, request, answer)
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
    answer.responses += [
        AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            partitions=[
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=requested.partition_index,
                    error_code=DENIED,
                    error_message=no_right(ctx, DENIED),
                )
                for requested in topic.partitions
            ],
        )
        for topic in request.topics
        if topic.topic_name not in seen
    ]
    return answer


async def _initialize(
    broker: ShareOffsetParts,
    request: AlterShareGroupOffsetsRequest,
    answer: AlterShareGroupOffsetsResponse,
) -> None:
    """Initialize the partitions that have no error yet, and note the results."""
    offsets = {
        (topic.topic_name, requested.partition_index): requested.start_offset
        for topic in request.topics
        for requested in topic.partitions
    }
    wanted = {
        (topic.topic_id, part.partition_index): offsets[topic.topic_name, part.partition_index]
        for topic in answer.responses
        for part in topic.partitions
        if part.error_code == ErrorCode.NONE
    }
    states = broker.share_states()
    group = states.group(request.group_id)
    if not wanted or group is None:
        return
    outcome = await states.initialize(request.group_id, group.epoch, wanted)
    for row in answer.responses:
        for cell in row.partitions:
            error = outcome.get((row.topic_id, cell.partition_index))
            if error is not None:
                cell.error_code, cell.error_message = error.code, str(error)


def _whole_problem(broker: ShareOffsetParts, group_id: str) -> KafkaError | None:
    if not is_enabled(broker):
        return error_for(ErrorCode.UNSUPPORTED_VERSION)
    return None if group_id else error_for(ErrorCode.INVALID_GROUP_ID, BAD_GROUP)


async def handle_delete_share_group_offsets(
    broker: ShareOffsetParts, request: DeleteShareGroupOffsetsRequest, ctx: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Delete the offsets of topics for a group without members."""
    problem = _whole_problem(broker, request.group_id)
    if problem is not None:
        return DeleteShareGroupOffsetsResponse(error_code=problem.code, error_message=str(problem))
    names = {topic.topic_name for topic in request.topics}
    seen = permitted(broker, ctx, AclOperation.READ, AclResourceType.TOPIC, names)
    allowed = [topic for topic in request.topics if topic.topic_name in seen]
    try:
        response = await broker.groups().handle(
            request.group_id, request.replaced(topics=allowed), ctx
        )
        answer = cast(DeleteShareGroupOffsetsResponse, response)
        if answer.error_code != ErrorCode.NONE:
            return answer
        counts = {}
        for row in answer.responses:
            image = broker.image.topics.get(row.topic_name)
            if row.error_code == ErrorCode.NONE and image is not None:
                counts[row.topic_id] = len(image.partitions)
        errors = await broker.share_states().delete(request.group_id, counts) if counts else {}
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
    for row in answer.responses:
        failed = errors.get(row.topic_id)
        if failed is not None:
            row.error_code, row.error_message = failed.code, str(failed)
    answer.responses += [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=DENIED, error_message=no_right(ctx, DENIED)
        )
        for topic in request.topics
        if topic.topic_name not in seen
    ]
    return answer
