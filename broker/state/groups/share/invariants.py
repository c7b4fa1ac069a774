"""The invariants of a share group after every step (KIP-932). They are checked in all test runs,
and if ``kstore.check.invariants`` is set.
"""

from __future__ import annotations

from collections import Counter

from kstore.broker.state.groups.share.group import ShareGroup

__all__ = ["check"]


def check(group: ShareGroup) -> None:
    """Check that member epoch <= target assignment epoch <= group epoch, that targets belong to
    members, that the indexes agree with the members, and that the state of a share-partition is in
    one stage. Raises AssertionError.
    """
    assert group.assignment_epoch <= group.epoch, (group.group_id, group.assignment_epoch)
    for member in group.members.values():
        assert member.previous_epoch <= member.epoch <= group.assignment_epoch, member
    assert set(group.target) <= set(group.members), (group.group_id, set(group.target))
    topics = Counter(topic for member in group.members.values() for topic in member.topics)
    assert topics == group.topic_counts, (group.group_id, topics, group.topic_counts)
    states = group.states
    for stage in (states.initializing, states.initialized):
        assert all(topic.partitions for topic in stage.values()), stage
        assert not states.deleting.keys() & stage.keys(), states
