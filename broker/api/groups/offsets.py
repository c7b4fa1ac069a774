"""OffsetCommit 2-10, OffsetFetch 1-10 and OffsetDelete: topics by name or id, one group or many.

These handlers check which topics exist. broker/state decides what a group allows.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, cast

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.groups.behind_commits import behind_commits
from kstore.broker.api.security.access import allowed
from kstore.broker.runtime.groups.partition_lookup import NamedPartition, waiting_commits
from kstore.broker.runtime.response_future import converted
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.groups.coordinator.offset_commit import offset_commit_failure
from kstore.broker.state.metadata.image import partition_epoch_error
from kstore.broker.state.work import Work, each, each_work
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kstore.protocol.groups.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kstore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from kstore.broker.api import RequestContext
    from kstore.broker.api.groups.parts import GroupParts
    from kstore.broker.runtime.groups.partition_lookup import PartitionLookup
    from kstore.broker.state.metadata.image import TopicImage
    from kstore.protocol.schema import Message

__all__ = ["handle_offset_commit", "handle_offset_delete", "handle_offset_fetch"]

FIRST_COMMIT_VERSION_WITH_TOPIC_IDS = 10
FIRST_FETCH_VERSION_WITH_TOP_LEVEL_ERROR = 2
FIRST_FETCH_VERSION_WITH_GROUPS = 8
FIRST_FETCH_VERSION_WITH_TOPIC_IDS = 10
INVALID_OFFSET = -1
NO_EPOCH = -1


def handle_offset_commit(
    broker: GroupParts, request: OffsetCommitRequest, ctx: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit the offsets of partitions that exist."""
    known, unknown = _split_by_existence(broker, request, ctx.api_version)
    group_id, lookup = request.group_id, broker.partition_lookup
    if group_id and lookup is not None and (unknown or waiting_commits(lookup, group_id)):
        line = lookup().line(group_id)
        return _commit_what_is_heard_of(broker, lookup(), line, request, ctx)
    return _commit(broker, request, ctx, known, unknown)


async def _commit_what_is_heard_of(
    broker: GroupParts,
    lookup: PartitionLookup,
    line: AbstractAsyncContextManager[None],
    request: OffsetCommitRequest,
    ctx: RequestContext,
) -> OffsetCommitResponse:
    """Commit once this broker knows the partitions. Only the group's coordinator may answer that a
    partition does not exist, and only if that is certain, since the client may know a partition
    earlier than this broker.
    """
    try:
        async with line:
            broker.groups().find(request.group_id).check()
            known_all = await lookup.await_known(_named(request, ctx.api_version))
            error_code = None if known_all else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            known, unknown = _split_by_existence(broker, request, ctx.api_version, error_code)
            answer = _commit(broker, request, ctx, known, unknown)
    except KafkaError as error:
        return offset_commit_failure(request, error.code)
    except TimeoutError:
        return offset_commit_failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    # The order is fixed now: later commits do not wait until the followers have this one.
    return await answer if isinstance(answer, Awaitable) else answer


def _named(request: OffsetCommitRequest, api_version: int) -> list[NamedPartition]:
    by_id = api_version >= FIRST_COMMIT_VERSION_WITH_TOPIC_IDS
    return [
        NamedPartition(topic.name, topic.topic_id if by_id else ZERO_UUID, row.partition_index)
        for topic in request.topics
        for row in topic.partitions
    ]


