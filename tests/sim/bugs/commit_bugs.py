"""The planted bugs that refuse the commits of owners, or forget them."""

from __future__ import annotations

from typing import Any

import kstore.broker.runtime.groups.group_partition as group_partition
import kstore.broker.state.groups.offsets as offsets
from kstore.broker.state.groups.classic.group import PREPARING_REBALANCE, ClassicGroup
from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.streams.group import StreamsGroup
from kstore.errors import ErrorCode
from tests.sim.bugs.planting import bug

CHURN = "--faults none --seconds 100 --workloads produce,churn"


@bug(
    "only-the-present-epoch-of-tasks",
    "owners_commit",
    CHURN,
    "the same in the streams protocol",
    (StreamsGroup, "partition_commit_error"),
)
@bug("only-the-present-epoch", "owners_commit", CHURN,
     "an owner's commit is refused while its member moves to another epoch (KAFKA-19779)",
     (ConsumerGroup, "partition_commit_error"))  # fmt: skip
def only_the_present_epoch(was: Any, self: Any, claim: Any, *_place: Any) -> int:
    member = self.members.get(claim.member_id)
    name = "member_epoch" if isinstance(self, StreamsGroup) else "epoch"
    late = member is not None and claim.epoch != getattr(member, name)
    return ErrorCode.STALE_MEMBER_EPOCH if late else ErrorCode.NONE


@bug("only-while-stable", "owners_commit", CHURN,
     "a classic group refuses the commits that members make before they join again",
     (ClassicGroup, "commit_error"))  # fmt: skip
def only_while_stable(was: Any, self: Any, claim: Any) -> int:
    if self.state == PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return was(self, claim)


@bug("lost-commits", "commits", "--faults kill --workloads produce,group",
     "some commits are passed over when a coordinator loads",
     (group_partition.GroupPartition, "_replay"))  # fmt: skip
def lost_commits(was: Any, self: Any, record: Any) -> Any:
    key = record.key
    is_commit = key is not None and not record.batch.is_control and key[:2] in (b"\0\0", b"\0\1")
    return None if is_commit and record.offset % 3 == 0 else was(self, record)


@bug("offsets-of-aborted", "exactly_once", "--faults reset --seconds 5 --workloads produce,copy",
     "an aborted transaction's offsets are taken over",
     (offsets.Offsets, "replay_transaction_end"))  # fmt: skip
def offsets_of_aborted(was: Any, self: Any, producer_id: int, *, committed: bool) -> Any:
    return was(self, producer_id, committed=True)
