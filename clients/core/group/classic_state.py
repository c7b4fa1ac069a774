"""Where a member of a classic group is in the protocol, and which errors have it join again."""

from __future__ import annotations

from enum import Enum

from kstore.errors import ErrorCode

__all__ = ["HEARTBEATING", "REJOIN", "ClassicState"]

REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}


class ClassicState(Enum):
    """Where a member is in the protocol."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    """The user gives up partitions before the member joins."""
    READY = "ready"
    """Prepared; JoinGroup is sent as soon as it may be."""
    JOINING = "joining"
    ASSIGNING = "assigning"
    """The leader waits for metadata of the group's topics."""
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    """The user gives up partitions before the member leaves."""
    FAILED = "failed"
    """Something that only the user can put right; a new subscription tries again."""


HEARTBEATING = {
    ClassicState.PREPARING,
    ClassicState.READY,
    ClassicState.ASSIGNING,
    ClassicState.SYNCING,
    ClassicState.STABLE,
}
