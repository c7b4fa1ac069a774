"""A GroupDriver for share groups, with a share coordinator that executes requests at once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kstore.broker.state.groups.share.group import ShareGroup
from kstore.broker.state.groups.timers import ShareStatesInitialized
from tests.plain_messages import Ask
from tests.reference.group_driver import GroupDriver


class ShareDriver(GroupDriver):
    """Heartbeats of members of the group ``g``; the default assignment interval is 0."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.group_configs["share.assignment.interval.ms"] = 0

    @property
    def group(self) -> ShareGroup:
        group = self.shard.groups["g"]
        assert isinstance(group, ShareGroup), group
        return group

    def enter(self, member_id: str, *topics: str, **fields: Any) -> Any:
        return self.beat(member_id, 0, subscribed_topic_names=list(topics), **fields)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        return self.send(
            Ask.ShareGroupHeartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        )

    def initialized(self, *, failed: frozenset[int] = frozenset()) -> None:
        """The share coordinator has initialized what waits, except the partitions ``failed``."""
        waiting = self.group.states.initializing
        done = {key: topic.partitions - failed for key, topic in waiting.items()}
        bad = {key: topic.partitions & failed for key, topic in waiting.items()}
        self.tell(ShareStatesInitialized("g", done, bad))

    def settle(self, *member_ids: str) -> dict[str, dict[UUID, list[int]]]:
        """Let members beat until nothing changes; what each has."""
        self.initialized()
        for _ in range(3):
            for member_id in member_ids:
                self.beat(member_id, self.group.members[member_id].epoch)
        return {
            member_id: {key: sorted(parts) for key, parts in member.assigned.items()}
            for member_id, member in self.group.members.items()
        }


def assigned_of(response: Any) -> dict[UUID, list[int]]:
    """What a heartbeat's answer assigns."""
    return {row.topic_id: list(row.partitions) for row in response.assignment.topic_partitions}
