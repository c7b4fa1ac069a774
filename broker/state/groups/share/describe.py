"""ShareGroupDescribe."""

from __future__ import annotations

from kstore.broker.state.groups.contract import Group, absence
from kstore.broker.state.groups.share.assignor import ASSIGNOR
from kstore.broker.state.groups.share.group import SHARE_KIND, ShareGroup
from kstore.broker.state.groups.share.member import Member
from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.shares.describe import (
    DescribedGroup,
    ShareGroupDescribeResponseAssignment,
    ShareGroupDescribeResponseTopicPartitions,
)
from kstore.protocol.shares.describe import Member as DescribedMember

__all__ = ["describe_share_group"]


def describe_share_group(
    group: Group | None, group_id: str, image: MetadataImage
) -> Work[DescribedGroup]:
    """Epochs, members and their assignments. Deleted topics are left out."""
    if not isinstance(group, ShareGroup):
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=absence(group, group_id, SHARE_KIND),
        )
    members = []
    for member in group.members.values():
        members.append(_described(member, image))
        yield
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=members,
    )


def _described(member: Member, image: MetadataImage) -> DescribedMember:
    topics = ((image.topic_by_id(key), indexes) for key, indexes in member.assigned.items())
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=ShareGroupDescribeResponseAssignment(
            topic_partitions=[
                ShareGroupDescribeResponseTopicPartitions(
                    topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(indexes)
                )
                for topic, indexes in topics
                if topic is not None
            ]
        ),
    )
