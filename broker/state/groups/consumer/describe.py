"""ConsumerGroupDescribe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from uuid import UUID

from kstore.broker.state.groups.consumer.group import CONSUMER_KIND, ConsumerGroup
from kstore.broker.state.groups.consumer.member import Member
from kstore.broker.state.groups.contract import Group, absence
from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.consumer_groups import (
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseTopicPartitions,
    DescribedGroup,
)
from kstore.protocol.groups.consumer_groups import Member as DescribedMember

__all__ = ["describe_consumer_group"]

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe_consumer_group(
    group: Group | None, group_id: str, image: MetadataImage, default_assignor: str
) -> Work[DescribedGroup]:
    """Epochs, members, assignments and targets. Deleted topics are left out."""
    if not isinstance(group, ConsumerGroup):
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=absence(group, group_id, CONSUMER_KIND),
        )
    named = Counter(member.assignor for member in group.members.values() if member.assignor)
    members = []
    for member in group.members.values():
        members.append(_described(group, member, image))
        yield
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=named.most_common(1)[0][0] if named else default_assignor,
        members=members,
    )


def _described(group: ConsumerGroup, member: Member, image: MetadataImage) -> DescribedMember:
    # Partitions that the member has not given up yet are still assigned to it.
    owned: dict[UUID, list[int]] = {}
    for part in (member.assigned, member.revoking):
        for topic_id, partitions in part.items():
            owned.setdefault(topic_id, []).extend(partitions)
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(owned, image),
        target_assignment=_assignment(group.target_of(member.member_id), image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(
    partitions: Mapping[UUID, Collection[int]], image: MetadataImage
) -> ConsumerGroupDescribeResponseAssignment:
    topics = ((image.topic_by_id(topic_id), indexes) for topic_id, indexes in partitions.items())
    return ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(indexes)
            )
            for topic, indexes in topics
            if topic is not None
        ]
    )
