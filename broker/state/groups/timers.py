"""The timers of groups of all kinds: events, groups and keys. Other code runs them."""

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
    """A member sent no request for its session timeout."""

    group_id: str
    member_id: str


class InitialRebalanceExpired(NamedTuple):
    """A new group's initial delay is over. It may wait ``remaining_ms`` longer for more members."""

    group_id: str
    delay_ms: int
    remaining_ms: int


class JoinExpired(NamedTuple):
    """The rebalance timeout is over: continue with the members that have joined."""

    group_id: str


class SyncExpired(NamedTuple):
    """The rebalance timeout is over for members of ``generation_id`` that did not sync."""

    group_id: str
    generation_id: int


class SessionExpired(NamedTuple):
    """A member of a consumer, share or streams group sent no request for its session timeout."""

    group_id: str
    member_id: str


class RebalanceExpired(NamedTuple):
    """A member of a consumer group did not give up its partitions in time, or a member with the
    classic protocol did not join or sync in time. The event applies only in ``member_epoch``,
    unless that is -1.
    """

    group_id: str
    member_id: str
    member_epoch: int = -1


class RegexesDue(NamedTuple):
    """A consumer group's regular expressions must be resolved."""

    group_id: str


class StreamsDelayExpired(NamedTuple):
    """The initial rebalance delay of a streams group is over."""

    group_id: str


class ShareStatesInitialized(NamedTuple):
    """The share coordinator has initialized the state of some partitions of a share group, by topic
    id, and has failed for others. This is not a timer: ShareGroupStates passes the event to the
    group.
    """

    group_id: str
    initialized: Mapping[UUID, frozenset[int]]
    failed: Mapping[UUID, frozenset[int]]


class ShareStatesDeleting(NamedTuple):
    """All state of a share group will be deleted, before the group is deleted. Not a timer,
    either.
    """

    group_id: str


class ShareStatesDeleted(NamedTuple):
    """The share coordinator has deleted the state of these topics, of all that it was asked to
    delete. Not a timer, either.
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
    """Set or replace the timer ``key``: it fires ``event`` after ``delay_ms``. Without an event,
    cancel it.
    """

    key: TimerKey
    delay_ms: int
    event: TimerEvent | None
    only_if_absent: bool = False
    """Whether a timer with this key stays if one is set."""


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
    """Whether an interval is over, by the wall clock. It is also over if ``since_ms`` is in the
    future: then the clock was set back, or the clock of the broker that noted the time is ahead.
    """
    return not since_ms <= now_ms < since_ms + interval_ms
