"""The `range` assignor divides every topic into one range per subscriber. The order of members is
the same for all topics, so topics with equal subscribers and partition counts are co-partitioned.

Static members come first, sorted by instance id. They keep their place when they return with
another member id.
"""

from __future__ import annotations

from uuid import UUID

from kstore.broker.state.groups.consumer.assignor_spec import Assignments, GroupSpec
from kstore.broker.state.work import Work

__all__ = ["assign_range"]


def assign_range(spec: GroupSpec) -> Work[Assignments]:
    """Assign to each member its range of each of its topics. The first members get one partition
    more.
    """

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = spec.members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    assigned: Assignments = {member_id: {} for member_id in sorted(spec.members, key=place)}
    subscribers: dict[UUID, list[str]] = {}
    for member_id in assigned:
        for topic_id in spec.members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
        yield
    for topic_id, member_ids in subscribers.items():
        least, extra = divmod(spec.partitions[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + least + (index < extra)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
        yield
    return assigned
