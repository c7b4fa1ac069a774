"""The timers of groups of all kinds: what fires, for whom, and by which key. Nothing runs here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

__all__ = [
    "HeartbeatExpired",
    "InitialRebalanceExpired",
    "JoinExpired",
    "RebalanceExpired",
    "RegexesDue",
    "SessionExpired",
    "ShareStatesDeleted",
    "ShareStatesDeleting",
    "ShareStatesInitialized",
    "StreamsDelayExpired",
    "SyncExpired",
    "TimerChange",
    "TimerEvent",
    "TimerKey",
    "has_passed",
    "heartbeat_key",
    "join_key",
    "sync_key",
]

TimerKey: TypeAlias = tuple[str, ...]


class HeartbeatExpired(NamedTuple):
    """The member was not heard of for its session timeout."""

    group_id: str
    member_id: str


class InitialRebalanceExpired(NamedTuple):
    """A new group's delay is over; for ``remaining_ms`` more members may be waited for."""

    group_id: str
    delay_ms: int
    remaining_ms: int


class JoinExpired(NamedTuple):
    """The rebalance timeout is over: go on with the members that joined."""

    group_id: str


class SyncExpired(NamedTuple):
    """The rebalance timeout is over for members of ``generation_id`` that did not sync."""

    group_id: str
    generation_id: int


class SessionExpired(NamedTuple):
    """A member of a consumer, share or streams group was not heard of for its session timeout."""

    group_id: str
    member_id: str


class RebalanceExpired(NamedTuple):
    """A member of a consumer group did not give up its partitions in time, or, a classic one, did
    not join or sync in time. It matters only in ``member_epoch``, if that is not -1.
    """

    group_id: str
    member_id: str
    member_epoch: int = -1


class RegexesDue(NamedTuple):
    """A consumer group's regular expressions are to be resolved."""

    group_id: str


class StreamsDelayExpired(NamedTuple):
    """The initial rebalance delay of a streams group is over."""

    group_id: str


class ShareStatesInitialized(NamedTuple):
    """The share coordinator has initialized the state of some partitions of a share group, by topic
    id, and could not initialize others. No timer: whoever asked it tells the group.
    """

    group_id: str
    initialized: Mapping[UUID, frozenset[int]]
    failed: Mapping[UUID, frozenset[int]]


class ShareStatesDeleting(NamedTuple):
    """All state of a share group is going to be deleted, before the group is. No timer, either."""

    group_id: str


class ShareStatesDeleted(NamedTuple):
    """The share coordinator was asked to delete the state of some topics, and has done so of these.
    No timer, either.
    """

    group_id: str
    tried: frozenset[UUID]
    deleted: frozenset[UUID]


TimerEvent: TypeAlias = (
    HeartbeatExpired
    | InitialRebalanceExpired
    | JoinExpired
    | SyncExpired
    | SessionExpired
    | RebalanceExpired
    | RegexesDue
    | StreamsDelayExpired
    | ShareStatesInitialized
    | ShareStatesDeleting
    | ShareStatesDeleted
)


class TimerChange(NamedTuple):
    """Set the timer ``key`` to fire ``event`` after ``delay_ms``, replacing it; cancel it if there
    is no event.
    """

    key: TimerKey
    delay_ms: int
    event: TimerEvent | None
    only_if_absent: bool = False
    """Leave a timer of this key that is set already."""


def heartbeat_key(group_id: str, member_id: str) -> TimerKey:
    """The timer of a member's session."""
    return ("heartbeat", group_id, member_id)


def join_key(group_id: str) -> TimerKey:
    """The timer of a group's join phase."""
    return ("join", group_id)


def sync_key(group_id: str) -> TimerKey:
    """The timer of a group's sync phase."""
    return ("sync", group_id)


def has_passed(interval_ms: int, since_ms: int, now_ms: int) -> bool:
    """Whether an interval is over, by the wall clock. It also is if ``since_ms`` has yet to come:
    the clock was set back, or the broker that noted it is ahead, and nobody waits for that long.
    """
    return not since_ms <= now_ms < since_ms + interval_ms
