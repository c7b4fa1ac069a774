"""The states of a member of a classic group, and the errors that make it rejoin."""

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
    """The state of a member in the protocol."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    """The user gives up partitions before the member joins."""
    READY = "ready"
    """Ready to join; JoinGroup is sent as soon as allowed."""
    JOINING = "joining"
    ASSIGNING = "assigning"
    """The leader waits for metadata of the group's topics."""
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    """The user gives up partitions before the member leaves."""
    FAILED = "failed"
    """A fatal error that only the user can fix; a new subscription tries again."""


HEARTBEATING = {
    ClassicState.PREPARING,
    ClassicState.READY,
    ClassicState.ASSIGNING,
    ClassicState.SYNCING,
    ClassicState.STABLE,
}
