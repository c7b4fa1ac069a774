"""The planted bugs that refuse commits to owners, which mutations.py lists: one for each protocol
of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kstore.broker.state.groups.classic.group as classic_group
import kstore.broker.state.groups.consumer.group as consumer_group
import kstore.broker.state.groups.streams.group as streams_group
from kstore.broker.state.groups.classic.group import PREPARING_REBALANCE
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from tests.sim.mutations import Put


def only_the_present_epoch(put: Put) -> None:
    def strict(self: Any, claim: Any, *_place: Any) -> int:
        member = self.members.get(claim.member_id)
        late = member is not None and claim.epoch != member.epoch
        return ErrorCode.STALE_MEMBER_EPOCH if late else ErrorCode.NONE

    put(consumer_group.ConsumerGroup, "partition_commit_error", strict)


def only_the_present_epoch_of_tasks(put: Put) -> None:
    def strict(self: Any, claim: Any, *_place: Any) -> int:
        member = self.members.get(claim.member_id)
        late = member is not None and claim.epoch != member.member_epoch
        return ErrorCode.STALE_MEMBER_EPOCH if late else ErrorCode.NONE

    put(streams_group.StreamsGroup, "partition_commit_error", strict)


def only_while_stable(put: Put) -> None:
    commit_error = classic_group.ClassicGroup.commit_error

    def strict(self: Any, claim: Any) -> int:
        if self.state == PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return commit_error(self, claim)

    put(classic_group.ClassicGroup, "commit_error", strict)
