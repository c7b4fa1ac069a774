"""The stages of the share-partitions' state of a share group (KIP-932): what administrators ask to
initialize or delete, and what the share coordinator has done. runtime/groups/share_states.py sends
the requests to the share coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kstore.broker.state.groups.contract import Group, ShardState, absence
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.share.group import SHARE_KIND, ShareGroup
from kstore.broker.state.groups.share.states import (
    NO_STATES,
    Partitions,
    TopicStates,
    states_record,
)
from kstore.broker.state.groups.timers import (
    ShareStatesDeleted,
    ShareStatesDeleting,
    ShareStatesInitialized,
)
from kstore.broker.state.metadata.image import PartitionImage, partition_epoch_error
from kstore.errors import ErrorCode
from kstore.protocol.schema import ZERO_UUID
from kstore.protocol.shares.offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

__all__ = [
    "alter_offsets",
    "delete_offsets",
    "follow_deleted",
    "follow_deleting",
    "follow_initialized",
    "forget_topic",
]

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _problem(group: Group | None, group_id: str, *, may_be_new: bool) -> tuple[int, str] | None:
    """Why the offsets of a group cannot be changed: error and message."""
    if group is None and may_be_new:
        return None
    if not isinstance(group, ShareGroup):
        return ErrorCode.GROUP_ID_NOT_FOUND, absence(group, group_id, SHARE_KIND)
    if group.members:
        text = f"Group {group_id} has {len(group.members)} members: stop them first."
        return ErrorCode.NON_EMPTY_GROUP, text
    return None


def alter_offsets(
    shard: ShardState,
    group: Group | None,
    request: AlterShareGroupOffsetsRequest,
    ctx: GroupContext,
) -> Result:
    """Note that the partitions are being initialized. Invalid ones get an error."""
    problem = _problem(group, request.group_id, may_be_new=True)
    if problem is not None:
        return Result(
            AlterShareGroupOffsetsResponse(error_code=problem[0], error_message=problem[1])
        )
    states = group.states if isinstance(group, ShareGroup) else NO_STATES
    added: dict[UUID, TopicStates] = {}
    responses = []
    for topic in request.topics:
        image = ctx.topics.topics.get(topic.topic_name)
        topic_id = ZERO_UUID if image is None else image.topic_id
        answer = _altered(topic, topic_id, () if image is None else image.partitions)
        fine = frozenset(
            row.partition_index for row in answer.partitions if row.error_code == ErrorCode.NONE
        )
        if fine:
            before = added[topic_id].partitions if topic_id in added else frozenset()
            added[topic_id] = TopicStates(topic.topic_name, fine | before)
        responses.append(answer)
    records: tuple[GroupRecord, ...] = ()
    if added:
        changed = states.without_deleting(added).with_initializing(added)
        records = (states_record(request.group_id, changed),)
    return Result(AlterShareGroupOffsetsResponse(responses=responses), records)


def _altered(
    topic: AlterShareGroupOffsetsRequestTopic,
    topic_id: UUID,
    partitions: Sequence[PartitionImage],
) -> AlterShareGroupOffsetsResponseTopic:
    """The response for one topic with these partitions."""
    answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id)
    for requested in topic.partitions:
        row = AlterShareGroupOffsetsResponsePartition(partition_index=requested.partition_index)
        if not 0 <= requested.partition_index < len(partitions):
            row.error_code = UNKNOWN
            row.error_message = f"There is no {topic.topic_name}-{requested.partition_index}."
        else:
            known = partitions[requested.partition_index].partition_epoch
            row.error_code = partition_epoch_error(requested.partition_epoch, known)
            if row.error_code != ErrorCode.NONE:
                row.error_message = (
                    f"The offset belongs to another topic called {topic.topic_name}."
                )
        answer.partitions.append(row)
    return answer


def delete_offsets(
    shard: ShardState,
    group: Group | None,
    request: DeleteShareGroupOffsetsRequest,
    ctx: GroupContext,
) -> Result:
    """Note that the state of the topics is being deleted. Invalid ones get an error."""
    problem = _problem(group, request.group_id, may_be_new=False)
    if problem is not None:
        return Result(
            DeleteShareGroupOffsetsResponse(error_code=problem[0], error_message=problem[1])
        )
    assert isinstance(group, ShareGroup)
    states = group.states
    deleting: dict[UUID, str] = {}
    responses = []
    for topic in request.topics:
        answer = DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        image = ctx.topics.topics.get(topic.topic_name)
        if image is None:
            answer.error_code = UNKNOWN
            answer.error_message = f"There is no topic {topic.topic_name}."
        elif not any(image.topic_id in stage for stage in states):
            answer.error_code = UNKNOWN
            answer.error_message = f"The group has no offsets of topic {topic.topic_name}."
        else:
            answer.topic_id = image.topic_id
            deleting[image.topic_id] = topic.topic_name
        responses.append(answer)
    result = _deleting(group, deleting)
    return result._replace(response=DeleteShareGroupOffsetsResponse(responses=responses))


def _deleting(group: ShareGroup, topics: Mapping[UUID, str]) -> Result:
    if not topics:
        return Result()
    record = states_record(group.group_id, group.states.with_deleting(topics))
    deletions = group.deletions | topics.keys()
    return Result(records=(record,), marks=((group.group_id, "deletions", deletions),))


def follow_deleting(
    shard: ShardState, group: ShareGroup, event: ShareStatesDeleting, ctx: GroupContext
) -> Result:
    """Note that all state of a group without members is being deleted, because the group will be
    deleted.
    """
    if group.members:
        return Result()
    states = group.states
    topics = dict(states.deleting)
    for stage in (states.initializing, states.initialized):
        topics.update((topic_id, topic.name) for topic_id, topic in stage.items())
    return _deleting(group, topics)


def follow_deleted(
    shard: ShardState, group: ShareGroup, event: ShareStatesDeleted, ctx: GroupContext
) -> Result:
    """Note that the state of topics is deleted, or that this has failed. Then another request must
    repeat it.
    """
    marks = ((group.group_id, "deletions", group.deletions - event.tried),)
    gone = event.deleted & group.states.deleting.keys()
    if not gone:
        return Result(marks=marks)
    record = states_record(group.group_id, group.states.without_deleting(gone))
    return Result(records=(record,), marks=marks)


def follow_initialized(
    shard: ShardState, group: ShareGroup, event: ShareStatesInitialized, ctx: GroupContext
) -> Result:
    """Note that partitions are initialized, or that this has failed. Then the next heartbeat
    repeats it. Partitions that are no longer being initialized were deleted meanwhile.
    """
    states = group.states
    states = states.with_initialized(_of(states.initializing, event.initialized))
    states = states.without_initializing(_of(states.initializing, event.failed))
    if states == group.states:
        return Result()
    return Result(records=(states_record(group.group_id, states),))


def _of(stage: Mapping[UUID, TopicStates], done: Partitions) -> dict[UUID, TopicStates]:
    """The part of ``done`` that is in a stage."""
    found = {}
    for topic_id, partitions in done.items():
        topic = stage.get(topic_id)
        if topic is not None and partitions & topic.partitions:
            found[topic_id] = TopicStates(topic.name, partitions & topic.partitions)
    return found


def forget_topic(group: ShareGroup, name: str) -> Result:
    """Forget the partitions of a deleted topic."""
    states = group.states
    gone = {
        topic_id: name
        for stage in (states.initializing, states.initialized)
        for topic_id, topic in stage.items()
        if topic.name == name
    }
    gone.update((key, name) for key, each in states.deleting.items() if each == name)
    if not gone:
        return Result()
    left = states.with_deleting(gone).without_deleting(gone)
    return Result(records=(states_record(group.group_id, left),))