def _commit(
    broker: GroupParts,
    request: OffsetCommitRequest,
    ctx: RequestContext,
    known: list[OffsetCommitRequestTopic],
    unknown: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit the offsets of the known partitions. The response also has the other partitions."""
    if not known:
        return OffsetCommitResponse(topics=unknown)
    request = request.replaced(topics=known)
    committed = partial(_committed, request=request, unknown=unknown)
    try:
        answer = broker.groups().answer(request.group_id, request, ctx)
    except KafkaError as error:
        return committed(error)
    return converted(answer, committed)


def _committed(
    answer: Message | KafkaError,
    request: OffsetCommitRequest,
    unknown: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    if isinstance(answer, KafkaError):
        answer = offset_commit_failure(request, answer.code)
    return _with_unknown(cast(OffsetCommitResponse, answer), unknown)


def _with_unknown(
    response: OffsetCommitResponse, unknown: list[OffsetCommitResponseTopic]
) -> OffsetCommitResponse:
    """The response with one entry for each topic."""
    if unknown or len(response.topics) > 1:
        return OffsetCommitResponse(topics=_merged(unknown, response.topics))
    return response


def _split_by_existence(
    broker: GroupParts,
    request: OffsetCommitRequest,
    api_version: int,
    error_code: int | None = None,
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """Return the topics to commit, with their names and ids filled in, and the response's rows for
    all other partitions.
    """
    by_id = api_version >= FIRST_COMMIT_VERSION_WITH_TOPIC_IDS
    known: list[OffsetCommitRequestTopic] = []
    unknown: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        image = broker.image.topic_by_id(topic.topic_id) if by_id else None
        if not by_id:
            image = broker.image.topics.get(topic.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name, topic_id, count = topic.name, topic.topic_id, 0
        if image is not None:
            name, topic_id, count = image.name, image.topic_id, len(image.partitions)
        elif by_id:
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        there = [part for part in topic.partitions if 0 <= part.partition_index < count]
        if there:
            known.append(topic.replaced(name=name, topic_id=topic_id, partitions=there))
        if len(there) < len(topic.partitions):
            refused = [
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=missing if error_code is None else error_code,
                )
                for partition in topic.partitions
                if not 0 <= partition.partition_index < count
            ]
            unknown.append(
                OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=refused)
            )
    return known, unknown


def _merged(
    first: list[OffsetCommitResponseTopic], second: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """Merge entries of the same topic."""
    topics: dict[tuple[str, UUID], OffsetCommitResponseTopic] = {}
    for topic in (*first, *second):
        present = topics.setdefault((topic.name, topic.topic_id), topic)
        if present is not topic:
            present.partitions += topic.partitions
    return list(topics.values())


async def handle_offset_fetch(
    broker: GroupParts, request: OffsetFetchRequest, ctx: RequestContext
) -> OffsetFetchResponse:
    """Return the committed offsets of one group, or since version 8 of several groups."""
    if ctx.api_version >= FIRST_FETCH_VERSION_WITH_GROUPS:
        fetched = [
            await _fetch_group(broker, group, request.require_stable, ctx)
            for group in request.groups
        ]
        return OffsetFetchResponse(groups=fetched)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(
                name=topic.name,
                partition_indexes=topic.partition_indexes,
                partition_epochs=topic.partition_epochs,
            )
            for topic in request.topics
        ]
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    response = await _fetch_group(broker, group, request.require_stable, ctx)
    if (
        response.error_code != ErrorCode.NONE
        and ctx.api_version < FIRST_FETCH_VERSION_WITH_TOP_LEVEL_ERROR
    ):
        response.topics = [_refused_topic(topic, response.error_code) for topic in topics or []]
    return OffsetFetchResponse(
        error_code=response.error_code,
        topics=await Slices().do(each_work(_old_topic, response.topics)),
    )


async def _fetch_group(
    broker: GroupParts, group: OffsetFetchRequestGroup, require_stable: bool, ctx: RequestContext
) -> OffsetFetchResponseGroup:
    if not allowed(broker, ctx, AclOperation.DESCRIBE, AclResourceType.GROUP, group.group_id):
        return OffsetFetchResponseGroup(
            group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
        )
    by_id = ctx.api_version >= FIRST_FETCH_VERSION_WITH_TOPIC_IDS
    refused: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        known = []
        for requested in group.topics:
            topic = requested
            image = broker.image.topics.get(topic.name)
            if by_id:
                image = broker.image.topic_by_id(topic.topic_id)
            if image is not None:
                topic = requested.replaced(name=image.name, topic_id=image.topic_id)
            if not (image is None and by_id) and not _is_shown(broker, ctx, topic.name):
                refused.append(_denied_topic(topic, by_id=by_id))
            elif image is None and by_id:
                refused.append(_refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                known.append(topic)
        group = group.replaced(topics=known)
    with_epochs = any(topic.partition_epochs for topic in group.topics or ())
    try:
        response = await broker.groups().read(
            group.group_id,
            lambda shard: shard.fetch_offsets(
                group,
                require_stable=require_stable,
                with_epochs=ctx.extended or with_epochs,
                image=broker.image,
            ),
        )
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    if with_epochs:
        answers = {row.name: row.partitions for row in response.topics}
        for topic in group.topics or ():
            image = broker.image.topics.get(topic.name)
            _leave_other_lives(image, topic, answers.get(topic.name, []))
    if group.topics is None:
        response.topics = [row for row in response.topics if _is_shown(broker, ctx, row.name)]
        if by_id:
            _add_topic_ids(broker, response)
    response.topics += refused
    return response


def _leave_other_lives(
    image: TopicImage | None,
    requested: OffsetFetchRequestTopics,
    rows: list[OffsetFetchResponsePartitions],
) -> None:
    """Remove offsets from a response that are not of the partition with the request's partition
    epoch (KIP-232). If another partition has the name now, the result is an error. If the commit is
    of an earlier partition and not deleted yet, there is no offset.
    """
    wanted = dict(zip(requested.partition_indexes, requested.partition_epochs, strict=False))
    partitions = () if image is None else image.partitions
    for row in rows:
        index, epoch = row.partition_index, wanted.get(row.partition_index, NO_EPOCH)
        known = partitions[index].partition_epoch if 0 <= index < len(partitions) else NO_EPOCH
        of_commit = partition_epoch_error(epoch, row.partition_epoch)
        code = partition_epoch_error(epoch, known)
        if code == of_commit == ErrorCode.NONE:
            continue
        if of_commit == ErrorCode.INVALID_PARTITION_EPOCH:
            code = of_commit  # the commit has a newer partition epoch than this broker knows
        row.error_code = row.error_code or code
        row.committed_offset, row.metadata = INVALID_OFFSET, ""
        row.committed_leader_epoch = row.partition_epoch = NO_EPOCH


def _add_topic_ids(broker: GroupParts, response: OffsetFetchResponseGroup) -> None:
    """Set the ids of all topics. This version cannot return offsets of deleted topics."""
    kept = []
    for topic in response.topics:
        image = broker.image.topics.get(topic.name)
        if image is not None:
            topic.topic_id = image.topic_id
            kept.append(topic)
    response.topics = kept


def _is_shown(broker: GroupParts, ctx: RequestContext, topic: str) -> bool:
    return allowed(broker, ctx, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def _denied_topic(topic: OffsetFetchRequestTopics, *, by_id: bool) -> OffsetFetchResponseTopics:
    """The response for a topic that the client may not describe. It does not reveal the name of an
    id.
    """
    row = _refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if by_id:
        row.name = ""
    return row


def _refused_topic(topic: OffsetFetchRequestTopics, error_code: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=INVALID_OFFSET, error_code=error_code
            )
            for index in topic.partition_indexes
        ],
    )


def _old_topic(topic: OffsetFetchResponseTopics) -> Work[OffsetFetchResponseTopic]:
    """The form of versions 1 to 7."""
    partitions = yield from each(_old_partition, topic.partitions)
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


def _old_partition(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
        partition_epoch=partition.partition_epoch,
    )


def handle_offset_delete(
    broker: GroupParts, request: OffsetDeleteRequest, ctx: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    """Delete committed offsets of topics that the group does not consume. Like a commit, this takes
    effect at once: it deletes earlier commits of the same connection, but not later ones.
    """
    return behind_commits(
        broker.partition_lookup, request.group_id, lambda: _delete(broker, request, ctx)
    )


def _delete(
    broker: GroupParts, request: OffsetDeleteRequest, ctx: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    known: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        image = broker.image.topics.get(topic.name)
        count = 0 if image is None else len(image.partitions)
        missing = [
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for partition in topic.partitions
            if not 0 <= partition.partition_index < count
        ]
        if missing:
            refused[topic.name] = OffsetDeleteResponseTopic(name=topic.name, partitions=missing)
        there = [part for part in topic.partitions if 0 <= part.partition_index < count]
        if there:
            known.append(topic.replaced(partitions=there))
    request = request.replaced(topics=known)
    deleted = partial(_deleted, refused=refused)
    try:
        answer = broker.groups().answer(request.group_id, request, ctx)
    except KafkaError as error:
        return deleted(error)
    return converted(answer, deleted)


def _deleted(
    answer: Message | KafkaError, refused: dict[str, OffsetDeleteResponseTopic]
) -> OffsetDeleteResponse:
    if isinstance(answer, KafkaError):
        return OffsetDeleteResponse(error_code=answer.code)
    return _with_refused(cast(OffsetDeleteResponse, answer), refused)


def _with_refused(
    response: OffsetDeleteResponse, refused: dict[str, OffsetDeleteResponseTopic]
) -> OffsetDeleteResponse:
    """The response with one entry for each topic."""
    if response.error_code == ErrorCode.NONE:
        for deleted in response.topics:
            present = refused.setdefault(deleted.name, deleted)
            if present is not deleted:
                present.partitions += deleted.partitions
        response.topics = list(refused.values())
    return response
