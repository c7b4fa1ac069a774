"""The invariants of a consumer group after every step (KAFKA-19779, KIP-848). They are checked in
all test runs, and if ``kstore.check.invariants`` is set; for large groups that is too slow
otherwise.
"""

from __future__ import annotations

from uuid import UUID

from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.consumer.member import STATIC_LEFT_EPOCH, Member
from kstore.broker.state.groups.consumer.subscriptions import Subscriptions

__all__ = ["check"]


def check(group: ConsumerGroup) -> None:
    """Check that assignment epoch <= member epoch <= target assignment epoch <= group epoch, that a
    partition has one owner, and that the indexes agree with the members. Raises AssertionError.
    """
    assert group.assignment_epoch <= group.epoch, (group.group_id, group.assignment_epoch)
    owners: dict[tuple[UUID, int], str] = {}
    for member in group.members.values():
        if member.epoch != STATIC_LEFT_EPOCH:
            assert member.epoch <= group.assignment_epoch, member
        _check_partitions(member, owners)
    epochs = {place: group.members[owner].epoch for place, owner in owners.items()}
    assert epochs == group.owned, (group.group_id, epochs, group.owned)
    static = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
    assert static == group.static_members, (group.group_id, static)
    subscription = Subscriptions().after((), group.members.values())
    assert subscription == group.subscriptions, (group.group_id, subscription, group.subscriptions)
    assert set(group.target) <= set(group.members), (group.group_id, set(group.target))


def _check_partitions(member: Member, owners: dict[tuple[UUID, int], str]) -> None:
    """Check the partitions of members. A static member that has left has epoch -2, and its
    partitions have epoch 0.
    """
    for part in (member.assigned, member.revoking):
        for topic_id, epochs in part.items():
            for partition, epoch in epochs.items():
                assert epoch <= max(member.epoch, 0), (member, topic_id, partition)
                other = owners.setdefault((topic_id, partition), member.member_id)
                assert other == member.member_id, (other, member, topic_id, partition)
